"""Try again, within an attempt count and a time budget, without stampeding.

    try ──fails──> may it be retried? ──> wait: the longest of backoff and what the server asked for ──> try
                        │no, or no attempt or time left
                        └──> the error itself, or TimeBudgetExceededError

Only what is known to pass is retried: timeouts, connection errors, 5xx and 429. Being rate
limited does not use up an attempt; it has a count of its own.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .clock import Clock, SystemClock
from .core.backoff import delay
from .core.budget import Deadline
from .core.decision import UNKNOWN
from .core.signal import Signal
from .errors import ConfigError, TimeBudgetExceededError
from .limiter.permit import signal_of

R = TypeVar("R")
Classifier = Callable[[Exception], Signal]

MOST_RATE_LIMITED = 20
"""How often one call may be told to come back later before that counts as its end."""
_CLOCK = SystemClock()
_RANDOM = random.Random()


def retry_with_backoff(
    func: Callable[[], R],
    *,
    name: str = "call",
    max_attempts: int = 3,
    base_delay: float = 0.2,
    max_delay: float = 5.0,
    time_budget: float | None = None,
    classify: Classifier | None = None,
    clock: Clock = _CLOCK,
    rng: random.Random = _RANDOM,
) -> R:
    """Call ``func`` until it succeeds or may not be tried again. No wait or attempt starts past the budget."""
    _check(max_attempts, base_delay, max_delay, time_budget)
    course: _Course | None = None
    started_at = 0.0 if time_budget is None else clock.now()
    while True:
        try:
            return func()
        except Exception as error:
            if course is None:
                course = _Course(
                    name, max_attempts, base_delay, max_delay, time_budget, started_at, classify, clock, rng
                )
            wait = course.wait_after(error)
        clock.sleep(wait)
        course.still_in_time()


async def async_retry_with_backoff(
    func: Callable[[], Awaitable[R]],
    *,
    name: str = "call",
    max_attempts: int = 3,
    base_delay: float = 0.2,
    max_delay: float = 5.0,
    time_budget: float | None = None,
    classify: Classifier | None = None,
    clock: Clock = _CLOCK,
    rng: random.Random = _RANDOM,
) -> R:
    """The same for a coroutine function; an attempt still running when the budget ends is cancelled."""
    _check(max_attempts, base_delay, max_delay, time_budget)
    course: _Course | None = None
    started_at = 0.0 if time_budget is None else clock.now()
    while True:
        try:
            if time_budget is None:
                return await func()
            return await _within(started_at + time_budget - clock.now(), func)
        except Exception as error:
            if course is None:
                course = _Course(
                    name, max_attempts, base_delay, max_delay, time_budget, started_at, classify, clock, rng
                )
            wait = course.wait_after(error)
        await clock.sleep_async(wait)
        course.still_in_time()


def _check(max_attempts: int, base_delay: float, max_delay: float, time_budget: float | None) -> None:
    """Before anything is called: what is wrong should not wait for the first failure to be found."""
    if not (isinstance(max_attempts, int) and max_attempts >= 1):
        raise ConfigError(f"max_attempts={max_attempts!r} must be a whole number, 1 or more")
    try:
        fine = 0 < base_delay <= max_delay < UNKNOWN
    except TypeError:
        fine = False
    if not fine:
        raise ConfigError(
            f"base_delay={base_delay!r} and max_delay={max_delay!r} must be numbers with 0 < base_delay <= max_delay"
        )
    try:
        fine = time_budget is None or time_budget > 0
    except TypeError:
        fine = False
    if not fine:
        raise ConfigError(f"time_budget={time_budget!r} must be None or a number of seconds above 0")


class _TimeIsUp(Exception):  # noqa: N818 - never leaves this file
    """The budget ended in the middle of an attempt."""


async def _within(seconds: float, func: Callable[[], Awaitable[R]]) -> R:
    import asyncio  # here, because a program without an event loop should not load one

    try:
        async with asyncio.timeout(max(0.0, seconds)) as scope:
            return await func()
    except TimeoutError:
        if scope.expired():
            raise _TimeIsUp from None
        raise


class _Course:
    """What has happened to one call since its first failure, and what may happen next."""

    def __init__(
        self,
        name: str,
        max_attempts: int,
        base_delay: float,
        max_delay: float,
        time_budget: float | None,
        started_at: float,
        classify: Classifier | None,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.name = name
        self.max_attempts = max_attempts
        self.base_delay, self.max_delay = base_delay, max_delay
        self.started_at = started_at
        self.deadline = Deadline(UNKNOWN if time_budget is None else started_at + time_budget)
        self.classify = classify
        self.clock, self.rng = clock, rng
        self.calls = self.attempts = self.rate_limited = 0

    def wait_after(self, error: Exception) -> float:
        """How long to wait before the next try; raises what the caller should get if there is none."""
        now = self.clock.now()
        self.calls += 1
        if isinstance(error, _TimeIsUp):
            raise self._out_of_time("the time budget is spent", None, now) from None
        signal = self.classify(error) if self.classify else signal_of(error, None, None, None, None, self.clock.wall())
        if signal.outcome.uses_attempt:
            self.attempts += 1
        else:
            self.rate_limited += 1
        spent = self.attempts >= self.max_attempts or self.rate_limited > MOST_RATE_LIMITED
        if spent or not signal.outcome.retried or signal.outcome.needs_other_credential:
            raise error
        floor = signal.retry_after or 0.0
        wait = delay(self.calls, self.rng.random(), base=self.base_delay, max_delay=self.max_delay, floor=floor)
        if not self.deadline.fits(wait, now):
            raise self._out_of_time("the next attempt would not fit into the time budget", wait, now) from error
        return wait

    def still_in_time(self) -> None:
        """A sleep may take longer than asked for; no attempt starts past the budget for that."""
        now = self.clock.now()
        if self.deadline.spent(now):
            raise self._out_of_time("the time budget is spent", None, now)

    def _out_of_time(self, reason: str, retry_after: float | None, now: float) -> TimeBudgetExceededError:
        elapsed = now - self.started_at
        return TimeBudgetExceededError(self.name, reason, retry_after, elapsed=elapsed, attempts=self.calls)
