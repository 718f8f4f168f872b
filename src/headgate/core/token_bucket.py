"""A token bucket whose refill rate may change at any moment.

    burst ----------------  full: that many may start at once, after a rest
        1 ----------------  a call may start
        0 ----------------
          debt              a cost above the burst was taken

It can be held until an instant; what accrues until then is one call at most, so what was held
back is never made up for in a rush. Overflow is lost, with one exception: what a waiter was
served late by, because a timer fired late or a loop was busy, is kept for a moment.
"""

from __future__ import annotations

from .decision import INSTANT, LONGEST_WAIT, NEVER, UNKNOWN
from .quota import CATCH_UP


class TokenBucket:
    __slots__ = ("burst", "filled_at", "has_waiters", "held", "late_until", "rate", "tokens")

    def __init__(self, burst: float, rate: float) -> None:
        self.burst = burst
        self.rate = rate
        self.tokens = burst
        """Calls that may start at once; below 0 is debt."""
        self.filled_at = NEVER
        self.held = False
        self.has_waiters = False
        """Whether callers wait: then being late is made up for."""
        self.late_until = NEVER
        """... and until when it still is, after the last one was served."""

    def try_take(self, now: float) -> bool:
        """Take one token if there is one."""
        tokens = self.tokens + (now - self.filled_at) * self.rate
        if tokens < 1.0:
            return False
        if tokens > self.burst:
            tokens = self.clamp(tokens, now) if now < self.late_until else self.burst
        self.tokens = tokens - 1.0
        self.filled_at = now
        return True

    def refill(self, now: float) -> float:
        """Bring the bucket up to now; returns what it holds."""
        if now > self.filled_at:
            tokens = self.tokens + (now - max(self.filled_at, now - LONGEST_WAIT)) * self.rate
            self.tokens = tokens if tokens <= self.burst else self.clamp(tokens, now)
            self.filled_at = now
        return self.tokens

    def clamp(self, tokens: float, now: float) -> float:
        """What is left of an overflowing bucket."""
        if now < self.late_until or (self.has_waiters and self.tokens < 1.0):
            return min(tokens, self.burst + CATCH_UP * self.rate)
        return self.burst

    def available_at(self, calls: float, now: float) -> float:
        """The instant at which the bucket holds that many calls; ``now`` if it does."""
        missing = calls - self.refill(now)
        return max(now, self.filled_at) + missing / self.rate if missing > INSTANT * self.rate else now

    def give_back(self, calls: float) -> None:
        """Calls that were not made after all. A full bucket stays full, a held one has one ready at most."""
        most = 1.0 if self.held else self.burst
        if self.tokens < most:
            self.tokens = min(most, self.tokens + calls)

    def skip(self, slots: float, now: float) -> None:
        """Start nothing for so many slots."""
        self.tokens = min(self.refill(now), 1.0 - slots)

    def hold(self, instant: float, now: float) -> None:
        """Nothing starts before that instant."""
        if self.filled_at != instant:
            tokens = self.refill(now)
            self.tokens = min(tokens + max(0.0, instant - max(now, self.filled_at)) * self.rate, 1.0)
            self.filled_at = instant
        self.held = True

    def reopen(self, now: float) -> None:
        """The hold is over, perhaps sooner than was said."""
        self.held = False
        self.filled_at = min(self.filled_at, now)

    def mark_late(self, is_late: bool, now: float) -> None:
        """Whether a waiter's turn has come that it has yet to take."""
        if is_late:
            self.late_until = UNKNOWN
        elif self.late_until == UNKNOWN:
            self.late_until = now

    def is_late(self, now: float) -> bool:
        """Whether callers wait, or did a moment ago: one that comes right back loses nothing."""
        return self.has_waiters or now < self.late_until
