"""One call under several keys: let through under all of them or none."""

from __future__ import annotations

import asyncio
import random

import pytest

from headgate import AdaptiveRateLimiter, CircuitOpenError, ConfigError, RateLimitConfig, Signal, WaitTooLongError
from headgate.core.decision import Outcome
from headgate.lab.virtual_time import LoopClock, VirtualClock, run

SETTINGS = RateLimitConfig(
    strategy="fixed",
    initial_rps=100,
    token_bucket_capacity=10,
    overrides={"slow": RateLimitConfig(strategy="fixed", initial_rps=1, token_bucket_capacity=1)},
)


def entries(limiter: AdaptiveRateLimiter) -> dict[str, tuple[float, int]]:
    return {entry.key: (entry.tokens, entry.in_flight) for entry in limiter.snapshot().keys}


def test_a_call_takes_from_all_keys_and_an_abandoned_one_gives_back_to_all() -> None:
    limiter = AdaptiveRateLimiter(SETTINGS, clock=VirtualClock(1000.0))
    permit = limiter.acquire("org", also=["model", "project", "org"])
    assert entries(limiter) == {"org": (9.0, 1), "model": (9.0, 1), "project": (9.0, 1)}
    permit.abandon()
    permit.abandon()
    assert entries(limiter) == {"org": (10.0, 0), "model": (10.0, 0), "project": (10.0, 0)}


def test_the_slowest_key_decides_and_a_waiting_call_takes_from_none() -> None:
    async def main(clock: LoopClock) -> None:
        limiter = AdaptiveRateLimiter(SETTINGS, clock=clock)
        await limiter.acquire_async("slow")
        waiter = asyncio.create_task(limiter.acquire_async("fast", also=["slow"]))
        await asyncio.sleep(0.5)
        assert entries(limiter)["fast"] == (10.0, 0)
        assert limiter.try_acquire("other", also=["slow"]) is None
        permit = await waiter
        assert (permit.key, permit.waited) == ("fast", 1.0)

    run(main)


def test_callers_with_crossing_keys_all_get_through_in_order() -> None:
    async def main(clock: LoopClock) -> list[int]:
        limiter = AdaptiveRateLimiter(
            RateLimitConfig(strategy="fixed", initial_rps=10, token_bucket_capacity=1), clock=clock
        )
        order: list[int] = []

        async def caller(number: int) -> None:
            first, second = ("a", "b") if number % 2 else ("b", "a")
            await limiter.acquire_async(first, also=[second])
            order.append(number)

        await asyncio.gather(*(caller(number) for number in range(20)))
        return order

    assert run(main) == list(range(20))


def test_a_line_behind_a_joint_call_moves_on_when_it_is_cancelled() -> None:
    async def main(clock: LoopClock) -> float:
        limiter = AdaptiveRateLimiter(SETTINGS, clock=clock)
        await limiter.acquire_async("slow")
        joint = asyncio.create_task(limiter.acquire_async("fast", also=["slow"]))
        await asyncio.sleep(0)
        behind = asyncio.create_task(limiter.acquire_async("fast"))
        await asyncio.sleep(0.25)
        joint.cancel()
        return (await behind).waited

    assert run(main) == 0.25


def test_an_open_circuit_of_one_key_refuses_the_call() -> None:
    limiter = AdaptiveRateLimiter(SETTINGS, clock=VirtualClock(1000.0))
    for _ in range(5):
        limiter.acquire("sick").report(status_code=500)
    with pytest.raises(CircuitOpenError, match=r"^sick: "):
        limiter.acquire("well", also=["sick"])
    assert entries(limiter)["well"] == (10.0, 0)


@pytest.mark.parametrize(("scope", "blamed"), [(None, "org"), ("gpt-4o", "openai/gpt-4o")])
def test_the_outcome_goes_to_the_key_that_it_names_else_to_the_first(scope: str | None, blamed: str) -> None:
    limiter = AdaptiveRateLimiter(SETTINGS, clock=VirtualClock(1000.0), rng=random.Random(1))
    permit = limiter.acquire("org", also=["openai/gpt-4o"])
    permit.report(Signal(outcome=Outcome.RATE_LIMITED, retry_after=30.0, scope=scope))
    waiting = [entry.key for entry in limiter.snapshot().keys if entry.not_before_ms > 0]
    assert waiting == [blamed]
    assert all(in_flight == 0 for _, in_flight in entries(limiter).values())


def test_too_many_keys_at_once_are_refused_by_name() -> None:
    limiter = AdaptiveRateLimiter(SETTINGS, clock=VirtualClock(1000.0))
    with pytest.raises(ConfigError, match="also="):
        limiter.acquire("org", also=[f"key {number}" for number in range(40)])


def test_a_refusal_says_once_how_long_to_wait() -> None:
    limiter = AdaptiveRateLimiter(RateLimitConfig(limits={"requests": "1/min"}), clock=VirtualClock(1000.0))
    limiter.acquire("api").report(status_code=200)
    with pytest.raises(WaitTooLongError) as refusal:
        limiter.acquire("api", max_wait=1.0)
    assert str(refusal.value) == (
        "api: the wait would be too long: waiting for the known limit of 1 requests per 60 s; try again in 60.0 s"
    )
