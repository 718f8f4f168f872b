"""All that decides for ONE key whether a call may start: circuit, floors, limits, pace, depth.

    ask ──> circuit open? ──> told to wait? ──> controller holds? ──> depth ──> known limits ──> pace ──> ticket
             refuse           wait              wait                  wait      wait             wait
    report(ticket, signal) ──> statistics, circuit, controller, floor ──> the next ask

A gate is pure: it takes ``now`` and a random draw, and answers with a ticket, a ``Wait``
or a ``Refuse``. Who waits, and how, is the limiter's affair. A wait is one wait, the longest
of all that object, never their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from .breaker import Breaker, BreakerPolicy
from .bucket import CATCH_UP, Buckets, Quota
from .comeback import Comeback, after_outage, after_pause, gentler
from .control.protocol import Controller
from .cooldown import Cooldown, ExponentialCooldown, FixedCooldown
from .decision import NEVER, UNKNOWN, CircuitState, Outcome, Refuse, Wait
from .flight import LOST_AFTER, Flight
from .latency import Latency
from .pace import INSTANT, Pace
from .signal import Signal
from .ticket import LongTicket, Ticket
from .words import span

NOTHING: Mapping[str, float] = MappingProxyType({})
FIRST_CHECK = 20
CHECK_EVERY = 8192
"""After so many calls whoever owns the gate should ``look_after`` it."""
USUAL_LATENCY = 0.2
"""What answers take, as long as nothing is known."""
FASTEST = 1e12
"""Calls a second; nobody gets more, so that numbers stay numbers."""

OK = Outcome.OK
_RESTING = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.OVERLOADED)
"""Whose Retry-After is for everybody under this key; that of a failure in passing is for its own call alone."""
_NO_COMEBACK = Comeback()
_NUMBER = (int, float)
"""What a cost mostly is; asking for that first spares the slow question whether it is a mapping."""
_blank = object.__new__


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """What the gates of many keys have in common."""

    controller: Callable[[], Controller]
    burst: float = 4.0
    least: float = 0.01
    most: float = FASTEST
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    cooldown: FixedCooldown | ExponentialCooldown | None = None
    """How long to pause after a 429; None is as long as the server says."""


class Gate(Pace):
    """A gate *is* its pace: the bucket is looked at by every call, so it is not a step away."""

    __slots__ = (
        "answers",
        "breaker",
        "buckets",
        "check_at",
        "comeback",
        "controller",
        "cooldown",
        "easy_from",
        "flight",
        "last_sent_at",
        "latency",
        "long_ticket",
        "policy",
        "seq",
        "ticket",
        "watches_sends",
    )

    def __init__(
        self, policy: GatePolicy, ticket: type[Ticket] = Ticket, long_ticket: type[LongTicket] = LongTicket
    ) -> None:
        super().__init__(policy.burst, policy.least)
        self.policy = policy
        self.ticket = ticket
        self.long_ticket = long_ticket
        self.controller = policy.controller()
        self.watches_sends = self.controller.watches_sends
        self.breaker = Breaker(policy.breaker)
        self.buckets = Buckets(policy.quotas) if policy.quotas else None
        self.latency = Latency()
        self.flight = Flight()
        self.cooldown: Cooldown | None = None
        """The pause that was asked for; made when one first is."""
        self.comeback = _NO_COMEBACK
        self.seq = 0
        """Calls let through so far; the ordinal of the last one."""
        self.last_sent_at = NEVER
        self.answers = 0
        """Calls whose outcome was reported."""
        self.check_at = FIRST_CHECK
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
            tokens = self.brim(tokens, now) if now < self.late_until else burst
        self.tokens = tokens - 1.0
        self.filled_at = self.last_sent_at = now
        self.seq = seq
        ticket = _blank(self.ticket)  # filled in by hand: calling __init__ would cost a tenth of the whole way
        ticket.gate = self
        ticket.seq = seq
        ticket.sent_at = now
        if self.watches_sends:
            ticket.depth = len(self.flight)
            self.controller.on_send(ticket, now)
            self.follow(now)
        self.flight.out[seq] = now
        return ticket

    def ask(
        self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None
    ) -> Ticket | Wait | Refuse:
        """Let one call through, or say until when to wait, or why not at all."""
        objection = self.objection(now, cost)
        if objection is None:
            return self.admit(now, cost, asked_at)
        self.note_wait(objection, now)
        return objection

    def note_wait(self, objection: Wait | Refuse, now: float) -> None:
        """Somebody waits for this: a controller may want to know that its pace is what holds callers back."""
        if objection.code == "pace" and self.watches_sends:
            self.controller.on_wait(now)

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
        if self.cooldown is not None and self.cooldown.until > at:
            at, decides = self.cooldown.until, "floor"
        if controller.hold_until > at:
            at, decides = controller.hold_until, "hold"
        cap = max(1.0, controller.cap)
        if at <= now + INSTANT and len(self.flight) >= cap:
            self.flight.forget_lost(now)
            oldest = self.flight.oldest()
            if oldest is not None and len(self.flight) >= cap:
                return Wait(oldest[1] + LOST_AFTER, "depth")
        if self.comeback is not _NO_COMEBACK:
            self.follow(now)
        if self.buckets is not None:
            fits_at, dimension = self.buckets.ready_at(costs_of(cost), now, self.is_late(now), costs_ahead)
            if fits_at > at:
                at, decides = fits_at, dimension
        paced_at = self.holds_at(ahead + min(requests_of(cost), self.burst), now)
        if self.comeback is not _NO_COMEBACK and paced_at > self.comeback.ends_at:  # from there on at the full pace
            paced_at = self.comeback.ends_at + (paced_at - self.comeback.ends_at) * self.comeback.share(now)
        if paced_at > at:
            at, decides = paced_at, "pace"
        if at <= now + INSTANT:
            return None
        return Wait(at, decides)

    def admit(self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None) -> Ticket:
        """Let a call through that nothing objects to."""
        self.level(now)
        self.last_sent_at = now
        self.tokens -= requests_of(cost)
        if self.buckets is not None:
            self.buckets.take(costs_of(cost), now)
        self.seq += 1
        depth, waited = len(self.flight), 0.0 if asked_at is None else now - asked_at
        if cost == 1 and waited == 0.0:
            ticket = self.ticket(self, self.seq, now, depth)
        else:
            ticket = self.long_ticket(self, self.seq, now, depth, cost, waited)
        if self.watches_sends:
            self.controller.on_send(ticket, now)
        self.flight.out[self.seq] = now
        self.breaker.admit(self.seq, now)
        self.follow(now)
        return ticket

    def end_of_line(self, now: float) -> None:
        """The last waiter was served."""
        self.waited_for = False
        self.late_until = now + CATCH_UP
        self.follow(now)

    # ------------------------------------------------------------------ ending

    def report(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> bool:
        """Take how the call ended and learn from it; False if the ticket had ended already."""
        if not self.flight.land(ticket.seq):
            return False
        self._learn(ticket, signal, latency, now, draw)
        return True

    def teach(self, signal: Signal, latency: float, now: float, draw: float) -> None:
        """Learn from an answer that belongs to the oldest call it can belong to, or to none of ours."""
        sent_at = now - latency
        oldest = self.flight.oldest()
        if oldest is not None and oldest[1] <= sent_at + INSTANT:
            self.report(self.ticket(self, *oldest, 0), signal, latency, now, draw)
            return
        if not latency > 0.0:  # not told when it was sent: about as long ago as answers usually take
            sent_at = now - (self.latency.ewma or USUAL_LATENCY)
        if sent_at > self.last_sent_at + INSTANT:
            self.seq += 1  # a call of somebody else's: the newest we know of
            self.last_sent_at = now
        closed = self.breaker.state is CircuitState.CLOSED
        seq = self.seq if closed else self.breaker.era_after  # the newest may be a probe, and this is not its answer
        self._learn(self.ticket(self, seq, sent_at, 0), signal, latency, now, draw)

    def release(self, ticket: Ticket) -> bool:
        """The call was sent and nobody will say how it ended: what it took stays taken, nothing is learned."""
        if not self.flight.land(ticket.seq):
            return False
        self.breaker.give_back(ticket.seq)
        return True

    def abandon(self, ticket: Ticket) -> bool:
        """Nothing was sent: everything goes back."""
        if not self.release(ticket):
            return False
        self.give_back(requests_of(ticket.cost))
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
        if outcome is OK:
            self.latency.add(latency)
            if self.cooldown is not None:
                self.cooldown.cleared(ticket.sent_at)
        if self.breaker.record(ticket.seq, outcome, now, self.seq) and self.breaker.state is CircuitState.CLOSED:
            self.comeback = gentler(self.comeback, after_outage(now - self.breaker.sick_since, now))
            self.tokens = min(self.tokens, 1.0)
        if outcome is not OK:
            if outcome in _RESTING:
                self._pause(ticket, signal, now, draw)
            elif signal.retry_after is not None:
                signal = replace(signal, retry_after=None)
        skip = self.controller.on_answer(ticket, signal, latency, now)
        if skip:
            self.let_pass(skip, now)
        self.follow(now)

    def let_pass(self, slots: float, now: float) -> None:
        """Start nothing for so many slots."""
        self.tokens = min(self.level(now), 1.0 - slots)

    def _pause(self, ticket: Ticket, signal: Signal, now: float, draw: float) -> None:
        """Start nothing for as long as the server, or our own cooldown after a 429, asks."""
        ours = self.policy.cooldown if signal.outcome is Outcome.RATE_LIMITED else None
        if ours is None and signal.retry_after is None:
            return
        if self.cooldown is None:
            self.cooldown = Cooldown(self.policy.cooldown)
        before = self.cooldown.until
        self.cooldown.report(ticket.sent_at, now, signal.retry_after or 0.0, draw)
        until = self.cooldown.until
        if until > max(before, now):
            self.comeback = gentler(self.comeback, after_pause(until - now, until))

    def rest(self, seconds: float, now: float) -> None:
        """Start nothing for so long, by somebody else's word than an answer's, and come back by the same ramp."""
        if self.cooldown is None:
            self.cooldown = Cooldown(self.policy.cooldown)
        until = now + seconds
        if until > max(self.cooldown.until, now):
            self.cooldown.until = until
            self.comeback = gentler(self.comeback, after_pause(seconds, until))
            self.follow(now)

    def follow(self, now: float) -> None:
        """Bring the pace in line with what the controller, the floor and the ramp say now."""
        controller, policy = self.controller, self.policy
        rate = controller.rate
        if not rate >= policy.least and not (rate > 0.0 and controller.is_told):
            rate = policy.least
        if rate > policy.most:
            rate = policy.most
        easy_from = controller.hold_until
        if self.cooldown is not None and self.cooldown.until > easy_from:
            easy_from = self.cooldown.until
        if easy_from > now:
            self.shut_until(easy_from, now)
        elif self.shut:
            self.reopen(now)
        if self.comeback is not _NO_COMEBACK:
            if now < self.comeback.ends_at:
                rate *= self.comeback.share(now)
                easy_from = UNKNOWN
            else:
                self.level(self.comeback.ends_at)
                self.comeback, self.rate = _NO_COMEBACK, rate
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

    def look_after(self, now: float) -> None:
        """From time to time: do not count for ever what will never end."""
        self.flight.let_go(now, self.seq)
        self.check_at = self.seq + CHECK_EVERY

    # ------------------------------------------------------------------ looking

    def why(self, now: float) -> str:
        """Why a call would not start now, in one sentence; empty if it would."""
        objection = self.objection(now)
        if objection is None:
            return ""
        if isinstance(objection, Refuse) and objection.retry_at is not None:
            return f"{objection.reason}, {span(objection.retry_at - now)} to go"
        return self.reason(objection, now)

    def reason(self, objection: Wait | Refuse, now: float) -> str:
        """What this gate objects, in one sentence. To be asked right after the objection, while it still holds."""
        if isinstance(objection, Refuse):
            return objection.reason
        decides, left = objection.code, f"{span(objection.until - now)} to go"
        if decides == "depth":
            return f"{len(self.flight)} calls in flight, as many as the server takes at once"
        if decides == "floor":
            return f"told to wait by the server, {left}"
        if decides == "hold":
            return f"refused a moment ago, {self.controller.why()}, {left}"
        if decides == "pace":
            gently = " on the way back from a pause" if self.comeback is not _NO_COMEBACK else ""
            return f"paced at {self.rate:.3g} calls/s{gently}, {self.controller.why()}, {left}"
        quota = self.policy.quotas[decides]
        return f"held under the known limit of {quota.amount:,.10g} {decides} per {quota.window:g} s, {left}"

    @property
    def learned_rate(self) -> float:
        """The pace as it was learned, without the ramp after a pause."""
        rate, policy = self.controller.rate, self.policy
        if rate < policy.least:
            return policy.least
        return policy.most if rate > policy.most else rate

    @property
    def opens_at(self) -> float:
        """Before this instant nothing starts, whoever asked for it."""
        held_until = self.controller.hold_until
        return held_until if self.cooldown is None or self.cooldown.until <= held_until else self.cooldown.until

    def idle_from(self, now: float) -> float:
        """From when on forgetting this key would change nothing but what it has learned."""
        if len(self.flight) or self.breaker.state is not CircuitState.CLOSED:
            return UNKNOWN
        full_at = self.holds_at(self.burst, now)
        if self.buckets is not None:
            full_at = max(full_at, self.buckets.whole_at(now))
        return max(full_at, self.opens_at)

    # ------------------------------------------------------------------ putting away

    def to_state(self) -> tuple[Any, ...] | None:
        """All that is known of a key but its permits that are out, as plain values; None if it cannot be put away."""
        learned = self.controller.to_state()
        if learned is None:
            return None
        pause = self.cooldown
        return (
            (self.tokens, self.filled_at, self.rate, self.shut, self.seq, self.last_sent_at, self.answers),
            None
            if pause is None
            else (pause.until, pause.era, pause.era_started_at, pause.eras_in_a_row, pause.participants),
            (self.comeback.starts_at, self.comeback.lasts, self.comeback.least),
            self.latency.to_state(),
            self.breaker.to_state(),
            None if self.buckets is None else self.buckets.to_state(),
            learned,
        )

    def load_state(self, state: tuple[Any, ...], now: float) -> None:
        """Go on from ``to_state()`` under the same policy."""
        own, pause, comeback, latency, breaker, buckets, learned = state
        self.tokens, self.filled_at, self.rate, self.shut, self.seq, self.last_sent_at, self.answers = own
        self.check_at = max(FIRST_CHECK, self.seq + 1)
        if pause is not None:
            self.cooldown = Cooldown(self.policy.cooldown, *pause)
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
    if isinstance(cost, _NUMBER) or not isinstance(cost, Mapping):
        return {"requests": cost}
    return cost if "requests" in cost else {"requests": 1, **cost}


def requests_of(cost: float | Mapping[str, float]) -> float:
    """How many calls' worth of pace a cost takes."""
    return cost if isinstance(cost, _NUMBER) or not isinstance(cost, Mapping) else cost.get("requests", 1)
