"""What an attempt holds while it runs, and gives back, once, when it has ended.

step          held         given back
CREDENTIAL    lease        report: with what was learned; release: without an outcome
PERMIT        permit       report; release: sent, outcome unknown; abandon: nothing was sent
CIRCUIT       circuit      likewise; only where the pace is a credential's own
a retry       has_retry    a share of the provider's retry budget
"""

from __future__ import annotations

from enum import Enum

from ..core.decision import Outcome
from ..core.signal import SILENT, Signal
from ..limiter import AdaptiveRateLimiter
from ..limiter.permit import Cost, Permit
from .context import Lease
from .manager import ProviderState


class Step(Enum):
    """What a driver has to do next; ``Call`` says for how long, and under which key."""

    SLEEP = "sleep"
    CREDENTIAL = "credential"
    PERMIT = "permit"
    CIRCUIT = "circuit"
    SEND = "send"


class CallState(Enum):
    WAITING = "waiting"
    """For a pause, a credential or a permit."""
    SENT = "sent"
    """An attempt is under way."""
    OPEN = "open"
    """A good answer has begun; everything stays held until it has been read."""
    ENDED = "ended"


OK = Outcome.OK
# Looked up once: in Python 3.11 a member of an enum takes longer to find than to compare.
WAITING, SENT, OPEN, ENDED = CallState
SLEEP, CREDENTIAL, PERMIT, CIRCUIT, SEND = Step


class CallHoldings:
    __slots__ = ("_limiter", "_pace_key", "_provider", "circuit", "has_retry", "lease", "permit")

    def __init__(self, limiter: AdaptiveRateLimiter | None, provider: ProviderState) -> None:
        self._limiter, self._provider = limiter, provider
        self.lease: Lease | None = None
        self.permit: Permit | None = None
        self.circuit: Permit | None = None
        self.has_retry = False
        self._pace_key = provider.key

    @property
    def is_empty(self) -> bool:
        return self.lease is None and self.permit is None and self.circuit is None

    @property
    def needs_circuit(self) -> bool:
        """Whether the permit is one for the pace alone, and the circuit is still to be asked."""
        return self.circuit is None and self.permit is not None and self.permit.key != self._provider.key

    @property
    def is_void(self) -> bool:
        """Whether it has become known meanwhile that the credential must rest: nothing may start with it."""
        return self.lease is not None and getattr(self.lease, "is_void", False)

    @property
    def sent_at(self) -> float | None:
        """When the attempt was sent: with the last permit it got. None without a permit."""
        if self.permit is None or self.circuit is None:
            return None if self.permit is None else self.permit.sent_at
        return max(self.permit.sent_at, self.circuit.sent_at)

    def take_retry(self, now: float) -> bool:
        """Take a share of the retry budget; False if there is none left."""
        self.has_retry = self._provider.may_retry(now)
        return self.has_retry

    def report(self, signal: Signal, latency: float | None, cost: Cost | None, answer: object) -> None:
        """Give all back with what the attempt has ended in. The circuit learns of the provider's health alone.

        ``answer`` is what the signal was read from, for observers of calls.
        """
        permit, circuit, lease, limiter = self.permit, self.circuit, self.lease, self._limiter
        if lease is not None:  # first: a waiter that the pace refuses must find that another credential is needed
            self.lease = None
            lease.report(signal=signal)
        outcome = signal.outcome
        if outcome is OK:
            if self._provider.failures_in_a_row or not self._provider.has_answered:
                self._provider.note_success()
        elif outcome.counts_against_target:
            self._provider.failures_in_a_row += 1
        if permit is not None and limiter is not None:
            draw = None
            if circuit is not None:
                if latency is None:
                    latency = limiter.clock.now() - max(permit.sent_at, circuit.sent_at)
                self.circuit = None
                if outcome is OK or outcome.counts_against_target:
                    floor = signal.retry_after if outcome is Outcome.OVERLOADED else None
                    health = SILENT[outcome] if floor is None else Signal(outcome=outcome, retry_after=floor)
                    drawn = circuit.report_signal(health, latency=latency, is_call=False)
                    draw = None if floor is None else drawn
                else:
                    circuit.release()
            permit.report_signal(signal, latency=latency, cost=cost, answer=answer, draw=draw)
            if outcome is not OK:
                self._pace_key = permit.key
            self.permit = None
        if self.has_retry:
            self._end_retry()

    def paused_for(self) -> float:
        """Seconds for which the keys of the last attempt, which has failed, let nothing start."""
        if self._limiter is None:
            return 0.0
        return max(self._limiter.held_for(self._pace_key), self._limiter.held_for(self._provider.key))

    def release(self, *, was_sent: bool) -> None:
        """Give all back without an outcome."""
        self.release_permits(was_sent=was_sent)
        if self.has_retry:
            self._end_retry()

    def release_permits(self, *, was_sent: bool) -> None:
        """Give the permits and the credential back; a retry that goes on keeps its share."""
        held, lease = (self.permit, self.circuit), self.lease
        self.permit = self.circuit = self.lease = None
        for permit in held:
            if permit is not None and was_sent:
                permit.release()
            elif permit is not None:
                permit.abandon()
        if lease is not None:
            lease.release()

    def _end_retry(self) -> None:
        self.has_retry = False
        self._provider.end_retry()
