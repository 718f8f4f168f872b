"""Which credential goes next, and which must rest: the states of a pool, and nothing else.

    FREE --pick--> HELD --given back by the last holder--> FREE
                    | rate limited, or its account may not spend (its whole group), or
                    | quota used up (itself alone)
                    v
                 RESTING --its time is over, or an operator's word--> FREE
                    | not accepted any more (the last one: not by a mere 403)
                    v
                 RETIRED --an operator's word----------------------> FREE

A rest ends by time or by an operator: the longest wins. Answers to calls from before an operator's word are void.

An account that may not spend (``SpendRests``) is a group: its rest over, one call goes out with one of its
credentials, and all of them rest meanwhile, but for that call (``LimitGroup.probe``). A success ends that, in a new
era, of which other processes hear. A call that is given back without an answer has not asked: the next one may.

The least recently used goes first; of those whose budget is known only the one with the most left, and one that has
nothing left goes after all of which nothing is known. A pick is shared, by ``at_once`` callers where that is set; an
exclusive one takes only what has no holder, and then nothing else gets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Generic, TypeVar

from .cooldown import MOST_ESCALATIONS, SPEND_REST, UNTOLD_RESET, ExponentialCooldown, FixedCooldown, SpendRests
from .decision import INSTANT, LONGEST_WAIT, NEVER, UNKNOWN, Outcome
from .signal import Limit, Signal


class LimitGroup:
    """Credentials that share one limit: what they have in common. A credential without a group is one of its own."""

    __slots__ = ("budget", "budget_until", "members", "probe", "refusals", "until")

    def __init__(self) -> None:
        self.members: list[PoolEntry] = []
        self.refusals = 0
        """Refusals in a row that did not say for how long; what the silent rest grows by."""
        self.until = NEVER
        self.budget, self.budget_until = UNKNOWN, UNKNOWN
        """Calls that are left to all of them together, and until when that holds."""
        self.probe = 0
        """The pool's use that finds out whether the account can spend again, 0 if none does: their rest is not its."""


class PoolEntry:
    """One credential's place in the pool."""

    __slots__ = (
        "era",
        "exclusive",
        "freed_after",
        "group",
        "holders",
        "label",
        "limit_group",
        "reason",
        "retired",
        "until",
        "used",
    )

    def __init__(self, label: str, group: str | None = None) -> None:
        self.label, self.group = label, group
        self.limit_group = LimitGroup()
        self.holders = 0
        self.exclusive = False
        """Whether its one holder has it alone."""
        self.until = NEVER
        self.retired = False
        self.reason = ""
        """Why it rests or is retired, in a word of ours; never in the server's."""
        self.era = 0
        """How often an operator has brought it back; what was known in an older era is void."""
        self.freed_after = -1
        """The pool's use after which this era began: what is heard of earlier ones is of an older era."""
        self.used = 0
        """The pool's use that was its last."""

    @property
    def budget(self) -> float:
        """Calls that are left to its group."""
        return self.limit_group.budget

    def state(self, now: float) -> str:
        if self.retired:
            return "retired"
        if self.until > now + INSTANT:
            return "resting"
        return "held" if self.holders else "free"


BRIEFEST_BUDGET = 1.0
"""A budget that is whole again within a second is not worth going by."""
UNTOLD_BUDGET = 60.0
"""How long to go by a budget of which it is not known when it is whole again."""
SILENT_REST = ExponentialCooldown(base=0.25, factor=2.0, max=60.0)
"""How long to rest after a refusal that does not say for how long."""
_SPEND = Outcome.SPEND.value
_by_use = attrgetter("used")

S = TypeVar("S", bound=PoolEntry)


class Pool(Generic[S]):
    """All credentials of one provider. ``at_once``: how many may hold one at the same time (None: any number)."""

    def __init__(
        self,
        slots: Iterable[S],
        at_once: int | None = None,
        silent_rest: FixedCooldown | ExponentialCooldown = SILENT_REST,
    ) -> None:
        self.slots: Sequence[S] = tuple(slots)
        self.by_label = {slot.label: slot for slot in self.slots}
        self.at_once = at_once
        self.silent_rest = silent_rest
        self.free: dict[S, None] = dict.fromkeys(self.slots)
        """In the order of their use, the least recent first."""
        self.resting: dict[S, None] = {}
        self.back_at = UNKNOWN
        """When the first of the resting is back."""
        self.change_at = UNKNOWN
        """When something changes by itself: then ``turn`` is due."""
        self.spend = SpendRests()  # by their groups
        self._budgets = False
        """Whether any budget is known."""
        self._uses = 0
        groups: dict[str, LimitGroup] = {}
        for slot in self.slots:
            if slot.group is not None:
                slot.limit_group = groups.setdefault(slot.group, slot.limit_group)
            slot.limit_group.members.append(slot)

    # ------------------------------------------------------------------ taking and giving back

    def pick(self, now: float, prefer: str | None = None, *, exclusive: bool = False) -> S | None:
        """Take the one whose turn it is, or the preferred one if it is free. Call ``turn`` first if it is due.

        ``exclusive``: of those that have no holder, and until it is given back it has no other.
        """
        free = self.free
        if not free:
            return None
        if exclusive:
            slot = self._next_idle()
            if slot is None:
                return None
            slot.exclusive = True
        else:
            slot = None if prefer is None else self.by_label.get(prefer)
            if slot is None or slot not in free:
                slot = self._next(free) if self._budgets else next(iter(free))
        self._uses = slot.used = self._uses + 1
        if self._budgets:
            slot.limit_group.budget -= 1.0
        del free[slot]
        if not exclusive and slot.holders + 1 != self.at_once:
            free[slot] = None
        if self.spend and slot.limit_group in self.spend:  # it is to find out: all others wait for its answer
            slot.limit_group.probe = slot.used
            self.rest(self.group_of(slot), SPEND_REST, now, _SPEND)
        slot.holders += 1  # last, so that a signal handler that raises on the way takes nothing
        return slot

    def _next_idle(self) -> S | None:
        """Whose turn it is of those that have no holder."""
        for slot in self.free:
            if not slot.holders:
                return self._next(one for one in self.free if not one.holders) if self._budgets else slot
        return None

    def _next(self, slots: Iterable[S]) -> S:
        """Whose turn it is, where some budgets are known."""
        richest: S | None = None
        unknown: S | None = None
        for slot in slots:
            left = slot.limit_group.budget
            if left == UNKNOWN:
                unknown = unknown or slot
            elif richest is None or left > richest.limit_group.budget:
                richest = slot
        if richest is None or unknown is None:
            either = richest or unknown
            assert either is not None
            return either
        return unknown if richest.limit_group.budget < 1.0 or unknown.used < richest.used else richest

    def give_back(self, slot: S, use: int, *, is_answered: bool = False) -> None:
        """The call that was this ``use`` has ended and is no holder any more: file its credential as used last."""
        self.free.pop(slot, None)
        slot.exclusive = slot.exclusive and slot.holders > 0
        if self._may_be_free(slot):
            self._uses = slot.used = self._uses + 1
            self.free[slot] = None
        if slot.limit_group.probe == use:
            slot.limit_group.probe = 0
            if not is_answered:  # it has not found out: the next one may
                self._come_back(self._stopped(slot.limit_group))

    def _may_be_free(self, slot: S) -> bool:
        return not (slot.exclusive or slot.holders == self.at_once or slot.retired or slot in self.resting)

    def mend(self) -> None:
        """File every credential again, by the facts: a change was interrupted."""
        self.resting = {slot: None for slot in self.slots if slot.until != NEVER and not slot.retired}
        for slot in self.slots:
            slot.exclusive = slot.exclusive and slot.holders > 0
        in_order = sorted(self.slots, key=_by_use)
        self.free = dict.fromkeys(slot for slot in in_order if self._may_be_free(slot))
        self._budgets = True
        self._look_ahead()

    # ------------------------------------------------------------------ hearing

    def hear(self, slot: S, signal: Signal, sent_at: float, now: float, use: float = UNKNOWN) -> list[S]:
        """Take what an answer said, to the call that was this ``use``. Returns those that now rest or are retired."""
        outcome = signal.outcome
        changed: list[S] = []
        if use <= slot.freed_after:
            return changed
        if outcome is Outcome.RATE_LIMITED:
            changed = self.limit(slot, signal.retry_after, sent_at, now, use)
        elif outcome is Outcome.QUOTA_EXHAUSTED:
            told = signal.retry_after
            told = UNTOLD_RESET if told is None or told != told else told
            changed = self.rest((slot,), told, now, outcome.value)
        elif outcome is Outcome.SPEND:
            changed = self._stop_spending(slot, sent_at, now, use)
        elif outcome is Outcome.OK:
            self.worked(slot, sent_at)
        elif outcome in (Outcome.AUTH, Outcome.KEY_DEAD) and not (signal.is_forbidden and self._is_last(slot)):
            changed = self.retire(slot, outcome.value)
        if signal.limits:
            self.learn(slot, signal.limits, now)
        return changed

    def limit(self, slot: S, told: float | None, sent_at: float, now: float, use: float = UNKNOWN) -> list[S]:
        """A refusal rests the whole group: as long as was told, else longer with each in a row.

        Silent refusals of one burst are one event: those that were sent before its rest was over change nothing.
        """
        limit_group = slot.limit_group
        if told is None or told != told:
            if sent_at < limit_group.until:
                return []
            limit_group.refusals = min(limit_group.refusals + 1, MOST_ESCALATIONS)
            told = self.silent_rest.pause(limit_group.refusals)
        limit_group.until = max(limit_group.until, now + min(told, LONGEST_WAIT))
        members = (member for member in self.group_of(slot) if use > member.freed_after)
        return self.rest(members, told, now, Outcome.RATE_LIMITED.value)

    def _stop_spending(self, slot: S, sent_at: float, now: float, use: float) -> list[S]:
        """The account may not spend: its group rests until the next probe. Many answers of one burst are one event."""
        if not self.spend.stopped(slot.limit_group, sent_at, now):
            return []
        members = (member for member in self.group_of(slot) if use > member.freed_after)
        self.rest(members, SPEND_REST, now, _SPEND)
        return self._stopped(slot.limit_group)

    def worked(self, slot: S, sent_at: float) -> None:
        """A call with it has succeeded."""
        limit_group = slot.limit_group
        if sent_at >= limit_group.until:
            limit_group.refusals = 0
        if self.spend and self.spend.worked(limit_group, sent_at):
            self._begin_era(self._can_spend(limit_group))

    def _can_spend(self, limit_group: LimitGroup) -> list[S]:
        """The account can spend again. Returns those that do not rest any more."""
        back = self._stopped(limit_group)
        limit_group.probe = 0
        self.spend.forget(limit_group)
        self._come_back(back)
        return back

    def _stopped(self, limit_group: LimitGroup) -> list[S]:
        """Those that rest because the account cannot spend."""
        return [self.by_label[one.label] for one in limit_group.members if one.reason == _SPEND]

    def rest(self, slots: Iterable[S], seconds: float, now: float, reason: str) -> list[S]:
        """They are not given out for so long. A rest that lasts longer already stays. Returns those it has changed."""
        until = now + min(seconds, LONGEST_WAIT)
        changed = [slot for slot in slots if not slot.retired and until > max(slot.until, now) + INSTANT]
        for slot in changed:
            slot.until, slot.reason = until, reason
            self.resting[slot] = None
            self.free.pop(slot, None)
            if reason == _SPEND:
                self.spend.rests(slot.limit_group, now, until)
        self._look_ahead()
        return changed

    def turn(self, now: float) -> list[S]:
        """Bring back those that have rested, and forget budgets that are whole again. Returns those that are back."""
        due = now + INSTANT
        back = sorted((slot for slot in self.resting if slot.until <= due), key=attrgetter("until"))
        for slot in self.slots if self._budgets else ():
            if slot.limit_group.budget_until <= due:
                slot.limit_group.budget, slot.limit_group.budget_until = UNKNOWN, UNKNOWN
        self._come_back(back)
        return back

    def _come_back(self, slots: Sequence[S]) -> None:
        """They have rested, each in the order of its use."""
        for slot in slots:
            self.resting.pop(slot, None)
            slot.until, slot.reason = NEVER, ""
            if self._may_be_free(slot):
                self.free[slot] = None
        if slots:
            self.free = dict.fromkeys(sorted(self.free, key=_by_use))
        self._look_ahead()

    def retire(self, slot: S, reason: str) -> list[S]:
        """It is of no use any more. Returns it, unless that was known."""
        if slot.retired:
            return []
        slot.retired, slot.until, slot.reason = True, NEVER, reason
        self.resting.pop(slot, None)
        self.free.pop(slot, None)
        self._look_ahead()
        return [slot]

    def bring_back(self, slot: S) -> list[S]:
        """Reset by an operator: no rest, nothing known, and its account can spend. Returns those that were away."""
        back = self._can_spend(slot.limit_group)
        if self._reset(slot):
            back.append(slot)
        self._begin_era(back)
        return back

    def _reset(self, slot: S) -> bool:
        """No rest, not retired, nothing known. False if that is how it was."""
        limit_group, was_away = slot.limit_group, slot.retired or slot.until != NEVER
        slot.retired, limit_group.refusals, limit_group.until = False, 0, NEVER
        limit_group.budget, limit_group.budget_until = UNKNOWN, UNKNOWN
        self._come_back((slot,))
        return was_away

    def _begin_era(self, slots: Iterable[S]) -> None:
        for slot in slots:
            slot.era, slot.freed_after = slot.era + 1, self._uses

    def restore(self, slot: S, era: int, seconds: float, retired: bool, reason: str, now: float) -> list[S]:
        """Take what others know of it: a newer era as it is, of this one the longer rest. Returns as ``rest``."""
        if era < slot.era:
            return []
        if era > slot.era:
            if slot.reason == _SPEND and seconds <= 0.0 and not retired:
                self._can_spend(slot.limit_group)
            self._reset(slot)
            slot.era, slot.freed_after = era, self._uses
        return self.retire(slot, reason) if retired else self.rest((slot,), seconds, now, reason)

    def learn(self, slot: S, limits: Sequence[Limit], now: float) -> None:
        """Take what is said to be left to the group: of several budgets of requests, the one that has the least."""
        told = [limit for limit in limits if limit.dimension == "requests" and limit.remaining is not None]
        if not told:
            return
        least = min(told, key=lambda limit: limit.remaining or 0.0)
        lasts = UNTOLD_BUDGET if least.reset is None else least.reset
        if least.remaining is not None and lasts >= BRIEFEST_BUDGET:
            self.know(slot, least.remaining, now + lasts)

    def know(self, slot: S, left: float, until: float) -> None:
        """So many calls are left to its group until that instant, when it is full again."""
        slot.limit_group.budget, slot.limit_group.budget_until = left, until
        self._budgets = True
        self.change_at = min(self.change_at, until - INSTANT)

    # ------------------------------------------------------------------ looking ahead

    def may_come_any_moment(self) -> bool:
        """Whether a caller holds one that others could have next."""
        return any(slot.holders and not slot.retired and slot not in self.resting for slot in self.slots)

    def is_spent(self) -> bool:
        """Whether all are retired, so that no wait would help."""
        return all(slot.retired for slot in self.slots)

    def _is_last(self, slot: S) -> bool:
        """Whether all others are retired: then one 403, which may be about one request, takes it away from none."""
        return all(other.retired for other in self.slots if other is not slot)

    def group_of(self, slot: S) -> list[S]:
        return [self.by_label[member.label] for member in slot.limit_group.members]

    def _look_ahead(self) -> None:
        self.back_at = min((slot.until for slot in self.resting), default=UNKNOWN)
        ends = (
            min((slot.limit_group.budget_until for slot in self.slots), default=UNKNOWN) if self._budgets else UNKNOWN
        )
        self._budgets = ends != UNKNOWN
        self.change_at = min(self.back_at, ends) - INSTANT
