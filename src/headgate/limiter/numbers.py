"""Passing a gate by numbers: permits that were handed out elsewhere, each good once the line has reached it.

Between two visits to the desk everything is decided here, by numbers that are held already: a call costs about what it
costs in a process alone.

    a number is held, and due      ──> permit
    the desk has yet to answer     ──PATIENCE──> permit on credit, which the next numbers pay for
    the desk is short of something ──> wait for just that

Credit keeps calls from waiting for a store that is far away or stalls. It is given at this member's share of what
nobody asked for of late; of everything, if the desk takes longer than it usually does. A number that was kept for
long is used at that share too: numbers that many saved up must not all go at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from ..core.asking import Look
from ..core.bucket import Quota
from ..core.costs import NOTHING, costs_of, requests_of
from ..core.decision import NEVER, UNKNOWN, CircuitState, Refuse, Wait
from ..core.gate_policy import GatePolicy
from ..core.pace import INSTANT
from ..core.sharing.notebook import Notebook
from ..core.sharing.visit import NO_CAP, Cost, Reply
from ..core.words import brief
from .leases import LeasingGate
from .permit import LongPermit, Permit
from .serving import Serving

PATIENCE = 0.035
"""Seconds for which a caller waits for the desk's answer; then it may leave on credit."""
OVERDUE_COUNTS = 0.4
"""A call by a number whose time is long over counts as so much of one on credit. More, and calls would wait where
nobody else wanted the slot; less, and what many had saved up would go on top of the rate. Found in the simulator."""
SOON = 0.005
"""Seconds in which a visit should be over."""


class NumberedGate(LeasingGate):
    __slots__ = (
        "_has_fallen",
        "_waits_since",
        "asked",
        "book",
        "cap",
        "free",
        "held_until",
        "lent",
        "out_since",
        "probe",
    )

    def __init__(self, key: str, limiter: Serving, policy: GatePolicy, now: float) -> None:
        self.lent = 0.0
        """Calls that left on credit since the last reply."""
        self.free = 0.0
        """Which part of the rate nobody asked for of late."""
        self.cap = NO_CAP
        self._has_fallen = False
        self._waits_since = self.out_since = UNKNOWN
        """Since when somebody waits for the desk's answer, and a visit is on its way."""
        self.asked = False
        """Whether a visit is due or on its way."""
        self.book = Notebook()
        self.held_until = NEVER
        self.probe = 0
        """Which call is the probe of a half-open circuit."""
        super().__init__(key, limiter, policy, now)

    def want(self, now: float) -> None:
        """Visit the desk as soon as possible."""
        raise NotImplementedError

    def refund(self, amounts: Cost, taken_at: float) -> None:
        """Tell the desk what comes back of known limits; below 0, what was used beyond what it gave."""
        raise NotImplementedError

    @property
    def _is_guess(self) -> bool:
        """Whether the rate is only where learning began: as long as it has not fallen, no limit was met."""
        return self.controller.learns and not self._has_fallen

    @property
    def gives_credit(self) -> bool:
        """Whether calls may leave without a number at all."""
        raise NotImplementedError

    # ------------------------------------------------------------------ asking

    def ask_plainly(self, now: float) -> Permit | None:
        tokens = self.tokens + (now - self.filled_at) * self.rate
        seq = self.seq + 1
        if tokens < 1.0 or self.left < 1 or now < self.easy_from or now > self._expires_at or seq >= self.check_at:
            return None
        if tokens > self._late and now < self.last_sent_at + self.members / self.rate:
            return None
        self.tokens, self.filled_at = tokens, now
        permit = Permit(self, seq, now, 0)
        self._leave(seq, 1, now)
        return permit

    def objection(
        self,
        now: float,
        cost: float | Mapping[str, float] = 1,
        ahead: float = 0.0,
        costs_ahead: Mapping[str, float] = NOTHING,
    ) -> Wait | Refuse | None:
        refusal = self.breaker.refusal(now)
        if refusal is not None:
            return refusal
        wanted = requests_of(cost)
        due_at = self._due_at(ahead + wanted, ahead + min(wanted, self.burst), now)
        if due_at is None or not self._covers(cost, costs_ahead):
            if not ahead:
                self._polled_cost = costs_of(cost)
            return self._not_held(cost, ahead, now)
        if self._ahead(now) > self._late:
            due_at = max(due_at, self.last_sent_at + self.members * wanted / self.rate)
        at, decides = (self.held_until, "floor") if self.held_until > max(now, due_at) else (due_at, "pace")
        known_until = max(now, self.held_until) if decides == "pace" and self._is_guess else UNKNOWN
        return None if at <= now + INSTANT else Wait(at, decides, known_until=known_until)

    def _not_held(self, cost: float | Mapping[str, float], ahead: float, now: float) -> Wait | Refuse | None:
        """What speaks against a call for which nothing is held: mostly that the desk has yet to be asked."""
        if self._short_until > now:
            if self._short_of == "circuit":
                reason = "circuit half open; waiting for the probe's answer"
                return Refuse("probe_in_flight", reason, look_at=self._short_until)
            if self._short_of == "depth":
                return Wait(self._short_until, "depth")
            if self._short_of in self.limited:
                until = max(self._short_until, self.held_until)
                return Wait(until, self._short_of, self._decider(self._short_of, self._short_until - now))
        if self.held_until > now:
            return Wait(self.held_until, "floor")
        missing = max(0.0, ahead + requests_of(cost) - self.holds - 1)
        at = now + max(2 * self.trip, SOON) + missing * self.members / self.rate
        if not ahead:
            at = min(at, self._credit_at(cost, now))
        return None if at <= now + INSTANT else Wait(at, "share", known_until=now if self._is_guess else UNKNOWN)

    def _decider(self, dimension: str, wait: float) -> Quota | None:
        """Which of a dimension's limits takes so long: none makes a call wait for longer than its window."""
        quotas = [quota for quota in self.policy.quotas if quota.dimension == dimension]
        return next((quota for quota in quotas if wait <= quota.window), quotas[-1] if quotas else None)

    def _credit_at(self, cost: float | Mapping[str, float], now: float) -> float:
        """When a call may leave although nothing is held for it.

        A process that has never had an answer does not know how many share the rate, and gets one.
        """
        if self.visited_at == NEVER:
            free = 0.0 if self.lent else 1.0
        else:
            free = 1.0 if now >= self.out_since + max(PATIENCE, 2 * self.trip) else self.free
        if (
            not self.gives_credit
            or (self._short_of and (self._short_of != "solo" or now < self._short_until))
            or not free
            or self.breaker.state is not CircuitState.CLOSED
            or (self.cap != NO_CAP and self.cap <= len(self.flight) * self.members)
        ):
            return UNKNOWN
        costs = costs_of(cost)
        share = costs["requests"] / self.rate
        for dimension, amount, window, _ in self.terms.limits:
            share = max(share, costs.get(dimension, 0.0) * window / amount)
        return max(min(self._waits_since, now) + PATIENCE, self.last_sent_at + self.members * share / free)

    def note_wait(self, objection: Wait | Refuse, now: float) -> None:
        self._missed = 1
        if self.line is None:
            self._polled_at = now
        if objection.code in ("pace", "share"):
            self.book.waited_at = now
        if objection.code == "share" and self._waits_since == UNKNOWN:
            self._waits_since = now
        lacks_something = objection.code == "share" and self.limited
        if now >= self._ask_from and not self.asked and (lacks_something or self._needs_more(0, now)):
            self.want(now)

    def admit(self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None) -> Permit:
        self.tokens += max(0.0, now - self.filled_at) * self.rate
        self.filled_at = max(now, self.filled_at)
        numbers = ceil(requests_of(cost))
        on_credit = self._due_at(numbers, 0.0, now) is None or not self._covers(cost, NOTHING)
        if on_credit:
            self._owe(costs_of(cost), numbers, now)
        elif self._pool:
            for dimension, amount in costs_of(cost).items():
                if dimension in self._pool:
                    self._pool[dimension] -= amount
        seq, depth, waited = self.seq + 1, len(self.flight), 0.0 if asked_at is None else now - asked_at
        plain = cost == 1 and waited == 0.0
        permit = Permit(self, seq, now, depth) if plain else LongPermit(self, seq, now, depth, cost, waited)
        if self.breaker.state is not CircuitState.CLOSED:
            self.probe, self.probe_asked_at, self.unclaimed = seq, now - waited, None
        self._leave(seq, 0 if on_credit else numbers, now)
        return permit

    def probe_out(self) -> int | None:
        return self.probe or None

    def _owe(self, costs: Cost, numbers: int, now: float) -> None:
        """A call leaves on credit: the next numbers pay for it, and the desk will hear what it took of known limits."""
        self.lent += numbers
        self._used += numbers
        self.refund({name: -costs.get(name, 0.0) for name in self.limited}, now)

    def _leave(self, seq: int, numbers: int, now: float) -> None:
        """A call leaves and takes its numbers with it."""
        if self.tokens > self._overdue:
            self.lent += OVERDUE_COUNTS * numbers
        for _ in range(numbers):
            if self.left < 1 and self._ranges:
                first, count = self._ranges.popleft()
                self.tokens += self._next - first
                self._next, self.left = first, count
            self.left -= 1
            self._next += 1.0
            self.tokens -= 1.0
        self._used += numbers
        self._quick = now < self.last_sent_at + self._soon_is
        self.seq, self.last_sent_at = seq, now
        self.flight.out[seq] = now
        if self.controller.learns or seq == self.probe:
            self.book.send(seq, now)
        if now >= self._ask_from and not self.asked and self._needs_more(numbers, now):
            self.want(now)

    def end_of_line(self, now: float) -> None:
        self._polled_at, self._waits_since = NEVER, UNKNOWN
        super().end_of_line(now)

    def follow(self, now: float) -> None:
        if self.waited_for or self.policy.quotas or self.breaker.state is not CircuitState.CLOSED:
            self.easy_from = UNKNOWN
        else:
            self.easy_from = self.held_until

    def take_numbers(self, reply: Reply, now: float) -> None:
        self.cap = reply.cap
        self._has_fallen = self._has_fallen or reply.rate < self.rate
        if reply.granted or (self.line is None and not self.is_polled(now)):
            self._waits_since = UNKNOWN
        super().take_numbers(reply, now)

    # ------------------------------------------------------------------ looking

    def why(self, now: float) -> str:
        objection = self.objection(now)
        if isinstance(objection, Wait) and objection.code == "share" and not self.waited_for:
            return ""  # a visit away
        return super().why(now)

    def cause(self, objection: Wait | Refuse, now: float) -> str:
        code = super().cause(objection, now)
        return "floor" if code == "hold" else code  # the leader knows which it is

    def reason(self, objection: Wait | Refuse, now: float) -> str:
        code = self.cause(objection, now)
        if code == "share":
            return f"waiting for a share of {brief(self.learned_rate)} calls/s{self._together()}"
        if code == "pace":
            return f"paced at {brief(self.learned_rate)} calls/s{self._together()}"
        return super().reason(objection, now)

    def _together(self) -> str:
        return f", shared by {self.members} processes" if self.members > 1 else ""

    def level(self, now: float) -> float:
        return min(float(self.left), self.tokens + max(0.0, now - self.filled_at) * self.rate)

    def look(self) -> Look:
        return self.rate, self.breaker.state, self.held_until

    def idle_from(self, now: float) -> float:
        return UNKNOWN if len(self.flight) or self.holds or self.asked else max(now, self.held_until)

    def to_state(self) -> None:
        """What is known of a shared key lies in its store."""
