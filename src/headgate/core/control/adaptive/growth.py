"""When to look for more, and how fast: the curves the pace follows between two refusals.

    nothing known     doubles every 0.4 s, as long as somebody waits for the pace
    quota measured    a cubic through the measured quota: back to it quickly, flat around it
                      for most of the period, then carefully above

        pace                       _/     above the quota: the look
             ____..........-----'''       at it: for most of the time
           /                              below it: the pipe drains
          0 ------------- period ---->  seconds since the cut that somebody waited

A look that finds the old quota costs a few refusals. So the period is what the budget of
refusals allows, longer where a refusal shuts a whole window, and short while the
measurements still move.
"""

from __future__ import annotations

import math

from .room import Room

FASTEST = 1e5
"""Calls a second that no search goes beyond."""

DOUBLING = 0.4
"""Seconds in which the pace doubles while nothing is known."""

SWING = 0.03
"""How far below and above the quota the cubic starts and ends its period."""

WIDE_SWING = 0.1
"""The same after a measurement that may be rough."""

BUDGET = 0.003
"""The share of calls that looking may cost in refusals once measurements agree."""

SEARCH_BUDGET = 0.03
"""The same while they still move."""

SHORTEST_PERIOD = 3.0
LONGEST_PERIOD = 120.0

PERIOD_AT_50 = 5.0
"""Seconds between looks at 50 calls/s; slower quotas are looked at less often, by the square root."""

PENALTY_BUDGET = 0.015
"""The share of the time that may be lost to penalties for looking."""

SAME = 0.15
"""Two measurements closer than this agree."""

EXACT = 0.02
"""Two measurements closer than this are the same number: a quota's are, the throughput at a cap wanders."""

SLOWEST_QUOTA = 1e-3
"""Calls a second: a measurement below it is taken for it."""


def doubled(pace: float, dt: float, doubling: float, sent_lately: float, at_least: float) -> float:
    """The pace ``dt`` seconds later on a search, never above twice what is really being sent.

    ``sent_lately`` are the calls of the last second: a pace nobody uses is not tested.
    """
    ceiling = min(FASTEST, max(2.0 * sent_lately, at_least))
    return max(pace, min(ceiling, pace * math.exp2(dt / doubling)))


class Curve(Room):
    __slots__ = (
        "age",
        "agreed",
        "cost",
        "exact",
        "penalty",
        "period",
        "quota",
        "refused",
        "sought_from",
        "swing",
        "window",
    )

    def __init__(self, quota: float = SLOWEST_QUOTA) -> None:
        self.quota = quota
        """The last measurement, in calls a second."""
        self.sought_from: float | None = None
        """The quota before the search that is going on, if one is."""
        self.swing = SWING
        self.period = SHORTEST_PERIOD
        self.age = 0.0
        """Seconds since the cut, counted only while somebody waits for the pace."""
        self.agreed = 0
        """Measurements in a row that agreed."""
        self.exact = 0
        """Measurements in a row that were the same number."""
        self.refused = 0
        """Refusals since the last measurement."""
        self.cost = 1.5
        """Refusals that a look costs on average."""
        self.window = 0.0
        """The length of the server's window, where a long block has shown one; else 0."""
        self.penalty = 0.0
        """Seconds that a refusal shuts us out, where that is known; else 0."""

    def shortest(self) -> float:
        return max(SHORTEST_PERIOD, self.cost / (SEARCH_BUDGET * max(self.quota, SLOWEST_QUOTA)))

    def learn(self, quota: float, swing: float) -> None:
        """Take a new measurement and decide when to look again."""
        before = self.sought_from or self.quota
        self.quota, self.sought_from, self.swing = max(quota, SLOWEST_QUOTA), None, swing
        shortest = self.shortest()
        moved = abs(quota / before - 1.0)
        self.exact = self.exact + 1 if moved < EXACT else 0
        if moved > SAME:
            self.agreed = 0
            period = max(shortest, self.period / 4.0)
        else:
            self.agreed += 1
            period = self.period * 1.6
        affordable = max(shortest, PERIOD_AT_50 * math.sqrt(50.0 / self.quota), self.cost / (2.0 * BUDGET * self.quota))
        period = max(min(period, affordable), self.window, self.penalty / (2.0 * PENALTY_BUDGET))
        self.period = min(period, max(LONGEST_PERIOD, self.window))

    def guess(self, quota: float, swing: float) -> None:
        """Go on from a quota that was not measured between refusals; look again soon."""
        self.quota, self.swing = max(quota, SLOWEST_QUOTA), swing
        self.period = min(self.shortest(), LONGEST_PERIOD)

    def count_cost(self) -> None:
        """An episode of refusals is over: remember what it cost."""
        self.cost += 0.3 * (max(1, self.refused) - self.cost)

    def start(self) -> float:
        """The pace right after a cut; the period begins."""
        self.age = 0.0
        return self.quota * (1.0 - self.swing)

    def cruise(self, dt: float) -> float:
        """The pace ``dt`` seconds further on the cubic."""
        self.age += dt
        way = self.age / self.period - 1.0
        return self.quota * (1.0 + self.swing * way * way * way)

    def outgrown(self, held: float) -> bool:
        """Whether so much went through above the quota, unrefused, that it must have grown."""
        way = self.age / self.period - 1.0
        if way <= 1.2 or self.age - self.period <= self.window:
            return False
        surplus = self.swing * self.quota * self.period * (way**4 - 1.0) / 4.0
        return way > 3.0 or surplus > max(6.0, 0.15 * self.quota) + self.quota * min(held, 1.0)

    def seek_doubling(self) -> float:
        """Seconds to double in when the old quota is outgrown: slower where a refusal costs a window."""
        return max(2.0 * DOUBLING, 4.0 / self.quota, 0.5 * self.window, min(10.0 * self.penalty, 10.0))
