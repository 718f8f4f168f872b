"""The peers' rate limiters: how each is built, and one shape to ask them all in.

Settings are the ones kindest to the peer that its documentation offers for the task; waits and
poll intervals are its own. A limiter without a waiting call (hyx, limits) is polled every
millisecond, which is what its user would have to write.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bench.contenders import ours

SyncAcquire = Callable[[], object]
AsyncAcquire = Callable[[str, int], Coroutine[Any, Any, object]]

POLL = 0.001
LONGEST_WAIT = 3600.0
NEVER_BINDS = 10**9


def botocore_bucket(rate: float) -> Any:
    """The bucket of botocore's adaptive mode; its capacity is always one second of the rate."""
    from botocore.retries.bucket import Clock, TokenBucket

    return TokenBucket(max_rate=rate, clock=Clock())


class NothingThrottles:
    """Stands in for botocore's search of an AWS answer for signs of throttling."""

    def is_throttling_error(self, **_answer: object) -> bool:
        return False


def botocore_adaptive(*, looks_for_throttling: bool) -> Any:
    """botocore's adaptive client limiter, switched on as after a first throttling, with a rate that never binds."""
    from botocore.retries import adaptive, bucket, standard, throttling

    clock = bucket.Clock()
    detector = standard.ThrottlingErrorDetector(retry_event_adapter=standard.RetryEventAdapter())
    rate_clocker = adaptive.RateClocker(clock)
    rate_clocker._measured_rate = 1.0
    limiter = adaptive.ClientRateLimiter(
        rate_adjustor=throttling.CubicCalculator(starting_max_rate=NEVER_BINDS, start_time=clock.current_time()),
        rate_clocker=rate_clocker,
        token_bucket=bucket.TokenBucket(max_rate=NEVER_BINDS, clock=clock),
        throttling_detector=detector if looks_for_throttling else NothingThrottles(),
        clock=clock,
    )
    limiter._MAX_RATE_ADJUST_SCALE = NEVER_BINDS
    limiter._enabled = True
    return limiter


def throttled_quota(rate: float, burst: int) -> Any:
    from throttled import per_duration, per_sec

    return per_sec(int(rate), burst=burst) if rate >= 1 else per_duration(timedelta(seconds=1 / rate), 1, burst=burst)


def throttled_sync(rate: float, burst: int) -> Any:
    """GCRA: the fastest of its algorithms, and the only one finer than a whole second."""
    from throttled import MemoryStore, Throttled

    return Throttled(
        using="gcra", quota=throttled_quota(rate, burst), timeout=LONGEST_WAIT, store=MemoryStore(), key="api"
    )


def throttled_async(rate: float, burst: int) -> Any:
    from throttled.asyncio import MemoryStore, Throttled

    return Throttled(
        using="gcra", quota=throttled_quota(rate, burst), timeout=LONGEST_WAIT, store=MemoryStore(), key="api"
    )


def pyrate(rate: float, burst: int) -> Any:
    from pyrate_limiter import Limiter, Rate

    return Limiter(Rate(burst, max(1, round(burst / rate * 1000))))


def pyrate_per_key(rate: float, burst: int) -> Any:
    """pyrate's own recipe for many keys: a factory that keeps one bucket for each."""
    from pyrate_limiter import BucketFactory, InMemoryBucket, Limiter, MonotonicClock, Rate, RateItem

    class OneBucketPerKey(BucketFactory):
        def __init__(self) -> None:
            self.clock = MonotonicClock()
            self.buckets: dict[str, InMemoryBucket] = {}

        def wrap_item(self, name: str, weight: int = 1) -> RateItem:
            return RateItem(name, self.clock.now(), weight=weight)

        def get(self, item: RateItem) -> InMemoryBucket:
            if item.name not in self.buckets:
                self.buckets[item.name] = InMemoryBucket([Rate(burst, max(1, round(burst / rate * 1000)))])
            return self.buckets[item.name]

    return Limiter(OneBucketPerKey())


def steindamm_sync(key: str, rate: float, burst: float) -> Any:
    from steindamm import SyncTokenBucket

    return SyncTokenBucket.create(name=key, capacity=burst, refill_frequency=1 / rate, refill_amount=1, max_sleep=0)


def steindamm_async(key: str, rate: float, burst: float) -> Any:
    from steindamm import AsyncTokenBucket

    return AsyncTokenBucket.create(name=key, capacity=burst, refill_frequency=1 / rate, refill_amount=1, max_sleep=0)


def limits_fixed_window() -> Any:
    """The cheapest of its strategies."""
    from limits.storage import MemoryStorage
    from limits.strategies import FixedWindowRateLimiter

    return FixedWindowRateLimiter(MemoryStorage())


# One shape for the behaviour tests: ask for a rate and a burst, get a call that returns when granted.


def _botocore_waits(rate: float, burst: int) -> SyncAcquire:
    return botocore_bucket(rate).acquire


def _throttled_waits(rate: float, burst: int) -> SyncAcquire:
    return throttled_sync(rate, burst).limit


def _pyrate_waits(rate: float, burst: int) -> SyncAcquire:
    return pyrate(rate, burst).try_acquire


def _steindamm_waits(rate: float, burst: int) -> SyncAcquire:
    bucket = steindamm_sync("api", rate, burst)

    def acquire() -> None:
        with bucket:
            pass

    return acquire


def _limits_polled(rate: float, burst: int) -> SyncAcquire:
    from limits import RateLimitItemPerSecond

    limiter, limit = limits_fixed_window(), RateLimitItemPerSecond(int(rate))

    def acquire() -> None:
        while not limiter.hit(limit, "api"):
            time.sleep(POLL)

    return acquire


SYNC_LIMITERS: dict[str, Callable[[float, int], SyncAcquire]] = {
    ours.NAME: ours.sync_limiter,
    "botocore": _botocore_waits,
    "limits": _limits_polled,
    "pyrate": _pyrate_waits,
    "steindamm": _steindamm_waits,
    "throttled": _throttled_waits,
}


def _aiolimiter_awaited(rate: float, burst: int) -> AsyncAcquire:
    from aiolimiter import AsyncLimiter

    limiter = AsyncLimiter(burst, burst / rate)
    return lambda _key, cost: limiter.acquire(cost)


def _hyx_polled(rate: float, burst: int) -> AsyncAcquire:
    from hyx.ratelimit import TokenBucketLimiter
    from hyx.ratelimit.exceptions import RateLimitExceeded

    limiter = TokenBucketLimiter(rate, 1, bucket_size=burst)

    async def acquire(_key: str, _cost: int) -> None:
        while True:
            try:
                return await limiter.acquire()
            except RateLimitExceeded:
                await asyncio.sleep(POLL)

    return acquire


def _pyrate_awaited(rate: float, burst: int) -> AsyncAcquire:
    return pyrate_per_key(rate, burst).try_acquire_async


def _steindamm_awaited(rate: float, burst: int) -> AsyncAcquire:
    buckets: dict[str, Any] = {}

    async def acquire(key: str, cost: int) -> None:
        if key not in buckets:
            buckets[key] = steindamm_async(key, rate, burst)
        async with buckets[key](cost):
            pass

    return acquire


def _throttled_awaited(rate: float, burst: int) -> AsyncAcquire:
    return throttled_async(rate, burst).limit


ASYNC_LIMITERS: dict[str, Callable[[float, int], AsyncAcquire]] = {
    ours.NAME: ours.async_limiter,
    "aiolimiter": _aiolimiter_awaited,
    "hyx": _hyx_polled,
    "pyrate": _pyrate_awaited,
    "steindamm": _steindamm_awaited,
    "throttled": _throttled_awaited,
}


# -- asked for thousands of units at a time: a million tokens a minute
# ``room`` is what a limiter grants from rest without waiting. A peer's is the whole minute's worth; Headgate's is a
# tenth of it, so that no window of a minute can ever hold more than its limit.

PER_MINUTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Budget:
    room: int
    make: Callable[[], Callable[[int], object]]


def _limits_budget() -> Callable[[int], object]:
    from limits import RateLimitItemPerMinute
    from limits.storage import MemoryStorage
    from limits.strategies import MovingWindowRateLimiter

    limiter, limit = MovingWindowRateLimiter(MemoryStorage()), RateLimitItemPerMinute(PER_MINUTE)
    return lambda cost: limiter.hit(limit, "api", cost=cost)


def _pyrate_budget() -> Callable[[int], object]:
    limiter = pyrate(PER_MINUTE / 60, PER_MINUTE)
    return lambda cost: limiter.try_acquire("api", cost)


def _throttled_budget() -> Callable[[int], object]:
    limiter = throttled_sync(PER_MINUTE / 60, PER_MINUTE)
    return lambda cost: limiter.limit("api", cost)


BUDGETS: dict[str, Budget] = {
    ours.NAME: Budget(PER_MINUTE // 10, lambda: ours.token_budget(PER_MINUTE)),
    "limits": Budget(PER_MINUTE, _limits_budget),
    "pyrate": Budget(PER_MINUTE, _pyrate_budget),
    "throttled": Budget(PER_MINUTE, _throttled_budget),
}
