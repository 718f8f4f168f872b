"""Whole runs in virtual time: the same seed gives the same events, and the numbers that were promised hold."""

from __future__ import annotations

import asyncio
import random

import pytest

from headgate import AdaptiveRateLimiter, CircuitOpenError, Event, RateLimitConfig, async_retry_with_backoff
from headgate.lab.virtual_time import LoopClock, run

pytestmark = pytest.mark.no_cover


class Server:
    """A bucket of 40 a second that asks for a pause and is down from 20 to 24 s."""

    def __init__(self, clock: LoopClock, seed: int) -> None:
        self.clock, self.draw = clock, random.Random(seed)
        self.tokens, self.at = 40.0, 0.0

    async def call(self) -> tuple[int, dict[str, str]]:
        await asyncio.sleep(0.02 + 0.02 * self.draw.random())
        now = self.clock.now()
        self.tokens, self.at = min(40.0, self.tokens + 40.0 * (now - self.at)), now
        if 20.0 <= now < 24.0:
            return 503, {}
        if self.tokens < 1.0:
            return 429, {"Retry-After": "1"} if self.draw.random() < 0.3 else {}
        self.tokens -= 1.0
        await asyncio.sleep(0.05 + 0.1 * self.draw.random())
        return 200, {}


def events_of_a_run(seed: int, strategy: str = "adaptive") -> tuple[list[Event], dict[int, int]]:
    async def main(clock: LoopClock) -> tuple[list[Event], dict[int, int]]:
        events: list[Event] = []
        settings = RateLimitConfig(strategy=strategy, open_state_duration=2.0)
        limiter = AdaptiveRateLimiter(settings, clock=clock, rng=random.Random(seed), on_event=events.append)
        server, answers = Server(clock, seed), dict.fromkeys((200, 429, 503), 0)

        async def worker() -> None:
            while clock.now() < 60.0:
                try:
                    permit = await limiter.acquire_async("api")
                except CircuitOpenError as refusal:
                    await asyncio.sleep(refusal.retry_after or 0.2)
                    continue
                status, headers = await server.call()
                answers[status] += 1
                permit.report(status_code=status, headers=headers)

        await asyncio.gather(*(worker() for _ in range(30)))
        return events, answers

    return run(main)


@pytest.mark.parametrize("strategy", ["adaptive", "aimd", "gradient"])
def test_the_same_seed_gives_the_same_events(strategy: str) -> None:
    events, answers = events_of_a_run(4, strategy)
    assert (events, answers) == events_of_a_run(4, strategy)
    assert len(events) > 20
    assert events != events_of_a_run(5, strategy)[0]


def test_once_stable_nine_of_ten_calls_succeed() -> None:
    _events, answers = events_of_a_run(1)
    assert answers[200] / sum(answers.values()) > 0.95
    assert answers[200] > 0.75 * 40 * 56


def test_an_overload_opens_the_circuit_within_five_seconds_and_closes_it_afterwards() -> None:
    changes = [(event.at, event.state) for event in events_of_a_run(2)[0] if event.kind == "circuit_changed"]
    assert changes[0][1] == "open"
    assert 20.0 <= changes[0][0] <= 25.0
    assert changes[-1][1] == "closed"
    assert changes[-1][0] <= 27.0


def test_a_failure_in_passing_takes_fewer_than_three_retries_on_average() -> None:
    async def main(clock: LoopClock) -> tuple[int, int, int]:
        draw = random.Random(8)
        config = RateLimitConfig(
            strategy="aimd", initial_rps=50.0, error_rate_threshold=1.0, consecutive_fail_threshold=100
        )
        limiter = AdaptiveRateLimiter(config, clock=clock, rng=draw)
        tries: list[int] = []

        async def item() -> None:
            tries.append(0)
            mine = len(tries) - 1

            async def attempt() -> None:
                tries[mine] += 1
                async with limiter.permit("api") as permit:
                    await asyncio.sleep(0.05)
                    if draw.random() < 0.3:
                        raise ConnectionResetError
                    permit.report(status_code=200)

            await async_retry_with_backoff(attempt, max_attempts=8, clock=clock, rng=draw)

        outcomes = await asyncio.gather(*(item() for _ in range(400)), return_exceptions=True)
        failed = [count - 1 for count in tries if count > 1]
        return sum(failed), len(failed), sum(outcome is not None for outcome in outcomes)

    retries, failures, lost = run(main)
    assert failures > 50
    assert retries / failures < 3
    assert lost == 0


def test_every_event_gives_its_reason() -> None:
    events, _ = events_of_a_run(3)
    assert {event.kind for event in events} >= {"rate_changed", "circuit_changed", "held", "refused"}
    assert all(event.reason and event.key == "api" and event.rate > 0 for event in events)


def test_a_listener_may_call_the_limiter() -> None:
    async def main(clock: LoopClock) -> int:
        seen: list[int] = []
        limiter = AdaptiveRateLimiter(
            RateLimitConfig(strategy="aimd"), clock=clock, on_event=lambda _: seen.append(limiter.snapshot().total)
        )
        (await limiter.acquire_async("api")).report(status_code=429)
        return len(seen)

    assert run(main) > 0


def test_a_listener_that_raises_costs_nobody_a_permit(caplog: pytest.LogCaptureFixture) -> None:
    def listen(event: Event) -> None:
        raise RuntimeError("deaf")

    async def main(clock: LoopClock) -> None:
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="aimd"), clock=clock, on_event=listen)
        for _ in range(3):
            (await limiter.acquire_async("api")).report(status_code=429)
        assert limiter.snapshot().keys[0].in_flight == 0

    run(main)
    assert "a listener failed on rate_changed of api" in caplog.text


def test_every_change_of_the_circuit_is_told() -> None:
    changes = [event.reason for event in events_of_a_run(2)[0] if event.kind == "circuit_changed"]
    assert changes[0] == "closed to open"
    assert changes[1] == "open to half_open"
    assert changes[-1] == "half_open to closed"


def test_the_wall_clock_may_jump_by_an_hour() -> None:
    async def main(clock: LoopClock) -> list[float]:
        limiter = AdaptiveRateLimiter(
            RateLimitConfig(strategy="fixed", initial_rps=10, token_bucket_capacity=1), clock=clock
        )
        waits = []
        for jump in (0.0, -3600.0, 3600.0):
            clock._wall_offset += jump
            permit = await limiter.acquire_async("api")
            permit.report(status_code=200)
            waits.append(permit.waited)
        return waits

    assert run(main) == pytest.approx([0.0, 0.1, 0.1])
