"""A lab for batches: virtual time, a runner without chance, and an API that answers by a plan."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.config import BatchConfig
from headgate.batch.ledger.memory import MemoryLedger
from headgate.batch.report import BatchEvent
from headgate.batch.runner import BatchRunner
from headgate.lab.virtual_time import LoopClock, run


class NoChance(random.Random):
    """Every draw is 0: floors are exact, and there is no backoff but the floors."""

    def random(self) -> float:
        return 0.0


class HttpError(Exception):
    """As the HTTP libraries raise it: with the answer attached."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.response = self
        self.status_code = status
        self.headers = headers or {}


Plan = Callable[[Any, int], Any]
"""What the server answers to the nth call (from 1) for an item: an exception to raise, or a value."""


class Api:
    """A worker that answers by a plan and remembers who called when."""

    def __init__(self, clock: LoopClock, plan: Plan, takes: float = 0.1) -> None:
        self.clock, self.plan, self.takes = clock, plan, takes
        self.calls: list[tuple[float, Any]] = []
        self.labels: list[str | None] = []
        self.attempts: list[int] = []
        self.times: Counter[Any] = Counter()
        self.at_once = self.most_at_once = 0

    async def __call__(self, item: Any, ctx: Any) -> Any:
        self.times[item] += 1
        nth = self.times[item]
        self.calls.append((self.clock.now(), item))
        self.labels.append(ctx.credential_label)
        self.attempts.append(ctx.attempt)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            answer = self.plan(item, nth)
            takes, answer = answer if isinstance(answer, tuple) else (self.takes, answer)
            await asyncio.sleep(takes)
        finally:
            self.at_once -= 1
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def started_at(self) -> list[float]:
        return [at for at, _ in self.calls]


class Lab:
    def __init__(self, clock: LoopClock) -> None:
        self.clock = clock
        self.events: list[BatchEvent] = []

    def api(self, plan: Plan, takes: float = 0.1) -> Api:
        return Api(self.clock, plan, takes)

    def limiter(self, rate: float = 1e6, at_once: float = 1e6, **settings: Any) -> AdaptiveRateLimiter:
        config = RateLimitConfig(
            **{"strategy": "fixed", "initial_rps": rate, "token_bucket_capacity": at_once, **settings}
        )
        return AdaptiveRateLimiter(config, clock=self.clock, rng=NoChance())

    def runner(self, worker: Any, **options: Any) -> BatchRunner:
        settings = {name: options.pop(name) for name in list(options) if name in BatchConfig.__dataclass_fields__}
        options.setdefault("limiter", self.limiter())
        options.setdefault("rng", NoChance())
        options.setdefault("on_event", self.events.append)
        return BatchRunner(worker, config=BatchConfig(**settings), clock=self.clock, **options)

    def ledger(self) -> MemoryLedger:
        return MemoryLedger(wall=self.clock.wall)

    def told(self, kind: str) -> list[BatchEvent]:
        return [event for event in self.events if event.kind == kind]


Play = Callable[[Callable[[Lab], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture(scope="session")
def play() -> Play:
    """Run a scenario in a lab of its own, in virtual time."""
    return lambda scenario: run(lambda clock: scenario(Lab(clock)))


@pytest.fixture(scope="session")
def http_error() -> type[HttpError]:
    return HttpError
