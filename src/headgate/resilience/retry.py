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
from dataclasses import dataclass
from typing import TypeVar

from ..checks import check, check_finite, check_time, check_whole
from ..clock import Clock, SystemClock
from ..core.decision import UNKNOWN, Outcome
from ..core.retry import delay
from ..core.signal import Signal
from ..errors import TimeBudgetExceededError
from ..events import call_hook
from ..wire import signal_of

R = TypeVar("R")
Classifier = Callable[[Exception], Signal]

MOST_RATE_LIMITED = 20
"""How often one call may be rate limited before that counts as its end."""
_CLOCK = SystemClock()
_RANDOM = random.Random()


@dataclass(slots=True)
class RetryState:
    """What has happened to one call since its first failure, and what may happen next."""

    name: str
    max_attempts: int
    base_delay: float
    max_delay: float
    started_at: float
    time_budget: float | None
    max_rate_limited: int = MOST_RATE_LIMITED
    max_credential_changes: int = 0
    counts_all: bool = False
    """Whether every call is one of ``max_attempts``, whatever it ended in."""
    calls: int = 0
    attempts: int = 0
    rate_limited: int = 0
    credential_changes: int = 0
    spared: int = 0
    """Failures that used up no attempt: the whole target was down."""

    def should_retry(self, outcome: Outcome, *, is_spared: bool = False) -> bool:
        """Count how an attempt ended; whether the counts allow another."""
        self.calls += 1
        if is_spared:
            self.spared += 1
        elif outcome.uses_attempt or self.counts_all:
            self.attempts += 1
        elif outcome.needs_other_credential:
            self.credential_changes += 1
        else:
            self.rate_limited += 1
        if self.rate_limited > self.max_rate_limited or self.credential_changes > self.max_credential_changes:
            return False
        return self.attempts < self.max_attempts

    def backoff(self, floor: float, draw: float) -> float:
        """Seconds before the next attempt: growing with each call, and never below ``floor``."""
        return delay(self.calls, draw, base=self.base_delay, max_delay=self.max_delay, floor=floor)

    def check_fits(self, wait: float, now: float, error: Exception | None) -> None:
        """Raise if a wait leaves no time for the attempt after it."""
        if now + wait >= self._ends_at:
            raise self.out_of_time("the next attempt would not fit into the time budget", wait, now) from error

    def check_deadline(self, now: float) -> None:
        """Raise if the time is up: a wait may take longer than asked for, and no attempt starts past the budget."""
        if now >= self._ends_at:
            raise self.out_of_time("the time budget is spent", None, now)

    def out_of_time(self, reason: str, retry_after: float | None, now: float) -> TimeBudgetExceededError:
        elapsed = now - self.started_at
        return TimeBudgetExceededError(self.name, reason, retry_after, elapsed=elapsed, attempts=self.calls)

    @property
    def _ends_at(self) -> float:
        return UNKNOWN if self.time_budget is None else self.started_at + self.time_budget


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
    """Call ``func`` until it succeeds or must not be retried. No wait or attempt starts past the budget."""
    _check(max_attempts, base_delay, max_delay, time_budget)
    state: RetryState | None = None
    started_at = 0.0 if time_budget is None else clock.now()
    while True:
        try:
            return func()
        except Exception as error:
            if state is None:
                state = RetryState(name, max_attempts, base_delay, max_delay, started_at, time_budget)
            wait = _wait_after(error, state, classify, clock, rng)
            if wait is None:
                raise
        clock.sleep(wait)
        state.check_deadline(clock.now())


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
    state: RetryState | None = None
    started_at = 0.0 if time_budget is None else clock.now()
    while True:
        try:
            if time_budget is None:
                return await func()
            return await _within(started_at + time_budget - clock.now(), func)
        except Exception as error:
            if state is None:
                state = RetryState(name, max_attempts, base_delay, max_delay, started_at, time_budget)
            wait = _wait_after(error, state, classify, clock, rng)
            if wait is None:
                raise
        await clock.sleep_async(wait)
        state.check_deadline(clock.now())


def _wait_after(
    error: Exception, state: RetryState, classify: Classifier | None, clock: Clock, rng: random.Random
) -> float | None:
    """Seconds before the next attempt; None if there is none."""
    now = clock.now()
    if isinstance(error, _TimeIsUp):
        state.calls += 1
        raise state.out_of_time("the time budget is spent", None, now) from None
    signal = None if classify is None else call_hook(classify, Signal, error)
    if signal is None:
        signal = signal_of(error, None, None, None, None, clock.wall())
    outcome = signal.outcome
    if not state.should_retry(outcome) or not outcome.retried or outcome.needs_other_credential:
        return None
    wait = state.backoff(signal.retry_after or 0.0, rng.random())
    state.check_fits(wait, now, error)
    return wait


def _check(max_attempts: int, base_delay: float, max_delay: float, time_budget: float | None) -> None:
    """Before anything is called: what is wrong should not wait for the first failure to be found."""
    try:  # nearly always all is well, and five checks cost more than the rest of the way
        delays = 0 < base_delay <= max_delay < UNKNOWN
        if delays and type(max_attempts) is int and max_attempts >= 1 and (time_budget is None or time_budget > 0):
            return
    except TypeError:
        pass
    check_whole("max_attempts", max_attempts)
    check_finite("base_delay", base_delay)
    check_finite("max_delay", max_delay)
    check("base_delay", base_delay, base_delay <= max_delay, f"at most max_delay={max_delay!r}")
    check_time("time_budget", time_budget)


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
