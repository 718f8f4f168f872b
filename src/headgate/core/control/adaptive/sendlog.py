"""When the calls were sent, in a few marks: "how many left since 14:03:07?" without a list of them.

A mark is an instant and the ordinal of the last call sent by then. Marks are close
together for the last moments and sparse for the distant past, so a question about the
last second and one about the last hour are both answered within a few percent:

    older                                                        now
    |        |        |     |     |    |   |   |  |  | | | | |||||||
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from .room import Room

MARKS = 128
"""At most this many marks: 2 KB, and back to yesterday at the density below."""

RESTING_MARKS = 3
"""How many of them are worth keeping of a key that rests."""

FINEST = 0.05
"""Seconds between two marks at least."""

DENSITY = 8.0
"""Marks further back than some age are at least age / DENSITY apart."""


class SendLog(Room):
    __slots__ = ("instants", "ordinals")

    def __init__(self) -> None:
        self.instants = array("d")
        self.ordinals = array("d")

    def mark(self, now: float, seq: int) -> None:
        """Call ``seq`` is the last one sent by ``now``. Cheap, and ignored when the last mark is still fresh."""
        instants = self.instants
        if instants:
            since = now - instants[-1]
            if 0.0 <= since < FINEST:
                return
            if since < 0.0:  # the clock went back: what it told before means nothing now
                del instants[:], self.ordinals[:]
        instants.append(now)
        self.ordinals.append(seq)
        if len(instants) > MARKS:
            self._thin(now)

    def seq_at(self, instant: float) -> float:
        """The ordinal of the last call sent by then; between two marks, in proportion."""
        instants, ordinals = self.instants, self.ordinals
        if not instants:
            return 0.0
        after = bisect_right(instants, instant)
        if after == 0:
            return ordinals[0]
        if after == len(instants):
            return ordinals[-1]
        start, low = instants[after - 1], ordinals[after - 1]
        return low + (ordinals[after] - low) * (instant - start) / (instants[after] - start)

    def rest(self) -> None:
        """Keep a sketch: the newest mark and a few of the others."""
        step = max(1, len(self.instants) // RESTING_MARKS)
        self.instants, self.ordinals = self.instants[::-step][::-1], self.ordinals[::-step][::-1]

    def _thin(self, now: float) -> None:
        """Drop the marks that are closer together than their age deserves; then, if need be, the oldest."""
        instants, ordinals = self.instants, self.ordinals
        kept = [len(instants) - 1]
        for at in range(len(instants) - 2, -1, -1):
            if instants[kept[-1]] - instants[at] >= (now - instants[at]) / DENSITY:
                kept.append(at)
        kept = kept[: MARKS * 7 // 8]
        self.instants = array("d", (instants[at] for at in reversed(kept)))
        self.ordinals = array("d", (ordinals[at] for at in reversed(kept)))
