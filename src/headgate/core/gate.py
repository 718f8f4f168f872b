"""The gate of ONE key: a controller, and the policies that enforce what it concludes.

    check ──> circuit ── hold ── concurrency ── quotas ── pacer ──> nothing objects: admit(ticket)
               refuse     wait    wait           wait      wait

    record(ticket, signal) ──> statistics, policies, controller ──> the next check

A gate is pure: it takes ``now`` and a random draw, and answers with data. The limiter does the waiting. A wait is one
wait, the longest of all that object, never their sum; one for depth counts only where nothing else objects.
Most calls pass by ``try_fast_admit``: the gate keeps the instant from which nothing but the pace can object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

from .circuit_breaker import Breaker
from .concurrency import InFlight
from .controller import Controller
from .cooldown import RESTING
from .decision import NEVER, UNKNOWN, CircuitState, Outcome, Refuse, Wait, WaitReason
from .gate_config import GateConfig, local_policies
from .pacer import NO_RAMP, Pacer
from .policy import NOTHING, NUMBER, Cost, Demand, LongTicket, PolicyList, QueueDemand, Ticket
from .rolling_stats import Latency
from .signal import Signal

FIRST_CHECK, CHECK_EVERY = 20, 8192
"""At which call the gate's owner first calls ``drop_lost``, and after how many more again."""
# Looked up once: in Python 3.11 a member of an enum takes longer to find than to compare.
OK, CLOSED, DEPTH, PACE = Outcome.OK, CircuitState.CLOSED, WaitReason.DEPTH, WaitReason.PACE


class Gate:
    __slots__ = (
        "_bucket",
        "_cap",
        "_hold_until",
        "_on_success",
        "_only_pace_from",
        "_rate",
        "answers",
        "breaker",
        "ceiling",
        "check_at_seq",
        "circuit",
        "config",
        "controller",
        "fast_path_from",
        "has_waiters",
        "hold",
        "in_flight",
        "last_sent_at",
        "latency",
        "on_change",
        "pacer",
        "policies",
        "queue",
        "seq",
        "swapped_at_seq",
        "watches_sends",
    )

    def __init__(self, config: GateConfig, controller: Controller, policies: PolicyList, in_flight: InFlight) -> None:
        self.in_flight = in_flight
        self.latency = Latency()
        self.seq = 0
        """Calls let through so far; the ordinal of the last one."""
        self.last_sent_at = NEVER
        self.answers = 0
        """Calls whose outcome was reported."""
        self.check_at_seq = FIRST_CHECK
        """The call at which ``drop_lost`` is due; it takes the slow way, so that the owner looks."""
        self.has_waiters = False
        self.queue: QueueDemand | None = None
        self.ceiling: float | None = None
        """Calls a second that an operator allows at most."""
        self.on_change: Callable[[float], None] = _ignore
        """Called with ``now`` when the circuit has changed or a hold has ended."""
        self.fast_path_from = NEVER
        """From this instant on nothing but the pace can object, and no caller waits: ``try_fast_admit`` is enough."""
        self.swapped_at_seq = 0
        """Calls up to this one were admitted by policies that have been swapped since; nothing is refunded for them."""
        self._use(config, controller, policies)
        self.apply_limits(NEVER)

    @classmethod
    def local(cls, config: GateConfig) -> Self:
        """A gate that decides by itself."""
        controller, in_flight = config.controller(), InFlight()
        policies = local_policies(config, controller, Breaker(config.breaker), in_flight)
        return cls(config, controller, policies, in_flight)

    def swap(self, config: GateConfig, controller: Controller, policies: PolicyList) -> None:
        """Decide by another controller and other policies. Waiters keep their places, calls in flight count on.

        Call ``apply_limits`` once the new policies know all that they should.
        """
        before = self.pacer
        self._use(config, controller, policies)
        self.pacer.has_waiters, self.pacer.late_until = before.has_waiters, before.late_until
        for place in policies.hooks.set_ceiling:
            policies.in_order[place].set_ceiling(self.ceiling)
        self.swapped_at_seq = self.seq

    def _use(self, config: GateConfig, controller: Controller, policies: PolicyList) -> None:
        self.config = config
        self.controller = controller
        self.watches_sends = controller.watches_sends
        self.policies = policies
        self.circuit, self.hold, self.pacer = policies.circuit, policies.hold, policies.pacer
        self.breaker = policies.circuit.breaker
        self._bucket = policies.pacer if type(policies.pacer) is Pacer else None
        self._rate = self._hold_until = self._cap = NEVER
        self._only_pace_from = UNKNOWN
        self._choose_learners()

    # ------------------------------------------------------------------ admission

    def try_fast_admit(self, ticket: Ticket, now: float) -> bool:
        """The short way for a call of cost 1 where no caller waits; False says to ``check`` and ``admit``."""
        seq, bucket = self.seq + 1, self._bucket
        if now < self.fast_path_from or seq >= self.check_at_seq:
            return False
        if bucket is None:
            if not self.pacer.try_take(now):
                return False
        else:  # bucket.try_take(now), spelled out: the call would take 7 % of the whole way (a test holds both equal)
            tokens = bucket.tokens + (now - bucket.filled_at) * bucket.rate
            if tokens < 1.0:
                return False
            if tokens > bucket.burst:
                tokens = bucket.clamp(tokens, now) if now < bucket.late_until else bucket.burst
            bucket.tokens = tokens - 1.0
            bucket.filled_at = now
        self.seq = seq
        self.last_sent_at = now
        ticket.gate = self
        ticket.seq = seq
        ticket.sent_at = now
        in_flight = self.in_flight
        if self.watches_sends:
            ticket.depth = len(in_flight.pending) + len(in_flight.stale)
            controller = self.controller
            controller.on_send(ticket, now)
            if (
                controller.rate != self._rate
                or controller.hold_until != self._hold_until
                or controller.cap != self._cap
            ):
                self.apply_limits(now)
        in_flight.pending[seq] = now
        return True

    def check(
        self, now: float, cost: Cost = 1, requests_ahead: float = 0.0, costs_ahead: Mapping[str, float] = NOTHING
    ) -> Wait | Refuse | None:
        """What keeps a call from starting now, or None. With others ahead in the queue: when its turn would come."""
        pacer = self.pacer
        requests = cost if isinstance(cost, NUMBER) else pacer.worth(cost)
        if now >= self._only_pace_from:
            return pacer.check(now, Demand(cost, requests, requests_ahead, costs_ahead, False, self.last_sent_at))
        demand = Demand(cost, requests, requests_ahead, costs_ahead, pacer.is_late(now), self.last_sent_at)
        longest: Wait | None = None
        for policy in self.policies.in_order:
            if pacer.ramp is not NO_RAMP and policy is self.policies.in_order[-1]:
                self.apply_limits(now)
            found = policy.check(now, demand)
            if found is None:
                continue
            if isinstance(found, Refuse):
                return found
            if longest is None:
                if found.reason is DEPTH:
                    return found
                longest = found
            elif found.until > longest.until and found.reason is not DEPTH:
                longest = found.known_from(longest.until)
        return longest

    def ask(self, now: float, cost: Cost = 1, asked_at: float | None = None) -> Ticket | Wait | Refuse:
        """Check, and admit or tell the controller of the wait: for callers without a queue of their own."""
        found = self.check(now, cost)
        if found is not None:
            self.on_wait(found, now)
            return found
        waited = 0.0 if asked_at is None else now - asked_at
        plain = cost == 1 and waited == 0.0
        ticket = Ticket(self, 0, now, 0) if plain else LongTicket(self, 0, now, 0, cost, waited)
        self.admit(ticket, now)
        return ticket

    def has_room(self, calls: int) -> bool:
        """Whether one more may start beside so many that are about to; probes of a half-open circuit start alone."""
        room = max(1.0, self.controller.cap) - len(self.in_flight)
        return calls < room and self.breaker.state is CLOSED

    def admit(self, ticket: Ticket, now: float) -> None:
        """Let a call through that nothing objects to. ``ticket`` says its cost and how long it waited."""
        circuit, policies = self.breaker.state, self.policies
        self.seq += 1
        self.last_sent_at = now
        ticket.gate, ticket.seq, ticket.sent_at, ticket.depth = self, self.seq, now, len(self.in_flight)
        for place in policies.hooks.admit:
            policies.in_order[place].admit(ticket, now)
        if self.watches_sends:
            self.controller.on_send(ticket, now)
        self.in_flight.pending[ticket.seq] = now
        if self.breaker.state is not circuit:
            self.on_change(now)
        self.apply_limits(now)

    def on_wait(self, wait: Wait | Refuse, now: float) -> None:
        """A caller waits for this: a controller may want to know that its pace is what holds callers back."""
        policies = self.policies
        for place in policies.hooks.on_wait:
            policies.in_order[place].on_wait(wait, now)
        if wait.reason is PACE and self.watches_sends and (self.ceiling is None or not self.pacer.is_at_ceiling):
            self.controller.on_wait(now)

    def set_queue(self, queue: QueueDemand | None, now: float) -> None:
        """Callers begin to wait in this queue; None: the last of them was served."""
        self.queue, self.has_waiters, policies = queue, queue is not None, self.policies
        for place in policies.hooks.on_queue:
            policies.in_order[place].on_queue(queue, now)
        self.fast_path_from = UNKNOWN if self.has_waiters else self._only_pace_from

    def mark_waiting(self) -> None:
        """A caller waits without a queue that could be looked at; it holds from the next change on."""
        self.has_waiters = self.pacer.has_waiters = True
        self._rate = NEVER

    def drop_lost(self, now: float) -> None:
        """Called from time to time: stop counting calls that will never end."""
        self.in_flight.let_go(now, self.seq)
        self.check_at_seq = self.seq + CHECK_EVERY

    # ------------------------------------------------------------------ ending

    def record(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> bool:
        """Learn how the call ended; False if the ticket had ended already."""
        seq, in_flight = ticket.seq, self.in_flight
        if in_flight.pending.pop(seq, None) is None and not in_flight.complete(seq):
            return False
        self.learn(ticket, signal, latency, now, draw)
        return True

    def release(self, ticket: Ticket, now: float) -> bool:
        """The call was sent and its outcome is unknown: what it took stays taken, nothing is learned."""
        return self._end_without_answer(ticket, False, now)

    def cancel(self, ticket: Ticket, now: float) -> bool:
        """Nothing was sent: everything is refunded, unless the policies that it was taken from are gone."""
        return self._end_without_answer(ticket, ticket.seq > self.swapped_at_seq, now)

    def _end_without_answer(self, ticket: Ticket, refund: bool, now: float) -> bool:
        if not self.in_flight.complete(ticket.seq):
            return False
        circuit, policies = self.breaker.state, self.policies
        if refund:
            for place in policies.hooks.cancel:
                policies.in_order[place].cancel(ticket, now)
        else:
            for place in policies.hooks.release:
                policies.in_order[place].release(ticket, now)
        if self.breaker.state is not circuit:
            self.on_change(now)
        return True

    def settle(self, ticket: Ticket, real: Mapping[str, float]) -> None:
        """Charge what the call really cost instead of what was reserved for it."""
        policies = self.policies
        if ticket.seq > self.swapped_at_seq:
            for place in policies.hooks.settle:
                policies.in_order[place].settle(ticket, real)

    def learn(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        """Learn from an answer, whether its call is in flight or not."""
        breaker = self.breaker
        circuit = breaker.state
        self.answers += 1
        if signal.outcome is OK:
            self.latency.add(latency)
            for policy in self._on_success:
                policy.record(ticket, signal, latency, now, draw)
        else:
            if signal.retry_after is not None and signal.outcome not in RESTING:
                signal = replace(signal, retry_after=None)
            policies = self.policies
            for place in policies.hooks.record:
                policies.in_order[place].record(ticket, signal, latency, now, draw)
            self._choose_learners()
            self._rate = NEVER  # to be applied
        if breaker.state is not circuit:
            self.on_change(now)
            self._rate = NEVER
        controller = self.controller
        skip = controller.on_answer(ticket, signal, latency, now)
        if skip:
            self.pacer.skip(skip, now)
        if self._rate == NEVER or controller.hold_until != self._hold_until or controller.cap != self._cap:
            self.apply_limits(now)
        elif controller.rate != self._rate:  # nothing is held, no ramp, and the same policies may object
            self.pacer.apply(self._hold_until, now)
            self._rate = controller.rate

    def _choose_learners(self) -> None:
        """Policies with nothing to learn from a success are not called for one."""
        in_order, places = self.policies.in_order, self.policies.hooks.record
        self._on_success = tuple([in_order[place] for place in places if in_order[place].learns_from_success])

    # ------------------------------------------------------------------ limits

    def apply_limits(self, now: float) -> None:
        """Bring the pace in line with what the controller, the hold and the ramp say now."""
        controller, pacer, policies = self.controller, self.pacer, self.policies
        was_held, opens_at = pacer.held, self.hold.opens_at
        pacer.apply(opens_at, now)
        if was_held and not pacer.held:
            self.on_change(now)
        if pacer.held or pacer.ramp is not NO_RAMP:  # time alone changes something: apply again at the next occasion
            self._rate = NEVER
        else:
            self._rate, self._hold_until, self._cap = controller.rate, controller.hold_until, controller.cap
        needs_check = self.breaker.state is not CLOSED or pacer.ramp is not NO_RAMP or controller.cap != UNKNOWN
        for place in policies.hooks.may_object:
            needs_check = needs_check or policies.in_order[place].may_object()
        self._only_pace_from = UNKNOWN if needs_check else opens_at
        self.fast_path_from = UNKNOWN if self.has_waiters else self._only_pace_from

    def pause(self, seconds: float, now: float) -> None:
        """Start nothing for so long, for another reason than an answer, and resume by the same ramp."""
        if self.hold.pause(seconds, now):
            self.apply_limits(now)

    def set_ceiling(self, ceiling: float | None, now: float) -> None:
        """Let no more than so many calls a second start; None lifts that."""
        self.ceiling, policies = ceiling, self.policies
        for place in policies.hooks.set_ceiling:
            policies.in_order[place].set_ceiling(ceiling)
        self.apply_limits(now)

    def replace_breaker(self, breaker: Breaker) -> None:
        """Go on with the circuit of another gate; ``apply_limits`` must follow."""
        self.breaker = self.circuit.breaker = breaker

    # ------------------------------------------------------------------ putting away

    def idle_from(self, now: float) -> float:
        """From when on forgetting this gate would change nothing but what it has learned."""
        in_order, places = self.policies.in_order, self.policies.hooks.idle_from
        return max([in_order[place].idle_from(now) for place in places])

    def to_state(self) -> tuple[Any, ...] | None:
        """All that is known but the calls in flight, as plain values; None if it cannot be put away."""
        learned, paced = self.controller.to_state(), self.pacer.to_state()
        if learned is None or paced is None:
            return None
        (circuit, hold, *_), quotas = self.policies.in_order, self.policies.quotas
        bucket, ramp = paced
        return (
            (*bucket, self.seq, self.last_sent_at, self.answers),
            hold.to_state(),
            ramp,
            self.latency.to_state(),
            circuit.to_state(),
            None if quotas is None else quotas.to_state(),
            learned,
        )

    def load_state(self, state: tuple[Any, ...], now: float) -> None:
        """Go on from ``to_state()`` under the same config."""
        own, pause, ramp, latency, breaker, spent, learned = state
        *bucket, self.seq, self.last_sent_at, self.answers = own
        self.check_at_seq = max(FIRST_CHECK, self.seq + 1)
        circuit, hold, *_, pacer = self.policies.in_order
        circuit.load_state(breaker)
        hold.load_state(pause)
        if self.policies.quotas is not None:
            self.policies.quotas.load_state(spent)
        pacer.load_state((tuple(bucket), ramp))
        self.latency = Latency.from_state(latency)
        self.controller.load_state(learned)
        self._choose_learners()
        self.apply_limits(now)


def _ignore(_: float) -> None:
    """The default of ``Gate.on_change``."""
