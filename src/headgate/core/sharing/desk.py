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

A member that is alone here may start calls by itself, as without a store, and says afterwards how many (``taken``).
Another that comes waits until the first one has heard of it; then both go on by numbers.

One member leads. It gets what all of them saw (notes), learns from it, and publishes rate, hold, cap and circuit. A
leader that is not seen for ``LEADER_SILENT`` while others are at work is replaced by whoever comes next, which goes on
from what was saved and the notes since. Its fence keeps the one before from publishing anything more.

Time is the store's, and never goes back here, nor does it jump: members say how long they were away by clocks of
their own.
"""

from __future__ import annotations

from math import floor
from typing import Any, ClassVar

from ..decision import LONGEST_WAIT
from .allowance import Allowance
from .granting import LONGEST_SPAN, NOTHING, PERIOD, grant
from .seat import KEPT, LIVE, TERM, Seat
from .visit import NO_CAP, Errand, Note, Publication, Reply, Terms, Visit, plain

LEADER_SILENT = 0.15
REMEMBERED = 86_400.0
"""What was learned so many seconds ago by a run that is over is worth nothing any more."""
CLOCK_JUMP = 1.0
"""Seconds by which a store's clock may differ from a member's between two visits."""
STILL_GOOD = 0.01
"""A slot that comes back within so many seconds of its time, or while a burst would hold it, is of use to others."""
MOST_MEMBERS = 1_024
MOST_NOTES = 512
LEAST_PACE = 1e-9
"""Calls a second, whatever members say: time is divided by it."""
OPENS_ANEW = 0.05
"""A circuit that stays open for so many seconds longer than was known has opened anew; less is the way to here."""


class Desk:
    """Shared by members of several machines or processes; who holds it (a store) must let them in one by one."""

    period: ClassVar[float] = PERIOD
    """How long a lease is. A class of its own may have another, to find out what follows from it."""

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
        "word",
    )

    def __init__(self, terms: Terms, now: float) -> None:
        self.seats: dict[str, Seat] = {}
        self.skew = 0.0
        """What the store's clock must be corrected by, so that time neither goes back nor jumps."""
        self.at = now
        self.issued = 0.0
        self.line = terms.burst
        self.era = floor(1000 * now)
        """Of the numbers that are out. It begins where none that was wiped or lost with a server can have come to."""
        self.hold_until = 0.0
        self.rate = terms.rate
        self.cap = NO_CAP
        self.word = 0
        self.circuit_open = False
        self.open_until = 0.0
        self.probes: list[list[Any]] = []
        """Who makes a probe, and since when."""
        self.leader = ""
        self.fence = self.era
        self.has_learned = False
        self.saved_wall = 0.0
        """Whether anything learned was saved, and at which time of day."""
        self.noted = 0
        self.covers = 0
        """The number of the newest note, and of the newest that nobody needs any more."""
        self.allowances: list[Allowance] = []
        self.agree(terms)

    def visit(self, visit: Visit, now: float, wall: float) -> tuple[Reply, Errand]:
        """Take a member's news, give it what it may have. ``wall`` is the time of day, for what outlives a run."""
        now = self._time(visit, now)
        self._see_off(now, wall)
        seat = self._seat(visit.member, now)
        seat.seen_at = now
        self._grow(now)
        published = visit.publication
        leads = self._leads(visit, now)
        is_new = leads and (published is None or published.fence != self.fence)
        if leads and visit.terms != self.terms:
            self.agree(visit.terms)
        solo = visit.solo and leads and self.members(now) == 1
        short, note, learned = NOTHING, None, ""
        if visit.number > seat.number:
            seat.number, seat.gone, seat.span = visit.number, visit.leaves, min(visit.span, LONGEST_SPAN)
            seat.solo = visit.solo and (solo or seat.solo)  # until it has heard that it is not alone any more
            note = self._hear(visit, seat, now)
            if published is not None and published.fence == self.fence:
                self._publish(published, now, wall)
                learned = published.learned
            short = grant(self, visit, seat, now)
        is_granted = visit.number == seat.granted_to and seat.era == self.era
        reply = Reply(
            now=now,
            granted=seat.granted if is_granted else 0,
            first=seat.first,
            line=self.line,
            rate=self.pace,
            hold=max(0.0, self.hold_until - now),
            era=self.era,
            wait=short.wait,
            short_of=short.of,
            circuit_open=self.circuit_open,
            open_for=max(0.0, self.open_until - now),
            probe=seat.probe and is_granted,
            cap=self.cap,
            left=min((one.left(now) for one in self.allowances if one.is_long), default=1.0),
            word=self.word,
            members=self.members(now),
            solo=solo,
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
        return reply, errand

    # ------------------------------------------------------------------ time and who is there

    def _time(self, visit: Visit, now: float) -> float:
        """The store's time, corrected: it goes on from where it was when the clock is set back, and does not jump.

        A member was seen no longer ago than ``elapsed``; if the clock says so, it was set forward. A member that is
        new here, or that left and came back, says nothing of it.
        """
        at = now + self.skew
        seat = self.seats.get(visit.member)
        if seat is not None and 0 < visit.elapsed < at - seat.seen_at - CLOCK_JUMP:
            at = seat.seen_at + visit.elapsed
        at = max(at, self.at)
        self.skew = at - now
        return at

    def restart(self, now: float, away: float) -> None:
        """If the store's clock has started over, go on ``away`` seconds after the last visit."""
        if now + self.skew < self.at - CLOCK_JUMP:
            self.skew = self.at + min(max(0.0, away), LONGEST_WAIT) - now

    def _see_off(self, now: float, wall: float) -> None:
        """Forget who is gone; and, when nobody is left, what is too old to be worth anything."""
        for member in [member for member, seat in self.seats.items() if now - seat.seen_at > KEPT]:
            del self.seats[member]
        self.probes = [
            probe
            for probe in self.probes
            if now - probe[1] <= self.terms.probe_for and now - self._seen_at(probe[0]) <= TERM
        ]
        if not self.seats and self.has_learned and wall - self.saved_wall > REMEMBERED:
            self.rate, self.cap, self.circuit_open, self.has_learned = self.terms.rate, NO_CAP, False, False

    def _seat(self, member: str, now: float) -> Seat:
        seat = self.seats.get(member)
        if seat is None:
            if len(self.seats) >= MOST_MEMBERS:
                del self.seats[min(self.seats, key=lambda other: (self.seats[other].seen_at, other))]
            seat = self.seats[member] = Seat(now)
        return seat

    @property
    def pace(self) -> float:
        """By how much the line grows each second."""
        return max(LEAST_PACE, min(self.rate, self.terms.most))

    def members(self, now: float) -> int:
        return sum(not seat.gone and now - seat.seen_at <= LIVE for seat in self.seats.values())

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
        if self.leader in self.seats:  # who has a long way is not seen that often
            silent_for -= self.seats[self.leader].span
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
            grown = self.line + (now - since) * self.pace
            self.line = min(grown, max(self.line, self.issued + self.terms.burst))
        self.at = now

    def _hear(self, visit: Visit, seat: Seat, now: float) -> Note | None:
        seat.flying = 0 if visit.leaves else visit.flying
        if visit.taken > 0:
            self.issued += visit.taken
            self.line = max(self.line, self.issued - self.terms.burst)
        if visit.back > 0 and visit.era == self.era:
            self._pass_on(visit.back, seat)
        for allowance in self.allowances:
            if allowance.dimension in visit.refund:
                allowance.give_back(visit.refund[allowance.dimension], now - visit.refund_ago, now)
            if allowance.is_long and allowance.dimension in visit.apart:
                allowance.take(visit.apart[allowance.dimension], now, now)
        if visit.probe_over or visit.leaves:
            self.probes = [probe for probe in self.probes if probe[0] != visit.member]
        if visit.rest > 0:
            self._hold(now + visit.rest, now)
        if not visit.note:
            return None
        self.noted += 1
        self.covers = max(self.covers, self.noted - MOST_NOTES)
        return Note(number=self.noted, at=now, member=visit.member, text=visit.note)

    def _pass_on(self, back: int, seat: Seat) -> None:
        """What a member does not use goes to others; not slots that went by a while ago, for those were not saved."""
        still_good = self.terms.burst + STILL_GOOD * self.pace
        count = min(back, seat.first + seat.granted - self.line + still_good)
        if count > 0:
            self.line = min(self.line + count, max(self.line, self.issued + self.terms.burst))
        if back >= seat.granted:
            seat.era = 0  # nothing is left of its last lease

    def _hold(self, until: float, now: float) -> None:
        """Nothing starts before that instant. What was handed out is void: it would all start when the hold ends.

        What was handed out during a hold is not: it comes due after it, one by one, however long it will be.
        """
        if until > max(now, self.hold_until):
            if now >= self.hold_until:
                self._void()
            self.hold_until = until

    def _void(self) -> None:
        self.era += 1
        self.line = self.issued

    def _publish(self, news: Publication, now: float, wall: float) -> None:
        self.rate, self.cap, self.word = news.rate, news.cap, news.word
        self._hold(now + news.hold, now)
        if news.skip > 0:
            self.line = min(self.line, self.issued + 1.0 - news.skip)
        opens = news.circuit_open and news.open_for > 0 and now + news.open_for > self.open_until + OPENS_ANEW
        if opens or not news.circuit_open:
            self.probes = []
            self.open_until = now + news.open_for
        if opens or (news.circuit_open and not self.circuit_open):
            self._void()
        self.circuit_open = news.circuit_open
        if news.learned:
            self.has_learned, self.saved_wall = True, wall
            self.covers = max(self.covers, news.covers)

    def agree(self, terms: Terms) -> None:
        """Take the leader's word for what is known beforehand. What was spent stays spent."""
        before, self.allowances, self.terms = self.allowances, [], terms
        for limit in terms.limits:
            allowance = Allowance(*limit, self.at)
            same_dimension = [one for one in before if one.dimension == allowance.dimension]
            if same_dimension:  # of the same window, else the one that remembers longest
                allowance.go_on_from(max(same_dimension, key=lambda one: (one.window == limit[2], one.window)))
            self.allowances.append(allowance)

    # ------------------------------------------------------------------ putting away

    def to_state(self) -> dict[str, Any]:
        """All of it as plain values."""
        state = {name: getattr(self, name) for name in self.__slots__}
        state["terms"] = plain(self.terms)
        state["seats"] = {member: seat.to_state() for member, seat in self.seats.items()}
        state["allowances"] = [allowance.to_state() for allowance in self.allowances]
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Desk:
        known = dict(state["terms"])
        known["limits"] = tuple(tuple(limit) for limit in known["limits"])
        desk = cls(Terms(**known), state["at"])
        for name, value in state.items():
            if name not in ("terms", "seats", "allowances"):
                setattr(desk, name, value)
        desk.seats = {member: Seat.from_state(seat) for member, seat in state["seats"].items()}
        desk.allowances = [Allowance.from_state(one) for one in state["allowances"]]
        return desk
