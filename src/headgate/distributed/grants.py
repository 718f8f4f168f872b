"""Which member gets how many permits, and which has to wait for what.

    asks ──> circuit ──> its last lease has begun ──> its turn ──> depth ──> known limits ──> numbers

All members get leases of the same length, and none gets a further one before its last has begun: so shares are equal,
however often each of them comes. What one does not ask for is the others'.
"""

from __future__ import annotations

from math import ceil, floor
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.quota import LONG_WINDOW
from .protocol import NO_CAP, Cost, SyncRequest

if TYPE_CHECKING:
    from .coordinator import QuotaCoordinator

PERIOD = 0.03
"""A lease is what the rate allows in so many seconds, shared by those that ask."""
LONGEST_SPAN = 0.5
"""... or a little longer if one of them has a long way to the store: all get the same, so that shares are equal."""
HUNGRY = 0.1
"""A member that is short of something and does not come back within so many seconds loses its turn."""
AGAIN = 0.01
"""Seconds after which to ask again for what only another member's request can bring."""
SOLO_HEARS = 0.1
"""Seconds within which a member that starts calls by itself comes and hears that another is there; if it lives."""
FURTHEST = 1.0
"""Seconds of the rate by which numbers may run ahead of the line, beyond two for each member."""
MOST_AT_ONCE = 64
"""Calls under a known limit that one request may get."""
INSTANT = 1e-6
ASKING = 0.25
"""A member that asked within so many seconds is counted when a lease is divided."""
TERM = 1.0
"""Permits and slots of a member that was not seen for so many seconds are free again."""
LIVE = 3.0
"""... and after so many it does not count."""
KEPT = 30.0
"""A member that comes back within so many seconds is known: a request that is sent again counts once."""


class Member:
    """What the coordinator knows of one member."""

    __slots__ = (
        "asked_at",
        "era",
        "first",
        "flying",
        "gone",
        "granted",
        "granted_to",
        "hungry_at",
        "number",
        "probe",
        "seen_at",
        "solo",
        "span",
    )

    def __init__(self, now: float) -> None:
        self.seen_at = now
        self.number = 0
        """Of its last request."""
        self.granted_to, self.granted, self.first, self.era = 0, 0, 0.0, 0
        """Its last lease: the number of the request it was granted to, how many numbers, the first, and its era."""
        self.probe = False
        """Whether that lease is the probe of a half-open circuit."""
        self.flying = 0
        """Calls in flight and numbers not yet used, by its last request."""
        self.gone = False
        self.asked_at = -ASKING
        self.span = 0.0
        """Seconds that its leases should last at least: it is far away."""
        self.solo = False
        """Whether it starts calls without numbers."""
        self.hungry_at = 0.0
        """Since when it is short of something; 0 if it is not."""

    def to_state(self) -> list[Any]:
        return list(_FIELDS(self))

    @classmethod
    def from_state(cls, state: list[Any]) -> Member:
        member = cls.__new__(cls)
        (
            member.asked_at, member.era, member.first, member.flying, member.gone, member.granted, member.granted_to,
            member.hungry_at, member.number, member.probe, member.seen_at, member.solo, member.span,
        ) = state  # fmt: skip
        return member


_FIELDS = attrgetter(*Member.__slots__)


class Shortage(NamedTuple):
    """What there was too little of, and when to ask again."""

    wait: float
    of: str


NOTHING = Shortage(0.0, "")


def grant(coordinator: QuotaCoordinator, request: SyncRequest, member: Member, now: float) -> Shortage:
    """Hand out the next numbers, as many as may be had; returns what there was too little of."""
    wanted = sum(count * numbers_of(cost) for count, cost in request.asks)
    if request.leaves:
        member.asked_at = -ASKING
    if not wanted or request.leaves:
        member.hungry_at = 0.0
        return NOTHING
    member.asked_at = now
    short = _not_yet(coordinator, member, now)
    if short.of:
        return short
    first_call = numbers_of(request.asks[0][1])
    room = first_call if coordinator.circuit_open else max(first_call, _lease_length(coordinator, now))
    granted, short = _fit(coordinator, request, member, min(wanted, room), now)
    if not short.of:
        member.hungry_at = 0.0
    elif granted or not member.hungry_at:
        member.hungry_at = now
    if granted:
        member.granted_to, member.granted = request.number, granted
        member.first, member.era = coordinator.issued, coordinator.era
        member.probe = coordinator.circuit_open
        member.flying += granted
        coordinator.issued += granted
        if coordinator.circuit_open:
            coordinator.probes.append([request.member, now])
    return short


def _not_yet(coordinator: QuotaCoordinator, member: Member, now: float) -> Shortage:
    """Why this member gets nothing yet, whatever it asks for; ``NOTHING`` if it may get some."""
    for other in coordinator.members.values():
        if other.solo and other is not member and now - other.seen_at <= SOLO_HEARS + other.span:
            return Shortage(AGAIN, "solo")  # it does not know yet that it is not alone
    if coordinator.circuit_open:
        if now < coordinator.open_until:
            return Shortage(coordinator.open_until - now, "circuit")
        return Shortage(AGAIN, "circuit") if len(coordinator.probes) >= coordinator.terms.probes else NOTHING
    rate = coordinator.pace
    if member.era == coordinator.era and member.first > coordinator.line:  # its last lease has not begun
        return Shortage(max(0.0, coordinator.hold_until - now) + (member.first - coordinator.line) / rate, "pace")
    if coordinator.issued - coordinator.line > FURTHEST * rate + 2 * coordinator.live_members(now):
        return Shortage(coordinator.period, "pace")
    return NOTHING


def _lease_length(coordinator: QuotaCoordinator, now: float) -> int:
    """How many numbers each member that asks gets: as many as the rate allows in a period, or in the longest span."""
    asking, span = 0, coordinator.period
    for other in coordinator.members.values():
        if now - other.asked_at <= ASKING + other.span:
            asking, span = asking + 1, max(span, other.span)
    return ceil(coordinator.pace * span / asking)


def _fit(
    coordinator: QuotaCoordinator, request: SyncRequest, member: Member, room: int, now: float
) -> tuple[int, Shortage]:
    """How many numbers for the calls asked for fit under cap and known limits, and what there is too little of."""
    if coordinator.cap == NO_CAP and not coordinator.quotas:
        return room, NOTHING
    since = member.hungry_at or now
    ahead = sum(
        0.0 < other.hungry_at < since and now - other.seen_at <= HUNGRY for other in coordinator.members.values()
    )
    if ahead:
        return 0, Shortage(min(AGAIN * (1 + ahead), HUNGRY / 2), "turn")
    if coordinator.cap != NO_CAP:
        flying = sum(other.flying for other in coordinator.members.values() if now - other.seen_at <= TERM)
        free = floor(max(1.0, coordinator.cap)) - flying
        if free < 1:
            return 0, Shortage(AGAIN, "depth")
        room = min(room, max(free, numbers_of(request.asks[0][1])))
    if not coordinator.quotas:
        return room, NOTHING
    granted, room = 0, min(room, MOST_AT_ONCE)
    for count, cost in request.asks:
        for _ in range(count):
            if granted and granted + numbers_of(cost) > room:
                return granted, NOTHING
            short = _short(coordinator, cost, now)
            if short.of:
                return granted, short
            granted += numbers_of(cost)
            ahead_of_line = max(0.0, coordinator.issued + granted - coordinator.line)
            starts_at = max(now, coordinator.hold_until) + ahead_of_line / coordinator.pace
            for quota in coordinator.quotas:
                if cost.get(quota.dimension, 0.0) > 0:
                    quota.take(cost[quota.dimension], now, starts_at)
    return granted, NOTHING


def _short(coordinator: QuotaCoordinator, cost: Cost, now: float) -> Shortage:
    longest = NOTHING
    for quota in coordinator.quotas:
        amount = cost.get(quota.dimension, 0.0)
        if amount > 0:
            wait = quota.ready_at(amount, now) - now
            if wait > max(INSTANT, longest.wait):
                longest = Shortage(wait, quota.dimension)
    return longest


def numbers_of(cost: Cost) -> int:
    """How many numbers a call takes: as many as it has requests' worth of pace."""
    return max(1, ceil(cost.get("requests", 1)))


# ---------------------------------------------------------------------- known limits

SLICES = 64
ROUNDING = 1e-9


class SharedQuota:
    """One known limit that many share: a bucket that keeps bursts down, and a record that keeps every window.

    The bucket refills at ``(amount - burst) / window``. The record of the last window is what makes the promise:
    even with refunds and later charges, no window ever lets more than ``amount`` start. A call counts until a
    window after its start, which may be a while after it was taken for. The record has about ``SLICES`` entries: calls
    that start in the same slice of the window count as if the last of them were all.
    """

    __slots__ = ("amount", "burst", "dimension", "filled_at", "level", "spent", "window")

    def __init__(self, dimension: str, amount: float, window: float, burst: float, now: float) -> None:
        self.dimension = dimension
        self.amount, self.window, self.burst = amount, window, burst
        self.level, self.filled_at = burst, now
        self.spent: list[list[float]] = []
        """When each entry began, when the last call of it starts, and how much; oldest first."""

    def ready_at(self, amount: float, now: float) -> float:
        """The instant at which ``amount`` may be taken; ``now`` means at once."""
        free_at = self._window_free_at(amount, now)
        if self.burst >= self.amount:
            return free_at
        refill = (self.amount - self.burst) / self.window
        self.level = min(self.burst, self.level + refill * max(0.0, now - self.filled_at))
        self.filled_at = max(now, self.filled_at)
        missing = min(amount, self.burst) - self.level
        return max(free_at, now + missing / refill) if missing > ROUNDING * self.burst else free_at

    def take(self, amount: float, now: float, starts_at: float) -> None:
        self.level -= amount
        slice_ = self.window / SLICES
        if self.spent and (
            starts_at <= self.spent[-1][1] or floor(starts_at / slice_) == floor(self.spent[-1][1] / slice_)
        ):
            self.spent[-1][1] = max(starts_at, self.spent[-1][1])
            self.spent[-1][2] += amount
        else:
            self.spent.append([now, starts_at, amount])

    def give_back(self, amount: float, taken_at: float, now: float) -> None:
        """Refund what was taken then and not used; below 0, charge what was used beyond it, which counts from now."""
        if amount < 0:
            least = min(self.level, 2 * self.burst - self.amount)
            self.take(-amount, now, now)
            self.level = max(self.level, least)  # what a window refills is the most that may be owed
            return
        self.level = min(self.burst, self.level + amount)
        if not self.spent or taken_at + self.window <= now:  # it has left the window already
            return
        oldest = self.spent[0]  # a member dates a grant from when it asked for it, which is before it was taken
        entry = next((entry for entry in reversed(self.spent) if entry[0] <= taken_at + INSTANT), oldest)
        entry[2] = max(0.0, entry[2] - amount)

    @property
    def is_long(self) -> bool:
        return self.window >= LONG_WINDOW

    def left(self, now: float) -> float:
        """Which share of the window is left."""
        spent = 0.0
        for entry in self.spent:
            if entry[1] + self.window > now:
                spent += entry[2]
        return max(0.0, 1.0 - spent / self.amount)

    def go_on_from(self, before: SharedQuota) -> None:
        """Know what was spent under a limit that was put otherwise."""
        self.level, self.filled_at = min(self.burst, before.level), before.filled_at
        self.spent = [list(entry) for entry in before.spent]

    def _window_free_at(self, amount: float, now: float) -> float:
        spent = self.spent
        while spent and spent[0][1] + self.window <= now:
            del spent[0]
        over = amount - self.amount
        for entry in spent:
            over += entry[2]
        free_at = now
        for entry in spent:
            if over <= ROUNDING * self.amount:
                break
            over -= entry[2]
            free_at = max(free_at, entry[1] + self.window)
        return free_at

    def to_state(self) -> list[Any]:
        return [self.dimension, self.amount, self.window, self.burst, self.level, self.filled_at, self.spent]

    @classmethod
    def from_state(cls, state: list[Any]) -> SharedQuota:
        dimension, amount, window, burst, level, filled_at, spent = state
        quota = cls(dimension, amount, window, burst, filled_at)
        quota.level, quota.spent = level, [list(entry) for entry in spent]
        return quota
