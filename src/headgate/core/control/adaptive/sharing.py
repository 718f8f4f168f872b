"""Notice that others take from the same quota, unseen, and leave them room.

A quota of our own measures the same number every time. A shared one wanders: what is left for us
depends on what the others do. Then the measured share is no property to defend. Everyone who yields a
fixed part at each refusal and grows by little and alike ends up with about the same, without a word.
"""

from __future__ import annotations

import math
from itertools import pairwise

from .room import Room

FEWEST, MOST = 4, 6
"""Clean measurements to judge by."""

SURELY, STILL = 0.03, 0.01
"""The middle change between two of them from which on the quota is taken for shared, and as long as it stays so."""

YIELD = 0.2
"""The share of the pace given up at a refusal."""

GROWTH, SLOW_GROWTH = 0.04, 0.002
"""Calls a second, each second: times the square root of the pace, so that the small catch up; below about
9/s, times its square, so that a slow quota is not overrun."""

IMPATIENCE = 8.0
"""Seconds without a refusal after which growth doubles, and then quickens ..."""

SLOW, MOST_GROWTH = 4.0, 0.003
"""... but below this pace by no more than so large a share with each call: a few calls are no proof of anything."""


class Sharing(Room):
    __slots__ = ("measures", "on")

    def __init__(self) -> None:
        self.measures: tuple[float, ...] = ()
        self.on = False

    def compare(self, measured: float) -> bool:
        """Another clean measurement. True if that changed our mind."""
        self.measures = (*self.measures, measured)[-MOST:]
        if len(self.measures) < FEWEST:
            return False
        changes = sorted(abs(later / earlier - 1.0) for earlier, later in pairwise(self.measures))
        was, self.on = self.on, changes[len(changes) // 2] > (STILL if self.on else SURELY)
        return was != self.on

    def grown(self, pace: float, dt: float, age: float, window: float) -> float:
        """The pace ``dt`` seconds later, ``age`` seconds after the last refusal."""
        growth = min(GROWTH * math.sqrt(pace), SLOW_GROWTH * pace * pace) / max(1.0, window / 10.0)
        most = MOST_GROWTH * pace * pace * max(1.0, pace / SLOW) ** 4
        return pace + dt * min(growth * (1.0 + (age / IMPATIENCE) ** 2), most)
