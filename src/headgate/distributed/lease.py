"""The lease of one member: by which numbers its calls start, when those come due, and when to ask for more.

    held   17 18 19      41 42 43          numbers of this member; those between belong to others
    line   ─────────●──────────────────>   grows by the rate all have together: 17 and 18 may start
                    └─ lead: by how much the line is ahead of the next number that is held

A number is used once the line has reached it, so once the lead is 1. More are asked for before the last one comes due,
sooner the longer an exchange takes, if calls go on like this. What is not used shortly after its time goes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from ..core.decision import INSTANT, NEVER, UNKNOWN
from ..core.policy import NOTHING, Cost, QueueDemand, costs_of
from .grants import PERIOD, numbers_of
from .holdings import LEAST_RATE, CreditAccount, HeldAmounts, HeldNumbers
from .protocol import MOST_ASKS, NO_CAP, QuotaTerms, SyncReply
from .protocol import Cost as Amounts

LISTEN_EVERY = 0.04
"""Seconds between two exchanges while there is anything to do: this soon a member knows of another's refusal."""
LISTEN_OFTEN = 16
"""Members that may all exchange that often; of more, each does so less often ..."""
LISTEN_SELDOM = 0.2
"""... but in so many seconds: one that asked longer ago is not counted when a lease is divided (``grants.ASKING``)."""
USABLE_FOR = 0.02
"""Seconds for which a number may be used after its time has come; then it goes back."""
POLLED_FOR = 1.0
"""Seconds for which a number is kept ready for a caller that tried in vain, and did not wait."""
OVERDUE_COUNTS = 0.4
"""A call by a number whose time is long over counts as so much of one on credit. More, and calls would wait where no
other process wanted the slot; less, and what many had saved up would go on top of the rate. Found in the simulator."""

NEAR = 0.005
"""Seconds: where exchanges take longer, a number is not fetched just when it is needed."""
FAR = 0.05
"""Seconds that an exchange takes with a store that is far away."""
SMOOTHING, MOST_TIMES_USUAL = 0.2, 8.0
"""How much the last exchange counts for how long they usually take, and how many times that it counts for at most."""
QUICKEST_FOR = 2.0
"""Seconds for which the quickest reply counts, and as long again until a quicker one follows."""

Asks = tuple[tuple[int, Amounts], ...]
"""How many calls of which cost."""


class LeaseDemand:
    """What callers want of a lease: those in the queue, those that poll, and those that will follow.

    Calls are a *streak* while each follows within ``streak_gap`` of the one before: then as many again are expected.
    """

    __slots__ = ("in_streak", "last_sent_at", "missed", "polled_at", "polled_cost", "queue", "streak_gap", "used")

    def __init__(self) -> None:
        self.queue: QueueDemand | None = None
        """What waiters will take, where there are any."""
        self.polled_at, self.polled_cost = NEVER, NOTHING
        """When a caller tried that does not wait, and for what: it will try again, and should find it then."""
        self.missed = 0
        """1 if a caller found no number since the last exchange."""
        self.used = 0
        """Numbers used since the last exchange."""
        self.last_sent_at = NEVER
        self.in_streak = False
        """Whether the last two calls came one right after the other."""
        self.streak_gap = PERIOD
        """Seconds within which the next call must come for more to be asked for beforehand."""

    def is_polled(self, now: float) -> bool:
        """Whether a caller that does not wait may try again any moment."""
        return now < self.polled_at + POLLED_FOR and self.queue is None

    def expected(self, now: float) -> int:
        """How many numbers the next calls will want, if all goes on like this."""
        goes_on = (self.used > 1 or self.in_streak) and now < self.last_sent_at + self.streak_gap
        return 2 * self.used if goes_on else 0

    def wanted(self, leaving: int, now: float) -> float:
        """How many numbers are wanted: by the queue but for the call that just leaves, or soon."""
        waiting = self.missed if self.queue is None else self.queue.requests - leaving
        return max(waiting, self.expected(now))

    def start_over(self, trip: float) -> None:
        """An exchange begins. Where it takes long, calls before it still say how many will come; at most half count."""
        self.missed = 0
        self.used = int(self.used * min(0.5, trip / FAR)) if self.queue is None else 0


class RoundTrip:
    """How long exchanges with the coordinator take, and by how much the last reply was delayed.

        coordinator  ───────●───────────>  its clock says reply.now
                          /   \\
        member       ────●─────●────────>  sent_at   now

    A reply says what time it is at the coordinator, and cannot arrive before that. So ``reply.now - now`` is at most
    the clock offset between the two, and of several replies the one with the largest difference was under way for the
    shortest time. What another falls short of it is by how much that one was delayed: half a second while 64 processes
    start on a small machine, and a moment later nothing. Numbers that all members date from when a reply arrived would
    then come due twice as fast.
    """

    __slots__ = ("_next", "_since", "delayed", "offset", "quickest", "sent_at", "usual")

    def __init__(self) -> None:
        self.sent_at = NEVER
        """When the last request that was answered left."""
        self.usual = 0.0
        """Seconds that recent exchanges took, on average."""
        self.quickest = UNKNOWN
        """Seconds that the quickest recent exchange took."""
        self.offset = NEVER
        """The coordinator's clock minus ours, at least: by the quickest recent reply."""
        self.delayed = 0.0
        """Seconds for which the last reply was under way longer than that one."""
        self._since, self._next = NEVER, (NEVER, UNKNOWN)
        """When the quickest was last replaced, and the offset and the time of the quickest since then."""

    @property
    def is_far(self) -> bool:
        return self.usual > NEAR

    def note(self, there: float, sent_at: float, now: float) -> None:
        """A request that left at ``sent_at`` was answered at ``there``, by the coordinator's clock."""
        self.sent_at = sent_at
        offset, took = there - now, now - sent_at
        if now > self._since + QUICKEST_FOR:
            (self.offset, self.quickest), self._since, self._next = self._next, now, (offset, took)
        if self.offset > offset + took:  # its clock was set back
            self.offset, self._next = offset, (offset, took)
        self.offset, self.quickest = max(self.offset, offset), min(self.quickest, took)
        self._next = max(self._next[0], offset), min(self._next[1], took)
        self.delayed = self.offset - offset
        self._average(took)

    def _average(self, took: float) -> None:
        """A single exchange that was delayed does not make the next leases much longer."""
        if self.usual:
            took = min(took, max(FAR, MOST_TIMES_USUAL * self.usual))
        self.usual += (took - self.usual) * (SMOOTHING if self.usual else 1.0)


class Lease:
    __slots__ = (
        "amounts",
        "ask_from",
        "asks_out",
        "burst",
        "cap",
        "credit",
        "demand",
        "expires_at",
        "filled_at",
        "last_taken",
        "late_lead",
        "members",
        "numbers",
        "overdue_lead",
        "rate",
        "rate_has_fallen",
        "round_trip",
        "short_of",
        "short_until",
        "sync_pending",
        "terms",
        "tokens",
        "waiting_since",
    )

    def __init__(self, terms: QuotaTerms, burst: float, now: float) -> None:
        self.terms = terms
        self.burst = burst
        self.rate = max(terms.rate, LEAST_RATE)
        """Calls a second of all members together."""
        self.tokens, self.filled_at = 0.0, now
        """The lead, and when."""
        self.numbers = HeldNumbers()
        self.amounts = HeldAmounts(limit[0] for limit in terms.limits)
        self.credit = CreditAccount()
        self.demand = LeaseDemand()
        self.round_trip = RoundTrip()
        self.members = 1
        self.expires_at = self.ask_from = NEVER
        """Until when numbers may be used; from when on to ask for more."""
        self.late_lead = self.overdue_lead = UNKNOWN
        """Above the first, the next number is used late: not at once with others. Above the second, not for nothing."""
        self.last_taken = 0
        """Numbers that the last admitted call took."""
        self.asks_out: Asks = ()
        """What the request that is on its way asks for."""
        self.sync_pending = False
        """Whether an exchange is due or on its way."""
        self.short_until, self.short_of = NEVER, ""
        """What the coordinator had too little of, and when to ask again."""
        self.waiting_since = UNKNOWN
        """Since when a caller waits for the coordinator's answer."""
        self.cap = NO_CAP
        self.rate_has_fallen = False
        """Whether the rate has ever fallen: until then no limit was met."""

    @property
    def listen_every(self) -> float:
        """Many members listen less often each, so that a store does not have to answer more than it can."""
        return min(LISTEN_EVERY * max(1.0, self.members / LISTEN_OFTEN), LISTEN_SELDOM)

    @property
    def lacks_room(self) -> bool:
        """Whether it was refused because too many calls are in flight, and no request of its own is under way."""
        return self.short_of in ("depth", "turn") and not self.sync_pending

    # ------------------------------------------------------------------ using numbers

    def lead(self, now: float) -> float:
        """By how much the line is ahead of the next number."""
        return self.tokens + (now - self.filled_at) * self.rate

    def due_at(self, wanted: float, ordinal: float, now: float) -> float | None:
        """When the line reaches the ``ordinal``-th number; None unless as many as wanted are held."""
        if now > self.expires_at or wanted > self.numbers.count:
            return None
        missing = self.numbers.nth(ordinal) - self.numbers.next - self.lead(now)
        return now + missing / self.rate if missing > INSTANT * self.rate else now

    def use(self, count: int, now: float) -> None:
        """A call takes so many numbers and leaves."""
        if self.tokens > self.overdue_lead:
            self.credit.on_credit += OVERDUE_COUNTS * count
        numbers, demand = self.numbers, self.demand
        for _ in range(count):
            if numbers.left < 1:
                self.tokens -= numbers.next_range()
            numbers.left -= 1
            numbers.next += 1.0
            self.tokens -= 1.0
        self.last_taken = count
        demand.used += count
        demand.in_streak = now < demand.last_sent_at + demand.streak_gap
        demand.last_sent_at = now

    def drop(self) -> tuple[int, dict[str, float]]:
        """Hold nothing; returns what was held."""
        self.ask_from = NEVER
        return self.numbers.drop(), self.amounts.drop()

    # ------------------------------------------------------------------ what the coordinator says

    def take_grant(self, reply: SyncReply, now: float) -> None:
        """Add what was granted, and go by the rate and the line of this reply from now on."""
        if reply.granted or (self.demand.queue is None and not self.demand.is_polled(now)):
            self.waiting_since = UNKNOWN
        self.cap = reply.cap
        self._set_rate(max(reply.rate, LEAST_RATE), has_fallen=reply.rate < self.rate)
        if reply.granted:
            self._add(reply)
        self.credit.pay(self.numbers)
        self._set_line(reply, now)
        self.short_until, self.short_of = NEVER, reply.short_of
        if reply.short_of:
            self.short_until = now + reply.wait
            self.ask_from = max(self.ask_from, self.short_until)

    def _set_rate(self, rate: float, *, has_fallen: bool) -> None:
        trip = self.round_trip
        self.rate_has_fallen = self.rate_has_fallen or has_fallen
        self.rate = rate
        # Near the coordinator, numbers that come late are few, and all may be used at once.
        self.late_lead = self.burst + USABLE_FOR * rate if trip.is_far else UNKNOWN
        self.overdue_lead = self.late_lead + trip.usual * rate
        self.demand.streak_gap = PERIOD + 2 * trip.usual

    def _add(self, reply: SyncReply) -> None:
        """Hold what was granted: a number for each call that was asked for, in order, as far as the grant goes."""
        self.numbers.add(reply.first, reply.granted)
        left = reply.granted
        for _, cost in self.asks_out if self.amounts.dimensions else ():
            left -= numbers_of(cost)
            if left < 0:
                break
            self.amounts.add(cost)

    def _set_line(self, reply: SyncReply, now: float) -> None:
        """Date the line, and by it when the last number comes due.

        A reply that was delayed says where the line was a while ago. It is dated back where numbers are lost by that
        only if others can still be had: where one more exchange brings a number before this member's next turn.
        """
        trip, numbers = self.round_trip, self.numbers
        delayed, late = 0.0, trip.usual
        if trip.is_far and max(trip.usual, now - trip.sent_at) < self.members / self.rate:
            delayed, late = trip.delayed, trip.quickest
        line = reply.line + max(0.0, delayed - reply.hold) * self.rate
        self.tokens, self.filled_at = line - numbers.next, now + max(0.0, reply.hold - delayed)
        self.ask_from = NEVER
        if numbers.count:
            last_due_at = now - delayed + reply.hold + max(0.0, numbers.end - reply.line) / self.rate
            self.expires_at = last_due_at + USABLE_FOR + late
            self.ask_from = last_due_at - 0.5 * PERIOD - 2 * trip.usual

    def restart(self, rate: float, now: float) -> None:
        """The line is unknown again: nothing may start before the next reply."""
        self.rate = rate
        self.tokens, self.filled_at = 0.0, now

    def forget(self) -> None:
        """Forget the coordinator."""
        self.sync_pending, self.round_trip.sent_at = False, NEVER
        self.credit.forget()

    # ------------------------------------------------------------------ what to ask for

    def needs_more(self, leaving: int, now: float) -> bool:
        """Whether more is wanted than is held: by the queue but for the call that just leaves, or soon."""
        return self.demand.wanted(leaving, now) > self.numbers.count

    def reserved(self, cost: Cost) -> Cost:
        """What the coordinator is asked for, for a call of this cost."""
        return cost

    def asks(self, now: float, ceiling: float | None, last_sent_at: float) -> Asks:
        """What to ask the coordinator for: what is wanted beyond what is held.

        Under an operator's limit no more than it lets start before the next exchange.
        """
        self.asks_out = () if self.numbers.count and now < self.ask_from else self._beyond_held(now)
        if ceiling is not None:
            most = ceil(ceiling * (now + LISTEN_EVERY - max(now, last_sent_at + 1 / ceiling)))
            self.asks_out = tuple((min(count, most), cost) for count, cost in self.asks_out[: max(0, most)])
        self.demand.start_over(self.round_trip.usual)
        return self.asks_out

    def _beyond_held(self, now: float) -> Asks:
        demand, queue, limited = self.demand, self.demand.queue, self.amounts.dimensions
        if queue is not None and (limited or queue.requests != len(queue)):
            return tuple(self._not_covered(queue))
        if limited:  # the next calls of a streak may cost anything; a poller has said what it costs
            is_wanted = demand.is_polled(now) and not self.numbers.count
            return ((1, self.amounts.needed(demand.polled_cost)),) if is_wanted else ()
        waiting = int(demand.is_polled(now)) if queue is None else len(queue)
        wanted = max(waiting, demand.expected(now)) - self._left_at_reply(now)
        return ((wanted, NOTHING),) if wanted > 0 else ()

    def _not_covered(self, queue: QueueDemand) -> Iterator[tuple[int, Amounts]]:
        """The calls of a queue, in order, that what is held is not enough for."""
        held, amounts, asked = self.numbers.count, dict(self.amounts.amounts), 0
        for cost in queue.waiting_costs():
            needed = self.amounts.needed(costs_of(self.reserved(cost)))
            limited = {name: amount for name, amount in needed.items() if name in self.amounts.dimensions}
            if held >= needed["requests"] and all(amounts.get(name, 0.0) >= amount for name, amount in limited.items()):
                held -= ceil(needed["requests"])
                for name, amount in limited.items():
                    amounts[name] -= amount
                continue
            yield 1, needed
            asked += 1
            if asked >= MOST_ASKS:
                break

    def _left_at_reply(self, now: float) -> int:
        """How many of the numbers held now will be left when the reply comes, if they are used as before.

        All, where their time is over: then they wait for callers, and not callers for them.
        """
        held, elapsed = self.numbers.count, now - self.round_trip.sent_at
        if elapsed <= 0 or self.lead(now) > self.late_lead:
            return held
        return max(0, held - int(self.demand.used * min(1.0, self.round_trip.usual / elapsed)))
