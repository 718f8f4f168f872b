"""Types of the limiter as its users see them. Checked by mypy, never run."""

from __future__ import annotations

import random
from typing import assert_type

from headgate import (
    AdaptiveRateLimiter,
    CircuitState,
    Clock,
    Controller,
    Event,
    Feedback,
    KeySnapshot,
    Limit,
    LimiterSnapshot,
    Outcome,
    Permit,
    RateLimitConfig,
    RecoveryRateLimiter,
    Signal,
    SystemClock,
)
from headgate.lab.virtual_time import LoopClock, VirtualClock, run


class Steady(Controller):
    """A strategy of one's own needs a rate and one method."""

    def __init__(self, config: RateLimitConfig) -> None:
        self.rate = config.initial_rps

    def on_answer(self, ticket: object, signal: Signal, latency: float, now: float) -> float:
        assert_type(signal.outcome, Outcome)
        assert_type(signal.retry_after, float | None)
        assert_type(signal.limits, tuple[Limit, ...])
        return 0.0


class WallClock:
    """A clock of one's own needs four methods and no base class."""

    def now(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None: ...

    async def sleep_async(self, seconds: float) -> None: ...


def listen(event: Event) -> None:
    assert_type((event.at, event.rate), tuple[float, float])
    assert_type((event.kind, event.key, event.reason, event.state), tuple[str, str, str, str])


def configure() -> None:
    config = RateLimitConfig(limits={"requests": "500/min", "tokens": "200000/min"}, burst={"tokens": 5000})
    assert_type(config.for_key("a"), RateLimitConfig)
    RateLimitConfig(strategy=Steady, overrides={"*.example.com": config})
    RateLimitConfig(strategy=lambda settings: Steady(settings))
    RateLimitConfig(initial_rps="2")  # type: ignore[arg-type]
    RateLimitConfig(limits={"requests": 500})  # type: ignore[dict-item]
    RateLimitConfig(strategy=Steady(config))
    RateLimitConfig(inital_rps=2.0)  # type: ignore[call-arg]
    config.initial_rps = 3.0  # type: ignore[misc]


def choose_a_clock() -> None:
    clocks: list[Clock] = [SystemClock(), VirtualClock(), LoopClock(), WallClock()]
    AdaptiveRateLimiter(clock=clocks[0], rng=random.Random(1), on_event=listen)
    AdaptiveRateLimiter(clock=object())  # type: ignore[arg-type]


def limit_in_threads(limiter: AdaptiveRateLimiter) -> None:
    assert_type(limiter.acquire("key"), Permit)
    assert_type(limiter.acquire("key", cost={"tokens": 900}, max_wait=1.5, also=["other"]), Permit)
    assert_type(limiter.try_acquire("key"), Permit | None)
    with limiter.permit("key", cost=2, deadline_at=10.0) as permit:
        assert_type(permit, Permit)
        assert_type((permit.key, permit.waited), tuple[str, float])
        assert_type(permit.report(status_code=200, latency=0.2, headers={"retry-after": "1"}), Outcome)
    assert_type(permit.report(object(), cost={"tokens": 812}), Outcome)
    permit.report(ValueError("lost"))
    permit.release()
    permit.abandon()
    limiter.acquire(3)  # type: ignore[arg-type]
    limiter.try_acquire("key").release()  # type: ignore[union-attr]


async def limit_in_tasks(limiter: AdaptiveRateLimiter) -> None:
    assert_type(await limiter.acquire_async("key", max_wait=1.0), Permit)
    async with limiter.permit("key") as permit:
        assert_type(permit, Permit)
    async with await limiter.acquire_async("key") as held:
        assert_type(held, Permit)


def look(limiter: AdaptiveRateLimiter) -> None:
    limiter.feedback("key", Feedback(status_code=429, latency=0.2, retry_after=30))
    limiter.feedback("key", Feedback(err=TimeoutError()))
    snapshot = limiter.snapshot(top=5)
    assert_type(snapshot, LimiterSnapshot)
    assert_type(snapshot.keys, list[KeySnapshot])
    assert_type((snapshot.total, snapshot.throttled, snapshot.denied, snapshot.retries), tuple[int, int, int, int])
    entry = snapshot.keys[0]
    assert_type((entry.key, entry.state, entry.reason), tuple[str, str, str])
    assert_type((entry.rate, entry.p95_latency, entry.error_rate), tuple[float, float, float])
    assert_type((entry.waiters, entry.consecutive_failures), tuple[int, int])


def recover() -> None:
    ramp = RecoveryRateLimiter(initial_rate=5.0, target_rate=20.0, ramp_duration=300.0)
    ramp.start_recovery_period()
    ramp.record_result(True, now=1.0)
    assert_type(ramp.should_wait(), float)
    assert_type(ramp.current_rate(now=2.0), float)
    assert_type(ramp.is_in_recovery_period(), bool)
    assert_type(RecoveryRateLimiter.from_state(ramp.to_state()), RecoveryRateLimiter)


def name_the_words() -> None:
    assert_type(Outcome.RATE_LIMITED.retried, bool)
    assert_type(Outcome.OK.uses_attempt, bool)
    assert_type(CircuitState("half_open"), CircuitState)


async def simulated(clock: LoopClock) -> list[int]:
    await clock.sleep_async(3600.0)
    return [1]


def simulate() -> None:
    assert_type(run(simulated), list[int])
    assert_type(run(simulated, start=5.0), list[int])
