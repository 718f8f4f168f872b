"""How long an exchange may take before the store counts as lost: several times as long as exchanges take of late.

    near (1 ms)   50 ms           a store that stalls is given up soon, and tried again soon
    far (30 ms)  240 ms           one that is just far away is not
    unknown      the most there is

Each exchange that fails gives the next one more time: a store that has become slow is found to be there after all.
"""

from __future__ import annotations

TIMEOUT = 0.25
"""Seconds that an exchange has at most. No call waits that long for one: ``leased_policies.PATIENCE``."""
LEAST = 0.05
"""... and at least: with less, a machine that is busy would lose a store for nothing."""
TIMES = 8.0
MORE = 1.5
"""How many times a usual exchange, and how much more after one that failed."""
SMOOTHING = 0.2


class AdaptiveTimeout:
    __slots__ = ("_most", "_usual", "seconds")

    def __init__(self, most: float = TIMEOUT) -> None:
        self._most = self.seconds = most
        self._usual = 0.0

    def answered(self, took: float) -> None:
        self._usual += (took - self._usual) * (SMOOTHING if self._usual else 1.0)
        self.seconds = min(self._most, max(LEAST, TIMES * self._usual))

    def failed(self) -> None:
        self.seconds = min(self._most, MORE * self.seconds)
