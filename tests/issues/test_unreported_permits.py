"""The warning that nothing is reported: only where calls are over and were not, never for those still under way."""

from __future__ import annotations

import asyncio

import pytest

from headgate import AdaptiveRateLimiter, Event, RateLimitConfig
from headgate.lab.virtual_time import LoopClock, VirtualClock, run

WIDE = RateLimitConfig(strategy="fixed", initial_rps=1000, token_bucket_capacity=50)


def warnings(told: list[Event]) -> list[str]:
    return [event.kind for event in told if event.kind == "cannot_learn"]


@pytest.mark.parametrize("limits", [{}, {"limits": {"requests": "500/s"}}], ids=["paced", "known limit"])
@pytest.mark.parametrize("latency", [0.1, 30.0])
def test_a_crowd_that_is_still_under_way_is_no_silence(latency: float, limits: dict) -> None:
    config = RateLimitConfig(strategy="fixed", initial_rps=1000, token_bucket_capacity=50, **limits)

    async def main(clock: LoopClock) -> list[Event]:
        told: list[Event] = []
        limiter = AdaptiveRateLimiter(config, clock=clock, on_event=told.append)

        async def call() -> None:
            async with limiter.permit("api") as permit:
                await asyncio.sleep(latency)
                permit.report(status_code=200)

        await asyncio.gather(*(call() for _ in range(500)))
        return told

    assert warnings(run(main)) == []


def test_permits_that_are_given_back_without_a_report_are() -> None:
    told: list[Event] = []
    limiter = AdaptiveRateLimiter(WIDE, clock=VirtualClock(), on_event=told.append)
    for _ in range(60):
        limiter.acquire("api").release()
    assert warnings(told) == ["cannot_learn"]


def test_permits_that_are_never_ended_are_after_a_minute() -> None:
    told: list[Event] = []
    clock = VirtualClock()
    limiter = AdaptiveRateLimiter(WIDE, clock=clock, on_event=told.append)
    for _ in range(50):
        limiter.acquire("api")
    assert warnings(told) == []
    clock.advance(60.0)
    for _ in range(20):
        limiter.acquire("api")
    assert warnings(told) == ["cannot_learn"]


def test_permits_that_were_not_used_are_not() -> None:
    told: list[Event] = []
    limiter = AdaptiveRateLimiter(WIDE, clock=VirtualClock(), on_event=told.append)
    for _ in range(60):
        limiter.acquire("api").abandon()
    assert warnings(told) == []


def test_a_crowd_that_waits_in_line_and_never_reports_is_warned_too() -> None:
    async def main(clock: LoopClock) -> list[Event]:
        told: list[Event] = []
        slow = RateLimitConfig(strategy="fixed", initial_rps=10, token_bucket_capacity=1)
        limiter = AdaptiveRateLimiter(slow, clock=clock, on_event=told.append)

        async def call() -> None:
            (await limiter.acquire_async("api")).release()

        await asyncio.gather(*(call() for _ in range(100)))
        return told

    assert warnings(run(main)) == ["cannot_learn"]
