"""A caller is turned away early by what is known (a limit, a floor, a measured pace), never by a starting guess."""

from __future__ import annotations

import asyncio
import random

import pytest
from bench.delayed_store import DelayedStore

from headgate import (
    AdaptiveRateLimiter,
    Feedback,
    ProviderResilienceConfig,
    ProviderResilienceManager,
    RateLimitConfig,
    RateLimiterConfig,
    Refused,
    WaitTooLongError,
    execute_with_resilience,
    guarded,
)
from headgate.lab.virtual_time import LoopClock, run

CALLS = 200
LATENCY = 0.1


async def crowd(limiter: AdaptiveRateLimiter, clock: LoopClock, max_wait: float) -> list[float]:
    """Many calls at once; returns when those were refused that were."""
    began_at, refused = clock.now(), []

    async def call() -> None:
        try:
            permit = await limiter.acquire_async("api", max_wait=max_wait)
        except WaitTooLongError:
            refused.append(clock.now() - began_at)
            return
        await asyncio.sleep(LATENCY)
        permit.report(status_code=200)

    await asyncio.gather(*(call() for _ in range(CALLS)))
    return refused


def refused_by(config: RateLimitConfig, max_wait: float, *, shared: bool = False) -> list[float]:
    async def main(clock: LoopClock) -> list[float]:
        store = DelayedStore(clock, random.Random(1)) if shared else None
        limiter = AdaptiveRateLimiter(config, clock=clock, store=store)
        try:
            return await crowd(limiter, clock, max_wait)
        finally:
            limiter.close()

    return run(main)


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with a store"])
def test_nobody_is_refused_by_the_rate_that_a_key_starts_with(shared: bool) -> None:
    assert refused_by(RateLimitConfig(), 30.0, shared=shared) == []


def test_nor_by_a_process_that_has_found_itself_alone_at_its_store() -> None:
    async def main(clock: LoopClock) -> list[float]:
        limiter = AdaptiveRateLimiter(RateLimitConfig(), clock=clock, store=DelayedStore(clock, random.Random(1)))
        try:
            for _ in range(3):
                (await limiter.acquire_async("api")).report(status_code=200)
                await asyncio.sleep(1.0)
            return await crowd(limiter, clock, 30.0)
        finally:
            limiter.close()

    assert run(main) == []


@pytest.mark.parametrize("strategy", ["adaptive", "aimd", "gradient"])
def test_the_real_wait_is_bounded_all_the_same(strategy: str) -> None:
    refused = refused_by(RateLimitConfig(strategy=strategy), 2.0)
    assert refused == pytest.approx([2.0] * len(refused))
    assert refused


def test_what_is_configured_is_known() -> None:
    for config in (
        RateLimitConfig(strategy="fixed", initial_rps=2.0),
        RateLimitConfig(max_rps=2.0),
        RateLimitConfig(limits={"requests": "2/s"}),
    ):
        refused = refused_by(config, 30.0)
        assert 100 < len(refused) < 150
        assert refused.count(0.0) >= len(refused) - 3  # but for those whose turn would be in the last moment


def test_a_ceiling_above_the_guess_refuses_those_who_could_not_come_even_at_the_ceiling() -> None:
    refused = refused_by(RateLimitConfig(max_rps=4.0), 30.0)
    assert 0 < sum(at == 0.0 for at in refused) < 100


def test_a_floor_is_known_before_any_pace_is() -> None:
    async def main(clock: LoopClock) -> float | None:
        limiter = AdaptiveRateLimiter(clock=clock, rng=random.Random(1))
        limiter.feedback("api", Feedback(status_code=503, retry_after=50))
        with pytest.raises(WaitTooLongError) as refusal:
            await limiter.acquire_async("api", max_wait=30)
        assert clock.now() == 0.0
        return refusal.value.retry_after

    told = run(main)
    assert told is not None
    assert told >= 50.0


def test_a_floor_of_one_key_counts_beside_the_guess_of_another() -> None:
    async def main(clock: LoopClock) -> None:
        limiter = AdaptiveRateLimiter(clock=clock, rng=random.Random(1))
        waiting = [asyncio.create_task(limiter.acquire_async("guessed")) for _ in range(CALLS)]
        await asyncio.sleep(0)
        limiter.feedback("told", Feedback(status_code=503, retry_after=50))
        with pytest.raises(WaitTooLongError):
            await limiter.acquire_async("guessed", also=["told"], max_wait=30)
        assert clock.now() == 0.0
        for task in waiting:
            task.cancel()

    run(main)


def test_a_measured_pace_is_known() -> None:
    """A server that takes five calls a second and says nothing but 429."""

    async def main(clock: LoopClock) -> float:
        limiter = AdaptiveRateLimiter(clock=clock, rng=random.Random(1))
        tokens, filled_at = 5.0, clock.now()

        async def caller() -> None:
            nonlocal tokens, filled_at
            while clock.now() < 60.0:
                permit = await limiter.acquire_async("api")
                tokens, filled_at = min(5.0, tokens + 5.0 * (clock.now() - filled_at)), clock.now()
                accepted = tokens >= 1.0
                tokens -= accepted
                await asyncio.sleep(LATENCY)
                permit.report(status_code=200 if accepted else 429)

        callers = [asyncio.create_task(caller()) for _ in range(100)]
        await asyncio.sleep(30.0)
        with pytest.raises(WaitTooLongError):
            await limiter.acquire_async("api", max_wait=1.0)
        at = clock.now()
        for task in callers:
            task.cancel()
        return at

    assert run(main) == 30.0


@pytest.mark.parametrize("settings", [{}, {"max_wait_seconds": 600.0}], ids=["defaults", "patient"])
def test_a_crowd_of_guarded_calls_is_served_with_default_settings(settings: dict[str, float]) -> None:
    async def main(clock: LoopClock) -> list[object]:
        manager = ProviderResilienceManager(clock=clock, rng=random.Random(1))

        @guarded("search", manager=manager, **settings)
        async def search(number: int) -> int:
            await asyncio.sleep(LATENCY)
            return number

        return await asyncio.gather(*(search(number) for number in range(CALLS)), return_exceptions=True)

    assert run(main) == list(range(CALLS))


def test_a_time_budget_refuses_at_once_what_is_known_to_be_too_late() -> None:
    slow = ProviderResilienceConfig(rate_limiter=RateLimiterConfig(1.0, 1, 600.0, strategy="fixed"))

    async def main(clock: LoopClock) -> list[float]:
        manager = ProviderResilienceManager(clock=clock, rng=random.Random(1))
        refused: list[float] = []

        async def call() -> None:
            async def answer() -> int:
                return 1

            try:
                await execute_with_resilience(
                    answer, "search", manager=manager, resilience_config=slow, time_budget=10.0
                )
            except Refused:
                refused.append(clock.now())

        await asyncio.gather(*(call() for _ in range(30)))
        return refused

    refused = run(main)
    assert 15 < len(refused) < 25
    assert refused.count(0.0) >= len(refused) - 1  # but for the one whose turn would be in the last moment
