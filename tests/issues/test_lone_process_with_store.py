"""A process that shares its quota with no other behaves as without a store, and a killed one spoils nothing."""

import asyncio
import random
from collections.abc import Callable

import pytest
from bench.delayed_store import DelayedStore

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.clock import Clock
from headgate.lab.virtual_time import run

pytestmark = pytest.mark.no_cover
KEY = "api.example.com"
SECONDS = 30.0
LONG = pytest.mark.chaos
REFUSED_AFTER = 0.01


class Bucket:
    """A server's quota: so many calls a second, so many at once."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst, self.level, self.at = rate, burst, burst, now

    def takes(self, now: float) -> bool:
        self.level = min(self.burst, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level < 1:
            return False
        self.level -= 1
        return True

    def headers(self, now: float) -> dict[str, str]:
        return {}


class Window(Bucket):
    """So many calls in each second, and headers that say so."""

    def takes(self, now: float) -> bool:
        if now // 1.0 != self.at // 1.0:
            self.level = self.burst
        self.at = now
        self.level -= 1
        return self.level >= 0

    def headers(self, now: float) -> dict[str, str]:
        return {
            "x-ratelimit-limit": f"{self.burst:.0f}",
            "x-ratelimit-remaining": f"{max(0.0, self.level):.0f}",
            "x-ratelimit-reset": f"{1.0 - now % 1.0:.3f}",
        }


class Process:
    """A limiter with tasks that call a server without a pause."""

    def __init__(
        self,
        clock: Clock,
        store: DelayedStore | None,
        server: Bucket,
        latency: float,
        config: RateLimitConfig,
        seed: int = 1,
    ):
        self.clock, self.server, self.latency = clock, server, latency
        self.limiter = AdaptiveRateLimiter(config, clock=clock, rng=random.Random(seed), store=store)
        self.done: list[float] = []
        tasks = 3 * int(min(server.rate, 104.0) * latency + 4)
        self.tasks = [asyncio.create_task(self.work()) for _ in range(tasks)]

    async def work(self) -> None:
        while True:
            with await self.limiter.acquire_async(KEY) as permit:
                at = self.clock.now()
                taken, headers = self.server.takes(at), self.server.headers(at)
                await self.clock.sleep_async(self.latency if taken else REFUSED_AFTER)
                self.done += [at] if taken else []
                permit.report(status_code=200 if taken else 429, headers=headers)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def a_store(clock: Clock) -> DelayedStore:
    return DelayedStore(clock, random.Random(2), delay=lambda rng: rng.uniform(0.0002, 0.0006))


def done(
    server: Callable[[float], Bucket],
    latency: float,
    config: RateLimitConfig,
    *,
    shared: bool,
    reached: bool = True,
    seconds: float = SECONDS,
    seed: int = 1,
) -> int:
    async def main(clock: Clock) -> int:
        store = a_store(clock) if shared else None
        if store is not None:
            store.is_down = not reached
        process = Process(clock, store, server(clock.now()), latency, config, seed)
        await clock.sleep_async(seconds)
        await process.end()
        if store is not None:
            await store.finish()
        return len(process.done)

    return run(main, start=1000.0)


@pytest.mark.parametrize("latency", [0.1, pytest.param(3.0, marks=LONG)])
@pytest.mark.parametrize(
    ("server", "config"),
    [
        (lambda now: Bucket(20.0, 20.0, now), RateLimitConfig()),
        (lambda now: Window(20.0, 20.0, now), RateLimitConfig()),
        (lambda now: Bucket(1e6, 1e6, now), RateLimitConfig(strategy="fixed", limits={"requests": "20/s"})),
        (lambda now: Bucket(1e6, 1e6, now), RateLimitConfig(limits={"requests": "600/min"})),
    ],
    ids=["silent", "headers", "small limit", "limit"],
)
def test_a_store_costs_a_lone_process_nothing(
    server: Callable[[float], Bucket], config: RateLimitConfig, latency: float
) -> None:
    seconds = max(SECONDS, 80.0 * latency)  # one refusal more while the pace is sought decides half a minute ...
    seeds = (1,) if latency < 1.0 else (1, 101, 201, 301, 401, 501)  # ... or how soon a wrong cap is let go

    def total(shared: bool) -> int:
        return sum(done(server, latency, config, shared=shared, seconds=seconds, seed=seed) for seed in seeds)

    assert total(True) >= 0.98 * total(False)


@pytest.mark.parametrize(
    "limits",
    [{}, pytest.param({"requests": "50/s"}, marks=LONG), {"requests": "600/min"}],
    ids=["none", "small", "large"],
)
def test_so_does_one_that_was_never_reached(limits: dict[str, str]) -> None:
    config = RateLimitConfig(limits=limits)
    without, beside = (
        done(lambda now: Bucket(104.0, 20.0, now), 0.1, config, shared=shared, reached=False, seconds=60.0)
        for shared in (False, True)
    )
    assert beside >= 0.98 * without


@pytest.mark.parametrize(
    ("latency", "away"),
    [
        (0.05, 0.2),
        (0.05, 60.0),
        pytest.param(0.05, 5.0, marks=LONG),
        *(pytest.param(3.0, away, marks=LONG) for away in (0.2, 5.0, 60.0)),
    ],
)
def test_starts_that_are_killed_do_not_spoil_what_was_learned(latency: float, away: float) -> None:
    async def main(clock: Clock) -> list[float]:
        store, server, rates = a_store(clock), Bucket(104.0, 20.0, clock.now()), []
        for seconds in (40.0, 1.5, 1.5, 1.5, 1.5):
            process = Process(clock, store, server, latency, RateLimitConfig())
            await clock.sleep_async(seconds)
            await store.finish()  # it is not heard of any more
            await process.end()
            (coordinator,) = store.snapshot()
            rates.append(coordinator.rate)
            await clock.sleep_async(away)
        return rates

    learned, *after = run(main, start=1000.0)
    assert learned == pytest.approx(104.0, rel=0.05)
    assert min(after) > 0.85 * learned
