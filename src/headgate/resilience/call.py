"""One call on its way: what has happened to it, and what may happen next. It decides; others wait and send.

    through the gate (``passage.py``) ─> attempt ─> outcome ──ok──> the result
        ^                                              │ may be tried again, and there is time
        └──────── one wait, the longest of all ────────┘
                                                       │ may not
                                                       └──> the last error, the last answer, or why there was no time

Whatever is held (permits, a credential, leave to retry) is given back by ``close``, so a call
that is cancelled at any moment leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..core.decision import CircuitState, Outcome
from ..core.pace import INSTANT
from ..errors import (
    CircuitOpenError,
    NoCredentialError,
    Refused,
    TimeBudgetExceededError,
    WaitTooLongError,
)
from ..retry import Course
from .context import CallContext, wants_context
from .passage import Passage
from .story import tell_failure, tell_retry, tell_success
from .taxonomy import Verdict, hidden_in, is_away, judge

MOST_SPARED = 20
"""Failures of one call that may be its target's outage."""


class Call(Passage):
    verdict: Verdict | None = None
    """On the last attempt, if it failed."""
    falls_back = False
    """A refusal ends the call, and the answer before it is what the caller gets."""

    def bind(self, func: Callable[..., Any]) -> Callable[[], Any]:
        """The function with the context it asks for, if it does."""
        return partial(func, CallContext(self)) if wants_context(func) else func

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
        if isinstance(error, Refused):  # by another gate, inside of the function
            if self.permit is not None and not error.sent and self.reported is None:
                self.permit.abandon()
            return None
        known = self.reported if self.reported is not None and self.reported.outcome is not Outcome.OK else None
        return self._again(judge(known, self.response, error, self.classify_error, self.manager.clock.wall()), error)

    def close(self, error: BaseException | None = None) -> None:
        """The call is over, with whatever error: give back what is still held, and tell about it."""
        self._give_back()
        if error is not None:
            tell_failure(self, error)

    def still_in_time(self) -> None:
        """After a wait that may have taken longer than it should."""
        if self._course is not None:
            self._course.still_in_time(self.manager.clock.now())

    # ------------------------------------------------------------------ inside

    def _again(self, verdict: Verdict, error: Exception | None) -> float | None:
        """Whether, and after how long, to try again after a failure."""
        self.verdict, self.last_error = verdict, error
        signal = verdict.signal
        outcome = signal.outcome
        lease = self.lease
        self._report(signal)
        course = self._course or self._begin()
        elsewhere = outcome.needs_other_credential
        spared = self._is_spared(course, verdict, error)
        if not (course.goes_on(outcome, is_spared=spared) and verdict.retryable):
            return None
        if elsewhere and (lease is None or (signal.is_forbidden and not getattr(lease, "is_void", True))):
            return None  # there is no other to go on with
        now, wait = self.manager.clock.now(), 0.0
        if not elsewhere:
            rests = outcome is Outcome.RATE_LIMITED and self.credentials is not None  # the credential, not the call
            floor = 0.0 if rests else signal.retry_after or 0.0
            wait = course.wait(floor, self.manager.rng.random(), now, error)
        opens_in = 0.0 if self.limiter is None else self.limiter.circuit_opens_in(self.target.key)
        if opens_in > (wait if self.when_open == "refuse" else max(wait, self.max_wait)):
            return None  # it would be refused after the wait: its own failure may have opened the circuit
        if outcome.uses_attempt and self.limiter is not None and not spared:
            if not self.target.may_retry(now):
                return None
            self._retrying = True
        self.attempt = course.attempts + 1
        tell_retry(self, wait)
        return wait

    def _is_spared(self, course: Course, verdict: Verdict, error: Exception | None) -> bool:
        """Whether a failure uses up no attempt, nor of the retry budget, since the whole target is in an outage.

        It has answered before; since this call first failed no other has succeeded, or the circuit is not closed: this
        failure has tripped it, came while it was open, or ended its probe. The circuit keeps storms off. Where one
        call alone may not be repeated (``max_attempts=1``), nothing is.
        """
        if self.when_open == "refuse" or self.limiter is None or not verdict.retryable or self.max_attempts < 2:
            return False
        target = self.target
        if course.spared >= MOST_SPARED or not target.has_answered or not self._is_away(verdict, error):
            return False
        if self.manager.clock.now() - self.started_at >= self.max_wait:
            return False
        failures = course.attempts + course.spared + 1
        is_closed = self.limiter.circuit_state(target.key) is CircuitState.CLOSED
        return not is_closed or target.failures_in_a_row >= failures

    def _is_away(self, verdict: Verdict, error: Exception | None) -> bool:
        return is_away(verdict, self.response, error)

    def _refused(self, error: Exception) -> float | None:
        """Not let through. After an attempt its own error says more, unless the refusal knows when to come back."""
        if not isinstance(error, Refused):
            return None
        if self._is_void():  # there may be another
            self._give_back_permits()
            return 0.0
        if isinstance(error, TimeBudgetExceededError):
            error.__cause__ = self.last_error
            return None
        if isinstance(error, NoCredentialError) and error.retry_after is None and self.time_left() <= INSTANT:
            raise self.out_of_time() from self.last_error
        if isinstance(error, WaitTooLongError) and self._hurried:
            course = self._course or self._begin()
            reason = f"the wait for a permit would not fit into the time budget ({error.reason})"
            raise course.out_of_time(reason, error.retry_after, self.manager.clock.now()) from self.last_error
        if self.verdict is None:
            return None
        error.sent = True
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
