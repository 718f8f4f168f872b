"""All that decides for ONE key whether a call may start: circuit, floors, limits, pace, depth.

    ask ──> circuit open? ──> told to wait? ──> controller holds? ──> known limits ──> pace ──> depth ──> ticket
             refuse           wait              wait                  wait             wait      wait
    report(ticket, signal) ──> statistics, circuit, controller, floor ──> the next ask

A gate is pure: it takes ``now`` and a random draw, and answers with a ticket, a ``Wait``
or a ``Refuse``. Who waits, and how, is the limiter's affair. A wait is one wait, the longest
of all that object, never their sum.

The pace is a bucket of ``burst`` calls refilled at ``rate``. While the gate is shut one call at
most accrues, so what was held back is never made up for in a rush.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .backoff import above
from .breaker import Breaker, BreakerPolicy
from .bucket import CATCH_UP, Buckets, Quota
from .comeback import Comeback, after_outage, after_pause, gentler
from .control.protocol import Controller
from .decision import LONGEST_WAIT, NEVER, UNKNOWN, CircuitState, Outcome, Refuse, Wait
from .latency import Latency
from .signal import Signal
from .ticket import LongTicket, Ticket

NOTHING: Mapping[str, float] = MappingProxyType({})
INSTANT = 1e-6
"""Waits below a microsecond are not worth a timer, and may be rounding."""
LOST_AFTER = 900.0
"""A permit that has not ended after so many seconds no longer counts as a call in flight."""
FIRST_CHECK = 20
CHECK_EVERY = 8192
"""After so many calls whoever owns the gate should ``let_go``. Twice as many permits may be out at most."""
FASTEST = 1e12
"""Calls a second; a controller that wants more gets this, so that numbers stay numbers."""

_HEEDED = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.OVERLOADED, Outcome.TRANSIENT)
_NO_COMEBACK = Comeback()
_NONE_OUT: dict[int, float] = {}
_blank = object.__new__


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """What the gates of many keys have in common."""

    controller: Callable[[], Controller]
    burst: float = 4.0
    least: float = 0.01
    most: float = UNKNOWN
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    quotas: Mapping[str, Quota] = field(default_factory=dict)


class Gate:
    __slots__ = (
        "answers",
        "breaker",
        "buckets",
        "burst",
        "check_at",
        "comeback",
        "controller",
        "easy_from",
        "filled_at",
        "last_sent_at",
        "late_until",
        "latency",
        "long_ticket",
        "not_before",
        "out",
        "out_longer",
        "policy",
        "rate",
        "seq",
        "shut",
        "ticket",
        "tokens",
        "waited_for",
        "watches_sends",
    )

    def __init__(
        self, policy: GatePolicy, ticket: type[Ticket] = Ticket, long_ticket: type[LongTicket] = LongTicket
    ) -> None:
        self.policy = policy
        self.ticket = ticket
        self.long_ticket = long_ticket
        self.controller = policy.controller()
        self.watches_sends = self.controller.watches_sends
        self.breaker = Breaker(policy.breaker)
        self.buckets = Buckets(policy.quotas) if policy.quotas else None
        self.latency = Latency()
        self.burst = policy.burst
        self.tokens = policy.burst
        self.filled_at = NEVER
        self.not_before = NEVER
        self.comeback = _NO_COMEBACK
        self.seq = 0
        """Calls let through so far; the ordinal of the last one."""
        self.last_sent_at = NEVER
        self.answers = 0
        """Calls whose outcome was reported."""
        self.check_at = FIRST_CHECK
        self.out: dict[int, float] = {}
        """Calls whose tickets have not ended, oldest first: their ordinals, and when they were sent."""
        self.out_longer = _NONE_OUT
        """... and an older lot of them, if there are many."""
        self.shut = False
        self.waited_for = False
        """Whether somebody stands in line: then being late is made up for."""
        self.late_until = NEVER
        """... and until when it still is, after the last one was served."""
        self.rate = policy.least
        self.easy_from = NEVER
        """From this instant on nothing but the pace can object; ``ask_plainly`` is enough then."""
        self.follow(NEVER)

    # ------------------------------------------------------------------ asking

    def ask_plainly(self, now: float) -> Ticket | None:
        """The short way for a call of cost 1 with nobody in line; None says to ``ask`` the long way."""
        tokens = self.tokens + (now - self.filled_at) * self.rate
        seq = self.seq + 1
        if tokens < 1.0 or now < self.easy_from or seq >= self.check_at:
            return None
        burst = self.burst
        if tokens > burst:
            tokens = self._brim(tokens, now) if now < self.late_until else burst
        self.tokens = tokens - 1.0
        self.filled_at = self.last_sent_at = now
        self.seq = seq
        ticket = _blank(self.ticket)  # filled in by hand: calling __init__ would cost a tenth of the whole way
        ticket.gate = self
        ticket.seq = seq
        ticket.sent_at = now
        if self.watches_sends:
            ticket.depth = len(self.out) + len(self.out_longer)
            self.controller.on_send(ticket, now)
            self.follow(now)
        self.out[seq] = now
        return ticket

    def ask(
        self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None
    ) -> Ticket | Wait | Refuse:
        """Let one call through, or say until when to wait, or why not at all."""
        objection = self.objection(now, cost)
        if objection is None:
            return self.admit(now, cost, asked_at)
        if objection.code == "pace" and self.watches_sends:
            self.controller.on_wait(now)
        return objection

    def objection(
        self,
        now: float,
        cost: float | Mapping[str, float] = 1,
        ahead: float = 0.0,
        costs_ahead: Mapping[str, float] = NOTHING,
    ) -> Wait | Refuse | None:
        """What speaks against a call now, or None. With others ``ahead`` in line: when its turn would come."""
        refusal = self.breaker.refusal(now)
        if refusal is not None:
            return refusal
        controller = self.controller
        at, decides = now, ""
        if self.not_before > at:
            at, decides = self.not_before, "floor"
        if controller.hold_until > at:
            at, decides = controller.hold_until, "hold"
        cap = max(1.0, controller.cap)
        if at <= now + INSTANT and self.in_flight >= cap:
            self._forget_lost(now)
            depth = self.in_flight
            if depth >= cap:
                lost_at = self._oldest()[1] + LOST_AFTER
                return Wait(lost_at, "depth", f"{depth} calls in flight, as many as the server takes at once")
        if self.comeback is not _NO_COMEBACK:
            self.follow(now)
        requests = _requests(cost)
        if self.buckets is not None:
            costs = costs_of(cost)
            late_counts = self.waited_for or now < self.late_until
            fits_at, dimension = self.buckets.ready_at(costs, now, late_counts, costs_ahead)
            if fits_at > at:
                at, decides = fits_at, dimension
        missing = ahead + min(requests, self.burst) - self.level(now)
        if missing > INSTANT * self.rate:
            paced_at = max(now, self.filled_at) + missing / self.rate
            if paced_at > at:
                at, decides = paced_at, "pace"
        if at <= now + INSTANT:
            return None
        return Wait(at, decides, self._sentence(decides, at - now))

    def admit(self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None) -> Ticket:
        """Let a call through that nothing objects to."""
        self.level(now)
        self.last_sent_at = now
        self.tokens -= _requests(cost)
        if self.buckets is not None:
            self.buckets.take(costs_of(cost), now)
        self.seq += 1
        depth, waited = self.in_flight, 0.0 if asked_at is None else now - asked_at
        if cost == 1 and waited == 0.0:
            ticket = self.ticket(self, self.seq, now, depth)
        else:
            ticket = self.long_ticket(self, self.seq, now, depth, cost, waited)
        self.out[self.seq] = now
        self.breaker.admit(self.seq, now)
        if self.watches_sends:
            self.controller.on_send(ticket, now)
        self.follow(now)
        return ticket

    def level(self, now: float) -> float:
        """Calls the pace would let start at once. Below 0 is debt."""
        if now > self.filled_at:
            tokens = self.tokens + (now - max(self.filled_at, now - LONGEST_WAIT)) * self.rate
            self.tokens = tokens if tokens <= self.burst else self._brim(tokens, now)
            self.filled_at = now
        return self.tokens

    def _brim(self, tokens: float, now: float) -> float:
        """Overflow is lost, except what somebody in line is, or was a moment ago, served late by."""
        if now < self.late_until or (self.waited_for and self.tokens < 1.0):
            return min(tokens, self.burst + CATCH_UP * self.rate)
        return self.burst

    def end_of_line(self, now: float) -> None:
        """The last waiter was served. If it comes right back, it has not lost what it was late by."""
        self.waited_for = False
        self.late_until = now + CATCH_UP
        self.follow(now)

    # ------------------------------------------------------------------ ending

    def report(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> bool:
        """Take how the call ended and learn from it; False if the ticket had ended already."""
        if self.out.pop(ticket.seq, None) is None and self.out_longer.pop(ticket.seq, None) is None:
            return False
        self._learn(ticket, signal, latency, now, draw)
        return True

    def teach(self, signal: Signal, latency: float, now: float, draw: float) -> None:
        """Learn from an answer that belongs to the oldest call it can belong to, or to none of ours."""
        sent_at = now - latency
        if self.in_flight and self._oldest()[1] <= sent_at + INSTANT:
            self.report(self.ticket(self, *self._oldest(), 0), signal, latency, now, draw)
            return
        if sent_at > self.last_sent_at + INSTANT:
            self.seq += 1  # a call of somebody else's: the newest we know of
            self.last_sent_at = now
        closed = self.breaker.state is CircuitState.CLOSED
        seq = self.seq if closed else self.breaker.era_after  # the newest may be a probe, and this is not its answer
        self._learn(self.ticket(self, seq, sent_at, 0), signal, latency, now, draw)

    def release(self, ticket: Ticket) -> bool:
        """The call was sent and nobody will say how it ended: what it took stays taken, nothing is learned."""
        if self.out.pop(ticket.seq, None) is None and self.out_longer.pop(ticket.seq, None) is None:
            return False
        self.breaker.give_back(ticket.seq)
        return True

    def abandon(self, ticket: Ticket) -> bool:
        """Nothing was sent: everything goes back."""
        if not self.release(ticket):
            return False
        brim = 1.0 if self.shut else self.burst
        if self.tokens < brim:
            self.tokens = min(brim, self.tokens + _requests(ticket.cost))
        if self.buckets is not None:
            self.buckets.refund(costs_of(ticket.cost), ticket.sent_at)
        return True

    def settle(self, ticket: Ticket, real: Mapping[str, float]) -> None:
        """Charge what the call really cost instead of what was reserved for it."""
        if self.buckets is not None:
            self.buckets.settle(costs_of(ticket.cost), real, ticket.sent_at)

    def _learn(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        outcome = signal.outcome
        self.answers += 1
        if outcome is Outcome.OK:
            self.latency.add(latency)
        if self.breaker.record(ticket.seq, outcome, now, self.seq) and self.breaker.state is CircuitState.CLOSED:
            self.comeback = gentler(self.comeback, after_outage(now - self.breaker.sick_since, now))
            self.tokens = min(self.tokens, 1.0)
        skip = self.controller.on_answer(ticket, signal, latency, now)
        if skip > 0.0:
            self.tokens = min(self.level(now), 1.0 - skip)
        if signal.retry_after is not None and outcome in _HEEDED:
            until = now + above(signal.retry_after, draw)
            if until > self.not_before:
                self.not_before = until
                self.comeback = gentler(self.comeback, after_pause(until - now, until))
        self.follow(now)

    def follow(self, now: float) -> None:
        """Bring the pace in line with what the controller, the floor and the ramp say now."""
        controller, policy = self.controller, self.policy
        rate = controller.rate
        if not rate >= policy.least:
            rate = policy.least
        if rate > policy.most:
            rate = policy.most
        if rate > FASTEST:
            rate = FASTEST
        easy_from = controller.hold_until
        if self.not_before > easy_from:
            easy_from = self.not_before
        if easy_from > now:  # shut: what accrues until the end is one call at most
            if self.filled_at != easy_from:
                tokens = self.level(now)
                self.tokens = min(tokens + max(0.0, easy_from - max(now, self.filled_at)) * self.rate, 1.0)
                self.filled_at = easy_from
            self.shut = True
        elif self.shut:
            self.shut = False
            self.filled_at = min(self.filled_at, now)
        if self.comeback is not _NO_COMEBACK:
            if now < self.comeback.ends_at:
                rate *= self.comeback.share(now)
                easy_from = UNKNOWN
            else:
                self.comeback = _NO_COMEBACK
        if (
            self.waited_for
            or self.buckets is not None
            or controller.cap != UNKNOWN
            or self.breaker.state is not CircuitState.CLOSED
        ):
            easy_from = UNKNOWN
        self.easy_from = easy_from
        if rate != self.rate:
            self.level(now)
            self.rate = rate

    @property
    def in_flight(self) -> int:
        """Calls whose tickets have not ended."""
        return len(self.out) + len(self.out_longer)

    def let_go(self, now: float) -> None:
        """Calls that never end must not be counted for ever: where there are too many, the older lot is released."""
        if len(self.out) > CHECK_EVERY // 2:
            self.out_longer, self.out = self.out, {}
        self.check_at = self.seq + CHECK_EVERY
        self._forget_lost(now)

    def _forget_lost(self, now: float) -> None:
        while self.in_flight:
            seq, sent_at = self._oldest()
            if now < sent_at + LOST_AFTER:
                return
            (self.out_longer or self.out).pop(seq)

    def _oldest(self) -> tuple[int, float]:
        return next(iter((self.out_longer or self.out).items()))

    # ------------------------------------------------------------------ looking

    def why(self, now: float) -> str:
        """Why a call would not start now, in one sentence; empty if it would."""
        objection = self.objection(now)
        if objection is None:
            return ""
        if isinstance(objection, Refuse) and objection.retry_at is not None:
            return f"{objection.reason}, {_to_go(objection.retry_at - now)}"
        return objection.reason

    def shut_until(self) -> float:
        """Before this instant nothing starts, whoever asked for it."""
        return max(self.not_before, self.controller.hold_until)

    def idle_from(self, now: float) -> float:
        """From when on forgetting this key would change nothing but what it has learned."""
        if self.in_flight or self.breaker.state is not CircuitState.CLOSED:
            return UNKNOWN
        missing = self.burst - self.level(now)
        full_at = max(now, self.filled_at) + missing / self.rate if missing > INSTANT * self.rate else now
        if self.buckets is not None:
            full_at = max(full_at, self.buckets.full_at(now))
        return max(full_at, self.shut_until())

    def _sentence(self, decides: str, wait: float) -> str:
        left = _to_go(wait)
        if decides == "floor":
            return f"told to wait by the server, {left}"
        if decides == "hold":
            return f"refused a moment ago, {self.controller.why()}, {left}"
        if decides == "pace":
            gently = " on the way back from a pause" if self.comeback is not _NO_COMEBACK else ""
            return f"paced at {self.rate:.3g} calls/s{gently}, {self.controller.why()}, {left}"
        quota = self.policy.quotas[decides]
        return f"the known limit of {quota.amount:,.10g} {decides} per {quota.window:g} s is used up, {left}"

    # ------------------------------------------------------------------ putting away

    def to_state(self) -> tuple[Any, ...] | None:
        """All that is known of a key without permits out, as plain values; None if it cannot be put away."""
        learned = self.controller.to_state()
        if self.in_flight or learned is None:
            return None
        return (
            (
                self.tokens,
                self.filled_at,
                self.not_before,
                self.seq,
                self.last_sent_at,
                self.answers,
                self.rate,
                self.shut,
            ),
            (self.comeback.starts_at, self.comeback.lasts, self.comeback.least),
            self.latency.to_state(),
            self.breaker.to_state(),
            None if self.buckets is None else self.buckets.to_state(),
            learned,
        )

    def load_state(self, state: tuple[Any, ...], now: float) -> None:
        """Go on from ``to_state()`` under the same policy."""
        own, comeback, latency, breaker, buckets, learned = state
        (
            self.tokens,
            self.filled_at,
            self.not_before,
            self.seq,
            self.last_sent_at,
            self.answers,
            self.rate,
            self.shut,
        ) = own
        self.check_at = max(FIRST_CHECK, self.seq + 1)
        if comeback[1]:
            self.comeback = Comeback(*comeback)
        self.latency = Latency.from_state(latency)
        self.breaker.load_state(breaker)
        if self.buckets is not None:
            self.buckets.load_state(buckets)
        self.controller.load_state(learned)
        self.follow(now)


def costs_of(cost: float | Mapping[str, float]) -> Mapping[str, float]:
    """What a call takes of each known limit: at least one request."""
    if not isinstance(cost, Mapping):
        return {"requests": cost}
    return cost if "requests" in cost else {"requests": 1, **cost}


def _requests(cost: float | Mapping[str, float]) -> float:
    """How many calls' worth of pace a cost takes."""
    return cost.get("requests", 1) if isinstance(cost, Mapping) else cost


def _to_go(wait: float) -> str:
    return f"{wait:.1f} s to go" if wait >= 1 else f"{max(1.0, 1000 * wait):.0f} ms to go"
