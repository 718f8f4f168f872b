"""Notice that others take from the same quota, unseen, and leave them room.

A quota of our own measures the same number every time. A shared one wanders: what is left for us
depends on what the others do. Then the measured share is not ours to defend. Clients that all give up the
same share at each refusal and all grow by the same small step end up with about the same rate, without talking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from .state import Storable

SAME = 0.15
"""Two measurements closer than this agree."""

FEWEST, MOST, EXACT_CALLS = 4, 6, 16.0
"""Clean measurements to judge by; the calls that make one exact enough."""

SURELY, STILL, SIZED = 0.02, 0.01, 3.0
"""The middle change between two of them from which on the quota is taken for shared, and as long as it stays so: times
the third where calls differ in size."""

CLIMBS, CLIMBED_WITHIN, GREW = 3, 30.0, 1.3
"""So many times in so many seconds more was let in than the quota, which has not grown by this factor: it wanders."""

YIELD = 0.22
"""The share of the pace given up at a refusal."""

GROWTH, SLOW_GROWTH = 0.06, 0.002
"""Calls a second, each second: times the square root of the pace, so that the small catch up; below about
10/s, times its square, so that a slow quota is not overrun."""

IMPATIENCE, IMPATIENT_CALLS, QUICKENING, FASTEST_GROWTH = 10.0, 24.0, 3, 0.2
"""Seconds, and calls, without a refusal after which growth doubles, and then quickens, by this power, up to this share
of the pace a second: others have left."""


@dataclass(slots=True, eq=False, kw_only=True)
class SharingDetector(Storable):
    added = 1

    measures: tuple[float, ...] = ()
    on: bool = False
    climbs: tuple[tuple[float, float], ...] = ()
    """The last searches upwards: when they began, and from which quota."""

    def compare(self, measured: float, sized: bool = False) -> bool:
        """Another clean measurement, of calls that are ``sized`` if they say what they take. True: our mind changed.

        One on the way of a quota that falls far is of both quotas, and left out: a fall is a single change.
        """
        fell = len(self.measures) > 1 and measured / (1.0 - SAME) < self.measures[-1] < self.measures[-2]
        self.measures = (*(self.measures[:-1] if fell else self.measures), measured)[-MOST:]
        if len(self.measures) < FEWEST:
            return False
        changes = sorted(abs(later / earlier - 1.0) for earlier, later in pairwise(self.measures))
        change = changes[len(changes) // 2] / (SIZED if sized else 1.0)
        was, self.on = self.on, change > (STILL if self.on else SURELY)
        self.climbs = self.climbs if self.on else ()
        return was != self.on

    def climbed(self, quota: float, now: float) -> bool:
        """More is let in than the quota. True if that has shown that others share it: they take more and less."""
        recent = (climb for climb in self.climbs if 0.0 <= now - climb[0] < CLIMBED_WITHIN)
        self.climbs = (*recent, (now, quota))[-CLIMBS:]
        if self.on or len(self.climbs) < CLIMBS or quota > GREW * self.climbs[0][1]:
            return False
        self.on = True
        return True

    def grown(self, pace: float, dt: float, age: float, window: float) -> float:
        """The pace ``dt`` seconds later, ``age`` seconds after the last refusal."""
        growth = min(GROWTH * math.sqrt(pace), SLOW_GROWTH * pace * pace) / max(1.0, window / 10.0)
        growth *= 1.0 + (age / max(IMPATIENCE, IMPATIENT_CALLS / pace)) ** QUICKENING
        return pace + dt * min(growth, FASTEST_GROWTH * pace)
