"""How many calls may be in flight where a server refuses a crowd.

``ConcurrencyCap`` tells a cap on calls in flight from a quota, and keeps just below it. A quota refuses at any depth. A
cap always refuses at the same one, and never lets a deeper call in: that shows at once where it is deep. A shallow one
is blurred by the calls that are under way, and shows in that as many were let in of the first volley, or that those it
refuses are crowded, and those it lets in at the same pace are not. Then the pace is left free and the depth is held; a
little more is tried every period, as the budget of refusals allows, and at once twice as much while tries succeed. The
depth at which a try is refused tells where the cap is now; one that fell is sought between what is fine and what was
refused.

    off --refused at one depth, or in a crowd, again and again--> on --refused where it was fine--> off for a while
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import Enum
from math import exp, log
from typing import NamedTuple

from ...core.decision import NEVER
from .pace_curve import BUDGET
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

LESS_DEEP = 0.75
"""A probe that is refused below this share of the depth at which others were shows that it is no cap."""

ALIKE = 1e-4
"""Crowds that differ by less are the same."""

FIRST_PERIOD, FIRST_SHARE = 3.0, 0.7
"""Seconds at the cap before a little more is tried, at least, and this share of what the budget asks for."""

MISSES = 4
"""Refusals at depths that were fine, in a row, after which it was no cap."""

MOST_REFUSED, TO_JUDGE = 0.012, 10
"""A cap that is kept is refused less often than this share of the calls, tries apart; judged from so many on."""

SHRINK, SOONER = 0.9, 0.85
"""What is left of a cap that refuses again where it was fine, and its square the third time; and of the period until
more is tried: others may share it."""

TRY_CALLS, SHORTEST_TRY, TRY_TRIPS = 8, 0.5, 4.0
"""Calls that leave, seconds, and trips of a refusal, after which a try that was not refused has succeeded."""

UNDER_WAY, MOST_UNDER_WAY = 0.7, 8.0
"""The share of the calls of a trip by which the depth of a refusal exceeds the cap: their places are free already, and
the answers under way. So many of them let in a call beyond the cap, and a first try takes longer to tell."""

SILENT = 0.02
"""The share of the work that may be lost to the silences that tries are answered with."""

AT_ONCE = 1
"""Turns of the calls in flight within which a cap that fell refuses again; later it is others who share it."""

CLIMB = 4
"""A try that succeeded and went further by so much ends a climb."""

ROOM = 16
"""Between a cap that is fine and one that is refused a try is worth it where they differ by this part, and by one."""

TRIAL, TRIAL_CALLS = 2, 32
"""Refusals in the first period at a cap that end it (the first may mean that it is one less); its calls at least."""

FIRST_REST = 60.0
"""Seconds before looking for a cap again after a mistake; doubles with each."""

MOST_REST_DOUBLINGS = 10


class Refusal(NamedTuple):
    """What is known of a refusal while a cap is on."""

    seq: int
    latest: int
    """The last call sent."""
    depth: int
    throughput: float
    """Calls a second that get done."""
    cost: float
    """Refusals that a look costs."""
    floor: float
    """Seconds that the server asks to wait, or 0."""
    trip: float
    """Seconds that a refusal takes to come back, and next, that an answer takes."""
    latency: float


class Verdict(Enum):
    MINE = "handled"
    NOT_MINE = "not a cap"
    LET_GO = "no cap after all"


@dataclass(slots=True, eq=False, kw_only=True)
class ConcurrencyCap(Storable):
    added = 4

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
    too_deep: int = 0
    """The least cap known to be refused, while there is room for a try below it; else 0."""
    climbed: bool = False
    """Whether tries in a row have succeeded since the last period that began without one."""

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
        """A call leaves as number ``depth``; try a little more after a period, or at once between two known caps.

        True where a trial ends, and it is time to ask whether it is a cap.
        """
        if depth < self.cap - 1 or self.told:
            return False
        self.age += dt
        if self.trial and seq - self.refused_since < TRIAL_CALLS:
            return False
        trying, calls = self.cap > self.fine, seq - self.cut_seq
        under_way = min(trip * calls / self.age, MOST_UNDER_WAY) if self.step == 1 and self.age else 0.0
        is_tried = calls >= TRY_CALLS * exp(under_way) and self.age > max(SHORTEST_TRY, TRY_TRIPS * trip)
        is_quick = bool(self.too_deep) or (trying and not self.misses)
        if self.age <= self.period and not (is_tried and is_quick):
            return False
        on_trial, self.trial = bool(self.trial), 0
        if self.too_deep:
            self._leave_room(self.too_deep, self.cap)
            self.step = max(0, self.too_deep - self.cap) // 2
        else:
            self.misses, self.climbed = (0, self.step >= CLIMB) if trying else (self.misses, False)
            self.step = 2 * self.step if trying else 1
        self.fine, self.cap = self.cap, self.cap + self.step
        self.age, self.cut_seq = 0.0, seq - 1  # that call may be overtaken, and refused in place of the next
        return on_trial

    def refused(self, refusal: Refusal, now: float) -> Verdict:
        """A refusal while the cap is on."""
        seq, latest, depth, throughput, cost, floor, trip, latency = refusal
        if seq <= self.cut_seq:
            return Verdict.MINE
        if self.trial:
            return self._refused_on_trial(depth, latest, now)
        trying = self.cap > self.fine
        self.refusals += not trying
        too_many = self.refusals >= TO_JUDGE and self.refusals > MOST_REFUSED * (seq - self.refused_since)
        if trying and not too_many:
            self.misses = max(0, self.misses - 1)
            too_deep = min(self.cap, max(depth, self.fine) + 1)
            self.cap = self.fine = max(self.fine, int(min(depth, self.cap - 1) - UNDER_WAY * throughput * trip))
            affordable = max(
                cost / (BUDGET * max(0.1, throughput)), floor * floor / (floor + 2.0 * latency or 1.0) / SILENT
            )
            self.period = max(min(self.period * 1.6, affordable), FIRST_PERIOD, FIRST_SHARE * affordable)
        else:
            fell = seq - self.cut_seq <= AT_ONCE * self.cap
            too_deep = self.cap if fell else 0
            self.misses += 1
            too_many = too_many or (fell and self.climbed and self.misses > 1)  # a bucket lets in what it has saved up
            shrunk = max(1, min(self.cap - 1, int(self.cap * SHRINK ** (self.misses - 1))))
            if too_many or self.misses > MISSES or 4 * shrunk < self.found or self.cap == 1:
                return self.let_go(now)
            self.cap = self.fine = shrunk
            self.period = max(FIRST_PERIOD, SOONER * self.period)
        self._leave_room(too_deep, self.fine)
        self.step, self.age, self.cut_seq = 1, 0.0, latest
        return Verdict.MINE

    def _leave_room(self, too_deep: int, fine: int) -> None:
        """Remember a cap that was refused, if there is room for a try below it."""
        self.too_deep = too_deep if too_deep - fine > 1 + fine // ROOM else 0

    def _refused_on_trial(self, depth: int, latest: int, now: float) -> Verdict:
        """A quota refuses in the first period again, and not only at the cap."""
        self.trial = self.trial - 1 if depth >= self.cap - _blur(self.cap) else 0
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
        so that it may pass by chance, or where the server says how long to wait, which quotas do.
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
        blur = _blur(high) if low > SHALLOWEST else 0
        if len(seen) < 2 + doubts or low < SHALLOWEST or not equal or deepest > high + blur:
            return Verdict.NOT_MINE
        return self._begin(low, latest)

    def refuse_shallower(self, depth: int) -> None:
        """A probe was refused at this depth: where deeper ones were let in, it is no cap that refuses."""
        if self.depths and depth < LESS_DEEP * self.depths[-1]:
            self.depths = ()

    def allow_for(self, calls: float) -> None:
        """A cap that was just seen is less by the answers that are under way."""
        if self.cap >= SHALLOW:
            self.cap = self.fine = self.found = int(self.cap - min(UNDER_WAY * calls, self.cap // ROOM))

    def _begin(self, cap: int, latest: int) -> Verdict:
        self.on = True
        self.cap = self.fine = self.found = cap
        self.period, self.age, self.misses, self.step, self.cut_seq = FIRST_PERIOD, 0.0, 0, 1, latest
        self.refusals, self.refused_since, self.too_deep, self.climbed = 0, latest, 0, False
        self.evidence, self.trial = 0.0, TRIAL if cap > SHALLOWEST else 1
        return Verdict.MINE


def _blur(depth: int) -> int:
    """By how much the depth of a refusal may differ from the cap: calls overtake each other, answers are under way."""
    return 2 + depth // 8
