"""When to look for more, and how fast: what the pace does between two refusals.

    nothing known      doubles every quarter of a second, slower when fast, while calls wait for it
    quota measured     a flat cubic through it for a period, then a quick look well above:

        pace                      +--- the look: is more let through than the quota accrues?
                                  |         yes: it has grown, search upwards
             ____..........-----''          no: refused after a call or two, measure, begin again
           /
          0 ------------- period ---->  seconds since the cut in which calls waited

    ... of a window    no quick look: the curve creeps above the quota until a window is full
    ... of few calls   the same: a quick look tells little where next to nothing accrues in advance
    ... shared         ``SharingDetector``

A look that finds the old quota costs a refusal or two. So the period is what the budget of
refusals allows, longer where a refusal shuts a whole window or is punished, and short while the
measurements still move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .sharing_detector import SAME, YIELD, SharingDetector
from .state import Storable

FASTEST = 1e5
"""Calls a second that no search goes beyond."""

DOUBLING = 0.25
"""Seconds in which the pace doubles while nothing is known ..."""

LONGEST_SEARCH = 0.5
"""Seconds, and slots, by which a search advances at once."""

FAST, QUICK = 80.0, 0.01
"""... up to this pace; above it, in proportion slower: so many more are out when the first is refused. Fewer are where
answers take less than so many seconds, in proportion."""

SEEK_DOUBLING = 0.65
"""Seconds in which it doubles when the quota has grown."""

BUDGET = 0.0032
"""The share of calls that looking may cost in refusals once measurements agree."""

SLOW, LOG_SHARE = 30.0, 0.72
"""Calls a second below which the budget shrinks, to half of it: there the search weighs more in the sum. And its share
where a log is known, which tells its quota exactly."""

LOOK_COST = 1.5
"""Refusals that a look costs, before the first."""

RARELY, RARELY_AT_WINDOW, SLOW_BUDGET = 60.0, 100.0, 0.0085
"""Seconds between two looks at most, and at a window, as long as they cost no more than this share: a raised quota that
goes unnoticed for long costs far more than refusals that are few an hour."""

SPENT, LATER, SETTLED_LATER = 0.0085, 1.5, 1.8
"""Where more than this share of all calls was refused so far, looks at slow quotas are so many times as far apart; more
where the last measurements were the same number."""

SEARCH_BUDGET, SLOW_SEARCH_BUDGET, FEW_A_SECOND = 0.03, 0.012, 5.0
"""The budget while measurements still move; and below so many calls a second, where there are few in all."""

FELL, RETURNED, RETURN_BUDGET, RETURN_PENALTY, RETURN_LOOKS = 0.7, 0.85, 1.6, 2.0, 16
"""A quota below the first share of what it was may come back: until it is up to the second share again, looks may cost
so many times as much, in refusals and in penalties, for so many looks."""

SHORTEST_PERIOD, SETTLED_PERIOD, LONGEST_PERIOD = 1.5, 4.5, 1200.0

PENALTY_BUDGET, SHORT_PENALTY = 0.025, 2.0
"""The share of the time that may be lost to penalties for looking; and the seconds below which one is short, and leaves
open whether anything accrues in it."""

SWING, SLOW_SWING = 0.01, 0.03
"""How far below and above the quota the cubic starts and ends: before a quick look, and without one."""

SHORT_WINDOW = 2.0
"""Seconds of a window that is over as soon as it has refused, so that little is lost by going near what it holds."""

WINDOW_CALLS = 1.0
"""Calls above what a window holds that the curve goes to at least, so that one more shows."""

ROUGH_SWING, ROUGH_WINDOW_SWING = 0.1, 0.05
"""The same around a guess."""

MOST_EXCESS, LEAST_EXCESS, ROUGH_EXCESS = 0.15, 0.03, 0.2
"""How far above the quota a look goes."""

CREEP, SHORTEST_CREEP = 75.0, 10.0
"""Calls and seconds, or a window if that is longer, in which the curve goes as far above a window's quota as it began
below it."""

AT_RISK, ROUGH_AT_RISK = 1.0, 3.0
"""Calls above the quota that may be on their way when a look's first refusal comes back; and above a guess."""

LOG_EXCESS, LOG_CALLS = 0.02, 2.0
"""How far above what a log holds a look goes at least, as a share and in calls: so that one call more shows."""

LOG_DOUBLING = 0.3
"""The share of a log's length in which a search upwards doubles at most."""

FIRST_SPARED, SPARED_CALLS = 0.03, 0.4
"""The share of a log that is left unused at first, at most, and the calls."""

TELLING = 2.0
"""A look that is refused only after so many calls above the quota has told little."""

MOST_SLOW = 16
"""Periods to go without a quick look, at most, before one is tried again."""

LEAN, SHALLOW_LEAN = 0.2, 0.6
"""How far to lean from a measurement to the pace that was refused; more where little accrues in advance."""

EXACT = 0.02
"""Two measurements closer than this are the same number: a quota's are, the throughput at a cap wanders."""

SETTLED = 2
"""Measurements in a row that were the same number, after which looks are as rare as they may be."""

GUESSED = 24.0
"""Calls after which to look whether a guess was too low."""

SLOWEST_QUOTA = 1e-3
"""Calls a second: a measurement below it is taken for it."""

GOLDEN = 0.6180339887498949
"""Multiples of it fill an interval evenly."""


def search_doubling(pace: float, latency: float = QUICK) -> float:
    """Seconds to double in while nothing is known; not before a call was made at this pace."""
    return DOUBLING * max(1.0, min(latency / QUICK, 1.0) * pace / FAST, 1.0 / (DOUBLING * pace))


def doubled(pace: float, dt: float, doubling: float, sent_lately: float, at_least: float) -> float:
    """The pace ``dt`` seconds later on a search, never above twice what is really being sent.

    ``sent_lately`` are the calls of the last second: a pace that is not used is not tested. Below a call a second each
    counts for half of its slot: so the one that is refused tells the quota to within half.
    """
    dt = min(dt, max(LONGEST_SEARCH, LONGEST_SEARCH / pace))
    ceiling = min(FASTEST, max(2.0 * sent_lately, at_least))
    return max(pace, min(ceiling, pace * math.exp2(dt / doubling)))


@dataclass(slots=True, eq=False, kw_only=True)
class PaceCurve(Storable):
    added = 7
    not_stored = ("overspent",)

    age: float = 0.0
    """Seconds since the cut, counted only while calls wait for the pace."""
    agreed: int = 0
    """Measurements in a row that agreed."""
    cost: float = LOOK_COST
    """Refusals that a look costs on average."""
    exact: int = 0
    """... and that were the same number."""
    least: float = SLOWEST_QUOTA
    """A quota below this is taken for it: the pace will not go lower."""
    looks: int = 0
    """Measurements so far."""
    penalty: float = 0.0
    """Seconds that a refusal shuts us out, where that is known; else 0."""
    period: float = SHORTEST_PERIOD
    quota: float = SLOWEST_QUOTA
    """The last measurement, in calls a second."""
    refused: int = 0
    """Refusals since the last measurement."""
    rough: bool = True
    """Whether it was a guess rather than a measurement between two refusals."""
    sharing: SharingDetector = field(default_factory=SharingDetector)
    slow_for: int = 0
    """Periods to go without a quick look."""
    slow_next: int = 2
    """... and how many the next time."""
    sought_from: float | None = None
    """The quota before the search that is going on, if one is."""
    window: float = 0.0
    """The length of the server's window, where a long block has shown one; else 0."""
    upper: float = 0.0
    """What the quota may be at most, where a few calls with silences between them left that open; else 0."""
    log: float = 0.0
    """Seconds over which the server keeps a log of the calls, where that is known; else 0. Nothing accrues in it."""
    log_calls: float = 0.0
    """Calls it holds."""
    log_spare: float = 0.0
    """The share of them that is left unused, as calls do not arrive as evenly as they leave."""
    log_strict: bool = False
    """Whether refused calls count in it."""
    highest: float = 0.0
    """What the quota was before it fell, or is."""
    fallen_for: int = 0
    """Measurements since it fell."""
    overspent: bool = False
    """Whether more calls than the budget allows were refused so far."""

    # -- what is known ----------------------------------------------------------------------------

    def learn(self, quota: float, rough: bool) -> None:
        """Take a new measurement and decide when to look again."""
        before = self.sought_from or self.quota
        self.slow_for = max(0, self.slow_for - 1)
        self.quota, self.sought_from, self.rough, self.upper = max(quota, self.least), None, rough, 0.0
        moved = abs(quota / before - 1.0)
        self.exact = self.exact + 1 if moved < EXACT else 0
        if moved > SAME:
            self.agreed = 0
            period = max(self.shortest(), self.period / 4.0)
        else:
            self.agreed += 1
            self._compare_with_highest()
            period = self._affordable() if self.exact >= SETTLED and not self.window else self.period * 1.6
        may_return = self.quota < FELL * self.highest and not self.window
        rest = self.penalty / (PENALTY_BUDGET * (RETURN_PENALTY if may_return else 1.0))
        period = max(min(period, self._affordable()), self.window, rest)
        is_slow = self.quota < FEW_A_SECOND and not rough
        period *= (SETTLED_LATER if self.exact >= SETTLED else LATER) if self.overspent and is_slow else 1.0
        self.period = min(period * self._spread(), max(LONGEST_PERIOD, self.window))

    def learn_log(self, length: float, calls: float, strict: bool) -> None:
        """The server keeps a log, which tells its quota exactly."""
        if not self.log:
            self.cost, self.log_spare = LOOK_COST, min(FIRST_SPARED, SPARED_CALLS / calls)
        self.log, self.log_calls, self.log_strict, self.window = length, calls, strict, 0.0
        self.learn((1.0 - self.log_spare) * calls / length, False)

    def guess(self, quota: float, upper: float = 0.0) -> None:
        """Go on from a quota that was not measured between refusals; look again soon."""
        self.quota, self.rough, self.upper, self.log = max(quota, self.least), True, upper, 0.0
        self.period = min(self.shortest(), max(SHORTEST_PERIOD, GUESSED / self.quota), LONGEST_PERIOD)

    def leaned(self, measured: float, refused_pace: float) -> float:
        """The quota, given a measurement and the pace that was refused.

        Where little accrues in advance (a bucket of a few calls, a window of a second) the time spent below
        the quota makes the measurement too low. Without such time it is exact.
        """
        if self.quota * (1.0 - self.swing) > measured:
            return measured
        lean = SHALLOW_LEAN if self.slow_for else LEAN
        return measured + lean * max(0.0, min(refused_pace, 1.2 * measured) - measured)

    def count_cost(self) -> None:
        """An episode of refusals is over: remember what it cost."""
        self.cost += 0.3 * (max(1, self.refused) - self.cost)

    def looked(self, surplus: float) -> None:
        """A quick look was refused after ``surplus`` calls more than the quota: too many, and it told little."""
        if surplus > TELLING:
            self.slow_for = self.slow_next
            self.slow_next = min(2 * self.slow_next, MOST_SLOW)
        else:
            self.slow_next = 2

    @property
    def waits_shortly(self) -> bool:
        """Whether the server asks to wait for a moment at each refusal, and how it counts is not known."""
        return 0.0 < self.penalty < SHORT_PENALTY and not (self.window or self.log or self.sharing.on)

    @property
    def is_at_most(self) -> bool:
        """Whether only the pace that was refused told the quota: it is that at most."""
        return self.rough and self.waits_shortly

    # -- when ------------------------------------------------------------------------------------

    def shortest(self) -> float:
        budget = SLOW_SEARCH_BUDGET if self.quota < FEW_A_SECOND else SEARCH_BUDGET
        return max(SHORTEST_PERIOD, self.cost / (budget * max(self.quota, SLOWEST_QUOTA)))

    def _compare_with_highest(self) -> None:
        """A measurement agreed with the one before: has the quota fallen for long enough to be what it is now?"""
        self.fallen_for = self.fallen_for + 1 if self.quota < RETURNED * self.highest else 0
        if not self.fallen_for or self.fallen_for > RETURN_LOOKS:
            self.highest = self.quota

    def _affordable(self) -> float:
        budget = BUDGET * min(1.0, 0.5 + 0.5 * self.quota / SLOW) * (LOG_SHARE if self.log else 1.0)
        if self.quota < FELL * self.highest and not self.window:
            budget *= RETURN_BUDGET
        rarely = RARELY_AT_WINDOW if self.window else RARELY
        rarely = max(rarely, max(self.cost, LOOK_COST) / (SLOW_BUDGET * self.quota))
        return max(self.shortest(), SETTLED_PERIOD, min(self.cost / (budget * self.quota), rarely))

    def _spread(self) -> float:
        """A factor from 0.95 to 1.2, another each time: clients that share a quota should not all probe at once."""
        self.looks += 1
        return 0.95 + 0.25 * ((self.looks * GOLDEN + self.quota) % 1.0)

    # -- the pace --------------------------------------------------------------------------------

    @property
    def quick(self) -> bool:
        """Whether a quick look at the end of the period tells enough; else the curve creeps above the quota."""
        return not self.window and not self.slow_for and not self.sharing.on

    @property
    def swing(self) -> float:
        if self.rough:
            return ROUGH_WINDOW_SWING if self.window else ROUGH_SWING
        is_short = 0.0 < self.window <= SHORT_WINDOW and self.exact >= SETTLED
        return SWING if self.quick or is_short else SLOW_SWING

    @property
    def half(self) -> float:
        """Seconds from the cut until the curve is at the quota."""
        if self.quick or self.rough:
            return self.period / 2.0
        return max(self.period / 2.0, self.period - 0.5 * self._creep) if self.window else self.period

    @property
    def _creep(self) -> float:
        """Seconds in which the curve goes as far above a window's quota as it began below it."""
        return max(self.window, CREEP / self.quota, SHORTEST_CREEP)

    def start(self) -> float:
        """The pace right after a cut; the period begins."""
        self.age, self.sought_from = 0.0, None
        return self.quota * (1.0 - (YIELD if self.sharing.on else self.swing))

    def cruise(self, pace: float, dt: float) -> float:
        """The pace ``dt`` seconds further on the curve."""
        self.age += dt
        if self.sharing.on:
            return self.sharing.grown(pace, dt, self.age, self.window)
        way, swing = self.age / self.half - 1.0, self.swing
        if self.window and way > 0.0:  # a long period below the quota is cheap, another one above it tells nothing more
            way = (self.age - self.half) / min(self.half, self._creep)
            swing = max(swing, min(WINDOW_CALLS / (self.quota * self.window), MOST_EXCESS))
        return self.quota * (1.0 + swing * way * way * way)

    def excess(self, trip: float) -> float:
        """How far above the quota to look: far enough to be quick, not so far that many are refused at once."""
        most = max(ROUGH_EXCESS, math.sqrt(self.upper / self.quota) - 1.0) if self.rough else MOST_EXCESS
        excess = min(most, max(LEAST_EXCESS, (ROUGH_AT_RISK if self.rough else AT_RISK) / (self.quota * trip)))
        if not self.log:
            return excess
        telling = (1.0 + LOG_EXCESS) * self.log_calls + LOG_CALLS
        return max(excess, telling / (self.log * self.quota) - 1.0)

    def seek_doubling(self, sought: float) -> float:
        """Seconds to double in, ``sought`` seconds into a search upwards: slower where a refusal costs more."""
        doubling = max(SEEK_DOUBLING, 12.0 / self.quota, min(3.0 * self.penalty, 10.0))
        if not self.window:
            return max(doubling, LOG_DOUBLING * self.log)
        return max(doubling, self.window if sought < self.window else 0.5 * self.window)
