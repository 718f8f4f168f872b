"""What an attempt takes on its way through the gate and gives back: a credential, leave by the pace, a circuit.

    circuit open? ─> credential ─> pace ─> circuit ─> the attempt ─> all of it goes back, with what was learned

The circuit is looked at first, for nobody should wait only to be refused, and asked last, for the slot
of a probe must not stand in lines.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from ..core.decision import UNKNOWN, CircuitState, Outcome
from ..core.signal import Signal
from ..errors import NoCredentialError, TimeBudgetExceededError
from ..limiter.checks import Cost, WhenOpen
from ..limiter.permit import Permit
from ..limiter.watching import About, around
from ..retry import Course
from .context import Lease
from .story import tell_credential_wait, tell_wait
from .terms import Terms

Asked = tuple[str, Cost, float, None, tuple[str, ...], WhenOpen]
"""What the limiter is asked for: the arguments of ``acquire``."""


class Passage(Terms):
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
    last_error: Exception | None = None
    real_cost: Cost | None = None
    _retrying = False
    """Whether it has leave to retry a failure."""
    _left = False
    """Whether an attempt is under way."""
    _hurried = False
    """Whether the wait for a permit is bounded by the time budget rather than by ``max_wait``."""
    _asked_at: float | None = None
    """When a retry asked for its permits; ``max_wait`` is for all that an attempt waits for together."""
    _course: Course | None = None
    """What has happened since the first failure, if there was one."""

    # ------------------------------------------------------------------ before an attempt

    def look_at_circuit(self) -> None:
        """Refuse at once what the circuit would refuse in the end."""
        if self.limiter is not None and self.when_open == "refuse":
            self.limiter.check_circuit(self.target.key)

    @property
    def waits_for_circuit(self) -> bool:
        """Whether to wait for an open circuit before anything else: a credential and a pace are not held meanwhile."""
        if self.when_open == "refuse" or self.limiter is None:
            return False
        return self.limiter.circuit_state(self.target.key) is not CircuitState.CLOSED

    def patience(self) -> float:
        """How long to wait for a credential: a retry may use all of the time that is left."""
        left = self.time_left()
        return left if self._course is not None else min(left, self._wait_left())

    def request(self) -> Asked:
        """What to ask the limiter for: leave by the pace and, unless it is asked apart, by the circuit."""
        lease, target = self.lease, self.target
        if self._course is None and lease is None:  # the call has just begun
            left, most = self.time_budget, self.max_wait
        else:
            if self._course is not None:
                self._asked_at = self.manager.clock.now()
            left, most = self.time_left(), self._wait_left()
        self._hurried = left < most
        key = target.key
        if lease is not None:  # members of a group share one pace, for they share one limit
            key = target.pace_key(getattr(lease, "group", None) or lease.label)
        elif target.keyed:
            key = target.keyless
        return key, self.cost, left if self._hurried else most, None, (), self.when_open

    def circuit_request(self) -> Asked:
        if self._course is not None and self.permit is None:
            self._asked_at = self.manager.clock.now()
        left, most = self.time_left(), self._wait_left()
        self._hurried = left < most
        return self.target.key, 1, left if self._hurried else most, None, (), self.when_open

    def leaves(self) -> None:
        """The attempt starts now."""
        permit, circuit = self.permit, self.circuit
        if self.lease is not None:
            if self._is_void():
                raise NoCredentialError(self.target.name, "the credential has to rest since the wait for a permit")
            self.label = self.lease.label
            if (waited := getattr(self.lease, "waited", 0.0)) > 0.0:
                tell_credential_wait(self, waited)
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

    @property
    def sent_at(self) -> float:
        """When the attempt under way has left: with the last permit it got."""
        permit, circuit = self.permit, self.circuit
        if permit is None or circuit is None:
            return self.started_at if permit is None else permit.sent_at
        return max(permit.sent_at, circuit.sent_at)

    def out_of_time(self) -> TimeBudgetExceededError:
        """The budget has ended in the middle of something."""
        course = self._course or self._begin()
        course.calls += self._left
        return course.out_of_time("the time budget is spent", None, self.manager.clock.now())

    @property
    def is_watched(self) -> bool:
        """Whether anybody wants to be around every call."""
        return self.limiter is not None and bool(self.limiter.tell.around)

    def around(self) -> AbstractContextManager[object]:
        """What is to be entered around an attempt that is watched."""
        if self.limiter is None or self.permit is None:
            return nullcontext()
        return around(self.limiter.tell.around, self.permit, About(self.attempt, credential=self.label or ""))

    # ------------------------------------------------------------------ after it

    def _report(self, signal: Signal, latency: float | None = None) -> None:
        """Tell the gate and the credential how the attempt ended. The circuit hears only of the provider's health."""
        permit, circuit, limiter = self.permit, self.circuit, self.limiter
        if self.lease is not None:  # first: who is refused by the pace must find that another credential is asked for
            self.lease.report(signal=signal)
            self.lease = None
        target, outcome = self.target, signal.outcome
        if outcome is Outcome.OK:
            if target.failures_in_a_row or not target.has_answered:
                target.answered()
        elif outcome.counts_against_target:
            target.failures_in_a_row += 1
        if permit is not None and limiter is not None:
            if circuit is not None:
                latency = self.manager.clock.now() - self.sent_at if latency is None else latency
                if signal.outcome is Outcome.OK or signal.outcome.counts_against_target:
                    told = signal.retry_after if signal.outcome is Outcome.OVERLOADED else None
                    limiter.end(circuit, Signal(outcome=signal.outcome, retry_after=told), latency, None, is_call=False)
                else:
                    circuit.release()
                self.circuit = None
            failed = self.response is None and signal.outcome is not Outcome.OK
            limiter.end(permit, signal, latency, self.real_cost, self.last_error if failed else self.response)
            self.permit = None
        if self._retrying:
            self._end_retry()
        self._left = False

    def _give_back(self) -> None:
        """Whatever is still held."""
        self._give_back_permits()
        if self._retrying:
            self._end_retry()

    def _give_back_permits(self) -> None:
        held, lease = (self.permit, self.circuit), self.lease
        self.permit = self.circuit = self.lease = None
        for permit in held:
            if permit is not None and self._left:
                permit.release()
            elif permit is not None:
                permit.abandon()
        if lease is not None:
            lease.release()

    # ------------------------------------------------------------------ inside

    def _end_retry(self) -> None:
        self._retrying = False
        self.target.retried()

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
            len(getattr(self.credentials, "labels", ())) or settings.max_rate_limit_retries,
            counts_all=self.limiter is None,
        )
        return self._course

    def _wait_left(self) -> float:
        asked_at = self.started_at if self._asked_at is None else self._asked_at
        return max(0.0, asked_at + self.max_wait - self.manager.clock.now())

    def _is_void(self) -> bool:
        """Whether others have heard meanwhile that this credential must rest: nothing may start with it."""
        return self.lease is not None and getattr(self.lease, "is_void", False)
