"""Quotas that count calls in a stretch of time: one that jumps from window to window, and one that slides along."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil

from .notation import MOST_PER_WINDOW, Rate
from .standing import Lenient, Standing, scaled_count

STRICT_MEMORY = 8
"""A strict log remembers at most so many times its limit of refused calls."""


@dataclass(slots=True)
class FixedWindow(Lenient):
    """Windows follow one another from ``phase`` on and were there before; one that is not full is lost."""

    rate: Rate
    phase: float = 0.0
    number: int = -1
    used: float = 0.0
    limit: float = field(init=False)

    def __post_init__(self) -> None:
        _check_whole("window", self.rate)
        self.limit = self.rate.amount
        if not 0 <= self.phase <= self.rate.window:
            raise ValueError(f"phase must be within 0 and the window's {self.rate.window:g} s, not {self.phase:g} s")

    def take(self, now: float, amount: float = 1.0) -> bool:
        self._turn(now)
        if self.used + amount > self.limit:
            return False
        self.used += amount
        return True

    def wait(self, now: float, amount: float = 1.0) -> float:
        self._turn(now)
        return 0.0 if self.used + amount <= self.limit else self._left(now)

    def yield_to(self, now: float, amount: float = 1.0) -> None:
        self._turn(now)
        self.used += amount

    def scale(self, factor: float, now: float) -> None:
        self.limit = scaled_count(self.rate.amount, factor)

    def standing(self, now: float) -> Standing:
        self._turn(now)
        limit, left = self.limit, self._left(now)
        free = limit - self.used
        retry = 0.0 if free >= 1 else left
        return Standing(limit, self.rate.window, self.used, max(0.0, free), left, retry, limit, left)

    def _left(self, now: float) -> float:
        return (self.number + 1) * self.rate.window + self.phase - now

    def _turn(self, now: float) -> None:
        number = int((now - self.phase) // self.rate.window)
        if number > self.number:
            self.number, self.used = number, 0.0


@dataclass(slots=True)
class SlidingLog(Lenient):
    rate: Rate
    strict: bool = False
    used: float = 0.0
    entries: deque[tuple[float, float]] = field(default_factory=deque)
    """When, and how much."""
    limit: float = field(init=False)

    def __post_init__(self) -> None:
        _check_whole("log", self.rate)
        self.limit = self.rate.amount

    def take(self, now: float, amount: float = 1.0) -> bool:
        self._forget(now)
        if self.used + amount > self.limit:
            self.refuse(now, amount)
            return False
        self._add(now, amount)
        return True

    def wait(self, now: float, amount: float = 1.0) -> float:
        self._forget(now)
        excess, leaves_at = self.used + amount - self.limit, now
        if excess > 0 and self.used == len(self.entries) > 0:  # each of them is one call: no need to add them up
            return self.entries[min(ceil(excess), len(self.entries)) - 1][0] + self.rate.window - now
        for at, spent in self.entries:
            if excess <= 0:
                break
            excess, leaves_at = excess - spent, at + self.rate.window
        return leaves_at - now

    def refuse(self, now: float, amount: float = 1.0) -> None:
        if self.strict:
            self._add(now, amount)
            while self.used > STRICT_MEMORY * self.rate.amount:
                self.used -= self.entries.popleft()[1]

    def yield_to(self, now: float, amount: float = 1.0) -> None:
        self._forget(now)
        if self.used < self.limit:
            self._add(now, amount)

    def scale(self, factor: float, now: float) -> None:
        self.limit = min(scaled_count(self.rate.amount, factor), MOST_PER_WINDOW)

    def standing(self, now: float) -> Standing:
        retry = self.wait(now)
        limit, window = self.limit, self.rate.window
        newest, oldest = (self.entries[-1][0], self.entries[0][0]) if self.entries else (now - window, now - window)
        return Standing(
            limit=limit,
            window=window,
            used=self.used,
            remaining=max(0.0, limit - self.used),
            reset=newest + window - now,
            retry=retry,
            burst=limit,
            relief=oldest + window - now,
        )

    def _add(self, now: float, amount: float) -> None:
        self.entries.append((now, amount))
        self.used += amount

    def _forget(self, now: float) -> None:
        entries, gone_at = self.entries, now - self.rate.window
        while entries and entries[0][0] <= gone_at:
            self.used -= entries.popleft()[1]


def _check_whole(algorithm: str, rate: Rate) -> None:
    if rate.amount < 1:
        raise ValueError(f"a {algorithm} counts whole calls, so {rate} admits none; write 1/2s instead of 0.5/s")
