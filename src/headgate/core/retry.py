"""Sending again: how long to wait first, and how many retries there may be.

    retry          1      2      3      4 ...         with Retry-After 30
    wait within  0..0.2  0..0.4  0..0.8  0..1.6 s      30..33 s

Full jitter (anything between nothing and the ceiling) spreads many callers best. What the server asks for is a floor:
it is applied last, jitter may only add to it, and no ceiling of ours cuts it short.

A ``RetryBudget`` bounds all retries of failures together, because retries that each look reasonable make an outage
worse when every client makes them.
Sending again after a 429 is paced by the gate and is no part of this budget.
"""

from __future__ import annotations

from math import isfinite

from .cooldown import above
from .decision import LONGEST_WAIT
from .rolling_stats import SlidingCounts

_MOST_DOUBLINGS = 1023


def delay(attempt: int, draw: float, *, base: float = 0.2, max_delay: float = 5.0, floor: float = 0.0) -> float:
    """Seconds to wait after attempt number ``attempt`` (from 1) failed; ``draw`` is uniform in [0, 1).

    Never below ``floor``, and above ``max_delay`` only for a floor's sake.
    """
    ceiling = min(max_delay, base * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS), LONGEST_WAIT)
    return max(draw * ceiling, above(floor, draw))


class RetryBudget:
    """Lets retries of failures through up to a share of the calls, and always a few.

    A retry may start if fewer than ``floor`` are out, or if retries, both those that are
    out and those of the last ``window`` seconds, stay within ``share`` of the first
    sendings of that time. Retries earn nothing: only first sendings do.
    """

    __slots__ = ("_recent", "floor", "in_flight", "share")

    def __init__(self, share: float = 0.2, floor: int = 3, window: float = 30.0) -> None:
        if not (isfinite(share) and share >= 0.0):
            raise ValueError(f"share={share!r} must be a number within [0, inf)")
        if floor < 0:
            raise ValueError(f"floor={floor!r} must be 0 or more")
        self.share = share
        self.floor = floor
        self.in_flight = 0
        """Retries that were taken and have not ended."""
        self._recent = SlidingCounts(window, window / 15)

    def called(self, now: float) -> None:
        """A call was sent for the first time."""
        self._recent.add(False, now)

    def take(self, now: float) -> bool:
        """Ask for one retry. If it is granted, ``ended`` must follow once, however it ends."""
        if not self.allows(now):
            return False
        self.in_flight += 1
        self._recent.add(True, now)
        return True

    def ended(self) -> None:
        """A retry that was taken is over."""
        self.in_flight = max(0, self.in_flight - 1)

    def allows(self, now: float) -> bool:
        """Whether ``take`` would grant one now; asking takes nothing."""
        if self.in_flight < self.floor:
            return True
        retries = self._recent.errors(now)
        first = self._recent.total(now) - retries
        return max(self.in_flight, retries) + 1 <= self.share * first
