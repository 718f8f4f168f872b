"""One key of one member: what it exchanges with the coordinator, and by which policies its gate goes meanwhile.

                 ┌────────── no other member is there ──────────┐
                 v                                              │
    first reply ──> solo ──another process comes──> leased ─────┘
                     │                                 │
                     │   the store cannot be reached   │ <──the first exchange that succeeds──┐
                     v                                 v                                      │
             solo, as without a store         alone, at its share ────────────────────────────┘

Each request takes along what was seen and what will not be used; its reply brings the rate, holds and the circuit as
all members have them. Where this member leads, its requests carry what follows from what all members saw.

Leased, the gate has ``leased_policies``. Solo it has ``member_policies``: those of a process without a store, under a
controller that learns by the leader's gate. Alone it has them too, at this member's share of the last known rate, with
every floor that is known. Known limits are kept by the coordinator, where it can be reached: there is no solo under
them.
"""

from __future__ import annotations

from ..config import RateLimitConfig
from ..core.controller import Controller
from ..core.decision import NEVER, UNKNOWN, CircuitState
from ..core.gate import Gate
from ..core.gate_config import GateConfig
from ..core.policy import Cost, PolicyList, Ticket
from ..core.rolling_stats import Latency
from .grants import LIVE
from .holdings import LEAST_RATE
from .leader import QuotaLeader
from .lease import LISTEN_EVERY
from .leased_policies import LeasedCircuit, LeasedHold, LeasedPacer
from .member_policies import MemberPolicies, SoloController, share_config
from .membership import KeyRecord, Leadership, Membership, Outbox, Reporter, requests_in
from .observation_log import ObservationLog
from .protocol import SyncReply, SyncRequest

SHORTEST = 0.002
"""Seconds between two exchanges, whatever there is to do."""
OPEN_EVERY = 0.2
"""... while the circuit is open."""
IDLE_EVERY = 1.0
LEAVE_AFTER = 10.0
"""Seconds without a call after which a member leaves the coordinator; its next call brings it back."""
GATHERING = 0.25
"""Seconds for which a member goes by numbers at first: processes that share a quota are often started together."""
SLACK = 0.05
"""Seconds by which a hold may end later than what was learned says: the way to the coordinator."""


class LeaseClient:
    def __init__(
        self,
        key: str,
        owner: KeyRecord,
        gate: Gate,
        config: RateLimitConfig,
        gate_config: GateConfig,
        membership: Membership,
        now: float,
    ) -> None:
        self.key = key
        self.owner = owner
        self.gate = gate
        self.membership = membership
        self.alone = self.solo = False
        """Whether the store cannot be reached; whether this member starts calls by itself, as no other is there."""
        self.most_members, self._most_members_at = 1, NEVER
        """The most members there were recently, and when: a store that was wiped has seen none of the others yet."""
        self.era = 0
        self.sync_at = now
        """When the next exchange is due."""
        self.awaits = 0
        """The number of the request whose reply is for this client; others were sent before it left a coordinator."""
        self.log = ObservationLog()
        self.outbox = Outbox(self.log, self.want)
        self.leadership = Leadership(gate_config, self.log)
        self._config = config
        self._gate_config = gate_config
        self._left = 1.0
        """Which share of a long window the coordinator said was left."""
        self._joined_at = UNKNOWN
        """When the coordinator first answered."""
        self._solo: SoloController | None = None
        idle = gate_config.controller()
        self.hold = LeasedHold(self.outbox)
        self.lease = LeasedPacer(
            gate_config,
            idle,
            self.hold,
            gate.breaker,
            gate.in_flight,
            self.outbox,
            membership,
            self.leadership,
            now,
        )
        self.circuit = LeasedCircuit(gate.breaker, self.lease, self.outbox, learns=idle.learns)
        self._reporter = Reporter(idle, self.circuit, self.lease, self.outbox)
        self._policies = MemberPolicies(gate.breaker, gate.in_flight, self.lease.on_queue, self._count)
        self._go_leased(now)
        self.lease.rate = max(self.lease.terms.rate, LEAST_RATE)
        gate.apply_limits(now)

    @property
    def members(self) -> int:
        return self.lease.members

    @property
    def leader(self) -> QuotaLeader | None:
        """What was learned from all members, where this member leads."""
        return self.leadership.leader

    @property
    def by_numbers(self) -> bool:
        """Whether calls start by the coordinator's numbers: neither solo nor alone."""
        return self.gate.pacer is self.lease

    def _go_leased(self, now: float) -> None:
        self.lease.restart(self._reporter.rate, now)
        self.lease.demand.last_sent_at, self.lease.demand.queue = self.gate.last_sent_at, self.gate.queue
        policies = PolicyList(self.circuit, self.hold, (self._policies.ceiling,), self.lease)
        self._swap(self._gate_config, self._reporter, policies)

    def _swap(self, config: GateConfig, controller: Controller, policies: PolicyList) -> None:
        self.gate.swap(config, controller, policies)
        self.outbox.void_to_seq = self.gate.seq

    # ------------------------------------------------------------------ what the gate reports

    def want(self, now: float) -> None:
        """Exchange with the coordinator as soon as possible."""
        self.lease.sync_pending = True
        self.sync_at = now
        self.membership.wake(self)

    def _count(self, cost: Cost) -> None:
        """A call starts without the coordinator."""
        if self.solo:
            self.outbox.taken += requests_in(cost)
        else:
            self.lease.credit.on_credit += requests_in(cost)
        if self.lease.amounts.dimensions:
            self.outbox.spend_alone(cost)

    def _uncount(self, ticket: Ticket) -> None:
        """A call that started solo was not made after all."""
        self.outbox.taken -= requests_in(ticket.cost)

    # ------------------------------------------------------------------ exchanging

    def request(self, now: float, draw: float, *, leaves: bool = False) -> SyncRequest:
        """All that is to be reported to the coordinator now."""
        if self.solo and not self.alone and (leaves or not self._could_be_solo(now)):
            self._end_solo(now)  # it will come too seldom to hear of others in time
        gate, lease, outbox, member = self.gate, self.lease, self.outbox, self.membership.member
        is_idle = not gate.has_waiters and now >= gate.last_sent_at + LISTEN_EVERY + 2 * lease.round_trip.usual
        if leaves or is_idle or now > lease.expires_at or self.membership.is_paused:
            unused, amounts = lease.drop()
            outbox.back += unused
            outbox.refund(amounts, lease.round_trip.sent_at)
            if unused and not self.circuit.probe_seq and gate.breaker.state is not CircuitState.CLOSED:
                outbox.probe_over = True
        may_ask = self.by_numbers and not leaves and not self.membership.is_paused
        number = self.membership.next_number()
        publication = self.leadership.publish(self.key, member, number, now, draw)
        note = "" if self.leader is not None and lease.members == 1 else self.log.text(now, number)
        self.log.clear()
        request = SyncRequest(
            member=member,
            number=number,
            elapsed=0.0 if lease.round_trip.sent_at == NEVER else now - lease.round_trip.sent_at,
            terms=lease.terms,
            asks=lease.asks(now, gate.ceiling, gate.last_sent_at) if may_ask else (),
            span=2.0 * lease.round_trip.usual,
            solo=not leaves and self._could_be_solo(now),
            taken=max(0, outbox.taken),
            era=self.era,
            back=outbox.back,
            refund={dimension: amount for dimension, amount in outbox.refunds.items() if amount},
            refund_ago=outbox.refund_age(now),
            apart=outbox.apart,
            flying=len(gate.in_flight) + lease.numbers.count,
            probe_over=outbox.probe_over,
            rest=outbox.rest,
            note=note,
            publication=publication,
            leaves=leaves,
        )
        outbox.empty()
        self.sync_at, self.awaits = UNKNOWN, number
        return request

    def on_reply(self, reply: SyncReply, sent_at: float, now: float, draw: float) -> None:
        """Go by what the coordinator says from now on."""
        if self.alone:
            self._come_back(now)
        self._joined_at = min(self._joined_at, now)
        if not self.solo:
            self.lease.credit.settle(reply, self.lease.terms.burst)
            self._take_reply(reply, sent_at, now, draw)
            self._go_by(reply, now)
            if self.leader is not None and reply.solo and not reply.circuit_open:
                self.leadership.take_own(self.membership.member, now, draw)
                self.log.clear()
                numbers = self.lease.numbers
                self._go_solo(now, reply.line - numbers.next if numbers.count else 0.0)
            return
        self._take_reply(reply, sent_at, now, draw)
        if not reply.solo or self.leader is None:
            self._end_solo(now)
            self._go_by(reply, now)
            self.sync_at = now
        elif self._solo is None or self.leader is not self._solo.leader:
            self._go_solo(now, self.gate.pacer.tokens)
        else:
            self.sync_at = now + LISTEN_EVERY

    def _take_reply(self, reply: SyncReply, sent_at: float, now: float, draw: float) -> None:
        """Take in which members are there, how far the coordinator is, and what there is to learn for a leader."""
        lease = self.lease
        lease.sync_pending = False
        lease.round_trip.note(reply.now, sent_at, now)
        self._left = reply.left
        lease.members = max(1, reply.members)
        if lease.members >= self.most_members or now > self._most_members_at + LIVE:
            self.most_members, self._most_members_at = lease.members, now
        self.log.note_word(reply.word)
        self.leadership.set_time(reply.now, now, solo=self.solo)
        self.leadership.on_reply(self.key, reply, draw, solo=self.solo)

    def _go_by(self, reply: SyncReply, now: float) -> None:
        """Start calls by the numbers that were granted, under the rate, the hold and the circuit of all."""
        breaker = self.gate.breaker
        if reply.era != self.era:
            self.era, self.outbox.back, self.outbox.void_to_seq = reply.era, 0, self.gate.seq
            self.lease.drop()
        rest = max(reply.hold, self.outbox.rest)
        self.hold.until = now + rest if rest else NEVER
        self.lease.take_grant(reply, now)
        breaker.state = CircuitState.OPEN if reply.circuit_open else CircuitState.CLOSED
        breaker.opened_at = now + reply.open_for - breaker.settings.cool_off
        self.gate.apply_limits(now)
        self.sync_at = self._next_exchange(reply, now)

    def _next_exchange(self, reply: SyncReply, now: float) -> float:
        gate, lease = self.gate, self.lease
        listen_every = LISTEN_EVERY if self.leader is not None else lease.listen_every
        if self.outbox.is_urgent or (self.leader is not None and self.leader.has_news):
            return now
        if gate.has_waiters:
            return now + min(max(reply.wait, SHORTEST) if reply.short_of else listen_every, listen_every)
        if lease.demand.is_polled(now):
            return max(now + max(reply.wait, SHORTEST) if reply.short_of else lease.expires_at, now + SHORTEST)
        if len(gate.in_flight) or lease.numbers.count or len(self.log) or reply.notes:
            return now + listen_every
        half_open = reply.circuit_open and not reply.open_for
        if self.leader is not None and (half_open or now < gate.last_sent_at + IDLE_EVERY):  # others may need it
            return now + LISTEN_EVERY
        return now + (OPEN_EVERY if reply.circuit_open else IDLE_EVERY)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is wanted, held, in flight or to be reported."""
        gate, lease = self.gate, self.lease
        has_work = gate.has_waiters or len(gate.in_flight) or len(self.log)
        return not (has_work or lease.numbers.count or lease.sync_pending)

    def recent_failures(self, now: float) -> tuple[int, float]:
        """Failures in a row and the error rate, of all members where this one leads."""
        return self.leadership.recent_failures(self.gate.breaker, now)

    # ------------------------------------------------------------------ solo: no other member is there

    def _could_be_solo(self, now: float) -> bool:
        """Whether calls would start without numbers if no other member were there."""
        gate = self.gate
        if gate.config.quotas or self.most_members > 1 or now < self._joined_at + GATHERING:
            return False
        if gate.breaker.state is not CircuitState.CLOSED and not self.solo:
            return False
        at_work = gate.has_waiters or len(gate.in_flight) > 0 or self.lease.demand.is_polled(now)
        return at_work or now < gate.last_sent_at + IDLE_EVERY

    def _go_solo(self, now: float, tokens: float) -> None:
        """Start calls as without a store, by what this member learns at once; so many of them now."""
        leader, gate, lease = self.leadership.leads, self.gate, self.lease
        held_until, ahead = self.hold.until, self.leadership.shift - leader.base
        self.outbox.taken -= lease.drop()[0]  # the coordinator has counted these
        self.solo, lease.sync_pending, self.hold.until = True, False, NEVER
        lease.credit.clear()
        solo = self._solo = SoloController(
            leader, self.membership.member, ahead, gate, self._restart_solo, self._uncount
        )
        self._swap(self._gate_config, solo, self._policies.solo(self._gate_config, solo, now))
        gate.latency = Latency.from_state(leader.gate.latency.to_state())
        gate.pacer.tokens = min(gate.pacer.burst, tokens)
        if self.alone:
            gate.pacer.lost_store = self.membership.where
        if held_until > max(now, leader.gate.hold.opens_at - ahead + SLACK):
            leader.gate.pause(held_until - now, now + ahead)
        solo.mirror(now)
        self.sync_at = now + LISTEN_EVERY

    def _restart_solo(self, now: float) -> None:
        """What was learned cannot be used: go on solo from a new beginning."""
        assert self._solo is not None
        self.leadership.start_over(self.key, self._solo.leader)
        self._go_solo(now, self.gate.pacer.tokens)

    def _end_solo(self, now: float) -> None:
        solo, self._solo = self._solo, None
        assert solo is not None
        self.solo = False
        leading = solo.leader.gate
        self._go_leased(now)
        leading.bring_up_to(now + solo.ahead)
        self.lease.rate, self.hold.until = max(leading.pacer.rate, LEAST_RATE), leading.hold.opens_at - solo.ahead
        self.gate.breaker.probes.clear()
        self.gate.apply_limits(now)

    # ------------------------------------------------------------------ without the store

    def go_alone(self, now: float) -> None:
        """The store cannot be reached: go on at this member's share of what is known; solo if it knows of no other."""
        if self.alone:
            return
        gate, self.alone = self.gate, True
        if self.membership.refuses:
            self._policies.store_lost.store = self.membership.where
        if not self.solo:
            self._leave_lease(now)
        gate.pacer.lost_store = self.membership.where
        gate.apply_limits(now)

    def _leave_lease(self, now: float) -> None:
        gate, lease = self.gate, self.lease
        self.outbox.lose_store()
        is_new = lease.round_trip.sent_at == NEVER
        if self.most_members == 1:
            self._learn_alone(now)
            self._go_solo(now, lease.burst if is_new and not gate.seq else 0.0)
        else:
            lease.sync_pending, self.leadership.leader = False, None
            lease.credit.on_credit -= lease.drop()[0]
            config = share_config(self._config, lease.rate, self.most_members)
            controller = config.controller()
            self._swap(config, controller, self._policies.share(config, controller, self.hold.until, now))
        self.log.clear()
        due = min(1.0, (now - gate.last_sent_at) * gate.pacer.rate)  # a call that waited for the store waits no longer
        gate.pacer.tokens = max(gate.pacer.tokens, due)
        if not is_new and gate.policies.quotas is not None:  # what others spent recently is not known: nothing is left
            gate.policies.quotas.drain(lease.amounts.dimensions, self._left / self.most_members, now)

    def _learn_alone(self, now: float) -> None:
        """Go on from what was learned as the leader; else begin at the rate that is known."""
        lease = self.lease
        if self.leader is not None:
            self.leadership.take_own(self.membership.member, now, self.membership.draw())
        else:
            self.leadership.begin_alone(self._config, lease.rate if lease.rate != lease.terms.rate else None, now)

    def _come_back(self, now: float) -> None:
        self.alone = False
        self._policies.store_lost.store = self.gate.pacer.lost_store = ""
        self.outbox.find_store(self.lease.terms, self.lease.amounts.dimensions, self.most_members, now)
        if self.solo:
            self.gate.apply_limits(now)
            return
        self.outbox.rest = max(0.0, self.gate.hold.opens_at - now)
        self.outbox.is_urgent = self.outbox.rest > 0 or self.gate.has_waiters
        self._go_leased(now)

    def leave(self, now: float) -> None:
        """Drop all that is held of this coordinator and known of it: waiters ask again."""
        lease = self.lease
        was_alone, self.alone = self.alone, False
        self._policies.store_lost.store = ""
        if self.solo:
            self._end_solo(now)
        elif was_alone:
            known_rate = self.gate.config.most * self.most_members
            self._go_leased(now)
            lease.rate = known_rate
        lease.drop()
        self.log.clear()
        self.outbox.drop()
        lease.forget()
        self.awaits, self.circuit.probe_seq, self.leadership.leader, self._joined_at = 0, 0, None, UNKNOWN
        self.gate.swapped_at_seq = self.outbox.void_to_seq = self.gate.seq
        self.gate.apply_limits(now)
