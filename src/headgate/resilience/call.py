"""One call on its way: what has happened to it, and what must happen next. It decides; drivers wait and send.

    WAITING ── begin_attempt ──> SENT ── answered: fine ──> OPEN ── complete, fail, abandon ──> ENDED
       ^                          │        (only where the answer is still read: streams, HTTP clients)
       │                          │ failed, or answered with an error
       └── one wait, the longest ─┤ may be tried again, and there is time
                                  └ may not ──> ENDED: the last error, the last answer, or why there was no time

A driver (``execute.py``) does what the next step says until that is SEND, and reports how the attempt has ended:

    circuit open? ─> CREDENTIAL ─> PERMIT by the pace ─> CIRCUIT ─> SEND ─> all goes back, with what was learned

The circuit is looked at first, since no call should wait only to be refused, and asked last, since the slot of a probe
must not stand in queues. ``close`` gives back what is held, so a call that is cancelled at any moment leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from ..clock import Clock
from ..core.decision import INSTANT, UNKNOWN, CircuitState, Outcome
from ..core.signal import SILENT, Signal
from ..errors import CircuitOpenError, NoCredentialError, Refused, TimeBudgetExceededError, WaitTooLongError
from ..limiter.events import CallInfo, around
from ..limiter.permit import Cost, Permit, WhenOpen
from .call_holdings import CIRCUIT, CREDENTIAL, ENDED, OPEN, PERMIT, SEND, SENT, SLEEP, WAITING, CallHoldings, Step
from .classify import Verdict, classify_failure, is_away, signal_in_result
from .config import CallOptions
from .context import Lease, cannot_spend
from .events import emit_abandoned, emit_failure, emit_retry, emit_success, emit_wait
from .manager import get_resilience_manager
from .retry import RetryState

MOST_SPARED = 20
"""Failures of one call that may be its target's outage."""
OK, CLOSED, _OK = Outcome.OK, CircuitState.CLOSED, SILENT[Outcome.OK]
RetryRule = Callable[[Verdict, Exception | None], Verdict]
"""Has the last word on a failure: an HTTP client knows what may be sent twice."""


class Call:
    """The state machine of one call. Most calls go well at once and never change most of these."""

    state, attempt = WAITING, 1
    credential_label: str | None = None
    """Of the credential that was used last."""
    reported: Signal | None = None
    """What the function itself said about the answer."""
    response: object = None
    real_cost: Cost | None = None
    verdict: Verdict | None = None
    """On the last attempt, if it failed."""
    last_error: Exception | None = None
    has_failed, target, model = False, "", ""  # whether its answer is an error; of a fallback: its API and model
    _retry: RetryState | None = None
    """What has happened since the first failure, if there was one."""
    observers: AbstractContextManager[object] | None = None
    """To be entered around the attempt."""
    wait = 0.0
    """Seconds that the next step may take: to sleep, or to wait for a credential."""
    request: tuple[str, Cost, float, None, tuple[str, ...], WhenOpen]
    """The arguments for the limiter's ``acquire``, where the next step is a permit or the circuit."""
    _pause = 0.0
    """Seconds to sleep before anything else."""
    _is_bounded_by_budget = False
    """Whether the wait for a permit is bounded by the time budget rather than by ``max_wait``."""
    _asked_at: float | None = None
    """When a retry asked for its permits; ``max_wait`` is for all that an attempt waits for together."""
    _began_after: float | None = None
    """Seconds until the open answer began: how long it lasts says nothing about its server."""

    def __init__(
        self,
        provider: str,
        options: CallOptions,
        *,
        holds_answer: bool = False,
        retry_rule: RetryRule | None = None,
        client_errors: tuple[type[Exception], ...] = (),
    ) -> None:
        """``holds_answer``: a good answer is still to be read, and ends by ``complete``, ``fail`` or ``abandon``.

        ``client_errors``: nothing was sent, and the client itself is to blame (no free connection in its pool).
        """
        self.options, config = options, options.resilience_config
        self.when_open, self.credentials = options.when_open, options.credentials
        self.manager = manager = get_resilience_manager() if options.manager is None else options.manager
        self.provider = manager.provider_state(provider, config, self.credentials is not None)
        self.settings = settings = self.provider.settings_for(config, self.when_open)
        self.limiter = manager.limiter if self.provider.switch.is_enabled() else None  # else plain retries
        self.held = CallHoldings(self.limiter, self.provider)
        self.time_budget = settings.time_budget if options.time_budget is None else options.time_budget
        self.attempt_timeout = settings.attempt_timeout if options.attempt_timeout is None else options.attempt_timeout
        self.max_attempts = settings.max_attempts if options.max_attempts is None else options.max_attempts
        wait = options.max_wait_seconds
        self.max_wait = settings.rate_limiter.max_wait_seconds if wait is None else wait
        self._holds_answer, self._retry_rule, self._client_errors = holds_answer, retry_rule, client_errors
        self._correlation_id, self.started_at = options.correlation_id, manager.clock.now()

    @property
    def clock(self) -> Clock:
        return self.manager.clock

    @property
    def permit(self) -> Permit | None:
        return self.held.permit

    @property
    def lease(self) -> Lease | None:
        return self.held.lease

    @property
    def correlation_id(self) -> str:
        """Made up when first asked for: most calls are never asked."""
        if self._correlation_id is None:
            self._correlation_id = self.manager.new_id()
        return self._correlation_id

    def time_left(self) -> float:
        if self.time_budget == UNKNOWN:
            return UNKNOWN
        return max(0.0, self.started_at + self.time_budget - self.manager.clock.now())

    # ------------------------------------------------------------------ before an attempt

    def next_step(self) -> Step:
        """What is still missing before the attempt may start; ``wait`` or ``request`` says how long that may take."""
        if self._pause > 0.0:
            self.wait, self._pause = self._pause, 0.0
            return SLEEP
        if self._retry is not None:
            self._retry.check_deadline(self.manager.clock.now())
        held, provider = self.held, self.provider
        if held.permit is None and (self.limiter is not None or self.credentials is not None):
            if provider.per_credential and held.is_empty and self._waits_for_circuit():
                return self._request_permit(CIRCUIT)  # neither a credential nor a pace is held meanwhile
            if self.credentials is not None and held.lease is None:
                self._check_circuit()
                most = self._wait_left() if self._retry is None else UNKNOWN  # a retry may use all of the budget
                self.wait = 0.0 if cannot_spend(self.credentials) else min(self.time_left(), most)
                return CREDENTIAL
            if self.limiter is not None:
                if provider.per_credential:
                    self._check_circuit()
                return self._request_permit(PERMIT)
        elif provider.per_credential and held.needs_circuit:
            return self._request_permit(CIRCUIT)
        self.begin_attempt()
        return SEND

    def begin_attempt(self) -> None:
        """All is there: the attempt starts now."""
        held, retry, limiter = self.held, self._retry, self.limiter
        if held.lease is not None:
            if held.is_void:
                raise NoCredentialError(
                    self.provider.name, "the credential became unavailable while waiting for a permit"
                )
            self.credential_label = held.lease.label
            if (waited := getattr(held.lease, "waited", 0.0)) > 0.0 and self.manager.on_event is not None:
                emit_wait(self, "credential_wait", waited)
        permit, circuit = held.permit, held.circuit
        if permit is not None and limiter is not None:
            if retry is None:
                self.provider.note_first_send(permit.sent_at)
            waited = permit.waited if circuit is None else permit.waited + circuit.waited
            if waited > 0.0 and self.manager.on_event is not None:
                emit_wait(self, "rate_limit_wait", waited)
            if waited > 0.0 and self.time_left() <= 0.0:
                raise self.out_of_time()
            if limiter.events.around:
                info = CallInfo(self.attempt, credential=self.credential_label or "")
                self.observers = around(limiter.events.around, permit, info)
        if retry is not None:
            self.reported = self.response = self.real_cost = None
        self.state = SENT

    # ------------------------------------------------------------------ after it

    def answered(self, result: object) -> None:
        """The attempt has returned: now WAITING for another one, OPEN, or ENDED with the result."""
        signal = self.reported
        if signal is None and self._holds_answer:
            signal = _OK
        elif signal is None:
            signal, self.response = signal_in_result(result, self.manager.clock)
        if signal.outcome is not OK:
            self.has_failed = not self._may_retry(self._classify(signal, None), None)
            if self.has_failed:
                emit_failure(self)
        elif self._holds_answer:
            self._began_after = self.manager.clock.now() - (self.held.sent_at or self.started_at)
            self.state = OPEN
        else:
            self._end_attempt(signal)
            if self.manager.on_event is not None:
                emit_success(self)
        if self.state is not WAITING:
            self._retry_rule = None  # it may refer to this call; without a cycle both are freed at once

    def failed(self, error: Exception) -> bool:
        """The attempt, or a step to it, has failed: whether to raise the error. If not: WAITING, or ENDED as it was."""
        if self.state is not SENT:
            return self._refused(error)
        if isinstance(error, self._client_errors):
            self.state = WAITING
            return True
        if isinstance(error, Refused):  # by another gate, inside of the function
            if not error.sent and self.reported is None:
                self.state = WAITING
            return True
        known = self.reported if self.reported is not None and self.reported.outcome is not OK else None
        return not self._may_retry(self._classify(known, error), error)

    def _classify(self, signal: Signal | None, error: Exception | None) -> Verdict:
        hook, wall = self.options.classify_error, self.manager.clock.wall()
        return classify_failure(signal, self.response, error, hook, wall)

    def out_of_time(self) -> TimeBudgetExceededError:
        """The time budget has ended in the middle of something."""
        retry = self._retry or self._first_failure()
        retry.calls += self.state is SENT
        return retry.out_of_time("the time budget is spent", None, self.manager.clock.now())

    def close(self, error: BaseException | None = None) -> None:
        """The call is over, with this error if there was one: give back what is still held, and emit how it ended."""
        self.held.release(was_sent=self.state in (SENT, OPEN))
        self.state, self._retry_rule = ENDED, None
        if error is not None:
            emit_failure(self, error)

    # ------------------------------------------------------------------ the ends of an open answer

    def complete(self, signal: Signal = _OK) -> None:
        """All of the answer was read; what is said at its end may still be an error."""
        if self.state is not OPEN:
            return
        if signal.outcome is OK:
            self._end_attempt(signal)
            emit_success(self)
        else:
            self._fail_open(signal, None)

    def fail(self, error: Exception) -> None:
        """The answer was cut off: that it began well does not count any more. It was seen, so it is not repeated."""
        if isinstance(error, self._client_errors):
            self.abandon(error)
        elif self.state is OPEN:
            self._fail_open(None, error)

    def abandon(self, error: BaseException | None = None, signal: Signal | None = None) -> None:
        """The answer is not read any further; ``signal`` is what its beginning says, if its outcome is known."""
        if self.state is not OPEN:
            return
        if signal is None:
            self.close()
        else:
            self._end_attempt(signal)
        emit_abandoned(self, error)

    def _fail_open(self, signal: Signal | None, error: Exception | None) -> None:
        self.verdict, self.last_error = self._classify(signal, error), error
        self._end_attempt(self.verdict.signal)
        emit_failure(self, error)

    def _end_attempt(self, signal: Signal) -> None:
        answer = self.last_error if self.response is None and signal.outcome is not OK else self.response
        self.held.report(signal, self._began_after, self.real_cost, answer)
        self.state = ENDED

    # ------------------------------------------------------------------ what is asked for

    def _check_circuit(self) -> None:
        """Refuse at once what the circuit would refuse in the end."""
        if self.limiter is not None and self.when_open == "refuse":
            self.limiter.check_circuit(self.provider.key)

    def _waits_for_circuit(self) -> bool:
        if self.limiter is None or self.when_open == "refuse":
            return False
        return self.limiter.circuit_state(self.provider.key) is not CLOSED

    def _request_permit(self, step: Step) -> Step:
        """Set ``request``: the key and the cost of the step, and how long ``max_wait`` and the time budget allow."""
        if self._retry is None and not self.provider.per_credential:  # the call has just begun
            left, most = self.time_budget, self.max_wait
        else:
            if self._retry is not None and self.held.permit is None:
                self._asked_at = self.manager.clock.now()
            left, most = self.time_left(), self._wait_left()
        self._is_bounded_by_budget, wait = left < most, min(left, most)
        if step is CIRCUIT:
            self.request = self.provider.key, 1, wait, None, (), self.when_open
        else:
            self.request = self.provider.pace_key(self.held.lease), self.options.cost, wait, None, (), self.when_open
        return step

    def _wait_left(self) -> float:
        asked_at = self.started_at if self._asked_at is None else self._asked_at
        return max(0.0, asked_at + self.max_wait - self.manager.clock.now())

    # ------------------------------------------------------------------ whether to try again

    def _may_retry(self, verdict: Verdict, error: Exception | None) -> bool:
        """End the attempt; whether another follows, after ``_pause``."""
        if self._retry_rule is not None:
            verdict = self._retry_rule(verdict, error)
        self.verdict, self.last_error = verdict, error
        signal, lease, limiter = verdict.signal, self.held.lease, self.limiter
        self._end_attempt(signal)
        outcome, retry = signal.outcome, self._retry or self._first_failure()
        spared = self._is_spared(retry, verdict, error)
        if not (retry.should_retry(outcome, is_spared=spared) and verdict.retryable):
            return False
        elsewhere = outcome.needs_other_credential
        is_kept = signal.is_forbidden and not getattr(lease, "is_void", True)
        if elsewhere and (lease is None or is_kept or cannot_spend(self.credentials)):
            return False  # there is no other to go on with
        now, wait = self.manager.clock.now(), 0.0
        if not elsewhere:
            wait = self._backoff(retry, signal)
            retry.check_fits(wait, now, error)
        opens_in = 0.0 if limiter is None else limiter.circuit_opens_in(self.provider.key)
        if opens_in > (wait if self.when_open == "refuse" else max(wait, self.max_wait)):
            return False  # it would be refused after the wait: its own failure may have opened the circuit
        if outcome.uses_attempt and limiter is not None and not spared and not self.held.take_retry(now):
            return False
        self.attempt = retry.attempts + 1
        self._pause, self.state = wait, WAITING
        emit_retry(self, wait)
        return True

    def _backoff(self, retry: RetryState, signal: Signal) -> float:
        """Seconds before the next attempt.

        A Retry-After that holds the whole key is waited for as long as its gate has decided, with the jitter drawn
        there; any other wait is drawn here. One for a credential is the credential's, and another may go on.
        """
        is_of_credential = signal.outcome is Outcome.RATE_LIMITED and self.credentials is not None
        floor = 0.0 if is_of_credential else signal.retry_after or 0.0
        if floor > 0.0 and (paused_for := self.held.paused_for()) >= floor:
            return paused_for
        return retry.backoff(floor, self.manager.rng.random())

    def _is_spared(self, retry: RetryState, verdict: Verdict, error: Exception | None) -> bool:
        """Whether a failure uses up no attempt, nor of the retry budget: in an outage the circuit keeps storms off."""
        if self.when_open == "refuse" or self.limiter is None or not verdict.retryable or self.max_attempts < 2:
            return False
        if retry.spared >= MOST_SPARED or self.manager.clock.now() - self.started_at >= self.max_wait:
            return False
        is_closed = self.limiter.circuit_state(self.provider.key) is CLOSED
        failures = retry.attempts + retry.spared + 1
        return self.provider.is_in_outage(failures, is_closed) and is_away(verdict, self.response, error)

    def _refused(self, error: Exception) -> bool:
        """Not let through: whether to raise that. The error or answer before it says more, unless it says when."""
        if not isinstance(error, Refused):
            return True
        if self.held.is_void:  # there may be another
            self.held.release_permits(was_sent=False)
            return False
        if isinstance(error, TimeBudgetExceededError):
            error.__cause__ = self.last_error
            return True
        if isinstance(error, NoCredentialError) and error.retry_after is None and self.time_left() <= INSTANT:
            raise self.out_of_time() from self.last_error
        if isinstance(error, WaitTooLongError) and self._is_bounded_by_budget:
            retry = self._retry or self._first_failure()
            reason = f"the wait for a permit would not fit into the time budget ({error.reason})"
            raise retry.out_of_time(reason, error.retry_after, self.manager.clock.now()) from self.last_error
        if self.verdict is None:
            return True
        error.sent = True
        dead = self.verdict.signal.outcome in (Outcome.SPEND, Outcome.AUTH, Outcome.KEY_DEAD)
        if isinstance(error, CircuitOpenError) or error.retry_after is None or dead:
            if self.last_error is not None:
                raise self.last_error
            self.close()
            self.has_failed = True
            emit_failure(self)
            return False
        error.__cause__ = self.last_error
        return True

    def _first_failure(self) -> RetryState:
        settings, credentials = self.settings, len(getattr(self.credentials, "labels", ()))
        self._retry = RetryState(
            self.provider.name,
            self.max_attempts,
            settings.base_delay,
            settings.max_delay,
            self.started_at,
            self.time_budget,
            max_rate_limited=settings.max_rate_limit_retries,
            max_credential_changes=credentials or settings.max_rate_limit_retries,
            counts_all=self.limiter is None,
        )
        return self._retry
