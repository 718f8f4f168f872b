"""Limiters that are asked for thousands of units at a time: a million tokens a minute, shared out.

``room`` is what a limiter grants from rest without waiting. A peer's is the whole minute's worth;
Headgate's is a tenth of it, so that no window of a minute can ever hold more than its limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.contenders import limiters, ours

PER_MINUTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Budget:
    room: int
    make: Callable[[], Callable[[int], object]]


def _limits() -> Callable[[int], object]:
    from limits import RateLimitItemPerMinute
    from limits.storage import MemoryStorage
    from limits.strategies import MovingWindowRateLimiter

    limiter, limit = MovingWindowRateLimiter(MemoryStorage()), RateLimitItemPerMinute(PER_MINUTE)
    return lambda cost: limiter.hit(limit, "api", cost=cost)


def _pyrate() -> Callable[[int], object]:
    limiter = limiters.pyrate(PER_MINUTE / 60, PER_MINUTE)
    return lambda cost: limiter.try_acquire("api", cost)


def _throttled() -> Callable[[int], object]:
    limiter = limiters.throttled_sync(PER_MINUTE / 60, PER_MINUTE)
    return lambda cost: limiter.limit("api", cost)


BUDGETS: dict[str, Budget] = {
    ours.NAME: Budget(PER_MINUTE // 10, lambda: ours.token_budget(PER_MINUTE)),
    "limits": Budget(PER_MINUTE, _limits),
    "pyrate": Budget(PER_MINUTE, _pyrate),
    "throttled": Budget(PER_MINUTE, _throttled),
}
