"""Tell whether the quota has grown, from calls that went through and should not have.

From one refusal on a quota accrues evenly. If more was let in since than it accrued, unrefused, it
is larger than it was measured: that is a proof, and it takes a handful of calls.
"""

from __future__ import annotations

from .books import Books
from .estimator import Meter
from .growth import Curve
from .room import Room

PROOF = 3.0
"""Calls above what the quota accrued that prove it has grown, beside half a percent of error ..."""

ROUGH_PROOF = 0.15
"""... and so many seconds' worth more where the quota is a guess ..."""

UNKNOWN_DEPTH = 1.0
"""... or so many where nothing was refused for long, and a bucket may have been full."""

GRACE = 0.02
"""Seconds added to one and a half trips before a call that was not refused counts as let in."""


class Lookout(Room):
    __slots__ = ("since_at", "since_seq")

    def __init__(self) -> None:
        self.since_at, self.since_seq = 0.0, 0
        """When the look, or the search upwards, began."""

    def begin(self, seq: int, now: float) -> None:
        self.since_at, self.since_seq = now, seq

    def surplus(self, curve: Curve, books: Books, seq: int, sent_at: float) -> float:
        """Calls let in since the look began, up to call ``seq``, above what the quota accrued."""
        return books.accepted_calls(self.since_seq, seq) - curve.quota * (sent_at - self.since_at)

    def has_proof(self, curve: Curve, meter: Meter, books: Books, trip: float, now: float) -> bool:
        """Whether a quick look has shown that the quota has grown."""
        known_at = now - 1.5 * trip - GRACE
        if known_at < self.since_at:
            return False
        known_seq = books.sends.seq_at(known_at)
        needed = PROOF + 0.5 * curve.quota * min(meter.lost, 1.0)
        if meter.started:
            calls = books.accepted_calls(meter.since_seq, known_seq)
            surplus = calls - curve.quota * meter.accrued(known_at)
            needed += max(PROOF, ROUGH_PROOF * curve.quota) if curve.rough else 0.0
        else:
            calls = books.accepted_calls(self.since_seq, known_seq)
            surplus = calls - curve.quota * (known_at - self.since_at)
            needed += UNKNOWN_DEPTH * curve.quota
        return surplus > needed + 0.005 * calls

    def has_slow_proof(self, curve: Curve, meter: Meter, books: Books, now: float) -> bool:
        """The same without a quick look, for a curve that creeps above its quota."""
        way = curve.age / curve.half - 1.0
        if curve.window:
            if way < 0.5 * curve.window / curve.half:
                return False
            full = curve.quota * curve.window * (1.0 + 0.6 * curve.swing)
            return books.accepted(now - curve.window, now) > full + PROOF
        surplus = curve.swing * curve.quota * curve.half * (way**4 - 1.0) / 4.0
        needed = max(2.0 * PROOF, ROUGH_PROOF * curve.quota) + curve.quota * min(meter.silence, 1.0)
        return way > 1.2 and (way > 3.0 or surplus > needed)
