"""Ways in which a line could have stopped moving, or a permit gone astray."""

from __future__ import annotations

import asyncio

import pytest

from headgate import (
    AdaptiveRateLimiter,
    Controller,
    Feedback,
    RateLimitConfig,
    Signal,
    TooManyKeysError,
    WaitTooLongError,
)
from headgate.core.policy import Ticket
from headgate.lab.virtual_time import LoopClock, VirtualClock, run


def test_a_call_under_two_keys_does_not_evict_its_own_first_key() -> None:
    limiter = AdaptiveRateLimiter(RateLimitConfig(max_keys=1), clock=VirtualClock(100.0))
    with pytest.raises(TooManyKeysError, match="max_keys=1"):
        limiter.acquire("first", also=["second"])
    limiter.acquire("second").report(status_code=200)


def test_whoever_is_told_that_the_wait_became_too_long_leaves_its_other_lines_moving() -> None:
    async def main(clock: LoopClock) -> float:
        slow = RateLimitConfig(strategy="fixed", initial_rps=1, token_bucket_capacity=1)
        limiter = AdaptiveRateLimiter(slow, clock=clock)
        for key in ("a", "b"):
            await limiter.acquire_async(key)
        ahead = asyncio.create_task(limiter.acquire_async("a"))
        await asyncio.sleep(0)
        joint = asyncio.create_task(limiter.acquire_async("a", also=["b"], max_wait=5.0))
        await asyncio.sleep(0)
        behind = asyncio.create_task(limiter.acquire_async("b"))
        await asyncio.sleep(0.1)
        limiter.feedback("a", Feedback(status_code=429, retry_after=50))
        with pytest.raises(WaitTooLongError):
            await joint
        ahead.cancel()
        return (await behind).sent_at

    assert run(main) == pytest.approx(1.0)


def test_a_strategy_that_raises_fails_the_call_that_asked_and_nobody_behind_it() -> None:
    class Moody(Controller):
        watches_sends = True

        def __init__(self, config: RateLimitConfig) -> None:
            self.rate = 10.0
            self.sends = 0

        def on_send(self, ticket: Ticket, now: float) -> None:
            self.sends += 1
            if self.sends == 2:
                raise ZeroDivisionError("moody")

        def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
            return 0.0

    async def main(clock: LoopClock) -> list[object]:
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy=Moody, token_bucket_capacity=1), clock=clock)
        return await asyncio.gather(*(limiter.acquire_async("api") for _ in range(4)), return_exceptions=True)

    failed = [isinstance(outcome, ZeroDivisionError) for outcome in run(main)]
    assert failed == [False, True, False, False]


def test_the_keys_of_a_call_are_read_before_the_lock_is_taken() -> None:
    limiter = AdaptiveRateLimiter(clock=VirtualClock(100.0))

    def keys() -> object:
        yield from (entry.key for entry in limiter.snapshot().keys)
        yield "other"

    limiter.acquire("api", also=keys())  # type: ignore[arg-type]
    assert sorted(entry.key for entry in limiter.snapshot().keys) == ["api", "other"]
