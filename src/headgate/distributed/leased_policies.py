"""The policies of a gate whose quota lies in a store.

Between two exchanges everything is decided here, by numbers that are held already; a call costs about what it
costs in a process alone.

    a number is held, and due             ──> admitted
    the coordinator has yet to answer     ──CREDIT_AFTER──> admitted on credit, which the next numbers pay for
    the coordinator is short of something ──> wait for just that

Credit keeps calls from waiting for a store that is far away or stalls. It is given at this member's share of what no
process asked for recently; of the whole rate, if the store takes longer than it usually does. A process that has just
started gets none: processes that share a quota are often started together, and it does not know yet how many there are.
A number that was kept for long is used at that share too: numbers that many members saved up must not all go at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any, cast

from ..core.answer_length import AnswerLengths, TokenCost
from ..core.circuit_breaker import Breaker
from ..core.concurrency import InFlight
from ..core.controller import Controller
from ..core.cooldown import RESTING
from ..core.decision import INSTANT, NEVER, UNKNOWN, CircuitState, Explanation, Refuse, RefuseReason, Wait, WaitReason
from ..core.gate_config import GateConfig
from ..core.pacer import NO_RAMP, ResumeRamp
from ..core.policy import NOTHING, Cost, Demand, QueueDemand, Ticket, costs_of, requests_of
from ..core.quota import CATCH_UP, LONG_WINDOW, Quota, scaled_ahead
from ..core.signal import Signal
from .lease import Lease
from .member_policies import terms_of
from .observation_log import ABANDONED, RELEASED
from .protocol import NO_CAP

if TYPE_CHECKING:
    from .membership import Leadership, Membership, Outbox

CREDIT_AFTER = 0.035
"""Seconds for which a caller waits for the coordinator's answer; then it may leave on credit."""
SOON = 0.005
"""Seconds in which an exchange should be over."""
FLOOR, PACE, SHARE = WaitReason.FLOOR, WaitReason.PACE, WaitReason.SHARE


class LeasedCircuit:
    """The circuit as all members have it: the coordinator opens and closes it, and grants the probes."""

    __slots__ = ("breaker", "learns", "lease", "outbox", "probe_asked_at", "probe_seq", "unmatched")

    def __init__(self, breaker: Breaker, lease: Lease, outbox: Outbox, *, learns: bool) -> None:
        """``learns``: whether the strategy wants to know of every call."""
        self.breaker = breaker
        self.lease = lease
        self.outbox = outbox
        self.learns = learns
        self.probe_asked_at = NEVER
        self.unmatched: tuple[Signal, float, float] | None = None
        self.probe_seq = 0
        """Which call is the probe of a half-open circuit."""

    def check(self, now: float, demand: Demand) -> Refuse | None:
        return self.breaker.check(now)

    def admit(self, ticket: Ticket, now: float) -> None:
        if self.breaker.state is not CircuitState.CLOSED:
            self.probe_seq, self.probe_asked_at, self.unmatched = ticket.seq, now - ticket.waited, None

    def release(self, ticket: Ticket, now: float) -> None:
        self._end(ticket, RELEASED, now)

    def cancel(self, ticket: Ticket, now: float) -> None:
        self._end(ticket, ABANDONED, now)

    def _end(self, ticket: Ticket, how: str, now: float) -> None:
        """A call ended without an answer of its own; for a probe, one that matched no call counts."""
        is_probe = ticket.seq == self.probe_seq
        answered = self.unmatched if is_probe and how == RELEASED else None
        if answered is not None:
            signal, latency, at = answered
            self.unmatched = None
            self.outbox.log.end(ticket.seq, at, latency, signal, "")
        elif self.learns:
            self.outbox.log.end(ticket.seq, now, 0.0, None, how)
        if is_probe:
            self.end_probe(answered is None, now)
        if self.lease.lacks_room:
            self.outbox.want(now)

    def end_probe(self, without_answer: bool, now: float) -> None:
        self.probe_seq, self.outbox.probe_over, self.outbox.is_urgent = 0, without_answer, True
        self.outbox.want(now)

    def probe(self) -> int | None:
        return self.probe_seq or None


class LeasedHold:
    """The pause that all members keep."""

    __slots__ = ("outbox", "until")

    learns_from_success = False

    reason = FLOOR
    """The leader knows whether it was asked for, or is its controller's."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.until = NEVER

    @property
    def opens_at(self) -> float:
        return self.until

    @property
    def asked_until(self) -> float:
        return self.until

    def check(self, now: float, demand: Demand) -> Wait | None:
        return None if self.until <= now + INSTANT else Wait(FLOOR, self.until)

    def record(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        if signal.outcome in RESTING and signal.retry_after:
            self.pause(signal.retry_after, now)

    def pause(self, seconds: float, now: float) -> bool:
        self.until = max(self.until, now + seconds)
        self.outbox.pause(seconds, now)
        return True


class LeasedPacer(Lease):
    """The pacer of a shared key: start calls by the numbers of its lease, or on credit."""

    __slots__ = (
        "breaker",
        "config",
        "has_waiters",
        "hold_policy",
        "in_flight",
        "late_until",
        "leadership",
        "learns",
        "lengths",
        "membership",
        "outbox",
    )

    ramp: ResumeRamp = NO_RAMP
    """The leader's gate resumes gently for all."""
    lost_store = ""
    held = False
    """The hold is ``LeasedHold``'s."""
    is_at_ceiling = False

    def __init__(
        self,
        config: GateConfig,
        idle: Controller,
        hold: LeasedHold,
        breaker: Breaker,
        in_flight: InFlight,
        outbox: Outbox,
        membership: Membership,
        leadership: Leadership,
        now: float,
    ) -> None:
        """``idle``: a controller of the configured strategy, for what is known before anything is learned."""
        super().__init__(terms_of(config, idle.rate), config.burst, now)
        self.has_waiters, self.late_until = False, NEVER
        """For the policies that replace this one: whether callers wait, and until when being late is made up for."""
        self.config = config
        self.hold_policy = hold
        self.breaker = breaker
        self.in_flight = in_flight
        self.outbox = outbox
        self.learns = idle.learns
        self.membership = membership
        self.leadership = leadership
        self.lengths = AnswerLengths()
        """What this member's calls have taken: by that it asks for them."""

    @property
    def _is_guess(self) -> bool:
        """Whether the strategy learns and the rate has not fallen yet."""
        return self.learns and not self.rate_has_fallen

    # ------------------------------------------------------------------ deciding

    def worth(self, cost: Cost) -> float:
        return requests_of(cost)

    def try_take(self, now: float) -> bool:
        lead = self.tokens + (now - self.filled_at) * self.rate
        if lead < 1.0 or self.numbers.left < 1 or now > self.expires_at:
            return False
        if lead > self.late_lead and now < self.demand.last_sent_at + self.members / self.rate:
            return False
        self.tokens, self.filled_at = lead, now
        self.use(1, now)
        return True

    def reserved(self, cost: Cost) -> Cost:
        """Others have calls in flight too: of what all may exceed their estimates by, this member's part."""
        if not isinstance(cost, TokenCost) or not self.amounts.dimensions:
            return cost
        limits = ((dimension, amount) for dimension, amount, *_ in self.terms.limits)
        return self.lengths.reserved(cost, limits, len(self.in_flight) * self.members)

    def check(self, now: float, demand: Demand) -> Wait | Refuse | None:
        wanted, ahead = demand.requests, demand.requests_ahead
        if isinstance(demand.cost, TokenCost) and self.amounts.dimensions:
            cost = self.reserved(demand.cost)
            scaled = scaled_ahead(demand.costs_ahead, costs_of(cost), demand.cost)
            demand = demand._replace(cost=cost, costs_ahead=scaled)
        due_at = self.due_at(ahead + wanted, ahead + min(wanted, self.burst), now)
        if due_at is None or not self.amounts.covers(demand.cost, demand.costs_ahead):
            if not ahead:
                self.demand.polled_cost = costs_of(demand.cost)
            return self._not_held(demand, now)
        if self.lead(now) > self.late_lead:
            due_at = max(due_at, demand.last_sent_at + self.members * wanted / self.rate)
        if due_at <= now + INSTANT:
            return None
        return Wait(PACE, due_at, known_until=now if self._is_guess else UNKNOWN)

    def _not_held(self, demand: Demand, now: float) -> Wait | Refuse | None:
        """What keeps a call from starting for which nothing is held: mostly, the coordinator is yet to be asked."""
        if self.short_until > now:
            if self.short_of == "circuit":
                return Refuse(RefuseReason.PROBE_IN_FLIGHT, check_again_at=self.short_until)
            if self.short_of == "depth":
                return Wait(WaitReason.DEPTH, self.short_until)
            if self.short_of in self.amounts.dimensions:
                decider = self._decider(self.short_of, self.short_until - now)
                return Wait(WaitReason.QUOTA, self.short_until, decider or self.short_of)
        if self.hold_policy.until > now:
            return None  # which the hold objects to already
        missing = max(0.0, demand.requests_ahead + demand.requests - self.numbers.count - 1)
        at = now + max(2 * self.round_trip.usual, SOON) + missing * self.members / self.rate
        if not demand.requests_ahead:
            at = min(at, self._credit_at(demand, now))
        return None if at <= now + INSTANT else Wait(SHARE, at, known_until=now if self._is_guess else UNKNOWN)

    def _decider(self, dimension: str, wait: float) -> Quota | None:
        """Which of a dimension's limits takes so long: none makes a call wait for longer than its window."""
        quotas = [quota for quota in self.config.quotas if quota.dimension == dimension]
        return next((quota for quota in quotas if wait <= quota.window), quotas[-1] if quotas else None)

    def _credit_at(self, demand: Demand, now: float) -> float:
        """When a call may leave although nothing is held for it; ``UNKNOWN`` where it may not.

        It waits for the answer for a moment first, unless the store is late already, and until this member's share of
        the rate has come to what it costs.
        """
        is_late = self._store_is_late(now)
        share = self._credit_share(is_late=is_late)
        if not share or not self._may_lend(now, is_late=is_late):
            return UNKNOWN
        waited_at = now if is_late else min(self.waiting_since, now) + CREDIT_AFTER
        return max(waited_at, demand.last_sent_at + self.members * self._accrues_in(demand.cost) / share)

    def _store_is_late(self, now: float) -> bool:
        """Whether the store owes an answer for longer than it usually takes; it has to have given one before."""
        usual = self.round_trip.usual
        return self.round_trip.sent_at != NEVER and now >= self.membership.asked_since + max(CREDIT_AFTER, 2 * usual)

    def _credit_share(self, *, is_late: bool) -> float:
        """Which part of the rate is given on credit: all of it while the store is late, else what is not asked for.

        A process that has never had an answer does not know how many share the rate, and gets one call; none under a
        long window, of which only the store knows what is left.
        """
        if self.round_trip.sent_at == NEVER:
            has_long_window = any(quota.window >= LONG_WINDOW for quota in self.config.quotas)
            return 0.0 if self.credit.on_credit or has_long_window else 1.0
        return 1.0 if is_late else self.credit.spare

    def _may_lend(self, now: float, *, is_late: bool) -> bool:
        """Whether nothing but the missing answer keeps calls from leaving."""
        is_full = self.cap != NO_CAP and self.cap <= len(self.in_flight) * self.members
        is_closed = self.breaker.state is CircuitState.CLOSED
        is_settled = not self.membership.refuses and now >= self.membership.settled_at
        return is_settled and is_closed and not is_full and not self._is_short(now, is_late=is_late)

    def _is_short(self, now: float, *, is_late: bool) -> bool:
        """Whether what the coordinator was short of still counts.

        It does until the next answer. If that is late, and the time to ask again has come, a shortage of pace is over:
        the pace is known here. So is one because another member was solo. What is left of a limit only the coordinator
        knows.
        """
        ends_by_itself = is_late and now >= self.short_until and self.short_of in ("pace", "solo")
        return bool(self.short_of) and not ends_by_itself

    def _accrues_in(self, cost: Cost) -> float:
        """Seconds in which the rate and every known limit allow one more call of this cost."""
        costs = costs_of(cost)
        limits = [costs.get(dimension, 0.0) * window / amount for dimension, amount, window, _ in self.terms.limits]
        return max(costs["requests"] / self.rate, *limits, 0.0)

    def admit(self, ticket: Ticket, now: float) -> None:
        self.tokens += max(0.0, now - self.filled_at) * self.rate
        self.filled_at = max(now, self.filled_at)
        if isinstance(ticket.cost, TokenCost):
            cast("Any", ticket).cost = self.reserved(ticket.cost)  # a ticket with a cost has a slot for it
        costs, numbers = costs_of(ticket.cost), ceil(requests_of(ticket.cost))
        if self.due_at(numbers, 0.0, now) is None or not self.amounts.covers(ticket.cost, NOTHING):  # on credit
            self.credit.on_credit += numbers
            self.demand.used += numbers
            self.outbox.refund({name: -costs.get(name, 0.0) for name in self.amounts.dimensions}, now)
            numbers = 0
        else:
            self.amounts.take(costs)
        self.use(numbers, now)

    def settle(self, ticket: Ticket, real: Mapping[str, float]) -> None:
        self.lengths.settled(ticket.cost, real)
        self._charge(ticket, real)

    def _charge(self, ticket: Ticket, real: Mapping[str, float]) -> None:
        reserved = costs_of(ticket.cost)
        less = {name: reserved.get(name, 0.0) - real[name] for name in self.amounts.dimensions if name in real}
        self.outbox.refund(less, ticket.sent_at)

    def cancel(self, ticket: Ticket, now: float) -> None:
        self.outbox.give_back(ticket)
        self._charge(ticket, dict.fromkeys(self.amounts.dimensions, 0.0))

    def on_wait(self, wait: Wait | Refuse, now: float) -> None:
        if wait.reason in (WaitReason.PAUSED, WaitReason.CEILING):
            return
        self.demand.missed = 1
        if self.demand.queue is None:
            self.demand.polled_at = now
        if wait.reason in (PACE, SHARE):
            self.outbox.log.waited_at = now
        if wait.reason is SHARE and self.waiting_since == UNKNOWN:
            self.waiting_since = now
        lacks_something = wait.reason is SHARE and self.amounts.dimensions
        if now >= self.ask_from and not self.sync_pending and (lacks_something or self.needs_more(0, now)):
            self.outbox.want(now)

    def on_queue(self, queue: QueueDemand | None, now: float) -> None:
        self.demand.queue = queue
        self.has_waiters = queue is not None
        if queue is None:
            self.demand.polled_at, self.waiting_since = NEVER, UNKNOWN
            self.late_until = now + CATCH_UP

    # ------------------------------------------------------------------ for the gate

    def apply(self, opens_at: float, now: float) -> None:
        """Its rate and its line are the coordinator's."""

    def skip(self, slots: float, now: float) -> None:
        """The leader does, for all members."""

    def mark_late(self, is_late: bool, now: float) -> None:
        """Nothing is lost while a waiter is late: the line goes on."""

    def is_late(self, now: float) -> bool:
        """Only local quotas make up for it."""
        return False

    def refill(self, now: float) -> float:
        return min(float(self.numbers.left), self.tokens + max(0.0, now - self.filled_at) * self.rate)

    @property
    def learned_rate(self) -> float:
        """The pace that is handed out follows a window step by step; what it says is known where this member leads."""
        stated = self.leadership.stated_rate()
        return self.rate if stated is None else stated

    def explain(self, wait: Wait, now: float) -> Explanation:
        rate = self.learned_rate
        for quota in self.config.quotas if wait.reason is PACE else ():  # the pace that is handed out keeps to these
            if quota.dimension == "requests" and quota.paces and quota.refill <= 1.01 * rate:
                return Explanation(reason=WaitReason.QUOTA, subject=str(quota), dimension="requests")
        return Explanation(reason=wait.reason, rate=rate, members=self.members)

    def may_object(self) -> bool:
        return bool(self.config.quotas)

    def idle_from(self, now: float) -> float:
        if len(self.in_flight) or self.numbers.count or self.sync_pending:
            return UNKNOWN
        return max(now, self.hold_policy.until)

    def to_state(self) -> None:
        """What is known of a shared key lies in its store."""
