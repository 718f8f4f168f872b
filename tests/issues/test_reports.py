"""Answers that were heard wrongly, or not at all."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from headgate import AdaptiveRateLimiter, Controller, Feedback, Outcome, RateLimitConfig, Signal, WaitTooLongError
from headgate.core.policy import Ticket
from headgate.lab.virtual_time import LoopClock, VirtualClock, run

AIMD = RateLimitConfig(strategy="aimd", initial_rps=16.0)


def test_a_cost_alone_means_success() -> None:
    limiter = AdaptiveRateLimiter(RateLimitConfig(limits={"tokens": "6000/min"}), clock=VirtualClock(100.0))
    assert limiter.acquire("api", cost={"tokens": 600}).report(cost={"tokens": 10}) is Outcome.OK
    assert limiter.snapshot().keys[0].in_flight == 0


def test_refusals_fed_back_one_after_the_other_without_a_latency_are_one_burst() -> None:
    clock = VirtualClock(100.0)
    limiter = AdaptiveRateLimiter(AIMD, clock=clock)
    for _ in range(4):
        limiter.feedback("api", Feedback(status_code=429))
        clock.advance(0.01)
    assert limiter.snapshot().keys[0].rate == 8.0
    clock.advance(1.0)
    limiter.feedback("api", Feedback(status_code=429))
    assert limiter.snapshot().keys[0].rate == 4.0


def test_the_rate_that_is_shown_is_halved_by_a_refusal_that_asks_for_a_pause_too() -> None:
    limiter = AdaptiveRateLimiter(AIMD, clock=VirtualClock(100.0))
    limiter.acquire("api").report(status_code=429, retry_after=30)
    assert limiter.snapshot().keys[0].rate == 8.0


def test_a_strategy_that_fails_on_an_answer_does_not_lose_the_pause_it_asks_for() -> None:
    class Failing(Controller):
        rate = 5.0

        def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
            raise ZeroDivisionError

    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy=Failing()), clock=VirtualClock(100.0))
    with pytest.raises(ZeroDivisionError):
        limiter.acquire("api").report(status_code=429, retry_after=30)
    assert limiter.snapshot().keys[0].not_before_ms >= 30_000


def test_an_object_as_strategy_is_copied_for_each_key() -> None:
    class Counting(Controller):
        def __init__(self) -> None:
            self.rate = 5.0

        def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
            self.rate += 1.0
            return 0.0

    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy=Counting()), clock=VirtualClock(100.0))
    limiter.acquire("a").report(status_code=200)
    limiter.acquire("b")
    assert {entry.key: entry.rate for entry in limiter.snapshot().keys} == {"a": 6.0, "b": 5.0}


def test_refusals_from_the_line_are_counted_and_told() -> None:
    told: list[str] = []

    async def main(clock: LoopClock) -> int:
        config = RateLimitConfig(strategy="fixed", initial_rps=1, token_bucket_capacity=1)
        limiter = AdaptiveRateLimiter(config, clock=clock, on_event=lambda event: told.append(event.kind))
        await limiter.acquire_async("api")
        line = [asyncio.create_task(limiter.acquire_async("api", max_wait=9)) for _ in range(3)]
        await asyncio.sleep(0.1)
        limiter.feedback("api", Feedback(status_code=429, retry_after=60))
        refusals = await asyncio.gather(*line, return_exceptions=True)
        assert all(isinstance(refusal, WaitTooLongError) for refusal in refusals)
        return limiter.snapshot().denied

    assert run(main) == 3
    assert told.count("refused") == 3


def test_a_call_that_cost_more_than_was_reserved_moves_the_promises_of_those_in_line() -> None:
    async def main(clock: LoopClock) -> tuple[float, float | None]:
        config = RateLimitConfig(strategy="fixed", initial_rps=1e6, limits={"tokens": "6000/min"})
        limiter = AdaptiveRateLimiter(config, clock=clock)
        first = await limiter.acquire_async("api", cost={"tokens": 600})
        waiter = asyncio.create_task(limiter.acquire_async("api", cost={"tokens": 100}, max_wait=2.0))
        await asyncio.sleep(0.1)
        first.report(status_code=200, cost={"tokens": 5000})
        with pytest.raises(WaitTooLongError) as refusal:
            await waiter
        return clock.now(), refusal.value.retry_after

    at, retry_after = run(main)
    assert at == pytest.approx(0.1)
    assert retry_after == pytest.approx(4500 / 90, rel=0.1)


def test_a_loop_that_hangs_at_the_head_of_the_line_does_not_hold_up_a_thread() -> None:
    """Real time: the loop is busy until the thread has had its turn, which comes after a fifth of a second."""
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=10, token_bucket_capacity=1))
    limiter.acquire("api")
    served = threading.Event()

    def thread() -> None:
        limiter.acquire("api")
        served.set()

    async def main() -> None:
        head = asyncio.create_task(limiter.acquire_async("api"))
        await asyncio.sleep(0.01)
        behind = threading.Thread(target=thread)
        behind.start()
        while limiter.snapshot().keys[0].waiters < 2:
            await asyncio.sleep(0.001)
        in_time = served.wait(20)
        await head
        behind.join()
        assert in_time

    asyncio.run(main())


def test_threads_with_a_clock_of_their_own_are_served_one_after_the_other() -> None:
    """Real time, on a clock that is not the limiter's own."""

    class Homemade:
        now, wall, sleep = staticmethod(time.monotonic), staticmethod(time.time), staticmethod(time.sleep)

        async def sleep_async(self, seconds: float) -> None:
            await asyncio.sleep(seconds)

    config = RateLimitConfig(strategy="fixed", initial_rps=20, token_bucket_capacity=1)
    limiter = AdaptiveRateLimiter(config, clock=Homemade())
    limiter.acquire("api")
    waits: list[float] = []
    threads = [
        threading.Thread(target=lambda: waits.append(limiter.acquire("api", max_wait=60).waited)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(waits) == 4
    assert max(waits) < 30.0
