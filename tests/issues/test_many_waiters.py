"""A known limit holds where calls start, however many tasks wait and however busy their event loop is."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.lab.virtual_time import LoopClock, run
from headgate.limiter.wait_queue import QueuedCall, WaitQueue

FAST = 1e6
STEP = 5e-5
"""Seconds that each task keeps the event loop busy before it asks."""


def config(limit: str) -> RateLimitConfig:
    return RateLimitConfig(strategy="fixed", initial_rps=FAST, limits={"requests": limit})


def fullest(starts: Sequence[float], window: float = 1.0) -> int:
    """The most starts that any window holds."""
    return max(bisect_left(starts, at + window - 1e-9) - place for place, at in enumerate(starts))


def starts_of(
    tasks: int,
    limit: str,
    *,
    seconds: float,
    also: Sequence[str] = (),
    hold_up: float = 0.0,
    costs: Sequence[int] = (1,),
) -> list[float]:
    """When calls start whose tasks all line up in one go; ``hold_up``: the loop hangs for so long, again and again."""

    async def main(clock: LoopClock) -> list[float]:
        limiter = AdaptiveRateLimiter(config(limit), clock=clock)
        starts: list[float] = []

        async def call(number: int) -> None:
            clock.advance(STEP)
            cost = costs[number % len(costs)]
            permit = await limiter.acquire_async("api", cost=cost, also=also)
            starts.extend([clock.now()] * cost)
            permit.report(status_code=200)

        async def keep_busy() -> None:
            while True:
                await asyncio.sleep(0.01)
                clock.advance(hold_up)

        waiting = [asyncio.create_task(call(number)) for number in range(tasks)]
        if hold_up:
            waiting.append(asyncio.create_task(keep_busy()))
        await asyncio.sleep(seconds)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return starts

    return run(main)


@pytest.mark.parametrize(
    ("tasks", "limit", "amount"),
    [
        (5_000, "100/s", 100),
        (5_000, "500/s", 500),
        pytest.param(10_000, "100/s", 100, marks=pytest.mark.chaos),
        pytest.param(30_000, "100/s", 100, marks=pytest.mark.chaos),
    ],
)
def test_tasks_that_line_up_in_one_go_start_no_more_than_the_limit(tasks: int, limit: str, amount: int) -> None:
    starts = starts_of(tasks, limit, seconds=4.0)
    assert fullest(starts) <= amount
    lined_up_at = tasks * STEP
    assert sum(at >= lined_up_at for at in starts) >= 0.9 * amount * (4.0 - lined_up_at)


@pytest.mark.parametrize("hold_up", [0.005, 0.04, 0.3])
def test_a_busy_loop_starts_no_more_than_the_limit(hold_up: float) -> None:
    starts = starts_of(1_000, "100/s", seconds=5.0, hold_up=hold_up)
    assert fullest(starts) <= 100
    assert len(starts) >= 4.0 / (0.01 + hold_up)


def test_every_key_of_a_call_holds_its_limit() -> None:
    assert fullest(starts_of(1_500, "100/s", seconds=3.0, also=("org", "model"))) <= 100


def test_costs_of_many_sizes_hold_the_limit() -> None:
    starts = starts_of(3_000, "100/s", seconds=4.0, costs=(1, 3, 9, 1, 2))
    assert len(starts) >= 200
    assert fullest(starts) <= 100


def test_waiters_on_a_busy_loop_are_served_in_order() -> None:
    async def main(clock: LoopClock) -> list[int]:
        limiter = AdaptiveRateLimiter(config("500/s"), clock=clock)
        order: list[int] = []

        async def call(number: int) -> None:
            clock.advance(0.001)
            await limiter.acquire_async("api")
            order.append(number)

        await asyncio.gather(*(call(number) for number in range(1_000)))
        return order

    assert run(main) == list(range(1_000))


def test_a_notified_task_that_is_cancelled_leaves_its_turn_to_the_next() -> None:
    async def main(clock: LoopClock) -> list[float]:
        limiter = AdaptiveRateLimiter(
            RateLimitConfig(strategy="fixed", initial_rps=10, token_bucket_capacity=1), clock=clock
        )
        held = await limiter.acquire_async("api")
        waiting = [asyncio.create_task(limiter.acquire_async("api")) for _ in range(3)]
        await asyncio.sleep(0.05)
        held.abandon()  # the first of them is notified now
        waiting[0].cancel()
        permits = await asyncio.gather(*waiting[1:])
        return [permit.sent_at for permit in permits]

    assert run(main) == pytest.approx([0.05, 0.15])


def test_tasks_with_a_time_limit_line_up_on_a_busy_loop_at_no_cost_for_those_in_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the first in line is told moves on while notified tasks have yet to run; that is no worse forecast."""
    looked_at: list[int] = []
    in_order = WaitQueue.in_order

    def count(queue: WaitQueue) -> list[QueuedCall]:
        looked_at.append(len(queue))
        return in_order(queue)

    monkeypatch.setattr(WaitQueue, "in_order", count)

    async def main(clock: LoopClock) -> int:
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=10), clock=clock)

        async def call() -> None:
            clock.advance(0.03)
            permit = await limiter.acquire_async("api", max_wait=100)
            permit.report(status_code=200)

        calls = await asyncio.gather(*(call() for _ in range(300)))
        return len(calls)

    assert run(main) == 300
    assert sum(looked_at) <= 300
