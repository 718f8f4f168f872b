"""What a gate holds of a desk's numbers, and what to ask for: enough that calls find one when they come.

    held   17 18 19      41 42 43          numbers of this process; those between belong to others
    line   ─────────●──────────────────>   grows by the rate all have together: 17 and 18 may start

More are asked for before the last one comes due, sooner the longer a visit takes, if calls go on like this. What is
not used shortly after its time goes back.

``Pace`` keeps the arithmetic: ``tokens`` is by how much the line is ahead of the next number that is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import ceil

from ..core.costs import NOTHING, costs_of
from ..core.decision import NEVER, UNKNOWN
from ..core.gate_policy import GatePolicy
from ..core.pace import INSTANT
from ..core.sharing.granting import PERIOD, numbers_of
from ..core.sharing.visit import MOST_ASKS, Cost, Reply, Terms
from .key_gate import KeyGate
from .serving import Serving
from .terms import LEAST, terms_of

USABLE_FOR = 0.02
"""Seconds for which a number may be used after its time has come; then it goes back."""
POLLED_FOR = 1.0
"""Seconds for which a number is kept ready for somebody who tried in vain, and did not wait."""
NEAR = 0.005
"""Seconds that a visit takes at most, or a number may be kept for longer than it is worth anything."""
FAR = 0.05
"""Seconds that a visit takes to a store that is far away: what was used before the last one counts half then."""
ROUNDING = 1e-9


class LeasingGate(KeyGate):
    __slots__ = (
        "_ask_from",
        "_asks_out",
        "_expires_at",
        "_late",
        "_missed",
        "_next",
        "_overdue",
        "_polled_at",
        "_polled_cost",
        "_pool",
        "_quick",
        "_ranges",
        "_short_of",
        "_short_until",
        "_soon_is",
        "_used",
        "debt",
        "left",
        "limited",
        "members",
        "terms",
        "trip",
        "visited_at",
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
        self._late = self._overdue = UNKNOWN
        """By how much the line is ahead of a number that is used late: not at once with others; and not for nothing."""
        self._soon_is = PERIOD
        """Seconds within which the next call must come for more to be asked for beforehand."""
        self._pool: dict[str, float] = {}
        """What is held of known limits."""
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
        self.members = 1
        self.visited_at = NEVER
        """When the last visit that was answered set out."""
        self.trip = 0.0
        """How long a visit takes, of late."""
        super().__init__(key, limiter, policy, now)
        self.terms: Terms = terms_of(policy, self.controller.rate)
        self.limited = tuple(dict.fromkeys(limit[0] for limit in self.terms.limits))
        """The dimensions of known limits that the desk keeps."""
        self.rate = max(self.terms.rate, LEAST)
        self.tokens, self.filled_at = 0.0, now

    def is_polled(self, now: float) -> bool:
        """Whether somebody who does not wait may try again any moment."""
        return now < self._polled_at + POLLED_FOR and self.line is None

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
        goes_on = (self._used > 1 or self._quick) and now < self.last_sent_at + self._soon_is
        return 2 * self._used if goes_on else 0

    def _ahead(self, now: float) -> float:
        """By how much the line is ahead of the next number."""
        return self.tokens + (now - self.filled_at) * self.rate

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
        missing = number - self._next - self._ahead(now)
        return now + missing / self.rate if missing > INSTANT * self.rate else now

    def _covers(self, cost: float | Mapping[str, float], ahead: Mapping[str, float]) -> bool:
        """Whether what is held of known limits is enough for this call and those ahead of it."""
        costs = costs_of(cost) if self.limited else NOTHING
        return all(
            self._pool.get(dimension, 0.0) - ahead.get(dimension, 0.0) >= costs.get(dimension, 0.0) * (1 - ROUNDING)
            for dimension in self.limited
        )

    def asks(self, now: float) -> tuple[tuple[int, Cost], ...]:
        """What to ask the desk for: what is wanted beyond what is held."""
        self._asks_out = () if self.holds and now < self._ask_from else self._wishes(now)
        self._missed = 0
        self._used = int(self._used * min(0.5, self.trip / FAR)) if self.line is None else 0
        return self._asks_out

    def _wishes(self, now: float) -> tuple[tuple[int, Cost], ...]:
        line, held = self.line, self.holds
        if line is None or (not self.limited and line.requests == len(line)):
            if line is None and self.limited:
                return ((1, self._needed_of(self._polled_cost)),) if self.is_polled(now) and not held else ()
            wanted = max(int(self.is_polled(now)) if line is None else len(line), self._soon(now)) - self._kept(now)
            return ((wanted, NOTHING),) if wanted > 0 else ()
        asks: list[tuple[int, Cost]] = []
        covered = dict(self._pool)
        for waiter in line.waiting():
            needed = self._needed_of(costs_of(waiter.cost))
            limited = {name: amount for name, amount in needed.items() if name in self.limited}
            if held >= needed["requests"] and all(covered.get(name, 0.0) >= amount for name, amount in limited.items()):
                held -= ceil(needed["requests"])
                for name, amount in limited.items():
                    covered[name] -= amount
                continue
            asks.append((1, needed))
            if len(asks) >= MOST_ASKS:
                break
        return tuple(asks)

    def _kept(self, now: float) -> int:
        """How many of the numbers held now will be left when the reply comes; all, if they wait for callers anyway."""
        elapsed, is_late = now - self.visited_at, self._ahead(now) > self._late
        used = 0 if is_late or elapsed <= 0 else int(self._used * min(1.0, self.trip / elapsed))
        return max(0, self.holds - used)

    def _needed_of(self, cost: Cost) -> dict[str, float]:
        """What of a cost the desk has to know."""
        limited = {dimension: cost[dimension] for dimension in self.limited if cost.get(dimension)}
        return limited | {"requests": cost.get("requests", 1)}

    def take_numbers(self, reply: Reply, now: float) -> None:
        """Add what was granted; bring the line up to date."""
        self.rate = max(reply.rate, LEAST)
        self._late = self.burst + USABLE_FOR * self.rate if self.trip > NEAR else UNKNOWN
        self._overdue = self._late + self.trip * self.rate
        self._soon_is = PERIOD + 2 * self.trip
        if reply.granted:
            if self.left < 1 and not self._ranges:
                self._next, self.left = reply.first, reply.granted
            else:
                self._ranges.append((reply.first, reply.granted))
            left = reply.granted
            for _, cost in self._asks_out if self.limited else ():
                left -= numbers_of(cost)
                if left < 0:
                    break
                for dimension in self.limited:
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
