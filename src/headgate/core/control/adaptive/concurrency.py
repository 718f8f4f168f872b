"""Tell a cap on calls in flight from a quota, and keep just below it.

A quota refuses at any depth. A cap always refuses at the same one, and never lets a deeper
call in. Once that has shown, the pace is left free and the depth is held; one more is
tried every period, as the budget of refusals allows.

    off --refused at one depth again and again--> on --refused where it was fine--> off for a while
"""

from __future__ import annotations

from enum import Enum

from ...decision import NEVER
from .growth import BUDGET, SHORTEST_PERIOD
from .room import Room

SHALLOWEST = 3
"""Depths below this happen to every quota."""

KEPT = 4
"""Depths of refusals that are compared."""

EXACT_ENOUGH = 1
"""Equal measurements in a row that rule a cap out for now."""

MISSES = 3
"""Refusals at depths that were fine, after which it was no cap."""

FIRST_REST = 60.0
"""Seconds before looking for a cap again after a mistake; doubles with each."""

MOST_REST_DOUBLINGS = 10


class Verdict(Enum):
    MINE = "handled"
    NOT_MINE = "not a cap"
    LET_GO = "no cap after all"


class ConcurrencyCap(Room):
    __slots__ = (
        "age",
        "cap",
        "cut_seq",
        "depths",
        "fine",
        "found",
        "missed",
        "misses",
        "mistakes",
        "on",
        "period",
        "rest_until",
    )

    def __init__(self) -> None:
        self.on = False
        self.cap = 0
        self.fine = 0
        """The greatest depth known to be let in."""
        self.found = 0
        """The cap as it was first seen; what shrinks to half of it was none."""
        self.age = 0.0
        """Seconds spent at the cap since it last moved."""
        self.period = SHORTEST_PERIOD
        self.cut_seq = 0
        self.misses = 0
        self.missed = False
        """Whether anything but a try was refused since the last try."""
        self.mistakes = 0
        self.rest_until = NEVER
        self.depths: tuple[int, ...] = ()

    def grow(self, dt: float, depth: int, seq: int) -> None:
        """A call leaves as number ``depth``; after a period at the cap, try a little more."""
        if depth < self.cap - 1:
            return
        self.age += dt
        if self.age > self.period:
            self.fine = self.cap
            self.cap += max(1, self.cap // 50)
            self.age, self.cut_seq = 0.0, seq

    def refused(self, seq: int, latest: int, throughput: float, cost: float, now: float) -> Verdict:
        """A refusal while the cap is on."""
        if seq <= self.cut_seq:
            return Verdict.MINE
        trying = self.cap > self.fine
        if not trying:
            self.misses += 1
        elif not self.missed:  # a cap refuses what is tried above it, and nothing else
            self.misses = max(0, self.misses - 1)
        self.missed = not trying
        if self.misses >= MISSES or (not trying and self.cap - 1 < self.found / 2):
            self.on, self.misses, self.depths = False, 0, ()
            self.rest_until = now + FIRST_REST * 2.0 ** min(self.mistakes, MOST_REST_DOUBLINGS)
            self.mistakes += 1
            return Verdict.LET_GO
        self.cap = self.fine = self.fine if trying else max(1, self.cap - 1)
        affordable = cost / (BUDGET * max(0.1, throughput))
        self.period = max(min(self.period * 1.6, affordable), SHORTEST_PERIOD)
        self.age, self.cut_seq = 0.0, latest
        return Verdict.MINE

    def suspect(self, depth: int, deepest: int, exact: int, latest: int, now: float) -> Verdict:
        """A refusal that is news while the cap is off: does it always happen at this depth?

        ``deepest`` is the greatest depth at which a call was let in lately; ``exact`` how often
        in a row the quota was measured to be the same number, which speaks for a quota.
        """
        if now < self.rest_until:
            return Verdict.NOT_MINE
        self.depths = (*self.depths, depth)[-KEPT:]
        if exact >= EXACT_ENOUGH:
            return Verdict.NOT_MINE
        wanted, slack = (KEPT, 0) if depth < 8 else (KEPT - 1, max(1, int(0.06 * depth)))
        seen = self.depths[-wanted:]
        low, high = min(seen), max(seen)
        if len(seen) < wanted or low < SHALLOWEST or high - low > slack or deepest > high + (slack > 0):
            return Verdict.NOT_MINE
        self.on = True
        self.cap = self.fine = self.found = low
        self.period, self.age, self.misses, self.cut_seq = SHORTEST_PERIOD, 0.0, 0, latest
        return Verdict.MINE
