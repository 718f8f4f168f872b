"""What a leased gate reports to the coordinator: calls, answers and what comes back, for the leader to learn from.

``Reporter`` takes the place of the gate's controller, because the leader concludes for all members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import TYPE_CHECKING

from ..core.controller import Controller
from ..core.decision import UNKNOWN, ControllerNote, Outcome
from ..core.policy import Cost, costs_of, requests_of
from ..core.quota import LONG_WINDOW
from ..core.signal import Signal
from ..core.ticket import Ticket
from .observation_log import MOST_EVENTS, RELEASED, ObservationLog
from .protocol import QuotaTerms

if TYPE_CHECKING:
    from .lease import Lease
    from .leased_policies import LeasedCircuit

OK = Outcome.OK


class Outbox:
    """What a member's next request takes along: what comes back, what was spent alone, and what others must know."""

    def __init__(self) -> None:
        self.back = 0
        """Permits that will not be used."""
        self.refunds: dict[str, float] = {}
        """What comes back of known limits; below 0, what was used beyond what was granted."""
        self.took_at = UNKNOWN
        """When the oldest of that was taken."""
        self.rest = 0.0
        """For how long to pause."""
        self.probe_over = False
        """Whether the probe came to nothing."""
        self.is_urgent = False
        """Whether others wait for any of this."""
        self.taken = 0
        """Calls that started solo, beyond the numbers that were held."""
        self.apart: dict[str, float] = {}
        """What was spent while the store was lost, beyond what is charged for."""
        self.spent_alone: dict[str, float] = {}
        """What was taken of known limits without the coordinator, so far."""

    def refund(self, amounts: Mapping[str, float], taken_at: float) -> None:
        self.took_at = min(self.took_at, taken_at)
        for dimension, amount in amounts.items():
            self.refunds[dimension] = self.refunds.get(dimension, 0.0) + amount

    def refund_age(self, now: float) -> float:
        return max(0.0, now - self.took_at) if self.refunds else 0.0

    def empty(self) -> None:
        """All of it is on its way; a request that is lost loses it."""
        self.back, self.rest, self.probe_over, self.is_urgent = 0, 0.0, False, False
        self.refunds, self.apart, self.took_at = {}, {}, UNKNOWN
        self.taken = min(0, self.taken)

    def drop(self) -> None:
        """What was to be reported concerns no coordinator any more."""
        self.back, self.refunds, self.apart, self.rest, self.taken = 0, {}, {}, 0.0, 0

    # ------------------------------------------------------------------ without the store

    def spend_alone(self, cost: Cost) -> None:
        """A call starts without the coordinator."""
        for dimension, amount in costs_of(cost).items():
            self.spent_alone[dimension] = self.spent_alone.get(dimension, 0.0) + amount

    def lose_store(self) -> None:
        """What was to come back is lost; what was used beyond it counts as spent alone."""
        self.spent_alone = {name: -amount for name, amount in self.refunds.items() if amount < 0}
        self.back, self.refunds = 0, {}

    def find_store(self, terms: QuotaTerms, limited: Iterable[str], members: int, now: float) -> None:
        """Charge for calls started without the coordinator: so much that it gives no burst on top."""
        most: dict[str, float] = {}
        for dimension, _, window, burst in terms.limits:
            if window < LONG_WINDOW:
                most[dimension] = min(most.get(dimension, UNKNOWN), burst / members)
        spent = self.spent_alone
        charged = {name: -max(0.0, min(spent.get(name, 0.0), burst)) for name, burst in most.items()}
        self.refund(charged, now)  # not before: a store that is too slow receives every attempt
        apart = {name: spent.get(name, 0.0) + charged.get(name, 0.0) for name in limited}
        self.apart = {name: amount for name, amount in apart.items() if amount > 0}
        self.spent_alone = {}


def requests_in(cost: Cost) -> int:
    """How many numbers a call of this cost takes."""
    return 1 if cost == 1 else ceil(requests_of(cost))


class Reporter(Controller):
    __slots__ = ("_idle", "circuit", "learns", "lease", "log", "outbox", "rate", "void_to_seq", "want")

    watches_sends = True
    circuit: LeasedCircuit
    lease: Lease

    def __init__(self, idle: Controller, log: ObservationLog, outbox: Outbox, want: Callable[[float], None]) -> None:
        """``circuit`` and ``lease`` are set when they are made."""
        self._idle = idle
        """A controller of the configured strategy that is never taught."""
        self.learns = idle.learns  # type: ignore[misc]
        self.rate = idle.rate
        self.log, self.outbox = log, outbox
        self.want = want
        self.void_to_seq = 0
        """Calls up to this one left by numbers of an era that is over."""

    # ------------------------------------------------------------------ as a controller

    def on_send(self, ticket: Ticket, now: float) -> None:
        if self.learns or ticket.seq == self.circuit.probe_seq:
            self.log.send(ticket.seq, now)
        lease = self.lease
        if now >= lease.ask_from and not lease.asked and lease.needs_more(lease.taking, now):
            self.want(now)

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        outcome, is_probe = signal.outcome, ticket.seq == self.circuit.probe_seq
        self._make_room(now)
        if outcome is OK and not self.learns and not is_probe:
            self.log.oks += 1
            return 0.0
        self.log.end(ticket.seq, now, latency, signal, "")
        if is_probe:
            self._probe_ended(outcome is not OK and not outcome.counts_against_target, now)
        elif outcome is not OK or len(self.log) > MOST_EVENTS // 2:
            self.outbox.is_urgent = True
            self.want(now)
        return 0.0

    def why(self) -> ControllerNote | str:
        return self._idle.why()

    def why_cap(self) -> ControllerNote | str:
        return self._idle.why_cap()

    # ------------------------------------------------------------------ what the policies report

    def refund(self, amounts: Mapping[str, float], taken_at: float) -> None:
        self.outbox.refund(amounts, taken_at)

    def give_back(self, ticket: Ticket) -> None:
        if ticket.seq > self.void_to_seq:
            self.outbox.back += requests_in(ticket.cost)

    def pause(self, seconds: float, now: float) -> None:
        self.outbox.rest, self.outbox.is_urgent = max(self.outbox.rest, seconds), True
        self.want(now)

    def end_without_answer(self, ticket: Ticket, how: str, now: float) -> None:
        circuit, is_probe = self.circuit, ticket.seq == self.circuit.probe_seq
        answered = circuit.unmatched if is_probe and how == RELEASED else None
        if answered is not None:
            signal, latency, at = answered
            circuit.unmatched = None
            self.log.end(ticket.seq, at, latency, signal, "")
        elif self.learns:
            self.log.end(ticket.seq, now, 0.0, None, how)
        if is_probe:
            self._probe_ended(answered is None, now)
        self._make_room(now)

    def _make_room(self, now: float) -> None:
        """A call has ended: members that were refused because too many are in flight wait for this."""
        if self.lease.short_of in ("depth", "turn") and not self.lease.asked:
            self.want(now)

    def _probe_ended(self, without_answer: bool, now: float) -> None:
        self.circuit.probe_seq, self.outbox.probe_over, self.outbox.is_urgent = 0, without_answer, True
        self.want(now)
