"""Which calls were refused, by their ordinals, in bounded space.

Refusals come in bursts, so they are kept as runs: first ordinal, last ordinal, how many
of that span were refused. Neighbours grow together; when there are too many runs the two
oldest become one, which blurs where exactly an old refusal was and never how many.
Answers may come back in any order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from .room import Room

RUNS = 32
"""Bursts of refusals told apart; at one refusal every few seconds, minutes of history in 1 KB."""

RESTING_RUNS = 3
"""... and of a key that rests."""


class Refusals(Room):
    __slots__ = ("counts", "firsts", "lasts")

    def __init__(self) -> None:
        self.firsts = array("q")
        self.lasts = array("q")
        self.counts = array("q")

    def add(self, seq: int) -> None:
        firsts, lasts, counts = self.firsts, self.lasts, self.counts
        after = bisect_right(firsts, seq)
        at = after - 1
        if at >= 0 and seq <= lasts[at]:  # inside a run that was blurred
            counts[at] = min(counts[at] + 1, lasts[at] - firsts[at] + 1)
            return
        if at >= 0 and seq == lasts[at] + 1:
            lasts[at] = seq
            counts[at] += 1
        else:
            firsts.insert(after, seq)
            lasts.insert(after, seq)
            counts.insert(after, 1)
            at = after
        if at + 1 < len(firsts) and firsts[at + 1] == lasts[at] + 1:
            self._join(at)
        if len(firsts) > RUNS:
            self._join(0)

    def between(self, low: float, high: float) -> float:
        """How many of the calls after ``low`` up to and including ``high`` were refused, as far as known."""
        total = 0.0
        for first, last, count in zip(self.firsts, self.lasts, self.counts, strict=True):
            shared = min(last, high) - max(first - 1, low)
            if shared > 0:
                total += count * shared / (last - first + 1)
        return total

    def streak(self, seq: int) -> int:
        """How many calls in a row, in the order they were sent and ending with ``seq``, were all refused."""
        at = bisect_right(self.firsts, seq) - 1
        if at < 0 or seq > self.lasts[at] or self.counts[at] < self.lasts[at] - self.firsts[at] + 1:
            return 0
        return seq - self.firsts[at] + 1

    def rest(self) -> None:
        """Keep a sketch: the latest runs, and all older ones as a single one."""
        while len(self.firsts) > RESTING_RUNS:
            self._join(0)

    def _join(self, at: int) -> None:
        """Make run ``at`` and the next one a single run."""
        self.lasts[at] = self.lasts[at + 1]
        self.counts[at] += self.counts[at + 1]
        del self.firsts[at + 1], self.lasts[at + 1], self.counts[at + 1]
