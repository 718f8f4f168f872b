"""All that decides for ONE key whether a call may start: circuit, floors, limits, pace, depth.

    ask ──> circuit open? ──> told to wait? ──> controller holds? ──> depth ──> known limits ──> pace ──> ticket
             refuse           wait              wait                  wait      wait             wait

It is pure: it takes ``now``, and answers with a ticket, a ``Wait`` or a ``Refuse``. Who waits, and how, is the
limiter's affair. A wait is one wait, the longest of all that object, never their sum.
"""

from __future__ import annotations

from collections.abc import Mapping

from .breaker import Breaker
from .bucket import CATCH_UP, Buckets
from .comeback import Comeback, after_outage, gentler
from .cooldown import Cooldown
from .costs import NOTHING, costs_of, requests_of
from .decision import NEVER, UNKNOWN, CircuitState, Refuse, Wait
from .flight import LOST_AFTER, Flight
from .gate_policy import GatePolicy
from .latency import Latency
from .pace import INSTANT, Pace
from .signal import Signal
from .ticket import LongTicket, Ticket
from .words import brief, span

FIRST_CHECK = 20
CHECK_EVERY = 8192
"""After so many calls whoever owns the gate should ``look_after`` it."""
Look = tuple[float, CircuitState, float]
"""The pace as it was learned, the circuit, and until when the gate is shut."""
MOSTLY = 0.5
"""The share of a wait from which on a pause is what it is for."""
NO_COMEBACK = Comeback()
_blank = object.__new__


class Asking(Pace):
    """It *is* its pace: the bucket is looked at by every call, so it is not a step away."""

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
        "probe_asked_at",
        "seq",
        "ticket",
        "unclaimed",
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
        self.comeback = NO_COMEBACK
        self.seq = 0
        """Calls let through so far; the ordinal of the last one."""
        self.last_sent_at = NEVER
        self.probe_asked_at = NEVER
        """When the last probe of a half-open circuit was asked for."""
        self.unclaimed: tuple[Signal, float, float] | None = None
        """An answer, its latency and when it came, while a probe was out that it may belong to."""
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
        at, decides, quota = now, "", None
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
        if self.comeback is not NO_COMEBACK:
            self.follow(now)
        if self.buckets is not None:
            fits_at, known = self.buckets.ready_at(costs_of(cost), now, self.is_late(now), costs_ahead)
            if fits_at > at and known is not None:
                at, decides, quota = fits_at, known.dimension, known
        paced_at = self.holds_at(ahead + min(requests_of(cost), self.burst), now)
        if self.comeback is not NO_COMEBACK and paced_at > self.comeback.ends_at:  # from there on at the full pace
            paced_at = self.comeback.ends_at + (paced_at - self.comeback.ends_at) * self.comeback.share(now)
        known_until = UNKNOWN
        if paced_at > at:
            if controller.is_guess and self.rate < self.policy.most:
                known_until = max(at, now + (paced_at - now) * self.rate / self.policy.most)
            at, decides, quota = paced_at, "pace", None
        if at <= now + INSTANT:
            return None
        return Wait(at, decides, quota, known_until)

    def has_room(self, calls: int) -> bool:
        """Whether one more may leave beside so many that are about to; probes of a half-open circuit leave alone."""
        room = max(1.0, self.controller.cap) - len(self.flight)
        return calls < room and self.breaker.state is CircuitState.CLOSED

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
        if self.breaker.state is not CircuitState.CLOSED:
            if self.unclaimed is not None and (lost := self.breaker.lost(now)):
                self.claim(lost[0])
            self.probe_asked_at, self.unclaimed = now - waited, None
        if self.breaker.admit(self.seq, now):
            self.circuit_changed(now)
        self.follow(now)
        return ticket

    def claim(self, probe: int) -> None:
        """The probe ended without an answer, or is lost, and one came of no known call: take it for the probe's."""
        assert self.unclaimed is not None
        (signal, _, at), self.unclaimed = self.unclaimed, None
        if self.breaker.record(probe, signal.outcome, at, self.seq):
            self.circuit_changed(at)

    def circuit_changed(self, now: float) -> None:
        """The circuit has opened, half-opened or closed. After an outage calls come back by a ramp."""
        if self.breaker.state is CircuitState.CLOSED:
            self.comeback = gentler(self.comeback, after_outage(now - self.breaker.sick_since, now))
            self.tokens = min(self.tokens, 1.0)

    def end_of_line(self, now: float) -> None:
        """The last waiter was served."""
        self.waited_for = False
        self.late_until = now + CATCH_UP
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
        if self.comeback is not NO_COMEBACK:
            if now < self.comeback.ends_at:
                rate *= self.comeback.share(now)
                easy_from = UNKNOWN
            else:
                self.level(self.comeback.ends_at)
                self.comeback, self.rate = NO_COMEBACK, rate
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

    def cause(self, objection: Wait | Refuse, now: float) -> str:
        """The code of what a call waits for: behind a pause the pace comes too, but it is the pause that takes long."""
        if not isinstance(objection, Wait) or objection.code not in ("pace", "share"):
            return objection.code
        opens_at = self.opens_at
        if opens_at - now <= MOSTLY * (objection.until - now):
            return objection.code
        return "floor" if self.cooldown is not None and self.cooldown.until >= opens_at else "hold"

    def reason(self, objection: Wait | Refuse, now: float) -> str:
        """What this gate objects, in one sentence. To be asked right after the objection, while it still holds."""
        if isinstance(objection, Refuse):
            return objection.reason
        decides, left = self.cause(objection, now), f"{span(objection.until - now)} to go"
        if decides == "circuit_open":
            return f"circuit open after too many failures, {left}"
        if decides == "probe_in_flight":
            return "circuit half open; waiting for the probe's answer"
        if decides == "depth":
            return f"{len(self.flight)} calls in flight, {self.controller.why_cap()}"
        if decides == "floor":
            return f"told to wait by the server, {left}"
        if decides == "hold":
            return f"refused a moment ago, {self.controller.why()}, {left}"
        if decides == "pace":
            gently = " on the way back from a pause" if self.comeback is not NO_COMEBACK else ""
            rate = self.learned_rate * self.comeback.share(now) if self.controller.is_told else self.rate
            return f"paced at {brief(rate)} calls/s{gently}, {self.controller.why()}, {left}"
        return f"held under the known limit of {objection.quota or decides}, {left}"

    @property
    def learned_rate(self) -> float:
        """The pace as it was learned, without the ramp after a pause."""
        return self.look()[0]

    @property
    def opens_at(self) -> float:
        """Before this instant nothing starts, whoever asked for it."""
        return self.look()[2]

    def look(self) -> Look:
        """What can change with an answer, without a step aside: every call is looked at where somebody listens."""
        controller, policy, cooldown = self.controller, self.policy, self.cooldown
        rate, opens_at = controller.learned, controller.hold_until
        if rate < policy.least:
            rate = policy.least
        elif rate > policy.most:
            rate = policy.most
        if cooldown is not None and cooldown.until > opens_at:
            opens_at = cooldown.until
        return rate, self.breaker.state, opens_at

    def idle_from(self, now: float) -> float:
        """From when on forgetting this key would change nothing but what it has learned."""
        if len(self.flight) or self.breaker.state is not CircuitState.CLOSED:
            return UNKNOWN
        full_at = self.holds_at(self.burst, now)
        if self.buckets is not None:
            full_at = max(full_at, self.buckets.whole_at(now))
        return max(full_at, self.opens_at)
