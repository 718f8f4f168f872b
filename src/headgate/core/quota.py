"""Limits that are known: "500 requests and 200,000 tokens a minute", held in every window.

A bucket of size ``burst`` that refills at ``(amount - burst) / window`` lets through at
most ``amount`` in *any* window, not only in those that start on the minute:

    amount |          . . . . . . . .  what any window may hold
           |      .
     burst |  .    <- at once, from a full bucket
           +--------------------------> window

A dimension may have several limits ("15 a minute and 1,500 a day"); each has a bucket of its own, and all of them hold.

A cost above the burst waits for a full bucket and leaves it in debt; because the bucket
alone has forgotten what it let through before it was full, such a cost also looks
at what was really spent in the last window. So does every cost where the burst is the
whole amount: then the window alone decides. A cost above ``amount`` can never fit.

What an answer will take is learned (``answer_length.py``), and reserved instead of all that the request allows. A
dimension that is reserved like that has a smaller burst, a fiftieth of its limit, or more if answers are longer.

Several keys may spend of the same limits. Their waiters are served in the order in which they came: a call leaves what
a waiter of another key needs that came sooner and waits for these limits too.

Every operation is O(1) in the cost: a request of 100,000 tokens costs what one of 1 does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, cast

from .answer_length import AnswerLengths, TokenCost
from .decision import INSTANT, LONGEST_WAIT, NEVER, Refuse, Wait, WaitReason
from .policy import Demand, QueueDemand, costs_of

if TYPE_CHECKING:
    from .policy import Ticket

CATCH_UP = 0.028
"""A waiter served late (a busy loop, a slow timer) costs the key nothing, up to this many seconds."""
CATCH_UP_SHARE = 0.003
"""... and, under a known limit, up to this share of its window; the refill makes room for it."""
LONG_WINDOW = 3600.0
"""A window of so many seconds or more bounds what starts within it and, unless a burst is set, does not pace."""
SLICES = 64
"""In how many slices of a window spending is remembered."""
YIELDS = 1.0
"""Seconds for which a call yields to a waiter of another key before it asks again, and to one that misses its turn."""
USUAL_BURST = 10
"""What is not requests may by default be taken at once: a tenth of its limit ..."""
LEARNED_BURST = 50
"""... and a fiftieth, where what calls take is learned."""
ROUNDING = 1e-9
"""What floating point may be off by, in units of the bucket."""

_NAMED = {3600.0: "hour", 86400.0: "day"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """So much of a dimension in any such window, at most ``burst`` of it at once."""

    dimension: str
    amount: float
    window: float
    burst: float

    def __post_init__(self) -> None:
        if not 0 < self.amount < float("inf"):
            raise ValueError(f"amount={self.amount!r} must be a finite number above 0")
        if not 0 < self.window <= LONGEST_WAIT:
            raise ValueError(f"window={self.window!r} must be above 0 s and at most 31 days")
        if not 0 < self.burst <= self.amount:
            raise ValueError(f"burst={self.burst!r} must be above 0 and at most the limit, {self.amount:,.10g}")

    def __str__(self) -> str:
        """``"1,500 requests per day"``."""
        return f"{self.amount:,.10g} {self.dimension} per {_NAMED.get(self.window, f'{self.window:g} s')}"

    @property
    def catch_up(self) -> float:
        return min(CATCH_UP, CATCH_UP_SHARE * self.window)

    @property
    def all_at_once(self) -> bool:
        return self.burst == self.amount

    @property
    def paces(self) -> bool:
        """Whether calls are spread over the window, rather than only counted in it."""
        return self.window < LONG_WINDOW or not self.all_at_once

    @property
    def refill(self) -> float:
        """What comes back a second, so that no window ever holds more than ``amount``."""
        return (self.amount - (0.0 if self.all_at_once else self.burst)) / (self.window + self.catch_up)


def known_pace(quotas: Iterable[Quota]) -> float | None:
    """Calls a second by the narrowest limit on requests that paces; None if there is none."""
    paces = [quota.amount / quota.window for quota in quotas if quota.dimension == "requests" and quota.paces]
    return min(paces, default=None)


def never_fits(quotas: Iterable[Quota], cost: Mapping[str, float]) -> Quota | None:
    """The limit under which this cost could not pass in any window, if there is one."""
    if isinstance(cost, TokenCost):
        cost = cost.least
    return next((quota for quota in quotas if cost.get(quota.dimension, 0.0) > quota.amount), None)


class QuotaBucket:
    """One of a key's known limits."""

    __slots__ = ("dimension", "filled_at", "is_learned", "level", "peaks", "quota", "refill", "spent")

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.dimension = quota.dimension
        self.refill = quota.refill
        self.level = quota.burst
        self.filled_at = NEVER
        self.is_learned = False
        """Whether estimates are learned: all of what was too much comes back, and the last window is looked at."""
        self.peaks: deque[tuple[float, float]] = deque()
        """How full it was when taken from: instants and falling levels, each the highest since the one before."""
        self.spent: deque[list[float]] = deque(maxlen=SLICES + 2)
        """Slices of the last window, oldest first: when each began, when it was last added to, how much."""

    def fill(self, now: float, has_waiters: bool) -> float:
        """The level now. While a caller waits, being served late is made up for."""
        if now > self.filled_at:
            brim = self.quota.burst
            if has_waiters:
                brim += self.refill * self.quota.catch_up
            if self.level < brim:
                self.level = min(brim, self.level + self.refill * (now - max(self.filled_at, now - LONGEST_WAIT)))
            elif not has_waiters:
                self.level = brim
            self.filled_at = now
        return self.level

    def ready_at(self, amount: float, now: float, has_waiters: bool, ahead: float = 0.0) -> float:
        """The instant at which ``amount`` may be taken, once ``ahead`` was; ``now`` or sooner means at once."""
        if self.quota.all_at_once:
            windows_ahead = max(0.0, ceil((ahead + amount) / self.quota.amount - ROUNDING) - 1.0)
            rest = ahead + amount - windows_ahead * self.quota.amount
            self.fill(now, has_waiters)
            return self._window_free_at(rest, now) + windows_ahead * self.quota.window
        missing = ahead + min(amount, self.quota.burst) - self.fill(now, has_waiters)
        ready_at = now + missing / self.refill if missing > ROUNDING * self.quota.burst else now
        looks_back = amount > self.quota.burst or self.is_learned
        return max(ready_at, self._window_free_at(amount, now)) if looks_back else ready_at

    def take(self, amount: float, now: float) -> None:
        peaks = self.peaks
        while peaks and peaks[-1][1] <= self.level:
            peaks.pop()
        if len(peaks) > SLICES:
            peaks[-1] = (now, peaks[-1][1])
        else:
            peaks.append((now, self.level))
        self.level -= amount
        spent = self.spent
        if spent and now < spent[-1][0] + self.quota.window / SLICES:
            spent[-1][1] = max(now, spent[-1][1])
            spent[-1][2] += amount
        else:
            spent.append([now, now, amount])

    def give_back(self, amount: float, taken_at: float) -> None:
        """Refund what was taken then and not used (or, below 0, charge what was used beyond it)."""
        burst = self.quota.burst
        if amount < 0.0:  # what a window refills is the most that may be owed: it has forgotten the rest by then
            self.level = max(self.level + amount, min(self.level, burst - self.refill * self.quota.window))
        elif self.is_learned:
            self.level = max(self.level, min(burst, self.level + amount))
        else:  # what would have run over since, had it never been taken, does not come back
            peaks, fullest, since = self.peaks, NEVER, 0
            for at, level in reversed(peaks):
                if at <= taken_at:
                    break
                fullest, since = max(fullest, level), since + 1
            back = max(0.0, min(amount, burst - fullest))
            self.level = max(self.level, min(burst, self.level + back))
            for place in range(-since, 0):  # it would have been that much fuller, when others are refunded
                peaks[place] = (peaks[place][0], peaks[place][1] + back)
        for slice_ in reversed(self.spent):
            if slice_[0] <= taken_at:
                if taken_at <= slice_[1]:
                    slice_[2] = max(0.0, slice_[2] - amount)
                break

    def resize(self, burst: float) -> None:
        """Let so much go at once from now on, and refill by what is left beside it."""
        self.quota = replace(self.quota, burst=min(burst, self.quota.amount))
        self.refill, self.level = self.quota.refill, min(self.level, self.quota.burst)

    def full_at(self, now: float) -> float:
        """When the bucket is full and the last window empty: nothing is left that a new bucket would not know."""
        missing = self.quota.burst - self.fill(now, False)
        full_at = now + missing / self.refill if missing > ROUNDING * self.quota.burst else now
        return max(full_at, self.spent[-1][1] + self.quota.window) if self.spent else full_at

    def _window_free_at(self, amount: float, now: float) -> float:
        """When what was spent in the last window leaves room for ``amount``."""
        spent, window = self.spent, self.quota.window
        while spent and spent[0][1] + window <= now:
            spent.popleft()
        over = sum(slice_[2] for slice_ in spent) + amount - self.quota.amount
        free_at = now
        for _, last_at, slice_amount in spent:
            if over <= ROUNDING * self.quota.amount:
                break
            over -= slice_amount
            free_at = max(free_at, last_at + window)
        return free_at


class QuotaPolicy:
    """All known limits of one key: a call is let through under all of them or under none."""

    __slots__ = ("_in_flight", "_queue", "_turn_at", "all", "lengths", "queued")

    def __init__(self, quotas: Iterable[Quota], in_flight: Sized = ()) -> None:
        self.all = tuple(map(QuotaBucket, quotas))
        self.queued: list[QuotaPolicy] | None = None
        """Where several keys spend of the same limits: those of them that have waiters."""
        self._queue: QueueDemand | None = None
        self._turn_at = NEVER
        """When these limits let the first waiter through, if it is they that it waits for."""
        self._in_flight = in_flight
        self.lengths: AnswerLengths | None = None
        """What was learned of answers, from the first call on whose cost is estimated."""

    def share(self, owner: QuotaPolicy) -> None:
        """Spend of the limits of another key from now on, where they are the same."""
        mine, theirs = ([(one.dimension, one.quota.amount, one.quota.window) for one in of.all] for of in (self, owner))
        if self.all is owner.all or mine != theirs:
            return
        if owner.queued is None:
            owner.queued = [] if owner._queue is None else [owner]
        if self.queued is not None and self in self.queued:
            self.queued.remove(self)
        self.all, self.queued = owner.all, owner.queued
        if self._queue is not None:
            self.queued.append(self)

    # ------------------------------------------------------------------ as a policy

    def check(self, now: float, demand: Demand) -> Wait | None:
        cost, ahead = costs_of(demand.cost), demand.costs_ahead
        if isinstance(cost, TokenCost):
            asked, cost = cost, self.reserved(cost)
            ahead = scaled_ahead(ahead, cost, asked)
        at, decides = self.ready_at(cost, now, demand.is_late, ahead)
        if self.queued:
            later, decides_later = self.ready_at(cost, now, demand.is_late, self._after_others(ahead, now))
            if later > at:
                at, decides = max(at, min(later, now + YIELDS)), decides_later
        return None if at <= now + INSTANT else Wait(WaitReason.QUOTA, at, decides)

    def admit(self, ticket: Ticket, now: float) -> None:
        if isinstance(ticket.cost, TokenCost):
            cast("Any", ticket).cost = self.reserved(ticket.cost)  # a ticket with a cost has a slot for it
        self.take(costs_of(ticket.cost), now)

    def settle(self, ticket: Ticket, real: Mapping[str, float]) -> None:
        cost = ticket.cost
        self.charge(costs_of(cost), real, ticket.sent_at)
        if self.lengths is not None and isinstance(cost, TokenCost) and self.lengths.settled(cost, real):
            for bucket in self.all:
                if bucket.dimension in cost.of_answer and bucket.quota.burst < self.lengths.p99:
                    bucket.resize(self.lengths.p99)

    def cancel(self, ticket: Ticket, now: float) -> None:
        self.refund(costs_of(ticket.cost), ticket.sent_at)

    def on_wait(self, wait: Wait | Refuse, now: float) -> None:
        self._turn_at = wait.until if isinstance(wait, Wait) and wait.reason is WaitReason.QUOTA else NEVER

    def on_queue(self, queue: QueueDemand | None, now: float) -> None:
        if self.queued is not None and (queue is None) is not (self._queue is None):
            (self.queued.append if self._queue is None else self.queued.remove)(self)
        self._queue, self._turn_at = queue, NEVER

    def _after_others(self, ahead: Mapping[str, float], now: float) -> Mapping[str, float]:
        """What is taken first, with what waiters of other keys need that came sooner than the first of this one."""
        own = None if self._queue is None else self._queue.head()
        total = dict(ahead)
        for other in self.queued or ():
            head = None if other is self or other._queue is None else other._queue.head()
            if head is None or now > other._turn_at + YIELDS or (own is not None and own.ordinal < head.ordinal):
                continue
            cost = other.reserved(head.cost) if isinstance(head.cost, TokenCost) else costs_of(head.cost)
            for name, amount in cost.items():
                total[name] = total.get(name, 0.0) + amount
        return total

    def may_object(self) -> bool:
        return True

    def idle_from(self, now: float) -> float:
        return max(bucket.full_at(now) for bucket in self.all)

    # ------------------------------------------------------------------ estimates

    def reserved(self, cost: TokenCost) -> TokenCost:
        """What the call is likely to take, by what others have taken; never more than a whole window holds."""
        lengths = self.lengths
        if lengths is None:
            lengths = self.lengths = AnswerLengths()
            for bucket in self.all:
                if bucket.dimension in cost.of_answer:
                    bucket.is_learned = True
                    if _has_usual_burst(bucket.quota) and not bucket.spent:
                        bucket.resize(bucket.quota.amount / LEARNED_BURST)
        limits = ((bucket.dimension, bucket.quota.amount) for bucket in self.all)  # the shortest window first
        return lengths.reserved(cost, limits, len(self._in_flight))

    # ------------------------------------------------------------------ amounts

    def ready_at(
        self, cost: Mapping[str, float], now: float, has_waiters: bool, ahead: Mapping[str, float]
    ) -> tuple[float, Quota | None]:
        """When the cost may be taken, and the limit that decides it."""
        latest, decides = now, None
        for bucket in self.all:
            amount = cost.get(bucket.dimension, 0.0)
            if amount > 0:
                at = bucket.ready_at(amount, now, has_waiters, ahead.get(bucket.dimension, 0.0))
                if at > latest:
                    latest, decides = at, bucket.quota
        return latest, decides

    def take(self, cost: Mapping[str, float], now: float) -> None:
        for bucket in self.all:
            amount = cost.get(bucket.dimension, 0.0)
            if amount > 0:
                bucket.take(amount, now)

    def drain(self, dimensions: Iterable[str], left: float, now: float) -> None:
        """Begin with nothing left for these, since what others spent is not known; of long windows this share."""
        for bucket in self.all:
            if bucket.dimension in dimensions:
                quota = bucket.quota
                bucket.fill(now, False)
                bucket.take(quota.burst if quota.paces else (1.0 - left) * quota.amount, now)

    def refund(self, cost: Mapping[str, float], taken_at: float) -> None:
        for bucket in self.all:
            if cost.get(bucket.dimension):
                bucket.give_back(cost[bucket.dimension], taken_at)

    def charge(self, reserved: Mapping[str, float], real: Mapping[str, float], taken_at: float) -> None:
        """Replace an estimate by what was really used; dimensions left out of ``real`` stand as reserved."""
        for bucket in self.all:
            if bucket.dimension in real:
                bucket.give_back(reserved.get(bucket.dimension, 0.0) - real[bucket.dimension], taken_at)

    def to_state(self) -> tuple[Any, ...]:
        levels = tuple(
            (bucket.level, bucket.filled_at, tuple(tuple(slice_) for slice_ in bucket.spent)) for bucket in self.all
        )
        if self.lengths is None:
            return levels
        bursts = tuple((bucket.quota.burst, bucket.is_learned) for bucket in self.all)
        return (*levels, (bursts, self.lengths.to_state()))

    def load_state(self, state: tuple[Any, ...]) -> None:
        """Go on from ``to_state()`` under the same limits."""
        if len(state) > len(self.all):
            (bursts, learned), state = state[-1], state[:-1]
            self.lengths = AnswerLengths()
            self.lengths.load_state(learned)
            for bucket, (burst, is_learned) in zip(self.all, bursts, strict=True):
                bucket.resize(burst)
                bucket.is_learned = is_learned
        for bucket, (level, filled_at, spent) in zip(self.all, state, strict=True):
            bucket.level, bucket.filled_at = level, filled_at
            bucket.spent.extend(list(slice_) for slice_ in spent)


def _has_usual_burst(quota: Quota) -> bool:
    return quota.window < LONG_WINDOW and quota.burst == quota.amount / USUAL_BURST


def scaled_ahead(
    ahead: Mapping[str, float], reserved: Mapping[str, float], asked: Mapping[str, float]
) -> dict[str, float]:
    """What is reserved for callers ahead: the same share of what they ask for as of this one."""
    return {name: amount * (reserved[name] / asked[name] if asked.get(name) else 1.0) for name, amount in ahead.items()}
