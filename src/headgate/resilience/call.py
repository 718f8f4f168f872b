"""One call on its way: what has happened to it, and what may happen next. It decides; others wait and send.

    credential ─> pace ─> circuit ─> attempt ─> outcome ──ok──> the result
        ^                                          │ may be tried again, and there is time
        └────── one wait, the longest of all ──────┘
                                                   │ may not
                                                   └──> the last error, the last answer, or why there was no time

Whatever is held (a permit, a credential, leave to retry) is given back by ``close``, so a call
that is cancelled at any moment leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..core.decision import UNKNOWN, Outcome
from ..core.pace import INSTANT
from ..core.signal import Signal
from ..errors import (
    CircuitOpenError,
    NoCredentialError,
    Refused,
    TimeBudgetExceededError,
    WaitTooLongError,
)
from ..limiter.checks import Cost
from ..limiter.permit import Permit
from ..retry import Course
from .context import CallContext, Lease, wants_context
from .story import tell_failure, tell_retry, tell_success, tell_wait
from .taxonomy import Verdict, hidden_in, judge
from .terms import Terms


class Call(Terms):
    """Most calls go well at once and never change most of these."""

    attempt = 1
    permit: Permit | None = None
    circuit: Permit | None = None
    """The circuit's own, where the permit is that of a credential."""
    lease: Lease | None = None
    label: str | None = None
    """Of the credential that was used last."""
    reported: Signal | None = None
    """What the function itself said about the answer."""
    response: object = None
    real_cost: Cost | None = None
    verdict: Verdict | None = None
    """On the last attempt, if it failed."""
    last_error: Exception | None = None
    falls_back = False
    """A refusal ends the call, and the answer before it is what the caller gets."""
    _left = False
    """Whether an attempt is under way."""
    _retrying = False
    _hurried = False
    """Whether the wait for a permit is bounded by the time budget rather than by ``max_wait``."""
    _asked_at: float | None = None
    """When a retry asked for its permits; ``max_wait`` is for all that an attempt waits for together."""
    _course: Course | None = None

    # ------------------------------------------------------------------ before an attempt

    def bind(self, func: Callable[..., Any]) -> Callable[[], Any]:
        """The function with the context it asks for, if it does."""
        return partial(func, CallContext(self)) if wants_context(func) else func

    def patience(self) -> float:
        """How long to wait for a credential: a retry may use all of the time that is left."""
        left = self.time_left()
        return left if self._course is not None else min(left, self._wait_left())

    def request(self) -> tuple[str, Cost, float]:
        """What to ask the limiter for: leave by the pace and, unless it is asked apart, by the circuit."""
        if self._course is None and self.lease is None:  # the call has just begun
            left, most, label = self.time_budget, self.max_wait, None
        else:
            if self._course is not None:
                self._asked_at = self.manager.clock.now()
            left, most = self.time_left(), self._wait_left()
            label = None if self.lease is None else self.lease.label
        self._hurried = left < most
        key = self.target.pace_key(label) if self.asks_circuit_apart else self.target.key
        return key, self.cost, left if self._hurried else most

    def circuit_request(self) -> tuple[str, Cost, float]:
        left, most = self.time_left(), self._wait_left()
        self._hurried = left < most
        return self.target.key, 1, left if self._hurried else most

    def leaves(self) -> None:
        """The attempt starts now."""
        permit, circuit = self.permit, self.circuit
        if self.lease is not None:
            if self._is_void():
                raise NoCredentialError(self.target.name, "the credential has to rest since the wait for a permit")
            self.label = self.lease.label
        if permit is not None:
            if self._course is None:
                self.target.sent(permit.sent_at)
            waited = permit.waited if circuit is None else permit.waited + circuit.waited
            if waited > 0.0:
                tell_wait(self, waited)
                if self.time_left() <= 0.0:
                    raise self.out_of_time()
        if self._course is not None:
            self.reported = self.response = self.real_cost = None
        self._left = True

    # ------------------------------------------------------------------ after it

    def answered(self, result: object) -> float | None:
        """The function has returned: how long to wait before it is called again, or None if that was all."""
        signal = self.reported
        if signal is None:
            signal, self.response = hidden_in(result, self.manager.clock)
        if signal.outcome is Outcome.OK:
            self._report(signal)
            if self.manager.on_event is not None:
                tell_success(self)
            return None
        wait = self._again(judge(signal, self.response, None, self.classify_error, 0.0), None)
        if wait is None:
            tell_failure(self)
        return wait

    def failed(self, error: Exception) -> float | None:
        """The attempt, or getting there, has failed: how long to wait before the next, or None to raise the error."""
        if not self._left:
            return self._refused(error)
        if isinstance(error, Refused):  # by another gate, inside of the function: nothing was sent
            if self.permit is not None:
                self.permit.abandon()
            return None
        known = self.reported if self.reported is not None and self.reported.outcome is not Outcome.OK else None
        return self._again(judge(known, self.response, error, self.classify_error, self.manager.clock.wall()), error)

    def out_of_time(self) -> TimeBudgetExceededError:
        """The budget has ended in the middle of something."""
        course = self._course or self._begin()
        course.calls += self._left
        return course.out_of_time("the time budget is spent", None, self.manager.clock.now())

    def close(self, error: BaseException | None = None) -> None:
        """The call is over, with whatever error: give back what is still held, and tell about it."""
        self._give_back()
        if self._retrying:
            self._end_retry()
        if error is not None:
            tell_failure(self, error)

    def still_in_time(self) -> None:
        """After a wait that may have taken longer than it should."""
        if self._course is not None:
            self._course.still_in_time(self.manager.clock.now())

    # ------------------------------------------------------------------ inside

    def _wait_left(self) -> float:
        asked_at = self.started_at if self._asked_at is None else self._asked_at
        return max(0.0, asked_at + self.max_wait - self.manager.clock.now())

    def _is_void(self) -> bool:
        """Whether others have heard meanwhile that this credential must rest: nothing may start with it."""
        return self.lease is not None and getattr(self.lease, "is_void", False)

    def _give_back(self) -> None:
        held, lease = (self.permit, self.circuit), self.lease
        self.permit = self.circuit = self.lease = None
        for permit in held:
            if permit is not None and self._left:
                permit.release()
            elif permit is not None:
                permit.abandon()
        if lease is not None:
            lease.release()

    def _report(self, signal: Signal, latency: float | None = None) -> None:
        """Tell the gate and the credential how the attempt ended. The circuit hears only of the provider's health."""
        permit, circuit, limiter = self.permit, self.circuit, self.limiter
        if self.lease is not None:  # first: who is refused by the pace must find that another credential is asked for
            self.lease.report(signal=signal)
            self.lease = None
        if permit is not None and limiter is not None:
            if circuit is not None:
                latency = self.manager.clock.now() - circuit.sent_at if latency is None else latency
                if signal.outcome is Outcome.OK or signal.outcome.counts_against_target:
                    told = signal.retry_after if signal.outcome is Outcome.OVERLOADED else None
                    limiter.end(circuit, Signal(outcome=signal.outcome, retry_after=told), latency, None)
                else:
                    circuit.release()
                self.circuit = None
            limiter.end(permit, signal, latency, self.real_cost)
            self.permit = None
        if self._retrying:
            self._end_retry()
        self._left = False

    def _again(self, verdict: Verdict, error: Exception | None) -> float | None:
        """Whether, and after how long, to try again after a failure."""
        self.verdict, self.last_error = verdict, error
        signal = verdict.signal
        outcome = signal.outcome
        self._report(signal)
        course = self._course or self._begin()
        elsewhere = outcome.needs_other_credential
        if not (course.goes_on(outcome) and verdict.retryable) or (elsewhere and self.credentials is None):
            return None
        now, wait = self.manager.clock.now(), 0.0
        if not elsewhere:
            rests = outcome is Outcome.RATE_LIMITED and self.credentials is not None  # the credential, not the call
            floor = 0.0 if rests else signal.retry_after or 0.0
            wait = course.wait(floor, self.manager.rng.random(), now, error)
        if outcome.uses_attempt and self.limiter is not None:
            if not self.target.may_retry(now):
                return None
            self._retrying = True
        self.attempt = course.attempts + 1
        tell_retry(self, wait)
        return wait

    def _refused(self, error: Exception) -> float | None:
        """Not let through. After an attempt its own error says more, unless the refusal knows when to come back."""
        if not isinstance(error, Refused):
            return None
        if self._is_void():  # there may be another
            self._give_back()
            return 0.0
        if isinstance(error, TimeBudgetExceededError):
            error.__cause__ = self.last_error
            return None
        if isinstance(error, NoCredentialError) and error.retry_after is None and self.time_left() <= INSTANT:
            raise self.out_of_time() from self.last_error
        if isinstance(error, WaitTooLongError) and self._hurried:
            course = self._course or self._begin()
            reason = "the wait for a permit would not fit into the time budget"
            raise course.out_of_time(reason, error.retry_after, self.manager.clock.now()) from self.last_error
        if self.verdict is None:
            return None
        dead = self.verdict.signal.outcome in (Outcome.AUTH, Outcome.KEY_DEAD)
        if isinstance(error, CircuitOpenError) or error.retry_after is None or dead:
            if self.last_error is not None:
                raise self.last_error
            self.falls_back = True
            self.close()
            tell_failure(self)
            return None
        error.__cause__ = self.last_error
        return None

    def _begin(self) -> Course:
        settings, budget = self.settings, None if self.time_budget == UNKNOWN else self.time_budget
        self._course = Course(
            self.target.name,
            self.max_attempts,
            settings.base_delay,
            settings.max_delay,
            self.started_at,
            budget,
            settings.max_rate_limit_retries,
        )
        return self._course

    def _end_retry(self) -> None:
        self._retrying = False
        self.target.retried()
