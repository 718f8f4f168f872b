"""What was sent and what was refused, in bounded space.

``CallHistory`` answers the question that every model asks: how many calls were let in, between two instants or two
ordinals?
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from math import floor

from .state import Storable, no_floats, no_integers

MARKS, FEW_MARKS = 192, 144
"""At most this many marks: 3 KB, and back to yesterday at the least of the densities below; so many are kept then."""

RESTING_MARKS = 3
"""How many of them are worth keeping of a key that rests."""

FINEST = 0.05
"""Seconds between two marks at least."""

DENSITIES = (48.0, 24.0, 12.0)
"""Marks further back than some age are at least age / density apart, for the first density at which they are few."""


@dataclass(slots=True, eq=False, kw_only=True)
class SendLog(Storable):
    """When the calls were sent, in a few marks: "how many left since 14:03:07?" without a list of them.

    A mark is an instant and the ordinal of the last call sent by then. Marks are close
    together for the last moments and sparse for the distant past, so a question about the
    last second and one about the last hour are both answered within a few percent:

        older                                                        now
        |        |        |     |     |    |   |   |  |  | | | | |||||||
    """

    instants: array[float] = field(default_factory=no_floats)
    ordinals: array[float] = field(default_factory=no_floats)

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
        return _between(self.instants, self.ordinals, instant) if self.instants else 0.0

    def instant_of(self, seq: float) -> float:
        """When call ``seq`` was sent; the other way round."""
        return _between(self.ordinals, self.instants, seq) if self.instants else 0.0

    def rest(self) -> None:
        """Keep a sketch: the newest mark and a few of the others."""
        step = max(1, len(self.instants) // RESTING_MARKS)
        self.instants, self.ordinals = self.instants[::-step][::-1], self.ordinals[::-step][::-1]

    def _thin(self, now: float) -> None:
        """Drop the marks that are closer together than their age deserves; then, if need be, the oldest."""
        instants, ordinals = self.instants, self.ordinals
        for density in DENSITIES:
            kept = [len(instants) - 1]
            for at in range(len(instants) - 2, -1, -1):
                if instants[kept[-1]] - instants[at] >= (now - instants[at]) / density:
                    kept.append(at)
            if len(kept) <= FEW_MARKS:
                break
        kept = kept[:FEW_MARKS]
        self.instants = array("d", (instants[at] for at in reversed(kept)))
        self.ordinals = array("d", (ordinals[at] for at in reversed(kept)))


def _between(known: array[float], wanted: array[float], value: float) -> float:
    """Look ``value`` up in rising numbers and take what belongs to it; between two marks, in proportion."""
    after = bisect_right(known, value)
    if after == 0:
        return wanted[0]
    if after == len(known):
        return wanted[-1]
    start, low = known[after - 1], wanted[after - 1]
    return low + (wanted[after] - low) * (value - start) / (known[after] - start)


RUNS = 32
"""Bursts of refusals told apart; at one refusal every few seconds, minutes of history in 1 KB."""

RESTING_RUNS = 3
"""... and of a key that rests."""


@dataclass(slots=True, eq=False, kw_only=True)
class RefusalLog(Storable):
    """Which calls were refused, by their ordinals, in bounded space.

    Refusals come in bursts, so they are kept as runs: first ordinal, last ordinal, how many
    of that span were refused. Neighbours grow together; when there are too many runs the two
    oldest become one, which blurs where exactly an old refusal was and never how many.
    Answers may come back in any order.
    """

    counts: array[int] = field(default_factory=no_integers)
    firsts: array[int] = field(default_factory=no_integers)
    lasts: array[int] = field(default_factory=no_integers)

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
        for at in range(bisect_right(self.lasts, low), len(self.lasts)):
            first, last = self.firsts[at], self.lasts[at]
            shared = min(last, high) - max(first - 1, low)
            if shared > 0:
                total += self.counts[at] * shared / (last - first + 1)
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


LATELY = 3.0
"""Seconds that make "lately"; at a slow pace, the time of a dozen calls."""

MOMENT, FEW = 0.2, 6.0
"""Seconds, and calls, that make a moment."""


@dataclass(slots=True, eq=False, kw_only=True)
class CallHistory(Storable):
    refusals: RefusalLog = field(default_factory=RefusalLog)
    sends: SendLog = field(default_factory=SendLog)

    def accepted(self, since: float, until: float) -> float:
        """Calls sent between two instants and not refused; those still out count as accepted."""
        return self.accepted_calls(self.sends.seq_at(since), self.sends.seq_at(until))

    def accepted_calls(self, low: float, high: float) -> float:
        """The same by ordinals, exactly: after ``low``, up to ``high``."""
        return max(0.0, high - low - self.refusals.between(low, high))

    def accepted_since(self, instant: float, seq: int) -> float:
        """Calls sent after an instant, up to call ``seq``, and not refused: whole ones."""
        return self.accepted_calls(floor(self.sends.seq_at(instant)), seq)

    def pace_of(self, seq: int, sent_at: float, pace: float) -> float:
        """Calls a second that were really sent when call ``seq`` was, at a pace that may have risen since."""
        span = max(MOMENT, FEW / pace)
        return min(pace, (seq - self.sends.seq_at(sent_at - span)) / span)

    def lately(self, pace: float, now: float) -> float:
        """Calls a second that were let in during the last seconds."""
        span = max(LATELY, 12.0 / pace)
        return self.accepted(now - span, now) / min(span, max(now - self.sends.instants[0], 1.0))
