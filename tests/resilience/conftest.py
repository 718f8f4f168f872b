"""A lab in virtual time: a manager whose clock jumps, scripted functions, and credentials that count themselves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from headgate.core.decision import Outcome
from headgate.core.signal import Signal
from headgate.errors import NoCredentialError
from headgate.events import ResilienceEvent
from headgate.lab.virtual_time import LoopClock, run
from headgate.resilience import (
    ProviderResilienceConfig,
    ProviderResilienceManager,
    RateLimiterConfig,
    execute_with_resilience,
    reset_resilience_manager_for_testing,
)

SEED = 7
UNPACED = RateLimiterConfig(requests_per_second=1e6, burst_limit=10**6, strategy="fixed")


class HttpError(Exception):
    """As the HTTP libraries raise it: with the answer attached."""

    def __init__(self, status: int, headers: dict[str, str] | None = None, body: str = "") -> None:
        super().__init__(f"HTTP {status}")
        self.response = Response(status, headers, body)


class Response:
    """As the HTTP libraries return it, with its body loaded."""

    def __init__(self, status: int, headers: dict[str, str] | None = None, body: str = "") -> None:
        self.status_code = status
        self.headers = headers or {}
        self._content = body.encode()


class Script:
    """A function that gives its answers in order, the last one for ever, and remembers when it was asked."""

    def __init__(self, clock: LoopClock, *answers: object, takes: float = 0.0) -> None:
        self.clock, self.answers, self.takes = clock, answers, takes
        self.called_at: list[float] = []
        self.contexts: list[tuple[int, str | None]] = []

    def answer(self) -> object:
        answer = self.answers[min(len(self.called_at), len(self.answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def __call__(self, ctx: Any) -> object:
        self.called_at.append(self.clock.now())
        self.contexts.append((ctx.attempt, ctx.credential_label))
        if self.takes:
            await asyncio.sleep(self.takes)
        return self.answer()

    @property
    def calls(self) -> int:
        return len(self.called_at)

    @property
    def waits(self) -> list[float]:
        return [after - before for before, after in zip(self.called_at, self.called_at[1:], strict=False)]


class FakeLease:
    def __init__(self, pool: FakeCredentials, label: str) -> None:
        self.pool, self.label, self.secret = pool, label, f"secret-of-{label}"
        self.ended = False

    def report(self, answer: object = None, *, signal: Signal | None = None) -> None:
        assert signal is not None
        if self._end():
            self.pool.reports.append((self.label, signal.outcome.value))
            if signal.outcome in (Outcome.SPEND, Outcome.AUTH, Outcome.KEY_DEAD):
                self.pool.back_at[self.label] = float("inf")
            elif signal.outcome in (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED):
                self.pool.back_at[self.label] = self.pool.clock.now() + (signal.retry_after or 1.0)

    def release(self) -> None:
        if self._end():
            self.pool.reports.append((self.label, "released"))

    def _end(self) -> bool:
        fresh, self.ended = not self.ended, True
        self.pool.held.discard(self.label)
        return fresh


@dataclass
class FakeCredentials:
    """The least that hands out leases: one holder each, in order; rests and retires by what is reported."""

    clock: LoopClock
    labels: tuple[str, ...] = ("key-1", "key-2", "key-3")
    held: set[str] = field(default_factory=set)
    back_at: dict[str, float] = field(default_factory=dict)
    reports: list[tuple[str, str]] = field(default_factory=list)

    async def acquire_async(self, timeout: float | None = None) -> FakeLease:
        give_up_at = self.clock.now() + (float("inf") if timeout is None else timeout)
        while True:
            now = self.clock.now()
            free = [label for label in self.labels if label not in self.held and self.back_at.get(label, 0.0) <= now]
            if free:
                await asyncio.sleep(0)  # a place to be cancelled at
                if free[0] in self.held:
                    continue
                self.held.add(free[0])
                return FakeLease(self, free[0])
            soonest = min((self.back_at.get(label, now + 0.01) for label in self.labels), default=float("inf"))
            if soonest > give_up_at:
                raise NoCredentialError("pool", "none is free", None if soonest == float("inf") else soonest - now)
            await asyncio.sleep(max(0.001, soonest - now))

    def acquire(self, timeout: float | None = None) -> FakeLease:
        for label in self.labels:
            if label not in self.held and self.back_at.get(label, 0.0) <= self.clock.now():
                self.held.add(label)
                return FakeLease(self, label)
        raise NoCredentialError("pool", "none is free")


class Lab:
    def __init__(self, clock: LoopClock, seed: int = SEED) -> None:
        self.clock = clock
        self.events: list[ResilienceEvent] = []
        self.manager = ProviderResilienceManager(clock=clock, rng=random.Random(seed), on_event=self.events.append)

    def config(self, **settings: Any) -> ProviderResilienceConfig:
        return ProviderResilienceConfig(**{"rate_limiter": UNPACED, **settings})

    async def execute(self, func: Any, provider: str = "api", **options: Any) -> Any:
        options.setdefault("resilience_config", self.config())
        return await execute_with_resilience(func, provider, manager=self.manager, **options)

    async def outcome(self, func: Any, provider: str = "api", **options: Any) -> Any:
        """What the call returns or raises."""
        try:
            return await self.execute(func, provider, **options)
        except Exception as error:
            return error

    async def sicken(self, provider: str = "api", failures: int = 5, **options: Any) -> None:
        for _ in range(failures):
            await self.outcome(Script(self.clock, HttpError(500)), provider, max_attempts=1, **options)

    def script(self, *answers: object, takes: float = 0.0) -> Script:
        return Script(self.clock, *answers, takes=takes)

    def credentials(self, *labels: str) -> FakeCredentials:
        return FakeCredentials(self.clock, labels or ("key-1", "key-2", "key-3"))

    def told(self, event_type: str) -> list[ResilienceEvent]:
        return [event for event in self.events if event.event_type == event_type]

    def nothing_is_held(self) -> bool:
        """No permit in flight, no waiter, no probe and no share of a retry budget taken."""
        keys = self.manager.limiter.snapshot(top=10_000).keys
        return not any(key.in_flight or key.waiters or key.waits_for == "probe_in_flight" for key in keys) and not any(
            provider._budget.in_flight for provider in self.manager._providers.values()
        )


Play = Callable[[Callable[[Lab], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture(scope="session")
def play() -> Play:
    """Run a scenario in a lab of its own, in virtual time."""
    return lambda scenario: run(lambda clock: scenario(Lab(clock)))


@pytest.fixture(scope="session")
def http_error() -> type[HttpError]:
    return HttpError


@pytest.fixture(scope="session")
def response() -> type[Response]:
    return Response


@pytest.fixture(autouse=True)
def _on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """No manager and no switch of another test's, or of whoever runs the tests."""
    reset_resilience_manager_for_testing()
    import os

    for name in [name for name in os.environ if name.startswith("HEADGATE_ENHANCED_RESILIENCE")]:
        monkeypatch.delenv(name)
