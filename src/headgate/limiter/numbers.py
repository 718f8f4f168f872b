"""Passing a gate by numbers: permits that were handed out elsewhere, each good once the line has reached it.

    held   17 18 19      41 42 43          numbers of this process; those between belong to others
    line   ─────────●──────────────────>   grows by the rate all have together: 17 and 18 may start

Between two visits to the desk everything is decided here, by numbers that are held already: a call costs about what it
costs in a process alone. More are asked for before the last one comes due, if calls go on like this. What is
not used shortly after its time goes back.

``Pace`` keeps the arithmetic: ``tokens`` is by how much the line is ahead of the next number that is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import ceil

from ..core.decision import NEVER, UNKNOWN, CircuitState, Refuse, Wait
from ..core.gate import NOTHING, GatePolicy, costs_of, requests_of
from ..core.pace import INSTANT
from ..core.sharing.granting import PERIOD, numbers_of
from ..core.sharing.notebook import Notebook
from ..core.sharing.visit import MOST_ASKS, Cost, Reply, Terms
from .key_gate import KeyGate
from .permit import LongPermit, Permit
from .serving import Serving
from .terms import LEAST, terms_of

USABLE_FOR = 0.02
"""Seconds for which a number may be used after its time has come; then it goes back."""
POLLED_FOR = 1.0
"""Seconds for which a number is kept ready for somebody who tried in vain, and did not wait."""
SOON = 0.005
"""Seconds in which a visit should be over."""
ROUNDING = 1e-9


class NumberedGate(KeyGate):
    __slots__ = (
        "_ask_from",
        "_asks_out",
        "_expires_at",
        "_missed",
        "_next",
        "_polled_at",
        "_polled_cost",
        "_pool",
        "_quick",
        "_ranges",
        "_short_of",
        "_short_until",
        "_took_at",
        "_used",
        "asked",
        "book",
        "debt",
        "held_until",
        "left",
        "members",
        "probe",
        "terms",
        "trip",
    )

    def __init__(self, key: str, limiter: Serving, policy: GatePolicy, now: float) -> None:
        self.left = 0
        """Numbers held of the range in use."""
        self._next = 0.0
        """The first of them."""
        self._ranges: deque[tuple[float, int]] = deque()
        """Further ones: the first of each range, and how many."""
        self._expires_at = self._ask_from = NEVER
        """Until when they may be used; from when on to ask for more."""
        self._pool: dict[str, float] = {}
        """What is held of known limits."""
        self._took_at = UNKNOWN
        """When the oldest of what comes back was taken."""
        self._short_until, self._short_of = NEVER, ""
        """What the desk had too little of, and when to ask again."""
        self._asks_out: tuple[tuple[int, Cost], ...] = ()
        self._quick = False
        """Whether the last two calls came one right after the other."""
        self._used = self._missed = 0
        """Numbers used since the last visit; whether somebody found none."""
        self._polled_at, self._polled_cost = NEVER, NOTHING
        """When somebody tried who does not wait, and for what: it will try again, and should find it then."""
        self.debt = 0
        """Numbers to let go unused: as many calls left without one."""
        self.asked = False
        """Whether a visit is due or on its way."""
        self.book = Notebook()
        self.held_until = NEVER
        self.members = 1
        self.probe = 0
        """Which call is the probe of a half-open circuit."""
        self.trip = 0.0
        """How long a visit takes, of late."""
        super().__init__(key, limiter, policy, now)
        self.terms: Terms = terms_of(policy, self.controller.rate)
        self.rate = max(self.terms.rate, LEAST)
        self.tokens, self.filled_at = 0.0, now

    def want(self, now: float) -> None:
        """Visit the desk as soon as possible."""
        raise NotImplementedError

    # ------------------------------------------------------------------ asking

    def ask_plainly(self, now: float) -> Permit | None:
        tokens = self.tokens + (now - self.filled_at) * self.rate
        seq = self.seq + 1
        if tokens < 1.0 or self.left < 1 or now < self.easy_from or now > self._expires_at or seq >= self.check_at:
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
            return self._not_held(ahead + wanted, now)
        at, decides = (self.held_until, "floor") if self.held_until > max(now, due_at) else (due_at, "pace")
        return None if at <= now + INSTANT else Wait(at, decides)

    def _not_held(self, wanted: float, now: float) -> Wait | Refuse:
        """What speaks against a call for which nothing is held: mostly that the desk has yet to be asked."""
        if self._short_until > now:
            if self._short_of == "circuit":
                return Refuse("probe_in_flight", "circuit half open; waiting for the probe's answer")
            if self._short_of == "depth":
                return Wait(self._short_until, "depth")
            if self._short_of in self.terms.limits:
                return Wait(max(self._short_until, self.held_until), self._short_of)
        if self.held_until > now:
            return Wait(self.held_until, "floor")
        missing = max(0.0, wanted - self.holds - 1)
        return Wait(now + max(2 * self.trip, SOON) + missing * self.members / self.rate, "share")

    def note_wait(self, objection: Wait | Refuse, now: float) -> None:
        self._missed = 1
        if self.line is None:
            self._polled_at = now
        if objection.code in ("pace", "share"):
            self.book.waited_at = now
        if now >= self._ask_from and not self.asked and (self._needs_more(0, now) or self.terms.limits):
            self.want(now)

    def admit(self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None) -> Permit:
        self.tokens += max(0.0, now - self.filled_at) * self.rate
        self.filled_at = max(now, self.filled_at)
        if self._pool:
            for dimension, amount in costs_of(cost).items():
                if dimension in self._pool:
                    self._pool[dimension] -= amount
        seq, depth, waited = self.seq + 1, len(self.flight), 0.0 if asked_at is None else now - asked_at
        plain = cost == 1 and waited == 0.0
        permit = Permit(self, seq, now, depth) if plain else LongPermit(self, seq, now, depth, cost, waited)
        if self.breaker.state is not CircuitState.CLOSED:
            self.probe = seq
        self._leave(seq, ceil(requests_of(cost)), now)
        return permit

    def _leave(self, seq: int, numbers: int, now: float) -> None:
        """A call leaves and takes its numbers with it."""
        for _ in range(numbers):
            if self.left < 1 and self._ranges:
                first, count = self._ranges.popleft()
                self.tokens += self._next - first
                self._next, self.left = first, count
            self.left -= 1
            self._next += 1.0
            self.tokens -= 1.0
        self._used += numbers
        self._quick = now < self.last_sent_at + PERIOD
        self.seq, self.last_sent_at = seq, now
        self.flight.out[seq] = now
        if self.controller.learns or seq == self.probe:
            self.book.send(seq, now)
        if now >= self._ask_from and not self.asked and self._needs_more(numbers, now):
            self.want(now)

    def end_of_line(self, now: float) -> None:
        self._polled_at = NEVER
        super().end_of_line(now)

    def is_polled(self, now: float) -> bool:
        """Whether somebody who does not wait may try again any moment."""
        return now < self._polled_at + POLLED_FOR and self.line is None

    def follow(self, now: float) -> None:
        if self.waited_for or self.policy.quotas or self.breaker.state is not CircuitState.CLOSED:
            self.easy_from = UNKNOWN
        else:
            self.easy_from = self.held_until

    # ------------------------------------------------------------------ what is held

    @property
    def holds(self) -> int:
        """How many numbers are held."""
        return self.left + sum(count for _, count in self._ranges)

    def _needs_more(self, leaving: int, now: float) -> bool:
        """Whether more is wanted than is held: by those in line but who just leaves, or soon."""
        wanted = self._missed if self.line is None else self.line.requests - leaving
        return max(wanted, self._soon(now)) > self.holds

    def _soon(self, now: float) -> int:
        """How many numbers the next calls will want, if all goes on like this."""
        return 2 * self._used if (self._used > 1 or self._quick) and now < self.last_sent_at + PERIOD else 0

    def _due_at(self, wanted: float, due: float, now: float) -> float | None:
        """When the line reaches number ``due``, counted from the first; None unless as many as wanted are held."""
        if now > self._expires_at or wanted > self.holds:
            return None
        number, rest = self._next + due, due - self.left
        for first, count in self._ranges if rest > 0 else ():
            number = first + rest
            if rest <= count:
                break
            rest -= count
        missing = number - (self._next + self.tokens) - (now - self.filled_at) * self.rate
        return now + missing / self.rate if missing > INSTANT * self.rate else now

    def _covers(self, cost: float | Mapping[str, float], ahead: Mapping[str, float]) -> bool:
        """Whether what is held of known limits is enough for this call and those ahead of it."""
        costs = costs_of(cost) if self.terms.limits else NOTHING
        return all(
            self._pool.get(dimension, 0.0) - ahead.get(dimension, 0.0) >= costs.get(dimension, 0.0) * (1 - ROUNDING)
            for dimension in self.terms.limits
        )

    def asks(self, now: float) -> tuple[tuple[int, Cost], ...]:
        """What to ask the desk for: what is wanted beyond what is held."""
        self._asks_out = () if self.holds and now < self._ask_from else self._wishes(now)
        self._used = self._missed = 0
        return self._asks_out

    def _wishes(self, now: float) -> tuple[tuple[int, Cost], ...]:
        line, held = self.line, self.holds
        if line is None or (not self.terms.limits and line.requests == len(line)):
            if line is None and self.terms.limits:
                return ((1, self._needed_of(self._polled_cost)),) if self.is_polled(now) and not held else ()
            wanted = max(int(self.is_polled(now)) if line is None else len(line), self._soon(now)) - held
            return ((wanted, NOTHING),) if wanted > 0 else ()
        asks: list[tuple[int, Cost]] = []
        covered = dict(self._pool)
        for waiter in line.waiting():
            needed = self._needed_of(costs_of(waiter.cost))
            limited = {name: amount for name, amount in needed.items() if name in self.terms.limits}
            if held >= needed["requests"] and all(covered.get(name, 0.0) >= amount for name, amount in limited.items()):
                held -= ceil(needed["requests"])
                for name, amount in limited.items():
                    covered[name] -= amount
                continue
            asks.append((1, needed))
            if len(asks) >= MOST_ASKS:
                break
        return tuple(asks)

    def _needed_of(self, cost: Cost) -> dict[str, float]:
        """What of a cost the desk has to know."""
        limited = {dimension: cost[dimension] for dimension in self.terms.limits if cost.get(dimension)}
        return limited | {"requests": cost.get("requests", 1)}

    def take_numbers(self, reply: Reply, now: float) -> None:
        """Add what was granted; bring the line up to date."""
        self.rate = max(reply.rate, LEAST)
        if reply.granted:
            if self.left < 1 and not self._ranges:
                self._next, self.left = reply.first, reply.granted
            else:
                self._ranges.append((reply.first, reply.granted))
            left = reply.granted
            for _, cost in self._asks_out if self.terms.limits else ():
                left -= numbers_of(cost)
                if left < 0:
                    break
                for dimension in self.terms.limits:
                    self._pool[dimension] = self._pool.get(dimension, 0.0) + cost.get(dimension, 0.0)
        self._pay_debt()
        self.tokens, self.filled_at = reply.line - self._next, now + reply.hold
        self._ask_from = NEVER
        if self.holds:
            first, count = self._ranges[-1] if self._ranges else (self._next, self.left)
            last_at = self.filled_at + max(0.0, first + count - reply.line) / self.rate
            self._expires_at = last_at + USABLE_FOR + self.trip
            self._ask_from = last_at - 0.5 * PERIOD - 2 * self.trip
        self._short_until, self._short_of = NEVER, reply.short_of
        if reply.short_of:
            self._short_until = now + reply.wait
            self._ask_from = max(self._ask_from, self._short_until)

    def _pay_debt(self) -> None:
        while self.debt and self.holds:
            if not self.left:
                self._next, self.left = self._ranges.popleft()
            paid = min(self.debt, self.left)
            self.debt, self.left, self._next = self.debt - paid, self.left - paid, self._next + paid

    def drop_numbers(self) -> tuple[int, dict[str, float]]:
        """Hold nothing any more; returns what was held."""
        held, pool = self.holds, self._pool
        self.left, self._pool, self._ask_from = 0, {}, NEVER
        self._ranges.clear()
        return held, pool

    # ------------------------------------------------------------------ looking

    def why(self, now: float) -> str:
        objection = self.objection(now)
        if isinstance(objection, Wait) and objection.code == "share" and not self.waited_for:
            return ""  # a visit away
        return super().why(now)

    def reason(self, objection: Wait | Refuse, now: float) -> str:
        if isinstance(objection, Wait) and objection.code == "share":
            return f"waiting for a share of {self.rate:.3g} calls/s, {self._together()}"
        if isinstance(objection, Wait) and objection.code == "pace":
            return f"paced at {self.rate:.3g} calls/s, {self._together()}"
        return super().reason(objection, now)

    def _together(self) -> str:
        return "in a store nobody else uses now" if self.members == 1 else f"shared by {self.members} processes"

    def level(self, now: float) -> float:
        return min(float(self.left), self.tokens + max(0.0, now - self.filled_at) * self.rate)

    @property
    def learned_rate(self) -> float:
        return self.rate

    @property
    def opens_at(self) -> float:
        return self.held_until

    def idle_from(self, now: float) -> float:
        return UNKNOWN if len(self.flight) or self.holds or self.asked else max(now, self.held_until)

    def to_state(self) -> None:
        """What is known of a shared key lies in its store."""
