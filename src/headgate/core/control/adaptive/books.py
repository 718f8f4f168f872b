"""How many calls were let in: the one question every room asks, over instants or over ordinals."""

from __future__ import annotations

from .refusals import Refusals
from .room import Room
from .sendlog import SendLog

LATELY = 3.0
"""Seconds that make "lately"; at a slow pace, the time of a dozen calls."""


class Books(Room):
    __slots__ = ("refusals", "sends")

    def __init__(self, opened_at: float) -> None:
        self.sends = SendLog()
        self.sends.mark(opened_at, 0)
        self.refusals = Refusals()

    def accepted(self, since: float, until: float) -> float:
        """Calls sent between two instants and not refused; those still out count as accepted."""
        return self.accepted_calls(self.sends.seq_at(since), self.sends.seq_at(until))

    def accepted_calls(self, low: float, high: float) -> float:
        """The same by ordinals, exactly: after ``low``, up to ``high``."""
        return max(0.0, high - low - self.refusals.between(low, high))

    def lately(self, pace: float, now: float) -> float:
        """Calls a second that were let in during the last seconds."""
        span = max(LATELY, 12.0 / pace)
        return self.accepted(now - span, now) / min(span, max(now - self.sends.instants[0], 1.0))
