"""What a store knows of one fleet run: its members, what they may spend together, and what an operator has ordered.

    member ──request: counts, what it spent, what it would like──> RunState ──reply: orders, a lease of the caps──>

A member reports about once a second. Its counts are cumulative, so a request that is repeated or lost changes nothing,
and a store that comes back empty has the whole run again as soon as every member has reported once.

Caps are leased: the sum of what members hold never exceeds them. What a member holds and has not spent comes back when
it leaves; of one that is lost it counts as spent, because the store cannot know. All instants are the store's.

The same rules run inside Redis, in ``distributed/backends/lua/run_state.lua``; ``tests/fleet`` runs over both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .protocol import (
    NO_CAP,
    NOTHING,
    UNCAPPED,
    Amount,
    Counts,
    FleetMemberView,
    FleetRunView,
    MemberReply,
    MemberRequest,
    Past,
)

LOST_AFTER = 5.0
"""Seconds after its last report from which a member counts as lost."""
FOLD_AFTER = 3_600.0
"""Seconds after which a lost member is only a part of the totals; one that returns later than that counts twice."""
REJOIN_FOR = 3.0
"""Seconds after a store came back empty in which nothing is leased: first all members say what they hold."""
SWEEP_EVERY = 1.0
"""Seconds between two looks at all members; in between the sums are kept up to date by differences."""
KEPT_FOR = 7 * 86_400.0
"""Seconds after its last report for which a run is kept."""
MOST_STOPPED = 32
"""Jobs of one run that are remembered as stopped."""
SHARES = 2.0
"""Each member gets at most its equal part of a half of what is left, but at least what its next row needs."""


@dataclass(slots=True, kw_only=True)
class Member:
    job: str = ""
    number: int = 0
    seen_at: float = 0.0
    counts: Counts = field(default_factory=Counts)
    spent: Amount = NOTHING
    held: Amount = NOTHING
    in_flight: int = 0
    rate: float = 0.0
    detail: str = ""

    @property
    def charged(self) -> Amount:
        """What counts against the caps: a row may have cost more than was expected."""
        return self.held.most(self.spent)


@dataclass(slots=True, kw_only=True)
class Sums:
    """Over all members, as of the last look at them."""

    swept_at: float = -FOLD_AFTER
    live: int = 0
    charged: Amount = NOTHING
    unspent: Amount = NOTHING
    """Of those that are there."""
    lost: Past = field(default_factory=Past)


class RunState:
    """One run. Pure: every method is given the time."""

    def __init__(self, now: float, lost_after: float = LOST_AFTER) -> None:
        self.lost_after = lost_after
        self.began_at = self.seen_at = now
        self.grants_from = now
        self.caps = UNCAPPED
        self.paused = False
        self.stopped: list[str] = []
        self.past = Past()
        self.members: dict[str, Member] = {}
        self.sums = Sums()
        self._is_known = False

    def exchange(self, request: MemberRequest, now: float) -> MemberReply:
        is_new, self._is_known = not self._is_known, True
        now = self.seen_at = max(self.seen_at, now)
        if is_new and request.number > 1:
            self._take_over(request, now)
        if now < self.grants_from:
            self.past = self.past.most(request.past)
        if now >= self.sums.swept_at + SWEEP_EVERY:
            self._sweep(now)
        member = self.members.get(request.member)
        if member is None:
            self._join(request)
            member = self.members[request.member] = Member()
            self.sums.live += 1
        if request.number > member.number:
            self._take(member, request, now)
        if request.leaves:
            self._leave(request.member)
        return MemberReply(
            now=now,
            stopped=request.job in self.stopped,
            paused=self.paused,
            held=member.held,
            pool=self._pool(),
            others=self.sums.unspent.plus(_unspent(member), -1.0).most(NOTHING),
            members=self.sums.live,
            past=self.past.plus(self.sums.lost.counts, self.sums.lost.charged),
            is_new=is_new,
        )

    def order(self, kind: str, now: float) -> None:
        """``stop``, ``pause`` or ``resume``: for all members, and those of the same jobs that come later."""
        self.seen_at = max(self.seen_at, now)
        if kind == "stop":
            jobs = {member.job: None for member in self.members.values()}
            self.stopped = list({**dict.fromkeys(self.stopped), **jobs})[-MOST_STOPPED:]
        self.paused = kind == "pause" if kind != "stop" else False

    # ------------------------------------------------------------------ one member

    def _take_over(self, request: MemberRequest, now: float) -> None:
        """The store has lost its data, and this is the first member to report: it knows what was ordered."""
        self.grants_from = now + REJOIN_FOR
        self.paused, self.caps = request.paused, request.caps
        if request.stopped:
            self.stopped = [request.job]

    def _join(self, request: MemberRequest) -> None:
        """An order to stop ends with its job, and one for members that name no job with the last of them."""
        if request.number == 1:
            self.caps = request.caps
            if not request.job and not self.sums.live and "" in self.stopped:
                self.stopped.remove("")

    def _take(self, member: Member, request: MemberRequest, now: float) -> None:
        sums, charged, unspent = self.sums, member.charged, _unspent(member)
        member.job, member.number, member.seen_at = request.job, request.number, now
        member.counts, member.spent, member.held = request.counts, request.spent, request.held
        member.in_flight, member.rate = request.in_flight, request.rate
        member.detail = request.detail or member.detail
        sums.charged = sums.charged.plus(charged, -1.0).plus(member.charged)
        grant = NOTHING if request.leaves else self._grant(request, now)
        member.held = member.held.plus(grant)
        sums.charged = sums.charged.plus(grant)
        sums.unspent = sums.unspent.plus(unspent, -1.0).plus(_unspent(member))

    def _grant(self, request: MemberRequest, now: float) -> Amount:
        """All that the next row needs, of tokens and of money, or nothing: a part of it would help no member."""
        if now < self.grants_from:
            return NOTHING
        pool = self._pool()
        granted = [
            0.0 if cap < 0.0 else _share(left, need, want, self.sums.live)
            for cap, left, need, want in zip(self.caps, pool, request.need, request.want, strict=True)
        ]
        return NOTHING if min(granted) < 0.0 else Amount(*granted)

    def _pool(self) -> Amount:
        used = self.past.charged.plus(self.sums.charged)
        return Amount(*(NO_CAP if cap < 0.0 else max(0.0, cap - one) for cap, one in zip(self.caps, used, strict=True)))

    def _leave(self, name: str) -> None:
        member = self.members.pop(name)
        self.past = self.past.plus(member.counts, member.spent)
        self.sums.live = max(0, self.sums.live - 1)
        self.sums.charged = self.sums.charged.plus(member.charged, -1.0)
        self.sums.unspent = self.sums.unspent.plus(_unspent(member), -1.0)
        member.held = member.spent

    # ------------------------------------------------------------------ all members

    def _sweep(self, now: float) -> None:
        sums = Sums(swept_at=now)
        for name, member in list(self.members.items()):
            silent = now - member.seen_at
            if silent > FOLD_AFTER:
                del self.members[name]
                self.past = self.past.plus(member.counts, member.charged)
                continue
            sums.charged = sums.charged.plus(member.charged)
            if silent > self.lost_after:
                sums.lost = sums.lost.plus(member.counts, member.charged)
            else:
                sums.live += 1
                sums.unspent = sums.unspent.plus(_unspent(member))
        self.sums = sums

    def view(self, run: str, now: float) -> FleetRunView:
        now = max(self.seen_at, now)
        counts, charged = self.past.counts, self.past.charged
        for member in self.members.values():
            counts, charged = counts.plus(member.counts), charged.plus(member.charged)
        return FleetRunView(
            run=run,
            now=now,
            began_at=self.began_at,
            seen_at=self.seen_at,
            caps=self.caps,
            counts=counts,
            charged=charged,
            paused=self.paused,
            stopped=bool(self.stopped) and all(member.job in self.stopped for member in self.members.values()),
            members=tuple(self._member_view(name, member, now) for name, member in sorted(self.members.items())),
        )

    def _member_view(self, name: str, member: Member, now: float) -> FleetMemberView:
        return FleetMemberView(
            name=name,
            seen_ago=max(0.0, now - member.seen_at),
            is_lost=now - member.seen_at > self.lost_after,
            counts=member.counts,
            spent=member.spent,
            held=member.held,
            in_flight=member.in_flight,
            rate=member.rate,
            detail=member.detail,
            job=member.job,
        )


def _unspent(member: Member) -> Amount:
    return member.charged.plus(member.spent, -1.0)


def _share(left: float, need: float, want: float, live: int) -> float:
    """Below 0 if what is left does not do."""
    if need > left:
        return -1.0
    return max(need, min(want, left / (SHARES * max(1, live))))
