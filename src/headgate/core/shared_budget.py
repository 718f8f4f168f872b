"""Which credentials turn out to share one budget: by the counters in their answers, and by refusals that go together.

    key-1: 97 left, key-2: 96 left, key-1: 95 left     the calls of both are taken off one counter
    key-1: 97 left, key-2: 97 left, key-1: 96 left     each has its own

Headers name an organisation, and a project or a workspace in it. A credential's counter falls by its own calls and, if
it is shared, by those of the others of its scope. The narrowest scope of which that holds makes a group. Where no
counter is told, credentials are proposed as a group when calls that start right after the other's refusal are refused
too. All that is kept is counts; it is bounded by the number of credentials.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from .decision import NEVER, Outcome

if TYPE_CHECKING:
    from .credential_pool import Pool, PoolEntry
    from .signal import Limit, Signal

ENOUGH = 12
"""Calls of the others before counters are judged, and again after as many more."""
UNSURE = 0.25
"""How far what counters fell may be from those calls."""
SURE = 3
"""Refusals that went together, for each that did not."""
REFUSALS_ENOUGH = 8
"""Refusals that went together before a group is proposed."""
RIGHT_AFTER = 1.0
"""Seconds after a refusal in which another call's fate says something, where the server does not say for how long."""
LONGEST_AFTER = 5.0
GROUPINGS = ("headers", "auto", "off")
MOST_PAIRS = 1_000
MOST_SCOPES = 100

S = TypeVar("S", bound="PoolEntry")
Account = tuple[str, ...]
"""Names of a scope, the widest first: an organisation, and a project or a workspace in it."""


class Finding(NamedTuple):
    """Credentials that share a budget."""

    labels: tuple[str, ...]
    scope: str
    """The organisation, project or workspace; empty where only refusals tell."""


class Evidence:
    __slots__ = ("against", "for_it", "is_told")

    def __init__(self) -> None:
        self.for_it = self.against = 0
        self.is_told = False
        """Whether it was acted on."""

    def is_enough(self, enough: int) -> bool:
        return not self.is_told and self.for_it >= max(enough, SURE * self.against)


@dataclass(slots=True)
class ScopeEvidence:
    """How far counters of a scope fell beyond the calls of their own credentials, and how many calls the others made.

    Answers come out of order, so single ones say little. In the sums they are off by the calls in flight at most: that
    may look like the calls of the others once, but does not grow with them. So it is judged twice.
    """

    fell: float = 0.0
    calls: int = 0
    is_likely: bool = False
    is_told: bool = False

    def add(self, fell: float, calls: int) -> bool:
        """True once, when enough is known to say that the scope shares its counter."""
        self.fell += fell
        self.calls += calls
        if self.is_told or self.calls < (2 * ENOUGH if self.is_likely else ENOUGH):
            return False
        agrees = abs(self.fell - self.calls) <= UNSURE * self.calls
        self.is_told, self.is_likely = agrees and self.is_likely, agrees
        if not agrees:
            self.fell, self.calls = 0.0, 0
        return self.is_told


@dataclass(slots=True)
class Counter:
    """What the answers with one credential have said last."""

    account: Account = ()
    limit: float = 0.0
    remaining: float = 0.0
    reset: float = 0.0
    heard_at: float = NEVER
    not_a_window: float = 0.0
    """Seconds by which its resets were off from those of a window, which count down."""
    not_a_bucket: float = 0.0
    """And from those of a bucket, which follow its level. One answer that was on its way for long tells them apart
    badly; all of them together do."""
    answers: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    """How many answers the others had by then."""
    refused_at: float = NEVER
    refused_for: float = RIGHT_AFTER


class SharedBudgets:
    """Listens to the answers with several credentials of one provider."""

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}
        self._scopes: dict[Account, ScopeEvidence] = {}
        self._pairs: dict[tuple[str, str], Evidence] = {}
        self._refused_at = NEVER

    def hear(self, label: str, signal: Signal, sent_at: float, now: float) -> Finding | None:
        """Take an answer to a call with this credential; what has just become clear, if anything has."""
        counter = self._counters.setdefault(label, Counter())
        counter.answers += 1
        told = next((one for one in signal.limits if one.dimension == "requests" and one.remaining is not None), None)
        found = None
        if signal.account and told is not None and told.limit:
            found = self._count(label, counter, signal.account, told, now)
        return found or self._note_refusal(label, counter, signal, sent_at, now)

    # ------------------------------------------------------------------ counters

    def _count(self, label: str, counter: Counter, account: Account, told: Limit, now: float) -> Finding | None:
        limit, left = told.limit or 0.0, told.remaining or 0.0
        was, fell = counter.remaining, counter.remaining - left
        is_same = counter.account == account and counter.limit == limit
        before, passed = counter.seen, now - counter.heard_at
        counter.account, counter.limit, counter.remaining, counter.heard_at = account, limit, left, now
        others = {name: one for name, one in self._counters.items() if name != label}
        counter.seen = {name: one.answers for name, one in others.items()}
        refilled, counter.reset = self._refilled(counter, told, limit - was, passed), told.reset or 0.0
        if not is_same or fell + refilled < 0.0:
            return None
        found = None
        for width in range(len(account), 0, -1):
            scope = account[:width]
            calls = sum(
                one.answers - before.get(name, one.answers)
                for name, one in others.items()
                if one.account[:width] == scope and one.limit == limit
            )
            if calls and (scope in self._scopes or len(self._scopes) < MOST_SCOPES):
                evidence = self._scopes.setdefault(scope, ScopeEvidence())
                if found is None and evidence.add(fell + refilled - 1, calls):
                    members = [name for name, one in self._counters.items() if one.account[:width] == scope]
                    found = Finding(tuple(members), scope[-1])
        return found

    @staticmethod
    def _refilled(counter: Counter, told: Limit, used_before: float, passed: float) -> float:
        """What has come back since the answer before: nothing in a window, a bucket refills all the time."""
        used, reset = (told.limit or 0.0) - (told.remaining or 0.0), told.reset or 0.0
        if 0.0 < used_before <= used:  # else a window has ended, or it is the first answer
            counter.not_a_window += abs(reset - (counter.reset - passed))
            counter.not_a_bucket += abs(reset - counter.reset * used / used_before)
        return used / reset * passed if reset > 0.0 and counter.not_a_bucket < counter.not_a_window else 0.0

    # ------------------------------------------------------------------ refusals

    def _note_refusal(self, label: str, counter: Counter, signal: Signal, sent_at: float, now: float) -> Finding | None:
        is_refused = signal.outcome is Outcome.RATE_LIMITED
        found = None
        if sent_at <= self._refused_at + LONGEST_AFTER and (is_refused or signal.outcome is Outcome.OK):
            for name, other in self._counters.items():
                if name == label or not other.refused_at < sent_at <= other.refused_at + other.refused_for:
                    continue
                pair = (name, label) if name < label else (label, name)
                if pair not in self._pairs and len(self._pairs) >= MOST_PAIRS:
                    continue
                evidence = self._pairs.setdefault(pair, Evidence())
                evidence.for_it += is_refused
                evidence.against += not is_refused
                if evidence.is_enough(REFUSALS_ENOUGH):
                    evidence.is_told, found = True, Finding(pair, "")
        if is_refused:
            counter.refused_at = self._refused_at = now
            counter.refused_for = min(signal.retry_after or RIGHT_AFTER, LONGEST_AFTER)
        return found


class Groups(Generic[S]):
    """Applies what was found to a pool: its members rest together, and keep one pace."""

    def __init__(self, pool: Pool[S], mode: str) -> None:
        """``mode``: "headers" joins what headers show and proposes the rest, "auto" joins both, "off" neither."""
        self._pool, self._mode = pool, mode
        self._own = {slot.label for slot in pool.slots if slot.group is not None}
        """Credentials whose group was given: that stands."""
        self._budgets = SharedBudgets() if mode != "off" and len(pool.slots) > 1 else None
        self.changes = 0
        """How often credentials were joined; who keeps what follows from groups looks at this."""

    def hear(self, slot: S, signal: Signal, sent_at: float, now: float) -> tuple[Finding, bool] | None:
        """What was found, and whether it is used from now on."""
        if self._budgets is None or (not signal.limits and signal.outcome not in (Outcome.OK, Outcome.RATE_LIMITED)):
            return None
        found = self._budgets.hear(slot.label, signal, sent_at, now)
        if found is None:
            return None
        members = [self._pool.by_label[label] for label in found.labels]
        members = [one for one in members if one.label not in self._own]
        if len({id(one.limit_group) for one in members}) < 2:
            return None
        is_used = bool(found.scope) or self._mode == "auto"
        if is_used:
            self._join(members, found.scope or members[0].label)
        return Finding(tuple(one.label for one in members), found.scope), is_used

    def _join(self, members: list[S], name: str) -> None:
        """What is known of one of them from now on holds for all: the longest rest, the smallest budget."""
        joined = members[0].limit_group
        for group in {id(one.limit_group): one.limit_group for one in members[1:]}.values():
            if group is joined:
                continue
            joined.until = max(joined.until, group.until)
            joined.refusals = max(joined.refusals, group.refusals)
            joined.probe = joined.probe or group.probe
            self._pool.spend.join(joined, group)
            if group.budget < joined.budget:
                joined.budget, joined.budget_until = group.budget, group.budget_until
            for member in group.members:
                member.limit_group = joined
                joined.members.append(member)
        for member in joined.members:
            member.group = name
        self.changes += 1
