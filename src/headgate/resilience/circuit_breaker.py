"""A circuit breaker around any function: the state machine of ``core.circuit_breaker`` with a clock and a lock.

    breaker = CircuitBreaker("search")
    breaker.call(fetch, url)                  # or: await breaker.call_async(fetch, url)

The lock is held while deciding, never while the function runs, and a healthy call does not
even take it. Half-open lets exactly ``half_open_probes`` calls through at a time; any other call is
refused at once with ``CircuitOpenError``. Changes are logged (``headgate.resilience.circuit_breaker``, at INFO).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from .. import fork_safety, wire
from ..checks import check, check_finite, check_whole, number
from ..clock import Clock, SystemClock
from ..core.circuit_breaker import Breaker, BreakerSettings
from ..core.decision import CircuitState, Outcome
from ..errors import CircuitOpenError, Refused
from ..events import call_hook
from ..reason_text import refuse_text

log = logging.getLogger("headgate.resilience.circuit_breaker")

P = ParamSpec("P")
R = TypeVar("R")
CLOSED = CircuitState.CLOSED


class CircuitBreaker:
    """Stops calls to a target that keeps failing, and probes whether it works again.

    ``classify`` says what an exception means; by default timeouts, connection errors, 5xx and whatever else
    the function raises count as failures, while 429 and other 4xx answers and refusals do not.
    """

    def __init__(
        self,
        name: str = "circuit",
        *,
        failure_threshold: int = 5,
        recovery_timeout: float = 30.0,
        half_open_probes: int = 1,
        successes_to_close: int = 1,
        error_rate_threshold: float | None = None,
        min_samples: int = 10,
        window: float = 30.0,
        classify: Callable[[Exception], Outcome] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        for field, count in (
            ("failure_threshold", failure_threshold),
            ("half_open_probes", half_open_probes),
            ("successes_to_close", successes_to_close),
            ("min_samples", min_samples),
        ):
            check_whole(field, count)
        for field, seconds in (("recovery_timeout", recovery_timeout), ("window", window)):
            check_finite(field, seconds)
        share = error_rate_threshold
        check("error_rate_threshold", share, share is None or 0 < number(share) <= 1, "None, or above 0 and at most 1")
        settings = BreakerSettings(
            failures_to_trip=failure_threshold,
            error_rate_to_trip=error_rate_threshold,
            calls_to_judge=min_samples,
            window=window,
            window_bucket=window / 15,
            cool_off=recovery_timeout,
            half_open_probes=half_open_probes,
            successes_to_close=successes_to_close,
        )
        self._core = Breaker(settings)
        self._classify = classify
        self._now = (SystemClock() if clock is None else clock).now
        self._lock = fork_safety.lock()
        self._newest = 1
        """The number that calls get now: one for all while closed, one for each probe."""

    @property
    def state(self) -> CircuitState:
        """The state as an observer sees it; observing takes no probe slot."""
        with self._lock:
            return self._core.state_at(self._now())

    def is_available(self) -> bool:
        """Whether a call would be let through now; asking takes no probe slot."""
        with self._lock:
            return self._core.check(self._now()) is None

    def call(self, func: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function if the circuit lets it, and learn from how that ends."""
        core = self._core
        number = self._newest if core.state is CLOSED else self._probe()
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self._failed(number, error)
            raise
        if core.failures or core.state is not CLOSED or core.counts is not None:
            self._ended(number, Outcome.OK)
        return result

    async def call_async(self, func: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The same for a coroutine function."""
        core = self._core
        number = self._newest if core.state is CLOSED else self._probe()
        try:
            result = await func(*args, **kwargs)
        except BaseException as error:
            self._failed(number, error)
            raise
        if core.failures or core.state is not CLOSED or core.counts is not None:
            self._ended(number, Outcome.OK)
        return result

    def _probe(self) -> int:
        now = self._now()
        with self._lock:
            refusal = self._core.check(now)
            if refusal is not None:
                retry_after = None if refusal.retry_at is None else max(0.0, refusal.retry_at - now)
                raise CircuitOpenError(self.name, refuse_text(refusal), retry_after)
            changed = False
            if self._core.state is not CLOSED:
                self._newest += 1
                changed = self._core.admit(self._newest, now)
            number, state = self._newest, self._core.state
        if changed:
            self._log_change(state)
        return number

    def _failed(self, number: int, error: BaseException) -> None:
        outcome = Outcome.ABANDONED  # cancelled, interrupted, never sent or unclear: says nothing about the target
        try:
            if isinstance(error, Exception) and not isinstance(error, Refused):
                hooked = None if self._classify is None else call_hook(self._classify, Outcome, error)
                outcome = failure_of(error) if hooked is None else hooked
        finally:
            self._ended(number, outcome)

    def _ended(self, number: int, outcome: Outcome) -> None:
        now = self._now()
        with self._lock:
            changed, state = self._core.record(number, outcome, now, self._newest), self._core.state
            self._newest += changed
        if changed:
            self._log_change(state)

    def _log_change(self, state: CircuitState) -> None:
        log.info("%s: circuit %s", self.name, state.value, extra={"event": "circuit_changed"})

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self.name!r} {self.state.value}>"


def failure_of(error: Exception) -> Outcome:
    """What an exception says about the target: its answer's status if it has one; an unknown error is a failure."""
    outcome = wire.signal_of(error, None, None, None, None, 0.0).outcome
    unanswered = wire.response_behind(error) is None and wire.body_behind(error) is None
    return Outcome.TRANSIENT if outcome is Outcome.INVALID and unanswered else outcome
