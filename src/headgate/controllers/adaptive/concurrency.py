"""How many calls may be in flight where a server refuses a crowd.

``ConcurrencyCap`` tells a cap on calls in flight from a quota, and keeps just below it. A quota refuses at any depth. A
cap always refuses at the same one, and never lets a deeper call in: that shows at once where it is deep. A shallow one
is blurred by the calls that are under way, and shows in that those it refuses are crowded, and those it lets in at the
same pace are not. Then the pace is left free and the depth is held; a little more is tried every period, as the budget
of refusals allows, and soon twice as much while tries succeed.

    off --refused at one depth, or in a crowd, again and again--> on --refused where it was fine--> off for a while
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import Enum
from math import log

from ...core.decision import NEVER
from .growth_probe import BUDGET, PENALTY_BUDGET
from .state import Storable, no_singles

SHALLOWEST, SHALLOW = 2, 8
"""Depths below the first happen to every quota: equal ones prove nothing, and at the first only if nothing deeper was
let in. Below the second a crowd may."""

KEPT = 4
"""Depths of refusals that are compared."""

EXACT_ENOUGH = 1
"""Equal measurements in a row that rule a cap out for now."""

LET_IN, ENOUGH_LET_IN = 64, 16
"""Calls let in recently whose crowd is remembered, and how many it takes to compare with."""

SURPRISE, CERTAIN = 1.5, 4.0
"""A refusal is evidence of a cap by the logarithm of how rarely calls were let in in such a crowd, above the first
(a quota's gives 1 on average), and so much of it is enough."""

COMMON = 0.3
"""When this share of the calls let in were as crowded as the one refused, it is no cap that refuses."""

NEARLY = 0.06
"""The share of a depth within which another is equal."""

ALIKE = 1e-4
"""Crowds that differ by less are the same."""

FIRST_PERIOD, FIRST_SHARE = 3.0, 0.3
"""Seconds at the cap before a little more is tried, at least, and this share of what the budget asks for."""

MISSES = 4
"""Refusals at depths that were fine, in a row, after which it was no cap."""

MOST_REFUSED, TO_JUDGE = 0.012, 10
"""A cap that is kept is refused less often than this share of the calls, tries apart; judged from so many on."""

SHRINK, SOONER = 0.75, 0.7
"""What is left of a cap that refuses where it was fine, and of the period until more is tried: others may share it."""

SHRUNK, SETTLED = 0.85, 8.0
"""The share of a cap below which it has shrunk, and the period, in seconds, at which others who shared it are gone."""

TRIAL, TRIAL_CALLS = 2, 32
"""Refusals in the first period at a cap that end it (the first may mean that it is one less); its calls at least."""

FIRST_REST = 60.0
"""Seconds before looking for a cap again after a mistake; doubles with each."""

MOST_REST_DOUBLINGS = 10


class Verdict(Enum):
    MINE = "handled"
    NOT_MINE = "not a cap"
    LET_GO = "no cap after all"


@dataclass(slots=True, eq=False, kw_only=True)
class ConcurrencyCap(Storable):
    added = 2

    age: float = 0.0
    """Seconds spent at the cap since it last moved."""
    cap: int = 0
    common: bool = False
    """Whether calls are let in in crowds like that of the last one refused."""
    cut_seq: int = 0
    depths: tuple[int, ...] = ()
    evidence: float = 0.0
    fine: int = 0
    """The greatest depth known to be let in."""
    found: int = 0
    """The cap as it was first seen; what shrinks to a quarter of it was none."""
    let_in: array[float] = field(default_factory=no_singles)
    """The crowds, depth over pace, in which calls were let in recently."""
    let_in_at: int = 0
    """The place of the next of them."""
    misses: int = 0
    mistakes: int = 0
    on: bool = False
    period: float = FIRST_PERIOD
    refusals: int = 0
    """Refusals while it is on."""
    refused_since: int = 0
    """The call they are counted from."""
    rest_until: float = NEVER
    step: int = 1
    """How much more the next try takes: it doubles while tries succeed."""
    told: int = 0
    """The cap as the server's headers state it; 0 where they do not."""
    trial: int = 0
    """Refusals that still speak for another cap, in the first period of one; 0 when it is over."""

    def hear(self, places: int, latest: int, now: float) -> None:
        """The server says how many places it has: no more is tried than that."""
        if places == self.told or now < self.rest_until:
            return
        self.told = places
        if not self.on:
            self._begin(places, latest)
        self.cap = self.fine = self.found = places
        self.cut_seq, self.trial = latest, 0

    def served(self, crowd: float) -> None:
        """A call that left at a steady pace was let in."""
        if len(self.let_in) < LET_IN:
            self.let_in.append(crowd)
        else:
            self.let_in[self.let_in_at] = crowd
            self.let_in_at = (self.let_in_at + 1) % LET_IN

    def weigh(self, crowd: float, depth: int) -> None:
        """A call that left at a steady pace was refused: are others let in in such a crowd?

        One that was refused deep, above any shallow cap, is no evidence of one.
        """
        self.common = False
        if len(self.let_in) < ENOUGH_LET_IN:
            return
        as_crowded = sum(other > crowd * (1.0 + ALIKE) for other in self.let_in)
        alike = sum(abs(other - crowd) <= crowd * ALIKE for other in self.let_in)
        share = (as_crowded + 0.5 * alike + 0.5) / (len(self.let_in) + 1)
        self.common = share > COMMON
        if depth < SHALLOW:
            self.evidence = max(0.0, self.evidence - log(share) - SURPRISE)

    def rest(self) -> None:
        """Forget what was let in recently: it is old when calls come again."""
        self.let_in, self.let_in_at = array("f"), 0

    def grow(self, dt: float, depth: int, seq: int, trip: float) -> bool:
        """A call leaves as number ``depth``; after a period at the cap, try a little more.

        True where it is time to ask whether it is one: a trial ends, or it had to shrink and refuses tries alone since.
        """
        if depth < self.cap - 1 or self.told:
            return False
        self.age += dt
        trying = self.cap > self.fine
        if self.trial and seq - self.refused_since < TRIAL_CALLS:
            return False
        if self.age <= (max(0.5, 4.0 * trip) if trying and self.step > 1 else self.period):
            return False
        shrunk = self.fine < SHRUNK * self.found and not self.misses and self.period > SETTLED
        doubted, self.trial = shrunk or bool(self.trial), 0
        self.step = 2 * self.step if trying else 1
        self.fine = self.cap
        self.cap += max(self.step, self.cap // 50)
        self.misses = 0 if trying else self.misses
        self.age, self.cut_seq = 0.0, seq
        return doubted

    def refused(self, seq: int, latest: int, throughput: float, cost: float, now: float, floor: float = 0.0) -> Verdict:
        """A refusal while the cap is on, for ``floor`` seconds."""
        if seq <= self.cut_seq:
            return Verdict.MINE
        if self.trial:
            return self._refused_on_trial(latest, now)
        trying = self.cap > self.fine
        self.refusals += not trying
        too_many = self.refusals >= TO_JUDGE and self.refusals > MOST_REFUSED * (seq - self.refused_since)
        if trying and not too_many:
            self.misses = max(0, self.misses - 1)
            self.cap = self.fine
            affordable = max(cost / (BUDGET * max(0.1, throughput)), floor / PENALTY_BUDGET)
            self.period = max(min(self.period * 1.6, affordable), FIRST_PERIOD, FIRST_SHARE * affordable)
        else:
            self.misses += 1
            shrunk = max(1, min(self.cap - 1, int(SHRINK * self.cap)) if self.misses > 1 else self.cap - 1)
            if too_many or self.misses > MISSES or 4 * shrunk < self.found or self.cap == 1:
                return self.let_go(now)
            self.cap = self.fine = shrunk
            self.period = max(FIRST_PERIOD, SOONER * self.period)
        self.step, self.age, self.cut_seq = 1, 0.0, latest
        return Verdict.MINE

    def _refused_on_trial(self, latest: int, now: float) -> Verdict:
        """A quota refuses in the first period again, and not only at the cap."""
        self.trial -= 1
        if not self.trial:
            self.let_go(now)
            return Verdict.NOT_MINE
        self.cap = self.fine = self.found = self.cap - 1
        self.age, self.cut_seq = 0.0, latest
        return Verdict.MINE

    def let_go(self, now: float) -> Verdict:
        """It was no cap; look for one again after a rest."""
        self.on, self.misses, self.depths, self.told = False, 0, (), 0
        self.rest_until = now + FIRST_REST * 2.0 ** min(self.mistakes, MOST_REST_DOUBLINGS)
        self.mistakes += 1
        return Verdict.LET_GO

    def suspect(self, depth: int, deepest: int, exact: int, latest: int, now: float, doubts: int = 0) -> Verdict:
        """A refusal that is news while the cap is off: does it always happen at this depth?

        ``deepest`` is the greatest depth at which a call was let in recently; ``exact`` how often in a row the
        quota was measured to be the same number, which speaks for a quota. A quota may be refused at one depth twice,
        too, so a cap begins on trial. It must show as often again as there are ``doubts``: one where others share it,
        so that it may pass by chance, and two where the server says how long to wait, which quotas do.
        """
        if now < self.rest_until:
            return Verdict.NOT_MINE
        self.depths = (*self.depths, depth)[-KEPT:]
        if self.evidence >= CERTAIN and depth < SHALLOW:
            return self._begin(max(1, min(self.depths)), latest)
        if exact >= EXACT_ENOUGH or self.common:
            return Verdict.NOT_MINE
        seen = self.depths[-2 - doubts :]
        low, high = min(seen), max(seen)
        equal = high - low <= (0 if depth < SHALLOW else max(1, int(NEARLY * depth)))
        blur = 2 + high // 8 if low > SHALLOWEST else 0
        if len(seen) < 2 + doubts or low < SHALLOWEST or not equal or deepest > high + blur:
            return Verdict.NOT_MINE
        return self._begin(low, latest)

    def _begin(self, cap: int, latest: int) -> Verdict:
        self.on = True
        self.cap = self.fine = self.found = cap
        self.period, self.age, self.misses, self.step, self.cut_seq = FIRST_PERIOD, 0.0, 0, 1, latest
        self.refusals, self.refused_since = 0, latest
        self.evidence, self.trial = 0.0, TRIAL if cap > SHALLOWEST else 1
        return Verdict.MINE
