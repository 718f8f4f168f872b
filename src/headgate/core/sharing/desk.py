"""The one place at which all who share a key's quota ask for permits, whatever store it lies in.

Permits are numbered. The *line* says how many may have started by now; it grows by the rate, stands still during
a hold and never runs ahead of what was asked for by more than the burst. A member gets a few numbers at a time,
about ``PERIOD`` seconds' worth of the rate for all members together, and may use each once the line has
reached it. So the order of asking is the order of starting, nobody asks twice for a permit, and when
the rate changes every number that is out comes due sooner or later by itself.

    issued ──────────────────────●─────> numbers handed out
    line   ───────────────●────────────> those up to here may start
                          └─ grows by the rate

A hold starts an era: numbers of the era before are void, so nothing that was saved up starts when it ends. Where
depth or a known limit is short, members are served in the order in which they became hungry.

One member leads. It gets what all of them saw (notes), learns from it, and publishes rate, hold, cap and circuit. A
leader that is not seen for ``LEADER_SILENT`` while others are at work is replaced by whoever comes next, which goes on
from what was saved and the notes since. Its fence keeps the one before from publishing anything more.

Time is the store's, and never goes back here, nor does it jump: members say how long they were away by clocks of
their own.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Any, NamedTuple

from .allowance import Allowance
from .visit import NO_CAP, Cost, Errand, Note, Publication, Reply, Terms, Visit, plain

PERIOD = 0.03
"""A lease is what the rate allows in so many seconds, shared by those who ask."""
TERM = 1.0
"""Permits and slots of a member that was not seen for so many seconds are nobody's any more."""
LIVE = 3.0
"""... and after so many it is gone."""
ASKING = 0.25
"""Whoever asked within so many seconds is counted when a lease is divided."""
HUNGRY = 0.1
"""Whoever is short of something and does not come back within so many seconds loses its turn."""
AGAIN = 0.01
"""Seconds after which to ask again for what only another member's visit can bring."""
LEADER_SILENT = 0.15
REMEMBERED = 86_400.0
"""What was learned so many seconds ago by a run that is over is worth nothing any more."""
CLOCK_JUMP = 1.0
"""Seconds by which a store's clock may differ from a member's between two visits."""
FURTHEST = 1.0
"""Seconds of the rate by which numbers may run ahead of the line, beyond two for each member."""
MOST_MEMBERS = 1_024
MOST_NOTES = 512
MOST_AT_ONCE = 64
"""Calls under a known limit that one visit may get."""
OPENS_ANEW = 0.01
"""A circuit that shall open so many seconds later than was known has opened anew."""
INSTANT = 1e-6


class Short(NamedTuple):
    """What there was too little of, and when to ask again."""

    wait: float
    of: str


_NOTHING = Short(0.0, "")


class Seat:
    """What the desk knows of one member."""

    __slots__ = ("asked_at", "era", "first", "flying", "granted", "hungry_at", "number", "probe", "seen_at")

    def __init__(self, now: float) -> None:
        self.seen_at = now
        self.number = 0
        """Of its last visit, and what that one was granted:"""
        self.granted = 0
        self.first = 0.0
        self.era = 0
        self.probe = False
        self.flying = 0
        self.asked_at = -ASKING
        self.hungry_at = 0.0
        """Since when it is short of something; 0 if it is not."""

    def to_state(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_state(cls, state: list[Any]) -> Seat:
        seat = cls(0.0)
        for name, value in zip(cls.__slots__, state, strict=True):
            setattr(seat, name, value)
        return seat


class Desk:
    """Shared by members of several machines or processes; who holds it (a store) must let them in one by one."""

    __slots__ = (
        "allowances",
        "at",
        "cap",
        "circuit_open",
        "covers",
        "era",
        "fence",
        "has_learned",
        "hold_until",
        "issued",
        "leader",
        "line",
        "noted",
        "open_until",
        "probes",
        "rate",
        "saved_wall",
        "seats",
        "skew",
        "terms",
    )

    def __init__(self, terms: Terms, now: float) -> None:
        self.seats: dict[str, Seat] = {}
        self.skew = 0.0
        """What the store's clock must be corrected by, so that time neither goes back nor jumps."""
        self.at = now
        self.issued = 0.0
        self.line = terms.burst
        self.era = 1
        self.hold_until = 0.0
        self.rate = terms.rate
        self.cap = NO_CAP
        self.circuit_open = False
        self.open_until = 0.0
        self.probes: list[list[Any]] = []
        """Who makes a probe, and since when."""
        self.leader = ""
        self.fence = 0
        self.has_learned = False
        self.saved_wall = 0.0
        """Whether anything learned was saved, and at which time of day."""
        self.noted = 0
        self.covers = 0
        """The number of the newest note, and of the newest that nobody needs any more."""
        self.allowances: dict[str, Allowance] = {}
        self.agree(terms)

    def visit(self, visit: Visit, now: float, wall: float) -> tuple[Reply, Errand]:
        """Take a member's news, give it what it may have. ``wall`` is the time of day, for what outlives a run."""
        now = self._time(visit, now)
        self._see_off(now, wall)
        seat = self.seats.get(visit.member)
        if seat is None:
            seat = self.seats[visit.member] = Seat(now)
        seat.seen_at = now
        self._grow(now)
        published = visit.publication
        leads = self._leads(visit, now)
        is_new = leads and (published is None or published.fence != self.fence)
        if leads and visit.terms != self.terms:
            self.agree(visit.terms)
        short, note, learned = _NOTHING, None, ""
        if visit.number > seat.number:
            seat.number, seat.granted, seat.probe = visit.number, 0, False
            note = self._hear(visit, seat, now)
            if published is not None and published.fence == self.fence:
                self._publish(published, now, wall)
                learned = published.learned
            short = self._grant(visit, seat, now)
        reply = Reply(
            now=now,
            granted=seat.granted if visit.number == seat.number and seat.era == self.era else 0,
            first=seat.first,
            line=self.line,
            rate=min(self.rate, self.terms.most),
            hold=max(0.0, self.hold_until - now),
            era=self.era,
            wait=short.wait,
            short_of=short.of,
            circuit_open=self.circuit_open,
            open_for=max(0.0, self.open_until - now),
            probe=seat.probe,
            cap=self.cap,
            members=len(self.seats),
            fence=self.fence if leads else 0,
            covers=self.covers,
            learned_ago=max(0.0, wall - self.saved_wall) if self.has_learned else 0.0,
        )
        errand = Errand(
            keep=note,
            save=learned,
            forget_to=self.covers,
            give_learned=is_new and self.has_learned,
            give_after=-1 if not leads else self.covers if is_new or published is None else published.read,
            but_not_of="" if is_new else visit.member,
        )
        if visit.leaves:
            del self.seats[visit.member]
        return reply, errand

    # ------------------------------------------------------------------ time and who is there

    def _time(self, visit: Visit, now: float) -> float:
        """The store's time, corrected: a clock that was set forward or back since this member's last visit was not."""
        at = now + self.skew
        seat = self.seats.get(visit.member)
        if seat is not None and abs(at - (seat.seen_at + visit.elapsed)) > CLOCK_JUMP:
            at = seat.seen_at + visit.elapsed
        at = max(at, self.at)
        self.skew = at - now
        return at

    def _see_off(self, now: float, wall: float) -> None:
        """Forget who is gone; and, when nobody is left, what is too old to be worth anything."""
        for member in [member for member, seat in self.seats.items() if now - seat.seen_at > LIVE]:
            del self.seats[member]
        if len(self.seats) >= MOST_MEMBERS:
            del self.seats[min(self.seats, key=lambda member: (self.seats[member].seen_at, member))]
        self.probes = [
            probe
            for probe in self.probes
            if now - probe[1] <= self.terms.probe_for and now - self._seen_at(probe[0]) <= TERM
        ]
        if not self.seats and self.has_learned and wall - self.saved_wall > REMEMBERED:
            self.rate, self.cap, self.circuit_open, self.has_learned = self.terms.rate, NO_CAP, False, False

    def _seen_at(self, member: str) -> float:
        seat = self.seats.get(member)
        return -LIVE if seat is None else seat.seen_at

    def _leads(self, visit: Visit, now: float) -> bool:
        """Whether this member leads; it does from now on if nobody does and it has something to do."""
        if visit.leaves:
            if self.leader == visit.member:
                self.leader = ""
            return False
        if self.leader == visit.member:
            return True
        at_work = bool(visit.asks or visit.note or visit.flying)
        silent_for = now - self._seen_at(self.leader)
        if silent_for > LIVE or (silent_for > LEADER_SILENT and at_work):
            self.leader = visit.member
            self.fence += 1
            return True
        return False

    # ------------------------------------------------------------------ news

    def _grow(self, now: float) -> None:
        """Let the line grow up to now."""
        since = max(self.at, self.hold_until)
        if now > since:
            grown = self.line + (now - since) * min(self.rate, self.terms.most)
            self.line = min(grown, max(self.line, self.issued + self.terms.burst))
        self.at = now

    def _hear(self, visit: Visit, seat: Seat, now: float) -> Note | None:
        seat.flying = visit.flying
        if visit.back > 0 and visit.era == self.era:
            self.line = min(self.line + visit.back, max(self.line, self.issued + self.terms.burst))
        for dimension, amount in visit.refund.items():
            if dimension in self.allowances:
                self.allowances[dimension].give_back(amount, now - visit.refund_ago)
        if visit.probe_over or visit.leaves:
            self.probes = [probe for probe in self.probes if probe[0] != visit.member]
        if visit.rest > 0:
            self._hold(now + visit.rest, now)
        if not visit.note:
            return None
        self.noted += 1
        self.covers = max(self.covers, self.noted - MOST_NOTES)
        return Note(number=self.noted, at=now, member=visit.member, text=visit.note)

    def _hold(self, until: float, now: float) -> None:
        """Nothing starts before that instant. What was handed out is void: it would all start when the hold ends."""
        if until > max(now, self.hold_until):
            self.hold_until = until
            self._void()

    def _void(self) -> None:
        self.era += 1
        self.line = self.issued

    def _publish(self, news: Publication, now: float, wall: float) -> None:
        self.rate, self.cap = news.rate, news.cap
        self._hold(now + news.hold, now)
        if news.skip > 0:
            self.line = min(self.line, self.issued + 1.0 - news.skip)
        opens = news.circuit_open and news.open_for > 0 and now + news.open_for > self.open_until + OPENS_ANEW
        if opens or not news.circuit_open:
            self.probes = []
            self.open_until = now + news.open_for
        if news.circuit_open and not self.circuit_open:
            self._void()
        self.circuit_open = news.circuit_open
        if news.learned:
            self.has_learned, self.saved_wall = True, wall
            self.covers = max(self.covers, news.covers)

    def agree(self, terms: Terms) -> None:
        """Take the leader's word for what is known beforehand."""
        self.terms = terms
        self.allowances = {
            dimension: old
            if (old := self.allowances.get(dimension)) and [old.amount, old.window, old.burst] == list(known)
            else Allowance(*known, self.at)
            for dimension, known in terms.limits.items()
        }

    # ------------------------------------------------------------------ granting

    def _grant(self, visit: Visit, seat: Seat, now: float) -> Short:
        """Hand out the next numbers, as many as may be had."""
        wanted = sum(count for count, _ in visit.asks)
        if not wanted or visit.leaves:
            seat.hungry_at = 0.0
            return _NOTHING
        seat.asked_at = now
        asking = sum(now - other.asked_at <= ASKING for other in self.seats.values())
        rate = min(self.rate, self.terms.most)
        room: float = min(wanted, max(1, ceil(rate * PERIOD / asking)))
        if self.circuit_open:
            if now < self.open_until:
                return Short(self.open_until - now, "circuit")
            if len(self.probes) >= self.terms.probes:
                return Short(AGAIN, "circuit")
            room = 1
        elif self.issued - self.line > FURTHEST * rate + 2 * len(self.seats):
            return Short(PERIOD, "pace")
        granted, short = self._fit(visit, seat, int(room), now)
        if short.of:
            seat.hungry_at = seat.hungry_at if seat.hungry_at and not granted else now
        else:
            seat.hungry_at = 0.0
        if granted:
            seat.granted, seat.first, seat.era, seat.probe = granted, self.issued, self.era, self.circuit_open
            seat.flying += granted
            self.issued += granted
            if self.circuit_open:
                self.probes.append([visit.member, now])
        return short

    def _fit(self, visit: Visit, seat: Seat, room: int, now: float) -> tuple[int, Short]:
        """How many of the calls asked for fit under the cap and the known limits, and what there is too little of."""
        if self.cap == NO_CAP and not self.allowances:
            return room, _NOTHING
        since = seat.hungry_at or now
        for other in self.seats.values():
            if 0.0 < other.hungry_at < since and now - other.seen_at <= HUNGRY:
                return 0, Short(AGAIN, "turn")
        if self.cap != NO_CAP:
            flying = sum(other.flying for other in self.seats.values() if now - other.seen_at <= TERM)
            free = floor(max(1.0, self.cap)) - flying
            if free < 1:
                return 0, Short(AGAIN, "depth")
            room = min(room, free)
        if not self.allowances:
            return room, _NOTHING
        granted, room = 0, min(room, MOST_AT_ONCE)
        for count, cost in visit.asks:
            for _ in range(count):
                if granted >= room:
                    return granted, _NOTHING
                short = self._short(cost, now)
                if short.of:
                    return granted, short
                for dimension, allowance in self.allowances.items():
                    if cost.get(dimension, 0.0) > 0:
                        allowance.take(cost[dimension], now)
                granted += 1
        return granted, _NOTHING

    def _short(self, cost: Cost, now: float) -> Short:
        longest = _NOTHING
        for dimension in sorted(self.allowances):
            amount = cost.get(dimension, 0.0)
            if amount > 0:
                wait = self.allowances[dimension].ready_at(amount, now) - now
                if wait > max(INSTANT, longest.wait):
                    longest = Short(wait, dimension)
        return longest

    # ------------------------------------------------------------------ putting away

    def to_state(self) -> dict[str, Any]:
        """All of it as plain values."""
        state = {name: getattr(self, name) for name in self.__slots__}
        state["terms"] = plain(self.terms)
        state["seats"] = {member: seat.to_state() for member, seat in self.seats.items()}
        state["allowances"] = {dimension: one.to_state() for dimension, one in self.allowances.items()}
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Desk:
        known = dict(state["terms"])
        known["limits"] = {dimension: tuple(limit) for dimension, limit in known["limits"].items()}
        desk = cls(Terms(**known), state["at"])
        for name, value in state.items():
            if name not in ("terms", "seats", "allowances"):
                setattr(desk, name, value)
        desk.seats = {member: Seat.from_state(seat) for member, seat in state["seats"].items()}
        desk.allowances = {dimension: Allowance.from_state(one) for dimension, one in state["allowances"].items()}
        return desk
