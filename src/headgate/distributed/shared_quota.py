"""One known limit that many share: a bucket that keeps bursts down, and a record that keeps every window.

The bucket refills at ``(amount - burst) / window``. The record of the last window is what makes the promise:
whatever came back or was charged later, no window ever lets more than ``amount`` start. A call counts
until a window after its start, which may be a while after it was taken for. The record has about ``SLICES`` entries:
calls that start in the same slice of the window count as if the last of them were all.
"""

from __future__ import annotations

from math import floor
from typing import Any

from ..core.quota import LONG_WINDOW

SLICES = 64
ROUNDING = 1e-9
INSTANT = 1e-6


class SharedQuota:
    __slots__ = ("amount", "burst", "dimension", "filled_at", "level", "spent", "window")

    def __init__(self, dimension: str, amount: float, window: float, burst: float, now: float) -> None:
        self.dimension = dimension
        self.amount, self.window, self.burst = amount, window, burst
        self.level, self.filled_at = burst, now
        self.spent: list[list[float]] = []
        """When each entry began, when the last call of it starts, and how much; oldest first."""

    def ready_at(self, amount: float, now: float) -> float:
        """The instant at which ``amount`` may be taken; ``now`` means at once."""
        free_at = self._window_free_at(amount, now)
        if self.burst >= self.amount:
            return free_at
        refill = (self.amount - self.burst) / self.window
        self.level = min(self.burst, self.level + refill * max(0.0, now - self.filled_at))
        self.filled_at = max(now, self.filled_at)
        missing = min(amount, self.burst) - self.level
        return max(free_at, now + missing / refill) if missing > ROUNDING * self.burst else free_at

    def take(self, amount: float, now: float, starts_at: float) -> None:
        self.level -= amount
        slice_ = self.window / SLICES
        if self.spent and (
            starts_at <= self.spent[-1][1] or floor(starts_at / slice_) == floor(self.spent[-1][1] / slice_)
        ):
            self.spent[-1][1] = max(starts_at, self.spent[-1][1])
            self.spent[-1][2] += amount
        else:
            self.spent.append([now, starts_at, amount])

    def give_back(self, amount: float, taken_at: float, now: float) -> None:
        """Refund what was taken then and not used; below 0, charge what was used beyond it, which counts from now."""
        if amount < 0:
            least = min(self.level, 2 * self.burst - self.amount)
            self.take(-amount, now, now)
            self.level = max(self.level, least)  # what a window refills is the most that may be owed
            return
        self.level = min(self.burst, self.level + amount)
        if not self.spent or taken_at + self.window <= now:  # it has left the window already
            return
        oldest = self.spent[0]  # a member dates a grant from when it asked for it, which is before it was taken
        entry = next((entry for entry in reversed(self.spent) if entry[0] <= taken_at + INSTANT), oldest)
        entry[2] = max(0.0, entry[2] - amount)

    @property
    def is_long(self) -> bool:
        return self.window >= LONG_WINDOW

    def left(self, now: float) -> float:
        """Which share of the window is left."""
        spent = 0.0
        for entry in self.spent:
            if entry[1] + self.window > now:
                spent += entry[2]
        return max(0.0, 1.0 - spent / self.amount)

    def go_on_from(self, before: SharedQuota) -> None:
        """Know what was spent under a limit that was put otherwise."""
        self.level, self.filled_at = min(self.burst, before.level), before.filled_at
        self.spent = [list(entry) for entry in before.spent]

    def _window_free_at(self, amount: float, now: float) -> float:
        spent = self.spent
        while spent and spent[0][1] + self.window <= now:
            del spent[0]
        over = amount - self.amount
        for entry in spent:
            over += entry[2]
        free_at = now
        for entry in spent:
            if over <= ROUNDING * self.amount:
                break
            over -= entry[2]
            free_at = max(free_at, entry[1] + self.window)
        return free_at

    def to_state(self) -> list[Any]:
        return [self.dimension, self.amount, self.window, self.burst, self.level, self.filled_at, self.spent]

    @classmethod
    def from_state(cls, state: list[Any]) -> SharedQuota:
        dimension, amount, window, burst, level, filled_at, spent = state
        quota = cls(dimension, amount, window, burst, filled_at)
        quota.level, quota.spent = level, [list(entry) for entry in spent]
        return quota
