"""What the latest answers of a key were: how many calls and failures, and how long they took, in bounded memory.

``SlidingCounts`` cuts its window into buckets. Only the newest one is touched by an answer; the older ones lie in a
ring and are moved once per bucket, not once per call:

    age    window                      bucket      0
           |  oldest  |  ...  |  older   |  newest  |
           +---------- ring, lazy -------+-- ints --+

So an answer costs one comparison and an addition, a key that was never used owns no ring, and a key that was idle for
a whole window gives its ring back. An event leaves the counts when it is between ``window - bucket`` and ``window``
old.

``Latency`` has two views of the same answers: a moving average that follows, and the 95th percentile of the latest
``MOST_SAMPLES``, which shows the slow ones that an average hides. Samples are 4-byte floats in a ring that grows only
as answers come in; they are sorted when the percentile is read.
"""

from __future__ import annotations

from array import array
from math import ceil

from .decision import LONGEST_WAIT, NEVER

MOST_BUCKETS = 3600
"""The longest ring: an hour by the second."""

MOST_PER_BUCKET = 2**32 - 1
"""A bucket that saw more calls than this remembers this many."""


class SlidingCounts:
    """How many calls there were recently, and how many of them failed.

    ``now`` may stand still or step back a little (threads race for it): what comes
    late is counted as new. If it steps back by more than a whole window, the counts
    start over, since nothing they hold can be dated any more.
    """

    __slots__ = (
        "_errors",
        "_older_errors",
        "_older_total",
        "_oldest",
        "_ring",
        "_total",
        "_turns_at",
        "bucket",
        "window",
    )

    def __init__(self, window: float = 30.0, bucket: float = 2.0) -> None:
        if not 0.0 < bucket <= window <= bucket * MOST_BUCKETS:
            raise ValueError(
                f"window={window!r}, bucket={bucket!r}: bucket must be above 0 and fit 1 to {MOST_BUCKETS} times "
                "into window"
            )
        self.window = window
        self.bucket = bucket
        self._turns_at = NEVER
        self.clear()

    def clear(self) -> None:
        """Forget everything that was counted."""
        self._total = self._errors = 0
        self._older_total = self._older_errors = 0
        self._oldest = 0
        self._ring: array[int] | None = None

    def add(self, error: bool, now: float, calls: int = 1) -> None:
        """Count calls that ended at ``now``."""
        if not 0.0 < self._turns_at - now <= self.window:
            self._turn(now)
        self._total += calls
        if error:
            self._errors += calls

    def total(self, now: float) -> int:
        if not 0.0 < self._turns_at - now <= self.window:
            self._turn(now)
        return self._older_total + self._total

    def errors(self, now: float) -> int:
        if not 0.0 < self._turns_at - now <= self.window:
            self._turn(now)
        return self._older_errors + self._errors

    def error_rate(self, now: float) -> float:
        """The share of calls that failed, within [0, 1]; 0 where there were none."""
        total = self.total(now)
        return (self._older_errors + self._errors) / total if total else 0.0

    def to_state(self) -> tuple[float, int, int, bytes] | tuple[()]:
        """Small, for setting an idle key aside: empty if nothing is counted."""
        if not (self._total or self._older_total):
            return ()
        ring = b"" if self._ring is None else (self._ring[self._oldest :] + self._ring[: self._oldest]).tobytes()
        return (self._turns_at, self._total, self._errors, ring)

    @classmethod
    def from_state(
        cls, state: tuple[float, int, int, bytes] | tuple[()], window: float = 30.0, bucket: float = 2.0
    ) -> SlidingCounts:
        """The counts that ``to_state`` took down under the same window and bucket, on the same clock."""
        counts = cls(window, bucket)
        if not state:
            return counts
        counts._turns_at, counts._total, counts._errors, packed = state
        if packed:
            ring = array("I")
            ring.frombytes(packed)
            if len(ring) != 2 * counts._older_buckets():
                raise ValueError(f"{len(ring)} numbers are not a state of window={window!r}, bucket={bucket!r}")
            counts._ring = ring
            counts._older_total, counts._older_errors = sum(ring[::2]), sum(ring[1::2])
        return counts

    def _older_buckets(self) -> int:
        return ceil(self.window / self.bucket - 1e-9) - 1

    def _turn(self, now: float) -> None:
        """Make the bucket of ``now`` the newest one."""
        steps = (now - self._turns_at) // self.bucket + 1.0
        older = self._older_buckets()
        if not 1.0 <= steps <= older:
            self.clear()
            self._turns_at = now + self.bucket
            return
        ring = self._ring
        if ring is None:
            ring = self._ring = array("I", [0]) * (2 * older)
        for _ in range(int(steps)):
            oldest = self._oldest
            total, errors = min(self._total, MOST_PER_BUCKET), min(self._errors, MOST_PER_BUCKET)
            self._older_total += total - ring[oldest]
            self._older_errors += errors - ring[oldest + 1]
            ring[oldest], ring[oldest + 1] = total, errors
            self._oldest = (oldest + 2) % len(ring)
            self._total = self._errors = 0
        self._turns_at += steps * self.bucket


WEIGHT = 0.2
"""How much the newest answer moves the average."""

MOST_SAMPLES = 64
"""How many of the latest answers the percentile looks at; a power of two."""

_NEXT_PLACE = MOST_SAMPLES - 1
_NO_SAMPLES = array("f")


class Latency:
    """What a key's answers took, in seconds."""

    __slots__ = ("_samples", "count", "ewma")

    def __init__(self) -> None:
        self.ewma = 0.0
        """The moving average; 0 before the first answer."""
        self.count = 0
        """Answers seen so far."""
        self._samples = _NO_SAMPLES

    def add(self, seconds: float) -> None:
        """Take one answer's time. What cannot be one (negative, NaN, above 31 days) is ignored."""
        if 0.0 <= seconds <= LONGEST_WAIT:
            count, samples = self.count, self._samples
            if count >= MOST_SAMPLES:
                self.ewma += WEIGHT * (seconds - self.ewma)
                samples[count & _NEXT_PLACE] = seconds
            elif count:
                self.ewma += WEIGHT * (seconds - self.ewma)
                samples.append(seconds)
            else:
                self.ewma = seconds
                self._samples = array("f", (seconds,))
            self.count = count + 1  # at last: a signal in between leaves a sample too many, never one too few

    def p95(self) -> float:
        """The time that 95 % of the latest answers did not exceed (nearest rank, 7 digits); 0 before the first."""
        ranked = sorted(self._samples)
        return ranked[(95 * len(ranked) + 99) // 100 - 1] if ranked else 0.0

    def to_state(self) -> tuple[float, int, bytes] | tuple[()]:
        """Small, for setting an idle key aside: empty if there was no answer yet."""
        return (
            () if not self.count else (self.ewma, self.count, self._samples[: min(self.count, MOST_SAMPLES)].tobytes())
        )

    @classmethod
    def from_state(cls, state: tuple[float, int, bytes] | tuple[()]) -> Latency:
        latency = cls()
        if state:
            samples = array("f")
            samples.frombytes(state[2])
            if not 1 <= len(samples) == min(state[1], MOST_SAMPLES):
                raise ValueError(f"{len(samples)} samples are not a state of latencies: expected 1 to {MOST_SAMPLES}")
            latency.ewma, latency.count, latency._samples = state[0], state[1], samples
        return latency
