"""Tell a cap on calls in flight from a quota, and keep just below it.

A quota refuses at any depth. A cap always refuses at the same one, and never lets a deeper
call in: that shows at once where it is deep. A shallow one is blurred by the calls that are on the
road, and shows in that those it refuses are crowded, and those it lets in at the same pace are not.
Then the pace is left free and the depth is held; a little more is tried every period, as the budget
of refusals allows, and soon twice as much while tries succeed.

    off --refused at one depth, or in a crowd, again and again--> on --refused where it was fine--> off for a while
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import Enum
from math import log

from ...core.decision import NEVER
from .growth_probe import BUDGET
from .state import Storable, no_singles

SHALLOWEST, SHALLOW = 3, 8
"""Depths below the first happen to every quota: equal ones prove nothing. Below the second a crowd may."""

KEPT = 4
"""Depths of refusals that are compared."""

EXACT_ENOUGH = 1
"""Equal measurements in a row that rule a cap out for now."""

LET_IN, ENOUGH_LET_IN = 64, 16
"""Calls let in lately whose crowd is remembered, and how many it takes to compare with."""

SURPRISE, CERTAIN = 1.5, 4.0
"""A refusal is evidence of a cap by the logarithm of how rarely calls were let in in such a crowd, above the first
(a quota's gives 1 on average), and so much of it is enough."""

COMMON = 0.3
"""When this share of the calls let in were as crowded as the one refused, it is no cap that refuses."""

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

FIRST_REST = 60.0
"""Seconds before looking for a cap again after a mistake; doubles with each."""

MOST_REST_DOUBLINGS = 10


class Verdict(Enum):
    MINE = "handled"
    NOT_MINE = "not a cap"
    LET_GO = "no cap after all"


@dataclass(slots=True, eq=False, kw_only=True)
class ConcurrencyCap(Storable):
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
    """The crowds, depth over pace, in which calls were lately let in."""
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
        """Forget what was let in lately: it will not be lately when calls come again."""
        self.let_in, self.let_in_at = array("f"), 0

    def grow(self, dt: float, depth: int, seq: int, trip: float) -> None:
        """A call leaves as number ``depth``; after a period at the cap, try a little more."""
        if depth < self.cap - 1:
            return
        self.age += dt
        trying = self.cap > self.fine
        if self.age > (max(0.5, 4.0 * trip) if trying and self.step > 1 else self.period):
            self.step = 2 * self.step if trying else 1
            self.fine = self.cap
            self.cap += max(self.step, self.cap // 50)
            self.misses = 0 if trying else self.misses
            self.age, self.cut_seq = 0.0, seq

    def refused(self, seq: int, latest: int, throughput: float, cost: float, now: float) -> Verdict:
        """A refusal while the cap is on."""
        if seq <= self.cut_seq:
            return Verdict.MINE
        trying = self.cap > self.fine
        self.refusals += not trying
        too_many = self.refusals >= TO_JUDGE and self.refusals > MOST_REFUSED * (seq - self.refused_since)
        if trying and not too_many:
            self.misses = max(0, self.misses - 1)
            self.cap = self.fine
            affordable = cost / (BUDGET * max(0.1, throughput))
            self.period = max(min(self.period * 1.6, affordable), FIRST_PERIOD, FIRST_SHARE * affordable)
        else:
            self.misses += 1
            shrunk = max(1, min(self.cap - 1, int(SHRINK * self.cap)) if self.misses > 1 else self.cap - 1)
            if too_many or self.misses > MISSES or 4 * shrunk < self.found or self.cap == 1:
                self.on, self.misses, self.depths = False, 0, ()
                self.rest_until = now + FIRST_REST * 2.0 ** min(self.mistakes, MOST_REST_DOUBLINGS)
                self.mistakes += 1
                return Verdict.LET_GO
            self.cap = self.fine = shrunk
            self.period = max(FIRST_PERIOD, SOONER * self.period)
        self.step, self.age, self.cut_seq = 1, 0.0, latest
        return Verdict.MINE

    def suspect(self, depth: int, deepest: int, exact: int, steady: bool, latest: int, now: float) -> Verdict:
        """A refusal that is news while the cap is off: does it always happen at this depth?

        ``deepest`` is the greatest depth at which a call was let in lately; ``exact`` how often in a row the
        quota was measured to be the same number, which speaks for a quota. In a search, which is not ``steady``,
        every refusal comes at the greatest depth, whatever it is that refuses.
        """
        if now < self.rest_until:
            return Verdict.NOT_MINE
        self.depths = (*self.depths, depth)[-KEPT:]
        if self.evidence >= CERTAIN and depth < SHALLOW:
            return self._begin(max(1, min(self.depths)), latest)
        if exact >= EXACT_ENOUGH or self.common or not steady:
            return Verdict.NOT_MINE
        wanted, slack = (KEPT, 0) if depth < SHALLOW else (KEPT - 1, max(1, int(0.06 * depth)))
        seen = self.depths[-wanted:]
        low, high = min(seen), max(seen)
        if len(seen) < wanted or low < SHALLOWEST or high - low > slack or deepest > high + (slack > 0):
            return Verdict.NOT_MINE
        return self._begin(low, latest)

    def _begin(self, cap: int, latest: int) -> Verdict:
        self.on = True
        self.cap = self.fine = self.found = cap
        self.period, self.age, self.misses, self.step, self.cut_seq = FIRST_PERIOD, 0.0, 0, 1, latest
        self.refusals, self.refused_since = 0, latest
        self.evidence = 0.0
        return Verdict.MINE
