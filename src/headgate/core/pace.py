"""How many calls may start now: a bucket whose refill may change at any moment.

    burst ----------------  full: that many may start at once, after a rest
        1 ----------------  a call may start
        0 ----------------
          debt              a cost above the burst was taken

It can be shut until an instant; what accrues until then is one call at most, so what was held
back is never made up for in a rush. Overflow is lost, with one exception: what a waiter was
served late by, because a timer fired late or a loop was busy, is kept for a moment.
"""

from __future__ import annotations

from .bucket import CATCH_UP
from .decision import LONGEST_WAIT, NEVER, UNKNOWN

INSTANT = 1e-6
"""Waits below a microsecond are not worth a timer, and may be rounding."""


class Pace:
    __slots__ = ("burst", "filled_at", "late_until", "rate", "shut", "tokens", "waited_for")

    def __init__(self, burst: float, rate: float) -> None:
        self.burst = burst
        self.rate = rate
        self.tokens = burst
        """Calls that may start at once; below 0 is debt."""
        self.filled_at = NEVER
        self.shut = False
        self.waited_for = False
        """Whether somebody stands in line: then being late is made up for."""
        self.late_until = NEVER
        """... and until when it still is, after the last one was served."""

    def level(self, now: float) -> float:
        """Bring the bucket up to now; returns what it holds."""
        if now > self.filled_at:
            tokens = self.tokens + (now - max(self.filled_at, now - LONGEST_WAIT)) * self.rate
            self.tokens = tokens if tokens <= self.burst else self.brim(tokens, now)
            self.filled_at = now
        return self.tokens

    def brim(self, tokens: float, now: float) -> float:
        """What is left of an overflowing bucket."""
        if now < self.late_until or (self.waited_for and self.tokens < 1.0):
            return min(tokens, self.burst + CATCH_UP * self.rate)
        return self.burst

    def holds_at(self, calls: float, now: float) -> float:
        """The instant at which the bucket holds that many calls; ``now`` if it does."""
        missing = calls - self.level(now)
        return max(now, self.filled_at) + missing / self.rate if missing > INSTANT * self.rate else now

    def give_back(self, calls: float) -> None:
        """Calls that were not made after all. A full bucket stays full, a shut one has one ready at most."""
        brim = 1.0 if self.shut else self.burst
        if self.tokens < brim:
            self.tokens = min(brim, self.tokens + calls)

    def shut_until(self, instant: float, now: float) -> None:
        """Nothing starts before that instant."""
        if self.filled_at != instant:
            tokens = self.level(now)
            self.tokens = min(tokens + max(0.0, instant - max(now, self.filled_at)) * self.rate, 1.0)
            self.filled_at = instant
        self.shut = True

    def reopen(self, now: float) -> None:
        """The wait is over, perhaps sooner than was said."""
        self.shut = False
        self.filled_at = min(self.filled_at, now)

    def is_served_late(self, is_late: bool, now: float) -> None:
        """Whether a waiter's turn has come that it has yet to take."""
        if is_late:
            self.late_until = UNKNOWN
        elif self.late_until == UNKNOWN:
            self.late_until = now

    def is_late(self, now: float) -> bool:
        """Whether somebody waits, or did a moment ago: if it comes right back it loses nothing."""
        return self.waited_for or now < self.late_until
