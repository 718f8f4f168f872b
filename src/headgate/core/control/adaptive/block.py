"""Nothing gets in any more: hold still, probe with one call, and learn from how long it lasted.

    refused ----> hold ----> one probe ----> let in, or no refusal in time: go on
                    ^            |
                    +-- refused: hold longer

A refusal comes back within a round trip and an answer may take long, so a probe that was
not refused in time was let in. A short block is an empty bucket. A long one is a window
that had to turn: what was let in from one turn to the next is its quota, and turns.py keeps
step with it. Blocks of equal length whose rates differ are no windows, but a penalty.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

from .growth import Curve
from .room import Room
from .turns import Turns

SHORTEST_HOLD = 0.2
FIRST_HOLD, FEW_CALLS = 1.0, 8
"""Refused after less than so many calls in all: this may be slow, hold longer."""

LONGER = 0.6
"""The next probe waits for this share of the time that has passed since the block began."""

LONGEST_HOLD = 8.0
"""Seconds between two probes at most, unless the server asks for more."""

PROBE_GRACE = 0.02
"""Seconds added to three round trips before a silent probe counts as let in."""

PLAIN = 20.0
"""Calls accepted just before a block that make it worth a lesson, unless it was very long."""

VERY_LONG = 10.0

LATELY, LIKELY_BURST = 1.5, 1.0
"""Seconds before a block that count as lately, and how many of them may owe what was let in to a burst."""

EQUAL, TOLD_EQUAL = 0.15, 0.03
"""Blocks are equally long within this share of their length; where the server says how long, more nearly so."""


class Block(Room):
    __slots__ = (
        "began_at",
        "began_seq",
        "busy_after",
        "busy_from",
        "holds",
        "last_length",
        "last_rate",
        "probe_at",
        "probe_seq",
        "refused_at",
        "reopened_at",
        "reopened_seq",
        "told",
        "turns",
    )

    def __init__(self, opened_at: float = 0.0) -> None:
        self.began_at = 0.0
        """When the last call before the silence was sent, and refused."""
        self.began_seq = 0
        self.refused_at = 0.0
        """When the last refused probe was sent."""
        self.holds = 0
        """Probes refused."""
        self.told = False
        """The server itself said how long (a Retry-After of seconds)."""
        self.probe_seq = 0
        """The call that probes, 0 while none is out."""
        self.probe_at = 0.0
        self.reopened_at = opened_at
        """When the last long block ended; before the first, when the key began."""
        self.reopened_seq = 0
        self.last_length = 0.0
        """The proven length of the last long block; 0 before the first."""
        self.last_rate = 0.0
        """Calls a second that were let in from the last one but one to the last."""
        self.busy_from, self.busy_after = opened_at, 0
        """When callers last began to wait for the pace, and after which call: what came before says nothing."""
        self.turns = Turns()

    def enter(self, seq: int, sent_at: float, told: bool, now: float, window: float) -> None:
        self.probe_seq = self.holds = 0
        self.told, self.refused_at = told, sent_at
        if not (self.last_length and now - self.reopened_at < 0.8 * window):
            self.began_at, self.began_seq = sent_at, seq  # else the old window is not over: the same block goes on

    def probe(self, seq: int, now: float) -> None:
        self.probe_seq, self.probe_at = seq, now

    def probe_refused(self, sent_at: float) -> None:
        self.probe_seq, self.refused_at = 0, sent_at
        self.holds += 1

    def hold(self, now: float, trip: float, curve: Curve) -> float:
        """Seconds until the next probe, where the server does not ask for more."""
        if self.turns.sure:
            return self.turns.hold(now, max(SHORTEST_HOLD, 2.0 * trip))
        slow = 2.0 / curve.sought_from if curve.sought_from else 0.0
        first = FIRST_HOLD if self.began_seq < FEW_CALLS else SHORTEST_HOLD
        wanted = max(first, 2.0 * trip, LONGER * (now - self.began_at), 0.02 * curve.window, slow)
        return min(wanted, LONGEST_HOLD)

    @property
    def length(self) -> float:
        return self.probe_at - self.began_at

    def is_lesson(self, accepted: Callable[[float, float], float]) -> bool:
        """Whether the block that just ended was long enough, and its cause plain enough, to teach."""
        length = self.length
        proven = (length > 1.0 and (self.holds >= 1 or self.told)) or (length > 0.4 and self.holds >= 2)
        return proven and (length > VERY_LONG or accepted(self.began_at - 2.0 * length, self.began_at) >= PLAIN)

    def teach(
        self, curve: Curve, calls: float, accepted: Callable[[float, float], float], sought: bool
    ) -> tuple[float, bool]:
        """Learn window and penalty; ``calls`` were accepted since the last lesson. Returns the quota, and if first.

        ``sought``: this has ended a search upwards, so only the window that was full tells.
        """
        length, first = self.length, not self.last_length
        proven = length - 1.0 if self.told else self.refused_at - self.began_at
        turned_at = self.probe_at - 0.5 if self.told else (self.refused_at + self.probe_at) / 2.0
        span = max(turned_at - self.reopened_at, 1e-3)
        self.turns.saw(turned_at, 0.5 if self.told else (self.probe_at - self.refused_at) / 2.0)
        horizon = 3.0 * max(length, self.turns.spacing if self.turns.sure else curve.window)
        since = max(self.reopened_at, self.busy_from, turned_at - horizon)
        if since > self.reopened_at and not first:  # what was long ago, or idle, says nothing
            short = turned_at - since < max(curve.window, 2.0 * length)
            known = max(curve.quota if curve.window else 0.0, calls / span)
            quota = known if short else accepted(since, turned_at) / (turned_at - since)
        else:
            quota = calls / span
        if sought and curve.window:
            quota = max(quota, accepted(turned_at - curve.window, turned_at) / curve.window)
        if first and length < 0.5 * span:  # the slow start pulls the average down
            quota = sqrt(quota * max(quota, accepted(self.began_at - length, self.began_at) / length))
        punished, curve.penalty = curve.penalty > 0.0, 0.0
        about = (TOLD_EQUAL if self.told else EQUAL) * length
        equal = not first and length >= 2.0 and abs(proven - self.last_length) < about
        agrees, self.last_rate = abs(quota - self.last_rate) < 0.15 * quota, quota
        if equal and (punished or not agrees) and not self.turns.sure:
            since = self.reopened_at if punished else max(self.began_at - LATELY, self.reopened_at)
            quota = max(quota, accepted(since, self.began_at) / (self.began_at - since + LIKELY_BURST))
            curve.penalty, curve.window = length, 0.0
        elif self.turns.sure:
            curve.window = self.turns.spacing
        else:
            curve.window = max(0.97 * curve.window, proven, min(span, 1.6 * proven))
        self.last_length = max(proven, 1e-9)
        self.reopened_at, self.reopened_seq = turned_at, self.probe_seq
        return quota, first
