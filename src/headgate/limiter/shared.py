"""The gate of a key whose quota is shared with other processes: by itself while there are none, together, or alone.

                 ┌────────── no other member is there ──────────┐
                 v                                              │
    first visit ──> solo ──another process comes──> together ───┘
                     │                                 │
                     │   the store cannot be reached   │ <──the first visit that succeeds──┐
                     v                                 v                                   │
             solo, as without a store         alone, at its share ────────────────────────┘

Solo it is the gate that a process without a store would have; it tells the desk what it has learned, and how many calls
it has started. Alone it is that too, at this member's share of the last known rate, with every floor that is known.
Known limits are kept by the desk, where it can be reached: there is no solo under them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from ..config import RateLimitConfig
from ..core.asking import NO_COMEBACK, Look
from ..core.bucket import LONG_WINDOW, Buckets
from ..core.comeback import Comeback
from ..core.control.protocol import Controller
from ..core.cooldown import Cooldown
from ..core.costs import NOTHING, costs_of, requests_of
from ..core.decision import NEVER, UNKNOWN, CircuitState, Outcome, Refuse, Wait
from ..core.gate import Gate
from ..core.gate_policy import GatePolicy
from ..core.latency import Latency
from ..core.pace import INSTANT
from ..core.sharing.learning import Learning, SoloController
from ..core.sharing.notebook import ABANDONED, RELEASED
from ..core.sharing.visit import Cost, Reply, Visit
from ..core.signal import Signal
from ..core.ticket import Ticket
from .key_gate import KeyGate
from .numbers import NumberedGate
from .permit import Permit
from .terms import LEAST, policy_alone
from .visiting import IDLE_EVERY, LISTEN_EVERY, VisitingGate

if TYPE_CHECKING:
    from .serving import Serving
    from .sharing import Sharing

GATHERING = 0.25
"""Seconds for which a member goes by numbers at first: processes that share a quota are often started together."""
SLACK = 0.05
"""Seconds by which a hold may end later than what was learned says: the way to the desk."""


class SharedGate(VisitingGate):
    __slots__ = ("_config", "_joined_at", "_solo", "_spent_alone", "_switched_at_seq", "by_numbers")

    def __init__(
        self, key: str, limiter: Serving, policy: GatePolicy, now: float, sharing: Sharing, config: RateLimitConfig
    ) -> None:
        self.ceiling = None  # the first ``follow`` looks at it
        self._config = config
        self._switched_at_seq = 0
        """Calls up to this one left before the store was last lost or found."""
        self._spent_alone: dict[str, float] = {}
        """What was taken without the store."""
        self._solo: SoloController | None = None
        """What a solo gate goes by."""
        self._joined_at = UNKNOWN
        """When the desk first answered."""
        self.by_numbers = True
        """Whether calls start by the desk's numbers: neither solo nor alone."""
        super().__init__(key, limiter, policy, now, sharing)

    # ------------------------------------------------------------------ alone, or by numbers

    def ask_plainly(self, now: float) -> Permit | None:
        if self.by_numbers:
            return super().ask_plainly(now)
        if self.alone and self.sharing.refuses:
            return None
        permit = KeyGate.ask_plainly(self, now)
        if permit is None:
            return None
        if self.solo and not self.limited:
            self._taken += 1
        else:
            self._count_alone(1)
        return permit

    def objection(
        self,
        now: float,
        cost: float | Mapping[str, float] = 1,
        ahead: float = 0.0,
        costs_ahead: Mapping[str, float] = NOTHING,
    ) -> Wait | Refuse | None:
        if self.by_numbers:
            found = super().objection(now, cost, ahead, costs_ahead)
        elif self.alone and self.sharing.refuses:
            return Refuse("store_down", f"{self.sharing.store.where} cannot be reached; nothing may start without it")
        else:
            found = Gate.objection(self, now, cost, ahead, costs_ahead)
        return found if self.ceiling is None else self._under_ceiling(found, ahead + requests_of(cost), now)

    def _under_ceiling(self, found: Wait | Refuse | None, wanted: float, now: float) -> Wait | Refuse | None:
        """An operator's limit is for this process: no call sooner after the last one than it allows."""
        may_at = self.last_sent_at + wanted / (self.ceiling or UNKNOWN)
        until = now + INSTANT if found is None else found.until if isinstance(found, Wait) else UNKNOWN
        return found if may_at <= until else Wait(may_at, "ceiling")

    def limit(self, ceiling: float | None, now: float) -> None:
        self.ceiling = ceiling
        self.follow(now)

    def note_wait(self, objection: Wait | Refuse, now: float) -> None:
        if objection.code in ("paused", "ceiling"):
            return
        (NumberedGate if self.by_numbers else Gate).note_wait(self, objection, now)

    def admit(self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None) -> Permit:
        if self.by_numbers:
            return super().admit(now, cost, asked_at)
        self._count_alone(cost)
        permit = KeyGate.admit(self, now, cost, asked_at)
        if self._solo is not None and not self.watches_sends and permit.seq in self.breaker.probes:
            self._solo.on_send(permit, now)
        return permit

    def _count_alone(self, cost: float | Mapping[str, float]) -> None:
        if self.solo:
            self._taken += ceil(requests_of(cost))
        else:
            self.lent += ceil(requests_of(cost))
        if not self.limited:
            return
        for dimension, amount in costs_of(cost).items():
            self._spent_alone[dimension] = self._spent_alone.get(dimension, 0.0) + amount

    def follow(self, now: float) -> None:
        (NumberedGate if self.by_numbers else Gate).follow(self, now)
        if self.ceiling is not None:
            self.easy_from = UNKNOWN

    def why(self, now: float) -> str:
        return (NumberedGate if self.by_numbers else Gate).why(self, now)

    def reason(self, objection: Wait | Refuse, now: float) -> str:
        if self.by_numbers:
            return super().reason(objection, now)
        why = KeyGate.reason(self, objection, now)
        return f"{why}; alone, because {self.sharing.store.where} cannot be reached" if self.alone else why

    def cause(self, objection: Wait | Refuse, now: float) -> str:
        return (NumberedGate if self.by_numbers else Gate).cause(self, objection, now)

    def level(self, now: float) -> float:
        return (NumberedGate if self.by_numbers else Gate).level(self, now)

    def look(self) -> Look:
        if self.by_numbers:
            return super().look()
        seen = Gate.look(self)
        return seen if self.solo else (self.rate, *seen[1:])

    @property
    def paused_until(self) -> float:
        return self.held_until if self.by_numbers else super().paused_until

    def idle_from(self, now: float) -> float:
        return (NumberedGate if self.by_numbers else Gate).idle_from(self, now)

    def release(self, ticket: Ticket) -> bool:
        ended = (VisitingGate if self.by_numbers else Gate).release(self, ticket)
        if self.solo and ended:
            self._end_solo_call(ticket, RELEASED)
        return ended

    def abandon(self, ticket: Ticket) -> bool:
        if self.by_numbers:
            return super().abandon(ticket)
        is_from_here = ticket.seq > self._switched_at_seq
        ended = (Gate.abandon if is_from_here else Gate.release)(self, ticket)
        if self.solo and ended:
            self._end_solo_call(ticket, ABANDONED)
            self._taken -= ceil(requests_of(ticket.cost)) if is_from_here else 0
        return ended

    def settle(self, ticket: Ticket, real: Mapping[str, float]) -> None:
        if ticket.seq > self._switched_at_seq:  # else what it was taken from does not count any more
            (VisitingGate if self.by_numbers else Gate).settle(self, ticket, real)

    def rest(self, seconds: float, now: float) -> None:
        if not self.solo:
            (VisitingGate if self.by_numbers else Gate).rest(self, seconds, now)
            return
        assert self._solo is not None
        self._solo.learning.gate.rest(seconds, now + self._solo.ahead)
        self._go_by_learning(now)

    def _learn(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        if not self.solo:
            (VisitingGate if self.by_numbers else KeyGate)._learn(self, ticket, signal, latency, now, draw)
            return
        solo = self._solo
        assert solo is not None
        self.answers += 1
        if not solo.learns and signal.outcome is Outcome.OK and ticket.seq not in self.breaker.probes:
            solo.succeeded(latency, now)
            return
        try:
            skipped = solo.learning.end(solo.member, ticket.seq, now + solo.ahead, latency, signal, draw)
        except Exception:
            self._learn_anew(solo.learning)
            self._go_solo(now, self.tokens)
            return
        if self.breaker.probes:
            self.breaker.give_back(ticket.seq)
        if skipped:
            self.let_pass(skipped, now)
        self._go_by_learning(now)

    def asks(self, now: float) -> tuple[tuple[int, Cost], ...]:
        """What to ask for; under an operator's limit no more than it lets start before the next visit."""
        asks = super().asks(now) if self.by_numbers else ()
        if self.ceiling is not None:
            most = ceil(self.ceiling * (now + LISTEN_EVERY - max(now, self.last_sent_at + 1 / self.ceiling)))
            asks = self._asks_out = tuple((min(count, most), cost) for count, cost in asks[: max(0, most)])
        return asks

    @property
    def gives_credit(self) -> bool:
        return not self.sharing.refuses

    def want(self, now: float) -> None:
        self.asked = True
        self.visit_at = now
        self.sharing.poke(self)

    def visit(self, member: str, now: float, draw: float, *, leaves: bool = False) -> Visit:
        if self.solo and not self.alone and (leaves or not self.could_be_solo(now)):
            self._end_solo(now)  # it will come too seldom to hear of others in time
        return super().visit(member, now, draw, leaves=leaves)

    def take(self, reply: Reply, sent_at: float, now: float, draw: float) -> None:
        if self.alone:
            self._come_back(now)
        self._joined_at = min(self._joined_at, now)
        if not self.solo:
            super().take(reply, sent_at, now, draw)
            if self.learning is not None and reply.solo and not reply.circuit_open:
                self.learning.take_own(self.book, self.sharing.member, self._shift, now + self._shift, draw)
                self.book.clear()
                self._go_solo(now, reply.line - self._next if self.holds else 0.0)
            return
        self.hear(reply, sent_at, now, draw)
        if not reply.solo or self.learning is None:
            self._end_solo(now)
            self.go_by(reply, now)
            self.visit_at = now
        elif self._solo is None or self.learning is not self._solo.learning:
            self._go_solo(now, self.tokens)
        else:
            self.visit_at = now + LISTEN_EVERY

    # ------------------------------------------------------------------ solo: no other member is there

    def could_be_solo(self, now: float) -> bool:
        if self.policy.quotas or self.crowd > 1 or now < self._joined_at + GATHERING:
            return False
        if self.breaker.state is not CircuitState.CLOSED and not self.solo:
            return False
        return self.waited_for or len(self.flight) > 0 or self.is_polled(now) or now < self.last_sent_at + IDLE_EVERY

    def _go_solo(self, now: float, tokens: float) -> None:
        """Start calls as without a store, by what this member learns at once; so many of them now."""
        learning = self.learning
        assert learning is not None
        held_until, ahead = self.held_until, self._shift - learning.base
        self._taken -= self.drop_numbers()[0]  # the desk has counted these
        self.solo, self.by_numbers, self.asked = True, False, False
        self.lent, self.debt, self.held_until = 0.0, 0, NEVER
        self._solo = SoloController(learning, self.sharing.member, ahead)
        self._settle_in(self._policy_together, now, self._solo)
        self.latency = learning.gate.latency
        self.tokens = min(self.burst, tokens)
        if held_until > max(now, learning.gate.opens_at - ahead + SLACK):
            learning.gate.rest(held_until - now, now + ahead)
        self._go_by_learning(now)
        self.visit_at = now + LISTEN_EVERY

    def _end_solo(self, now: float) -> None:
        solo, self._solo = self._solo, None
        assert solo is not None
        self.solo, self.by_numbers = False, not self.alone
        self._settle_in(self._policy_together, now)
        gate = solo.learning.gate
        gate.bring_up_to(now + solo.ahead)
        self.latency = Latency.from_state(gate.latency.to_state())
        self.rate, self.held_until = max(gate.rate, LEAST), gate.opens_at - solo.ahead
        self.breaker.probes.clear()
        self.follow(now)

    def _end_solo_call(self, ticket: Ticket, how: str) -> None:
        assert self._solo is not None
        self._solo.learning.end_silently(self._solo.member, ticket.seq, how)
        self._go_by_learning(self.limiter.clock.now())

    def _go_by_learning(self, now: float) -> None:
        """Have the pause, the ramp and the circuit that were learned, in our own time; the pace is followed anyway."""
        solo, circuit = self._solo, self.breaker
        assert solo is not None
        solo.conclude()
        gate, ahead = solo.learning.gate, solo.ahead
        if gate.cooldown is not None:
            if self.cooldown is None:
                self.cooldown = Cooldown(self.policy.cooldown)
            self.cooldown.until = gate.cooldown.until - ahead
        if gate.comeback is not NO_COMEBACK:
            ramp = gate.comeback
            self.comeback = Comeback(ramp.starts_at - ahead, ramp.lasts, ramp.least)
        if gate.breaker.state is not circuit.state:
            circuit.state, circuit.opened_at = gate.breaker.state, gate.breaker.opened_at - ahead
            circuit.probes.clear()
            if circuit.state is CircuitState.CLOSED:
                self.tokens = min(self.tokens, 1.0)
        self.follow(now)

    # ------------------------------------------------------------------ without the store

    def go_alone(self, now: float) -> None:
        """The store cannot be reached: go on at this member's share of what is known; solo if it knows of no other."""
        if self.alone:
            return
        self.alone, self.out_since = True, UNKNOWN
        if self.solo:
            return
        self._spent_alone = {name: -amount for name, amount in self._refund.items() if amount < 0}
        self._back, self._refund = 0, {}
        is_new = self.visited_at == NEVER
        if self.crowd == 1:
            self._learn_alone(now)
            self._go_solo(now, self.burst if is_new and not self.seq else 0.0)
        else:
            known_until = self.held_until
            self.by_numbers, self.asked, self.learning = False, False, None
            self.lent -= self.drop_numbers()[0]
            self._settle_in(policy_alone(self._config, self.rate, self.crowd), now)
            if known_until > now:
                self.cooldown = Cooldown(self.policy.cooldown)
                self.cooldown.until = known_until
        self.book.clear()
        due = min(1.0, (now - self.last_sent_at) * self.rate)  # a call that waited for the store waits no longer
        self.tokens = max(self.tokens, due)
        if self.buckets is not None and not is_new:  # what others spent of late is not known: nothing is left
            self.buckets.drain(self.limited, self._left / self.crowd, now)
        self.follow(now)

    def _learn_alone(self, now: float) -> None:
        """Go on from what was learned as the leader; else begin at the rate that is known."""
        there = now + self._shift
        if self.learning is not None:
            self.learning.take_own(self.book, self.sharing.member, self._shift, there, self.limiter.draw())
            return
        policy = self._policy_together
        if self.rate != self.terms.rate:
            policy = replace(self._config, initial_rps=self.rate, overrides={}).gate_policy()
        self.learning = Learning(policy, 0, there, 0)

    def _come_back(self, now: float) -> None:
        self.alone = False
        charged = self._overdrawn()
        self.refund(charged, now)  # not before: a store that is too slow hears every attempt
        apart = {name: self._spent_alone.get(name, 0.0) + charged.get(name, 0.0) for name in self.limited}
        self._apart = {name: amount for name, amount in apart.items() if amount > 0}
        self._spent_alone = {}
        if self.solo:
            return
        self._rest = max(0.0, self.opens_at - now)
        self._is_urgent = self._rest > 0 or self.waited_for
        self.by_numbers = True
        self._settle_in(self._policy_together, now)

    def _overdrawn(self) -> dict[str, float]:
        """What to charge for that was spent without the desk's leave: so much that it does not give a burst on top."""
        most: dict[str, float] = {}
        for dimension, _, window, burst in self.terms.limits:
            if window < LONG_WINDOW:
                most[dimension] = min(most.get(dimension, UNKNOWN), burst / self.crowd)
        return {name: -max(0.0, min(self._spent_alone.get(name, 0.0), burst)) for name, burst in most.items()}

    def leave_desk(self, now: float) -> None:
        """Hold nothing of this desk's any more, and know nothing of it: whoever waits asks again."""
        was_alone, self.alone = self.alone, False
        if self.solo:
            self._end_solo(now)
        elif was_alone:
            known_rate, self.by_numbers = self.policy.most * self.crowd, True
            self._settle_in(self._policy_together, now)
            self.rate = known_rate
        self.drop_numbers()
        self.book.clear()
        self._back, self._refund, self._apart, self._rest, self.awaits = 0, {}, {}, 0.0, 0
        self.asked, self.learning, self.probe, self.debt, self.visited_at = False, None, 0, 0, NEVER
        self.out_since, self.free, self.lent, self._line_told = UNKNOWN, 0.0, 0.0, (0.0, UNKNOWN)
        self._taken, self._joined_at = 0, UNKNOWN
        self._switched_at_seq = self._void_to_seq = self.seq

    def start_over(self, now: float) -> None:
        self.leave_desk(now)
        super().start_over(now)

    def _settle_in(self, policy: GatePolicy, now: float, controller: Controller | None = None) -> None:
        self.policy = policy
        self.controller, self.cooldown, self.comeback = controller or policy.controller(), None, NO_COMEBACK
        self.watches_sends = self.controller.watches_sends
        self.buckets = Buckets(policy.quotas) if policy.quotas else None
        self.burst, self.rate = policy.burst, self.controller.rate
        self.tokens, self.filled_at, self.shut = 0.0, now, False
        self._switched_at_seq = self._void_to_seq = self.seq
