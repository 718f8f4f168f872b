"""Headgate, in the shapes the tests ask for. Every use the benchmark makes of it is in this file."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

NAME = "headgate"
HUGE = 1e9
"""A rate and a burst that never bind."""


def limiter(rate: float, burst: float, strategy: str = "fixed", **settings: Any) -> Any:
    from headgate import AdaptiveRateLimiter, RateLimitConfig

    return AdaptiveRateLimiter(
        RateLimitConfig(strategy=strategy, initial_rps=rate, token_bucket_capacity=burst), **settings
    )


def unbound(strategy: str) -> dict[str, object]:
    """The names of a cost row's statement, on a limiter whose limit never binds."""
    gate = limiter(HUGE, HUGE, strategy)
    return {"acquire": gate.acquire, "acquire_async": gate.acquire_async}


def sync_limiter(rate: float, burst: int) -> Callable[[], object]:
    gate = limiter(rate, burst)
    return lambda: gate.acquire("api")


def async_limiter(rate: float, burst: int) -> Callable[[str, int], Coroutine[Any, Any, object]]:
    gate = limiter(rate, burst)
    return lambda key, cost: gate.acquire_async(key, cost=cost)


def token_budget(per_minute: int) -> Callable[[int], object]:
    from headgate import AdaptiveRateLimiter, RateLimitConfig

    gate = AdaptiveRateLimiter(
        RateLimitConfig(
            strategy="fixed", initial_rps=HUGE, token_bucket_capacity=HUGE, limits={"tokens": f"{per_minute}/min"}
        )
    )
    return lambda cost: gate.acquire("api", cost={"tokens": cost})


class SteppedClock:
    """Time that moves only when told to, so that ten idle seconds take none."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.at += seconds


def used_keys(keys: Sequence[str], strategy: str, calls: int, idle: float = 0.0) -> object:
    """A limiter on which every key has made so many calls, about one a second, and then rested while another went on.

    No two calls are alike: what is learned of a key must not be small only because nothing ever varied.
    """
    clock = SteppedClock()
    rng = random.Random(7)
    gate = limiter(HUGE, HUGE, strategy, clock=clock)
    for _ in range(calls):
        for key in keys:
            permit = gate.acquire(key)
            clock.at += rng.expovariate(len(keys))
            permit.report(status_code=200, latency=rng.lognormvariate(-1.0, 0.5))
    for _ in range(round(idle * 100)):
        gate.acquire("other.example").report(status_code=200, latency=0.1)
        clock.at += 0.01
    return gate


def circuit(failures: int, recovery: float) -> Any:
    from headgate import CircuitBreaker

    return CircuitBreaker("api", failure_threshold=failures, recovery_timeout=recovery)


def retries() -> dict[str, object]:
    """The names of a retry row's statement."""
    from headgate import async_retry_with_backoff, retry_with_backoff

    return {"retry": retry_with_backoff, "retry_async": async_retry_with_backoff}


def executor(strategy: str, time_budget: float) -> dict[str, object]:
    """The names of an executor row's statement, on a provider whose limit never binds."""
    from headgate.resilience import (
        ProviderResilienceConfig,
        ProviderResilienceManager,
        RateLimiterConfig,
        execute_with_resilience,
    )

    pace = RateLimiterConfig(requests_per_second=HUGE, burst_limit=int(HUGE), strategy=strategy, ceiling=False)
    return {
        "execute": execute_with_resilience,
        "manager": ProviderResilienceManager(),
        "config": ProviderResilienceConfig(rate_limiter=pace, time_budget=time_budget),
    }


def around_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """The whole executor, with its time budget, around one call."""
    names: dict[str, Any] = executor("adaptive", 60.0)

    async def call() -> Any:
        return await names["execute"](function, "api", manager=names["manager"], resilience_config=names["config"])

    return call
