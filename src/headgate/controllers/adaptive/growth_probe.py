"""Whether the quota has grown: the proof that a look, or a pace that creeps above it, waits for."""

from __future__ import annotations

from dataclasses import dataclass

from .call_history import CallHistory
from .estimator import QuotaEstimator
from .pace_curve import PaceCurve
from .state import Storable

PROOF = 3.0
"""Calls above what the quota accrued that prove it has grown, beside half a percent of error ..."""

ROUGH_PROOF = 0.15
"""... and so many seconds' worth more where the quota is a guess ..."""

UNKNOWN_DEPTH = 1.0
"""... or so many where nothing was refused for long, and a bucket may have been full."""

SINGLE_PROOF, LEAST_SINGLE_PROOF, PER_TRIP = 64.0, 8.0, 640.0
"""Calls in a row at a pace above the quota that prove it has grown, where nothing accrues: at most, at least, and for
each call of a trip, since what arrives early by a part of a trip is refused."""

LOG_PROOF, LOGS = 0.01, 2.0
"""The share by which a log must hold more than it did, beside a call; or so many times its length without a refusal."""

GRACE = 0.02
"""Seconds added to one and a half trips before a call that was not refused counts as let in."""


@dataclass(slots=True, eq=False, kw_only=True)
class GrowthProbe(Storable):
    """Tell whether the quota has grown, from calls that went through and should not have.

    From one refusal on a quota accrues evenly. If more was let in since than it accrued, unrefused, it
    is larger than it was measured: that is a proof, and it takes a handful of calls.
    """

    since_at: float = 0.0
    """When the look, or the search upwards, began."""
    since_seq: int = 0
    """The last call sent before it."""

    def begin(self, seq: int, now: float) -> None:
        self.since_at, self.since_seq = now, seq

    def surplus(self, curve: PaceCurve, history: CallHistory, seq: int, sent_at: float) -> float:
        """Calls let in since the look began, up to call ``seq``, above what the quota accrued."""
        return history.accepted_calls(self.since_seq, seq) - curve.quota * (sent_at - self.since_at)

    def has_proof(
        self,
        curve: PaceCurve,
        estimator: QuotaEstimator,
        history: CallHistory,
        trip: float,
        now: float,
        single: bool = False,
    ) -> bool:
        """Whether a quick look has shown that the quota has grown.

        Where ``single`` calls are let in, nothing accrues: above the quota the next call or two would be refused.
        """
        known_at = now - 1.5 * trip - GRACE
        if known_at < self.since_at:
            return False
        known_seq = history.sends.seq_at(known_at)
        if curve.log:
            held = history.accepted_calls(history.sends.seq_at(known_at - curve.log), known_seq)
            return held > (1.0 + LOG_PROOF) * curve.log_calls + 1.0 or known_at - self.since_at > LOGS * curve.log
        if single:
            needed = min(SINGLE_PROOF, max(LEAST_SINGLE_PROOF, PER_TRIP * curve.quota * trip))
            return known_seq - self.since_seq > needed
        needed = PROOF + 0.5 * curve.quota * min(estimator.lost, 1.0)
        if estimator.started:
            calls = estimator.calls(history, known_seq)
            surplus = calls - curve.quota * estimator.accrued(known_at)
            needed += max(PROOF, ROUGH_PROOF * curve.quota) if curve.rough else 0.0
        else:
            calls = history.accepted_calls(self.since_seq, known_seq)
            surplus = calls - curve.quota * (known_at - self.since_at)
            needed += UNKNOWN_DEPTH * curve.quota
        return surplus > needed + 0.005 * calls

    def has_slow_proof(self, curve: PaceCurve, estimator: QuotaEstimator, history: CallHistory, now: float) -> bool:
        """The same without a quick look, for a curve that creeps above its quota."""
        way = curve.age / curve.half - 1.0
        if curve.window:
            if way < 0.5 * curve.window / curve.half:
                return False
            full = curve.quota * curve.window * (1.0 + 0.6 * curve.swing)
            return history.accepted(now - curve.window, now) > full + min(PROOF, 1.0 + 0.03 * full)
        surplus = curve.swing * curve.quota * curve.half * (way**4 - 1.0) / 4.0
        needed = max(2.0 * PROOF, ROUGH_PROOF * curve.quota) + curve.quota * min(estimator.silence, 1.0)
        return way > 1.2 and (way > 3.0 or surplus > needed)
