"""Count calls and failures over the last seconds, for many thousands of keys at once.

The window is cut into buckets. Only the newest one is touched by an answer; the
older ones lie in a ring and are moved once per bucket, not once per call:

    age    window                      bucket      0
           |  oldest  |  ...  |  older   |  newest  |
           +---------- ring, lazy -------+-- ints --+

So an answer costs one comparison and an addition, a key that was never used owns no
ring, and a key that was idle for a whole window gives its ring back. An event leaves
the counts when it is between ``window - bucket`` and ``window`` old.
"""

from __future__ import annotations

from array import array
from math import ceil

from .decision import NEVER

MOST_BUCKETS = 3600
"""The longest ring: an hour by the second."""

MOST_PER_BUCKET = 2**32 - 1
"""A bucket that saw more calls than this remembers this many."""


class SlidingCounts:
    """How many calls there were lately, and how many of them failed.

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
                raise ValueError(f"{len(ring)} numbers are no state of window={window!r}, bucket={bucket!r}")
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
