"""Circuits, pauses, rows and ramps: heard by a listener that comes late, and in the log without any listener."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from headgate import (
    AdaptiveRateLimiter,
    BatchConfig,
    BatchRunner,
    CircuitBreaker,
    CircuitOpenError,
    ProviderResilienceConfig,
    ProviderResilienceManager,
    RateLimitConfig,
    RecoveryRateLimiter,
    ResilienceEvent,
    execute_with_resilience,
    execute_with_resilience_sync,
    get_resilience_manager,
    reset_resilience_manager_for_testing,
)
from headgate.integrations.client_gate import Passing
from headgate.lab.virtual_time import LoopClock, VirtualClock, run


class Answer:
    def __init__(self, status: int, **headers: str) -> None:
        self.status_code, self.headers, self.content = status, headers, b""


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[list[tuple[str, str, str]]]:
    """(logger, level, event) of each record that is an event."""
    found: list[tuple[str, str, str]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if hasattr(record, "event"):
                found.append((record.name, record.levelname, record.event))

    handler = Handler()
    log = logging.getLogger("headgate")
    caplog.set_level(logging.INFO, "headgate")
    log.addHandler(handler)
    yield found
    log.removeHandler(handler)


async def refuse() -> None:
    raise ConnectionRefusedError


async def fail(manager: ProviderResilienceManager, times: int = 5) -> None:
    once = ProviderResilienceConfig(max_attempts=1)
    for _ in range(times):
        with pytest.raises(ConnectionRefusedError):
            await execute_with_resilience(refuse, "api", manager=manager, resilience_config=once)


async def succeed(manager: ProviderResilienceManager) -> None:
    async def answer() -> int:
        return 1

    await execute_with_resilience(answer, "api", manager=manager)


def test_a_listener_that_comes_late_hears_circuits() -> None:
    reset_resilience_manager_for_testing()
    manager = get_resilience_manager()
    events: list[ResilienceEvent] = []
    manager.on_event = events.append
    for _ in range(5):
        with pytest.raises(ConnectionRefusedError):
            execute_with_resilience_sync(lambda: asyncio.run(refuse()), "api", max_attempts=1)
    reset_resilience_manager_for_testing()
    changes = [event for event in events if event.event_type == "circuit_state_change"]
    assert [(event.provider, event.breaker_state) for event in changes] == [("api", "open")]


def test_a_late_listener_hears_the_whole_way_back() -> None:
    states: list[str | None] = []

    async def scenario(clock: LoopClock) -> None:
        manager = ProviderResilienceManager(clock=clock)
        manager.on_event = lambda event: (
            states.append(event.breaker_state) if event.event_type == "circuit_state_change" else None
        )
        await fail(manager)
        await asyncio.sleep(31)
        await succeed(manager)

    run(scenario)
    assert states == ["open", "half_open", "closed"]


def test_a_client_on_a_limiter_of_the_users_own_hears_circuits() -> None:
    limiter = AdaptiveRateLimiter(clock=VirtualClock())
    events: list[ResilienceEvent] = []
    passing = Passing(limiter=limiter, on_event=events.append)
    once = ProviderResilienceConfig(max_attempts=1)
    for _ in range(5):
        with pytest.raises(ConnectionRefusedError):
            execute_with_resilience_sync(
                lambda: asyncio.run(refuse()), "api", manager=passing.hosts, resilience_config=once
            )
    assert "circuit_state_change" in [event.event_type for event in events]


def test_circuits_and_final_failures_are_logged(logged: list[tuple[str, str, str]]) -> None:
    async def scenario(clock: LoopClock) -> None:
        manager = ProviderResilienceManager(clock=clock)
        await fail(manager)
        await asyncio.sleep(31)
        await succeed(manager)

    run(scenario)
    failure = ("headgate.resilience", "WARNING", "request_failure")
    change = ("headgate.limiter", "INFO", "circuit_changed")
    assert logged.count(failure) == 5
    assert [one for one in logged if one != failure] == [change] * 3


def test_refused_and_cancelled_calls_are_no_failures_in_the_log(logged: list[tuple[str, str, str]]) -> None:
    async def scenario(clock: LoopClock) -> None:
        manager = ProviderResilienceManager(clock=clock)
        await fail(manager)
        logged.clear()
        for _ in range(10):
            with pytest.raises(CircuitOpenError):
                await succeed(manager)
        waits = asyncio.create_task(
            execute_with_resilience(lambda: asyncio.sleep(50), "other", manager=manager, time_budget=60)
        )
        await asyncio.sleep(1)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)

    run(scenario)
    assert logged == []


def test_pauses_of_a_limiter_are_logged(logged: list[tuple[str, str, str]]) -> None:
    clock = VirtualClock()
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed"), clock=clock)
    limiter.acquire("api").report(Answer(429, **{"Retry-After": "30"}))
    assert [event for _, _, event in logged] == ["cooldown_started"]
    limiter.acquire("api").report(Answer(200))
    assert [event for _, _, event in logged] == ["cooldown_started", "cooldown_ended"]
    assert {(name, level) for name, level, _ in logged} == {("headgate.limiter", "INFO")}


def test_rows_that_go_back_and_rows_that_die_are_logged(logged: list[tuple[str, str, str]]) -> None:
    calls: dict[int, int] = {}

    async def work(item: int, ctx: Any) -> Answer:
        calls[item] = calls.get(item, 0) + 1
        if item == 2:
            return Answer(400)
        return Answer(429, **{"Retry-After": "5"}) if calls[item] == 1 else Answer(200)

    async def scenario(clock: LoopClock) -> None:
        await BatchRunner(work, workers=3, clock=clock, config=BatchConfig()).run(range(3))

    run(scenario)
    assert ("headgate.batch", "WARNING", "item_dead") in logged
    assert ("headgate.batch", "INFO", "rows_back") in logged
    kinds = [event for name, _, event in logged if name == "headgate.limiter"]
    assert kinds == ["cooldown_started", "cooldown_ended"]


def test_a_ramp_is_logged_from_its_beginning_to_its_end(logged: list[tuple[str, str, str]]) -> None:
    ramp = RecoveryRateLimiter(ramp_duration=300.0)
    ramp.start_recovery_period(1000.0)
    for second in range(10):
        ramp.record_result(False, 1001.0 + second)
    for second in range(100):
        ramp.record_result(True, 1100.0 + second)
    ramp.should_wait(1400.0)
    ramp.should_wait(1401.0)
    assert [event for _, _, event in logged] == ["ramp_started", "ramp_cut", "ramp_recovered", "ramp_ended"]
    assert {(name, level) for name, level, _ in logged} == {("headgate.resilience.recovery", "INFO")}


def test_a_breaker_of_its_own_logs_its_changes(logged: list[tuple[str, str, str]]) -> None:
    clock = VirtualClock()
    breaker = CircuitBreaker("search", failure_threshold=1, clock=clock)
    with pytest.raises(ZeroDivisionError):
        breaker.call(lambda: 1 / 0)
    clock.advance(31)
    breaker.call(lambda: 1)
    assert logged == [("headgate.resilience.circuit_breaker", "INFO", "circuit_changed")] * 3


def test_a_handler_of_the_log_may_call_the_limiter() -> None:
    limiter = AdaptiveRateLimiter(clock=VirtualClock())
    seen: list[int] = []

    class Curious(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(limiter.snapshot().open_circuits)

    log, curious = logging.getLogger("headgate.limiter"), Curious()
    level = log.level
    log.addHandler(curious)
    log.setLevel(logging.INFO)
    try:
        for _ in range(5):
            limiter.acquire("api").report(Answer(500))
    finally:
        log.removeHandler(curious)
        log.setLevel(level)
    assert seen == [1]
