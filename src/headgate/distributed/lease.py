"""What a member holds of a coordinator's numbers, and what it asks for: enough that calls find one when they come.

    held   17 18 19      41 42 43          numbers of this process; those between belong to others
    line   ─────────●──────────────────>   grows by the rate all have together: 17 and 18 may start

More are asked for before the last one comes due, sooner the longer an exchange takes, if calls go on like this. What is
not used shortly after its time goes back.

``TokenBucket`` keeps the arithmetic: ``tokens`` is by how much the line is ahead of the next number that is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import ceil

from ..core.answer_length import TokenCost
from ..core.decision import INSTANT, NEVER, UNKNOWN
from ..core.pacer import TokenBucket
from ..core.policy import NOTHING, Cost, QueueDemand, costs_of
from .grants import PERIOD, numbers_of
from .protocol import MOST_ASKS, NO_CAP, QuotaTerms, SyncReply
from .protocol import Cost as Amounts

LISTEN_EVERY = 0.04
"""Seconds between two exchanges while there is anything to do: this soon a member knows of another's refusal."""
LISTEN_OFTEN = 16
"""Members that may all exchange that often; of more, each does so less often ..."""
LISTEN_SELDOM = 0.2
"""... but in so many seconds: one that asked longer ago is not counted when a lease is divided (``grants.ASKING``)."""
LEAST_RATE = 1e-9
"""Calls a second; nothing is divided by less."""
USABLE_FOR = 0.02
"""Seconds for which a number may be used after its time has come; then it goes back."""
POLLED_FOR = 1.0
"""Seconds for which a number is kept ready for a caller that tried in vain, and did not wait."""
NEAR = 0.005
"""Seconds that an exchange takes at most, or a number may be kept for longer than it is worth anything."""
FAR = 0.05
"""Seconds that an exchange takes with a store that is far away: what was used before the last one counts half then."""
SMOOTHING, MOST_TIMES_USUAL = 0.2, 8.0
"""How much the last exchange counts for how long they usually take, and how many times that it counts for at most."""
OVERDUE_COUNTS = 0.4
"""A call by a number whose time is long over counts as so much of one on credit. More, and calls would wait where no
other process wanted the slot; less, and what many had saved up would go on top of the rate. Found in the simulator."""
QUICKEST_FOR = 2.0
"""Seconds for which the quickest reply counts, and as long again until a quicker one follows."""
FREE_OVER = 0.25
"""Seconds over which it is averaged how much of the rate no process asks for."""
MOST_OWED = 0.5
"""Seconds of this member's share that it owes at most: what left on credit long ago must not silence it now."""
ROUNDING = 1e-9
ESTIMATE_MOVES = 0.1
"""By how much an estimate may have grown since the coordinator was asked: the next call is asked so much more for."""


class QuickestReply:
    """How long an exchange takes if nothing holds it up, and by how much the last reply was held up.

    A reply says what time it is at the coordinator, and cannot arrive before that. So of all replies the one with the
    least of our own time beside it was on its way for the shortest time, and shows for how long the others were: while
    64 processes start on a small machine that is half a second, and a moment later nothing. Numbers that all of them
    count from when a reply arrived would then come due twice as fast.
    """

    __slots__ = ("_next", "_since", "delayed", "shift", "trip")

    def __init__(self) -> None:
        self.delayed = 0.0
        """Seconds for which the last reply was on its way longer than the quickest."""
        self.shift = NEVER
        """The coordinator's time minus ours, at least."""
        self.trip = UNKNOWN
        self._since, self._next = NEVER, (NEVER, UNKNOWN)

    def note(self, there: float, sent_at: float, now: float) -> None:
        """A request that left at ``sent_at`` was answered at ``there``, by the coordinator's clock."""
        shift, trip = there - now, now - sent_at
        if now > self._since + QUICKEST_FOR:
            (self.shift, self.trip), self._since, self._next = self._next, now, (shift, trip)
        if self.shift > shift + trip:  # its clock was set back
            self.shift, self._next = shift, (shift, trip)
        self.shift, self.trip = max(self.shift, shift), min(self.trip, trip)
        self._next = max(self._next[0], shift), min(self._next[1], trip)
        self.delayed = self.shift - shift


class Lease(TokenBucket):
    __slots__ = (
        "_ranges",
        "ask_from",
        "asked",
        "asks_out",
        "cap",
        "debt",
        "expires_at",
        "free",
        "has_fallen",
        "last_sent_at",
        "late",
        "left",
        "lent",
        "limited",
        "line_told",
        "members",
        "missed",
        "next_number",
        "overdue",
        "polled_at",
        "polled_cost",
        "pool",
        "queue",
        "quick",
        "quickest",
        "short_of",
        "short_until",
        "soon_is",
        "synced_at",
        "taking",
        "terms",
        "trip",
        "used",
        "waits_since",
    )

    def __init__(self, terms: QuotaTerms, burst: float, now: float) -> None:
        super().__init__(burst, max(terms.rate, LEAST_RATE))
        self.tokens, self.filled_at = 0.0, now
        self.terms = terms
        self.limited = tuple(dict.fromkeys(limit[0] for limit in terms.limits))
        """The dimensions of known limits that the coordinator keeps."""
        self.queue: QueueDemand | None = None
        """What callers in line will take, where there are any."""
        self.last_sent_at = NEVER
        self.left = 0
        """Numbers held of the range in use."""
        self.next_number = 0.0
        """The first of them."""
        self._ranges: deque[tuple[float, int]] = deque()
        """Further ones: the first of each range, and how many."""
        self.expires_at = self.ask_from = NEVER
        """Until when they may be used; from when on to ask for more."""
        self.late = self.overdue = UNKNOWN
        """By how much the line is ahead of a number that is used late: not at once with others; and not for nothing."""
        self.soon_is = PERIOD
        """Seconds within which the next call must come for more to be asked for beforehand."""
        self.pool: dict[str, float] = {}
        """What is held of known limits."""
        self.short_until, self.short_of = NEVER, ""
        """What the coordinator had too little of, and when to ask again."""
        self.asks_out: tuple[tuple[int, Amounts], ...] = ()
        self.quick = False
        """Whether the last two calls came one right after the other."""
        self.used = self.missed = 0
        """Numbers used since the last exchange; whether a caller found none."""
        self.taking = 0
        """Numbers that the last admitted call took."""
        self.polled_at, self.polled_cost = NEVER, NOTHING
        """When a caller tried that does not wait, and for what: it will try again, and should find it then."""
        self.debt = 0
        """Numbers to let go unused: as many calls left without one."""
        self.lent = 0.0
        """Calls that left on credit since the last reply."""
        self.free = 0.0
        """Which part of the rate no process asked for recently."""
        self.cap = NO_CAP
        self.has_fallen = False
        """Whether the rate has ever fallen: until then no limit was met."""
        self.waits_since = UNKNOWN
        """Since when a caller waits for the coordinator's answer."""
        self.asked = False
        """Whether an exchange is due or on its way."""
        self.members = 1
        self.synced_at = NEVER
        """When the last request that was answered set out."""
        self.trip = 0.0
        """How long recent exchanges took."""
        self.quickest = QuickestReply()
        self.line_told = 0.0, UNKNOWN
        """How far the line was, by the last reply, and when, in the coordinator's time."""

    # ------------------------------------------------------------------ what is held

    @property
    def holds(self) -> int:
        """How many numbers are held."""
        return self.left + sum(count for _, count in self._ranges)

    @property
    def listen_every(self) -> float:
        """Many members listen less often each, so that a store does not have to answer more than it can."""
        return min(LISTEN_EVERY * max(1.0, self.members / LISTEN_OFTEN), LISTEN_SELDOM)

    def ahead(self, now: float) -> float:
        """By how much the line is ahead of the next number."""
        return self.tokens + (now - self.filled_at) * self.rate

    def due_at(self, wanted: float, due: float, now: float) -> float | None:
        """When the line reaches number ``due``, counted from the first; None unless as many as wanted are held."""
        if now > self.expires_at or wanted > self.holds:
            return None
        number, rest = self.next_number + due, due - self.left
        for first, count in self._ranges if rest > 0 else ():
            number = first + rest
            if rest <= count:
                break
            rest -= count
        missing = number - self.next_number - self.ahead(now)
        return now + missing / self.rate if missing > INSTANT * self.rate else now

    def covers(self, cost: Cost, ahead: Mapping[str, float]) -> bool:
        """Whether what is held of known limits is enough for this call and those ahead of it."""
        costs = costs_of(cost) if self.limited else NOTHING
        slack = ESTIMATE_MOVES if isinstance(cost, TokenCost) else ROUNDING
        return all(
            self.pool.get(dimension, 0.0) - ahead.get(dimension, 0.0) >= costs.get(dimension, 0.0) * (1 - slack)
            for dimension in self.limited
        )

    def reserved(self, cost: Cost) -> Cost:
        """What the coordinator is asked for, for a call of this cost."""
        return cost

    def use(self, numbers: int, now: float) -> None:
        """A call takes so many numbers and leaves."""
        if self.tokens > self.overdue:
            self.lent += OVERDUE_COUNTS * numbers
        for _ in range(numbers):
            if self.left < 1 and self._ranges:
                first, count = self._ranges.popleft()
                self.tokens += self.next_number - first
                self.next_number, self.left = first, count
            self.left -= 1
            self.next_number += 1.0
            self.tokens -= 1.0
        self.used += numbers
        self.taking = numbers
        self.quick = now < self.last_sent_at + self.soon_is
        self.last_sent_at = now

    def use_pool(self, costs: Mapping[str, float]) -> None:
        """A call takes what it costs of known limits."""
        if self.pool:
            for dimension, amount in costs.items():
                if dimension in self.pool:
                    self.pool[dimension] -= amount

    def take_grant(self, reply: SyncReply, now: float) -> None:
        """Add what was granted; bring the line up to date."""
        self.cap = reply.cap
        self.has_fallen = self.has_fallen or reply.rate < self.rate
        if reply.granted or (self.queue is None and not self.is_polled(now)):
            self.waits_since = UNKNOWN
        self.rate = max(reply.rate, LEAST_RATE)
        self.late = self.burst + USABLE_FOR * self.rate if self.trip > NEAR else UNKNOWN
        self.overdue = self.late + self.trip * self.rate
        self.soon_is = PERIOD + 2 * self.trip
        if reply.granted:
            self._add(reply)
        self._pay_debt()
        delayed, late = 0.0, self.trip
        if self.trip > NEAR and max(self.trip, now - self.synced_at) < self.members / self.rate:
            # one more exchange brings a number before the next turn
            delayed, late = self.quickest.delayed, min(self.trip, self.quickest.trip)
        line = reply.line + max(0.0, delayed - reply.hold) * self.rate
        self.tokens, self.filled_at = line - self.next_number, now + max(0.0, reply.hold - delayed)
        self.ask_from = NEVER
        if self.holds:
            first, count = self._ranges[-1] if self._ranges else (self.next_number, self.left)
            last_at = now - delayed + reply.hold + max(0.0, first + count - reply.line) / self.rate
            self.expires_at = last_at + USABLE_FOR + late
            self.ask_from = last_at - 0.5 * PERIOD - 2 * self.trip
        self.short_until, self.short_of = NEVER, reply.short_of
        if reply.short_of:
            self.short_until = now + reply.wait
            self.ask_from = max(self.ask_from, self.short_until)

    def _add(self, reply: SyncReply) -> None:
        if self.left < 1 and not self._ranges:
            self.next_number, self.left = reply.first, reply.granted
        else:
            self._ranges.append((reply.first, reply.granted))
        left = reply.granted
        for _, cost in self.asks_out if self.limited else ():
            left -= numbers_of(cost)
            if left < 0:
                break
            for dimension in self.limited:
                self.pool[dimension] = self.pool.get(dimension, 0.0) + cost.get(dimension, 0.0)

    def note_trip(self, took: float) -> None:
        """An exchange took so long. A single one that was held up does not make the next leases much longer."""
        if self.trip:
            took = min(took, max(FAR, MOST_TIMES_USUAL * self.trip))
        self.trip += (took - self.trip) * (SMOOTHING if self.trip else 1.0)

    def _pay_debt(self) -> None:
        while self.debt and self.holds:
            if not self.left:
                self.next_number, self.left = self._ranges.popleft()
            paid = min(self.debt, self.left)
            self.debt, self.left, self.next_number = self.debt - paid, self.left - paid, self.next_number + paid

    def settle_debt(self, reply: SyncReply) -> None:
        """What left without a number is owed as far as others had the rate meanwhile: the rest is lost."""
        (line, told_at), used = self.line_told, 1.0
        elapsed = reply.now - told_at
        if elapsed > 0:
            before = line if reply.line >= line else self.terms.burst  # else the coordinator is a new one
            used = min(max(0.0, (reply.line - before) / max(reply.rate * elapsed, LEAST_RATE)), 1.0)
            self.free += (1.0 - used - self.free) * min(1.0, elapsed / FREE_OVER)
        owed = self.debt + max(0, round(used * self.lent))
        self.debt = min(owed, ceil(MOST_OWED * reply.rate / max(1, reply.members)))
        self.lent = 0.0
        self.line_told = reply.line, reply.now + reply.hold

    def forget(self) -> None:
        """Know nothing of the coordinator any more."""
        self.asked, self.debt, self.synced_at = False, 0, NEVER
        self.free, self.lent, self.line_told = 0.0, 0.0, (0.0, UNKNOWN)

    def drop(self) -> tuple[int, dict[str, float]]:
        """Hold nothing any more; returns what was held."""
        held, pool = self.holds, self.pool
        self.left, self.pool, self.ask_from = 0, {}, NEVER
        self._ranges.clear()
        return held, pool

    def restart(self, rate: float, now: float) -> None:
        """The line is unknown again: nothing may start before the next reply."""
        self.rate = rate
        self.tokens, self.filled_at = 0.0, now

    # ------------------------------------------------------------------ what is wanted

    def is_polled(self, now: float) -> bool:
        """Whether a caller that does not wait may try again any moment."""
        return now < self.polled_at + POLLED_FOR and self.queue is None

    def needs_more(self, leaving: int, now: float) -> bool:
        """Whether more is wanted than is held: by the queue but for the call that just leaves, or soon."""
        wanted = self.missed if self.queue is None else self.queue.requests - leaving
        return max(wanted, self._soon(now)) > self.holds

    def _soon(self, now: float) -> int:
        """How many numbers the next calls will want, if all goes on like this."""
        goes_on = (self.used > 1 or self.quick) and now < self.last_sent_at + self.soon_is
        return 2 * self.used if goes_on else 0

    def asks(self, now: float, ceiling: float | None, last_sent_at: float) -> tuple[tuple[int, Amounts], ...]:
        """What to ask the coordinator for: what is wanted beyond what is held.

        Under an operator's limit no more than it lets start before the next exchange.
        """
        self.asks_out = () if self.holds and now < self.ask_from else self._wishes(now)
        if ceiling is not None:
            most = ceil(ceiling * (now + LISTEN_EVERY - max(now, last_sent_at + 1 / ceiling)))
            self.asks_out = tuple((min(count, most), cost) for count, cost in self.asks_out[: max(0, most)])
        self.missed = 0
        self.used = int(self.used * min(0.5, self.trip / FAR)) if self.queue is None else 0
        return self.asks_out

    def _wishes(self, now: float) -> tuple[tuple[int, Amounts], ...]:
        queue, held = self.queue, self.holds
        if queue is None or (not self.limited and queue.requests == len(queue)):
            if queue is None and self.limited:
                return ((1, self._needed_of(self.polled_cost)),) if self.is_polled(now) and not held else ()
            wanted = max(int(self.is_polled(now)) if queue is None else len(queue), self._soon(now)) - self._kept(now)
            return ((wanted, NOTHING),) if wanted > 0 else ()
        asks: list[tuple[int, Amounts]] = []
        covered = dict(self.pool)
        for cost in queue.waiting_costs():
            needed = self._needed_of(costs_of(self.reserved(cost)))
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
        elapsed, is_late = now - self.synced_at, self.ahead(now) > self.late
        used = 0 if is_late or elapsed <= 0 else int(self.used * min(1.0, self.trip / elapsed))
        return max(0, self.holds - used)

    def _needed_of(self, cost: Amounts) -> dict[str, float]:
        """What of a cost the coordinator has to know."""
        limited = {dimension: cost[dimension] for dimension in self.limited if cost.get(dimension)}
        return limited | {"requests": cost.get("requests", 1)}
