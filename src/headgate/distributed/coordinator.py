"""The one place at which all members that share a key's quota ask for permits, in any store.

Permits are numbered. The *line* says how many may have started by now; it grows by the rate, stops during
a hold and never runs ahead of what was asked for by more than the burst. A member gets a few numbers at a time,
about ``PERIOD`` seconds' worth of the rate for all members together, and may use each once the line has
reached it. So the order of asking is the order of starting, no member asks twice for a permit, and when
the rate changes every number that is out comes due sooner or later by itself.

    issued ──────────────────────●─────> numbers handed out
    line   ───────────────●────────────> those up to here may start
                          └─ grows by the rate

A hold starts an era: numbers of the era before are void, so nothing that was saved up starts when it ends. Where
depth or a known limit is short, members are served in the order in which they became hungry.

A member that is alone here may start calls by itself, as without a store, and says afterwards how many (``taken``).
Another that comes waits until the first one knows of it; then both go on by numbers.

One member leads. It gets what all of them saw (notes), learns from it, and publishes rate, hold, cap and circuit. A
leader that is not seen for ``LEADER_SILENT`` while others are at work is replaced by the next member, which goes on
from what was saved and the notes since. Its fence keeps the one before from publishing anything more.

Time is the store's, and never goes back here, nor does it jump: members say how long they were away by clocks of
their own.
"""

from __future__ import annotations

from math import floor
from typing import Any

from ..core.decision import LONGEST_WAIT
from .grants import KEPT, LIVE, LONGEST_SPAN, NOTHING, PERIOD, TERM, Member, SharedQuota, grant
from .protocol import NO_CAP, Note, Publication, QuotaTerms, StoreActions, SyncReply, SyncRequest, plain

LEADER_SILENT = 0.15
REMEMBERED = 86_400.0
"""What was learned so many seconds ago by a run that is over is not used."""
CLOCK_JUMP = 1.0
"""Seconds by which a store's clock may differ from a member's between two requests."""
STILL_GOOD = 0.01
"""A slot that comes back within so many seconds of its time, or while a burst would hold it, is of use to others."""
MOST_MEMBERS = 1_024
MOST_NOTES = 512
LEAST_PACE = 1e-9
"""Calls a second at least: time is divided by it."""
NOT_STORED = ("members", "quotas", "period")
"""As they are: the first two are stored under other names."""
REOPENS_AFTER = 0.05
"""A circuit that stays open for so many seconds longer than was known has opened again; less is network delay."""


class QuotaCoordinator:
    """Shared by members of several machines or processes; its owner (a store) must let them in one by one."""

    __slots__ = (
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
        "members",
        "noted",
        "open_until",
        "period",
        "probes",
        "quotas",
        "rate",
        "saved_wall",
        "skew",
        "terms",
        "word",
    )

    def __init__(self, terms: QuotaTerms, now: float, period: float = PERIOD) -> None:
        self.period = period
        """How long a lease is; the lab finds out what follows from others."""
        self.members: dict[str, Member] = {}
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
        """Which member makes a probe, and since when."""
        self.leader = ""
        self.fence = self.era
        self.has_learned = False
        self.saved_wall = 0.0
        """Whether anything learned was saved, and at which time of day."""
        self.noted = 0
        self.covers = 0
        """The number of the newest note, and of the newest that no member needs."""
        self.quotas: list[SharedQuota] = []
        self.agree(terms)

    def sync(self, request: SyncRequest, now: float, wall: float) -> tuple[SyncReply, StoreActions]:
        """Take a member's report, grant what it may have. ``wall`` is the time of day, for what outlives a run."""
        now = self._time(request, now)
        self._see_off(now, wall)
        member = self._member(request.member, now)
        member.seen_at = now
        self._grow(now)
        published = request.publication
        leads = self._leads(request, now)
        is_new = leads and (published is None or published.fence != self.fence)
        if leads and request.terms != self.terms:
            self.agree(request.terms)
        solo = request.solo and leads and self.live_members(now) == 1
        short, note, learned = NOTHING, None, ""
        if request.number > member.number:
            member.number, member.gone, member.span = request.number, request.leaves, min(request.span, LONGEST_SPAN)
            member.solo = request.solo and (solo or member.solo)  # until it knows that it is not alone any more
            note = self._apply_report(request, member, now)
            if published is not None and published.fence == self.fence:
                self._publish(published, now, wall)
                learned = published.learned
            short = grant(self, request, member, now)
        is_granted = request.number == member.granted_to and member.era == self.era
        reply = SyncReply(
            now=now,
            granted=member.granted if is_granted else 0,
            first=member.first,
            line=self.line,
            rate=self.pace,
            hold=max(0.0, self.hold_until - now),
            era=self.era,
            wait=short.wait,
            short_of=short.of,
            circuit_open=self.circuit_open,
            open_for=max(0.0, self.open_until - now),
            probe=member.probe and is_granted,
            cap=self.cap,
            left=min((one.left(now) for one in self.quotas if one.is_long), default=1.0),
            word=self.word,
            members=self.live_members(now),
            solo=solo,
            fence=self.fence if leads else 0,
            covers=self.covers,
            learned_ago=max(0.0, wall - self.saved_wall) if self.has_learned else 0.0,
        )
        actions = StoreActions(
            keep=note,
            save=learned,
            forget_to=self.covers,
            give_learned=is_new and self.has_learned,
            give_after=-1 if not leads else self.covers if is_new or published is None else published.read,
            but_not_of="" if is_new else request.member,
        )
        return reply, actions

    # ------------------------------------------------------------------ time and members

    def _time(self, request: SyncRequest, now: float) -> float:
        """The store's time, corrected: it goes on from where it was when the clock is set back, and does not jump.

        A member was seen no longer ago than ``elapsed``; if the clock says so, it was set forward. A member that is
        new here, or that left and came back, says nothing of it.
        """
        at = now + self.skew
        member = self.members.get(request.member)
        if member is not None and 0 < request.elapsed < at - member.seen_at - CLOCK_JUMP:
            at = member.seen_at + request.elapsed
        at = max(at, self.at)
        self.skew = at - now
        return at

    def restart(self, now: float, away: float) -> None:
        """If the store's clock has started over, go on ``away`` seconds after the last request."""
        if now + self.skew < self.at - CLOCK_JUMP:
            self.skew = self.at + min(max(0.0, away), LONGEST_WAIT) - now

    def _see_off(self, now: float, wall: float) -> None:
        """Forget members that are gone; and, when none is left, what is too old to be worth anything."""
        for name in [name for name, member in self.members.items() if now - member.seen_at > KEPT]:
            del self.members[name]
        self.probes = [
            probe
            for probe in self.probes
            if now - probe[1] <= self.terms.probe_for and now - self._seen_at(probe[0]) <= TERM
        ]
        if not self.members and self.has_learned and wall - self.saved_wall > REMEMBERED:
            self.rate, self.cap, self.circuit_open, self.has_learned = self.terms.rate, NO_CAP, False, False

    def _member(self, name: str, now: float) -> Member:
        member = self.members.get(name)
        if member is None:
            if len(self.members) >= MOST_MEMBERS:
                del self.members[min(self.members, key=lambda other: (self.members[other].seen_at, other))]
            member = self.members[name] = Member(now)
        return member

    @property
    def pace(self) -> float:
        """By how much the line grows each second."""
        return max(LEAST_PACE, min(self.rate, self.terms.most))

    def live_members(self, now: float) -> int:
        return sum(not member.gone and now - member.seen_at <= LIVE for member in self.members.values())

    def _seen_at(self, name: str) -> float:
        member = self.members.get(name)
        return -LIVE if member is None else member.seen_at

    def _leads(self, request: SyncRequest, now: float) -> bool:
        """Whether this member leads; it does from now on if no other does and it has something to do."""
        if request.leaves:
            if self.leader == request.member:
                self.leader = ""
            return False
        if self.leader == request.member:
            return True
        at_work = bool(request.asks or request.note or request.flying)
        silent_for = now - self._seen_at(self.leader)
        if self.leader in self.members:  # a member far away is not seen that often
            silent_for -= self.members[self.leader].span
        if silent_for > LIVE or (silent_for > LEADER_SILENT and at_work):
            self.leader = request.member
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

    def _apply_report(self, request: SyncRequest, member: Member, now: float) -> Note | None:
        member.flying = 0 if request.leaves else request.flying
        if request.taken > 0:
            self.issued += request.taken
            self.line = max(self.line, self.issued - self.terms.burst)
        if request.back > 0 and request.era == self.era:
            self._pass_on(request.back, member)
        for quota in self.quotas:
            if quota.dimension in request.refund:
                quota.give_back(request.refund[quota.dimension], now - request.refund_ago, now)
            if quota.is_long and quota.dimension in request.apart:
                quota.take(request.apart[quota.dimension], now, now)
        if request.probe_over or request.leaves:
            self.probes = [probe for probe in self.probes if probe[0] != request.member]
        if request.rest > 0:
            self._hold(now + request.rest, now)
        if not request.note:
            return None
        self.noted += 1
        self.covers = max(self.covers, self.noted - MOST_NOTES)
        return Note(number=self.noted, at=now, member=request.member, text=request.note)

    def _pass_on(self, back: int, member: Member) -> None:
        """What a member does not use goes to others; not slots that went by a while ago, for those were not saved."""
        still_good = self.terms.burst + STILL_GOOD * self.pace
        count = min(back, member.first + member.granted - self.line + still_good)
        if count > 0:
            self.line = min(self.line + count, max(self.line, self.issued + self.terms.burst))
        if back >= member.granted:
            member.era = 0  # nothing is left of its last lease

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
        opens = news.circuit_open and news.open_for > 0 and now + news.open_for > self.open_until + REOPENS_AFTER
        if opens or not news.circuit_open:
            self.probes = []
            self.open_until = now + news.open_for
        if opens or (news.circuit_open and not self.circuit_open):
            self._void()
        self.circuit_open = news.circuit_open
        if news.learned:
            self.has_learned, self.saved_wall = True, wall
            self.covers = max(self.covers, news.covers)

    def agree(self, terms: QuotaTerms) -> None:
        """Take the leader's word for what is known beforehand. What was spent stays spent."""
        before, self.quotas, self.terms = self.quotas, [], terms
        for limit in terms.limits:
            quota = SharedQuota(*limit, self.at)
            same_dimension = [one for one in before if one.dimension == quota.dimension]
            if same_dimension:  # of the same window, else the one that remembers longest
                quota.go_on_from(max(same_dimension, key=lambda one: (one.window == limit[2], one.window)))
            self.quotas.append(quota)

    # ------------------------------------------------------------------ putting away

    def to_state(self) -> dict[str, Any]:
        """All of it as plain values, under the names that stores have had from the beginning."""
        state = {name: getattr(self, name) for name in self.__slots__ if name not in NOT_STORED}
        state["terms"] = plain(self.terms)
        state["seats"] = {name: member.to_state() for name, member in self.members.items()}
        state["allowances"] = [quota.to_state() for quota in self.quotas]
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> QuotaCoordinator:
        known = dict(state["terms"])
        known["limits"] = tuple(tuple(limit) for limit in known["limits"])
        coordinator = cls(QuotaTerms(**known), state["at"])
        for name, value in state.items():
            if name not in ("terms", "seats", "allowances"):
                setattr(coordinator, name, value)
        coordinator.members = {name: Member.from_state(one) for name, one in state["seats"].items()}
        coordinator.quotas = [SharedQuota.from_state(one) for one in state["allowances"]]
        return coordinator
