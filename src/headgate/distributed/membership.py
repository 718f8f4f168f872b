"""One process as a member of a key's quota: what it needs of its process, whether it leads, and what it reports.

The coordinator says which member leads, by a fence that grows with each leader. A new leader goes on from what the one
before it saved; one that was solo goes on from what it has learned itself, if that counts for more. Where a member
leads, ``Leadership`` has what was learned from all members.

A member reports its calls, its answers and what comes back, for the leader to learn from: its policies and ``Reporter``
fill the ``Outbox`` of its next request. ``Reporter`` takes the place of the gate's controller, because the leader
concludes for all members.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Protocol

from ..config import RateLimitConfig
from ..core.circuit_breaker import Breaker
from ..core.controller import Controller
from ..core.decision import UNKNOWN, ControllerNote, Outcome
from ..core.gate_config import GateConfig
from ..core.policy import Cost, Ticket, costs_of, requests_of
from ..core.quota import LONG_WINDOW
from ..core.signal import Signal
from .leader import QuotaLeader
from .observation_log import MOST_EVENTS, ObservationLog
from .protocol import Publication, QuotaTerms, SyncReply

if TYPE_CHECKING:
    from .lease import Lease
    from .lease_client import LeaseClient
    from .leased_policies import LeasedCircuit

log = logging.getLogger("headgate")

ENOUGH_ANSWERS = 20
"""From so many on, what a member has learned by itself counts for more than what a coordinator knows that it just
found."""


class Membership(Protocol):
    """What a client needs of its process's place among the members."""

    member: str
    """The name of this process in the store."""
    where: str
    """For people: which store."""
    refuses: bool
    """Whether nothing may start while the store is lost."""
    draw: Callable[[], float]
    settled_at: float
    """From when on this process knows how many others there are; not yet: in the future."""
    asked_since: float
    """When the request left that the store has not answered yet, of whichever key; none: in the future."""

    @property
    def is_paused(self) -> bool:
        """Whether an operator lets nothing start."""
        ...

    def next_number(self) -> int:
        """The number of this member's next request."""
        ...

    def wake(self, client: LeaseClient) -> None:
        """This client's exchange is due."""
        ...


class KeyRecord(Protocol):
    """The limiter's own record of a key; it is only handed back."""

    used_at: float
    """When it was opened, or a call of it last ended."""


class Leadership:
    def __init__(self, config: GateConfig, observed: ObservationLog) -> None:
        self._config = config
        self._log = observed
        """What this member saw since the last exchange."""
        self.leader: QuotaLeader | None = None
        """What was learned from all members; None unless this member leads."""
        self.shift = 0.0
        """The coordinator's time minus ours."""

    @property
    def leads(self) -> QuotaLeader:
        assert self.leader is not None
        return self.leader

    def stated_rate(self) -> float | None:
        """The rate that the server states, where this member leads and knows it."""
        gate = None if self.leader is None else self.leader.gate
        return gate.pacer.learned_rate if gate is not None and gate.controller.is_told else None

    def set_time(self, there: float, now: float, *, solo: bool) -> None:
        """The coordinator's time is ``there``."""
        before, self.shift = self.shift, there - now
        if solo and self.leader is not None:  # which learns in our own time
            self.leader.base += self.shift - before

    def take_own(self, member: str, now: float, draw: float) -> None:
        """Learn from what this member saw itself."""
        self.leads.take_own(self._log, member, self.shift, now + self.shift, draw)

    def publish(self, key: str, member: str, number: int, now: float, draw: float) -> Publication | None:
        """What follows from what all members saw, where this member leads."""
        leader = self.leader
        if leader is None:
            return None
        try:
            self.take_own(member, now, draw)
            return leader.publication(now + self.shift, member, number)
        except Exception:
            self.start_over(key, leader)
            return None

    def on_reply(self, key: str, reply: SyncReply, draw: float, *, solo: bool) -> None:
        """Lead if the coordinator says so, and learn from what the others saw."""
        leader = self.leader
        if not reply.fence:
            self.leader = None
            return
        if leader is not None and leader.fence != reply.fence and solo and self._knows_more(leader, reply):
            leader.fence, leader.word = reply.fence, max(leader.word, reply.word)
            leader.read = reply.covers
        elif leader is None or leader.fence != reply.fence:
            since = min([reply.now, *(note.at for note in reply.notes)])
            leader = self.leader = QuotaLeader(self._config, reply.fence, since, reply.word)
            if reply.learned:
                leader.go_on(reply.learned, reply.covers)
        try:
            leader.take(reply.notes, reply.now, draw)
        except Exception:
            self.start_over(key, leader)

    def _knows_more(self, leader: QuotaLeader, reply: SyncReply) -> bool:
        """Whether what was learned here counts for more than what the coordinator knows."""
        return not reply.learned or leader.gate.answers >= ENOUGH_ANSWERS

    def start_over(self, key: str, before: QuotaLeader) -> None:
        """What was learned, or a strategy of the user's, is of no use: begin again, after what could not be read."""
        log.exception("%s: the learned state cannot be used; learning starts over", key)
        self.leader = QuotaLeader(self._config, before.fence, before.at, before.word)
        self.leader.read = before.read

    def begin_alone(self, config: RateLimitConfig, rate: float | None, now: float) -> None:
        """Learn without a coordinator, from the configured rate or from the one that is known."""
        gate_config = self._config
        if rate is not None:
            gate_config = replace(config, initial_rps=rate, overrides={}).gate_config()
        self.leader = QuotaLeader(gate_config, 0, now + self.shift, 0)

    def recent_failures(self, breaker: Breaker, now: float) -> tuple[int, float]:
        """Failures in a row and the error rate of all members, where this one leads; else what ``breaker`` knows."""
        if self.leader is None:
            return breaker.recent_failures(now)
        return self.leader.gate.breaker.recent_failures(now + self.shift - self.leader.base)


# ---------------------------------------------------------------------- what it reports

OK = Outcome.OK


class Outbox:
    """What a member's next request takes along: what was seen, what comes back, and what others must know."""

    def __init__(self, log: ObservationLog, want: Callable[[float], None]) -> None:
        self.log = log
        self.want = want
        """Exchange with the coordinator as soon as possible."""
        self.void_to_seq = 0
        """Calls up to this one left by numbers of an era that is over."""
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

    def give_back(self, ticket: Ticket) -> None:
        """The numbers of a call that was not made."""
        if ticket.seq > self.void_to_seq:
            self.back += requests_in(ticket.cost)

    def pause(self, seconds: float, now: float) -> None:
        """The server, or an operator, asks for a pause: all members must know."""
        self.rest, self.is_urgent = max(self.rest, seconds), True
        self.want(now)

    def refund(self, amounts: Mapping[str, float], taken_at: float) -> None:
        """What comes back of known limits; below 0, what was used beyond what was granted."""
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
        """Report none of it: the coordinator that it concerns was left."""
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
    __slots__ = ("_circuit", "_idle", "_lease", "_outbox", "learns", "log", "rate")

    watches_sends = True

    def __init__(self, idle: Controller, circuit: LeasedCircuit, lease: Lease, outbox: Outbox) -> None:
        self._idle = idle
        """A controller of the configured strategy that is never taught."""
        self.learns = idle.learns  # type: ignore[misc]
        self.rate = idle.rate
        self._circuit, self._lease = circuit, lease
        self._outbox, self.log = outbox, outbox.log

    def on_send(self, ticket: Ticket, now: float) -> None:
        if self.learns or ticket.seq == self._circuit.probe_seq:
            self.log.send(ticket.seq, now)
        lease = self._lease
        if now >= lease.ask_from and not lease.sync_pending and lease.needs_more(lease.last_taken, now):
            self._outbox.want(now)

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        outcome, is_probe = signal.outcome, ticket.seq == self._circuit.probe_seq
        if self._lease.lacks_room:
            self._outbox.want(now)
        if outcome is OK and not self.learns and not is_probe:
            self.log.oks += 1
            return 0.0
        self.log.end(ticket.seq, now, latency, signal, "")
        if is_probe:
            self._circuit.end_probe(outcome is not OK and not outcome.counts_against_target, now)
        elif outcome is not OK or len(self.log) > MOST_EVENTS // 2:
            self._outbox.is_urgent = True
            self._outbox.want(now)
        return 0.0

    def why(self) -> ControllerNote | str:
        return self._idle.why()

    def why_cap(self) -> ControllerNote | str:
        return self._idle.why_cap()
