"""Quotas that come back evenly: the token bucket, and GCRA, which keeps the same promise with a single number."""

from __future__ import annotations

from dataclasses import dataclass, field

from .notation import MOST_PER_WINDOW, Rate
from .standing import ROUNDING, Lenient, Standing


@dataclass(slots=True)
class TokenBucket(Lenient):
    rate: Rate
    burst: float
    scales_burst: bool = True
    """Whether a change of the quota changes what the bucket holds too, or only how fast it fills."""
    factor: float = 1.0
    filled_at: float = 0.0
    tokens: float = field(init=False)
    capacity: float = field(init=False)
    per_second: float = field(init=False)

    def __post_init__(self) -> None:
        _check_burst(self.burst)
        self.tokens = self.capacity = self.burst
        self.per_second = self.rate.per_second * self.factor

    def take(self, now: float, amount: float = 1.0) -> bool:
        self._refill(now)
        if self.tokens < amount - ROUNDING:
            return False
        self.tokens -= amount
        return True

    def wait(self, now: float, amount: float = 1.0) -> float:
        self._refill(now)
        return 0.0 if self.tokens >= amount - ROUNDING else (amount - self.tokens) / self.per_second

    def yield_to(self, now: float, amount: float = 1.0) -> None:
        self._refill(now)
        self.tokens = max(self.tokens - amount, -self.capacity)

    def scale(self, factor: float, now: float) -> None:
        self._refill(now)
        self.factor = factor
        self.per_second = self.rate.per_second * factor
        if self.scales_burst:
            self.capacity = max(1.0, self.burst * factor)
            self.tokens = min(self.tokens, self.capacity)

    def standing(self, now: float) -> Standing:
        retry = self.wait(now)
        until_full = (self.capacity - self.tokens) / self.per_second
        return Standing(
            limit=self.rate.amount * self.factor,
            window=self.rate.window,
            used=self.capacity - self.tokens,
            remaining=max(0.0, self.tokens),
            reset=until_full,
            retry=retry,
            burst=self.capacity,
            relief=until_full,
        )

    def _refill(self, now: float) -> None:
        if now > self.filled_at:
            tokens = self.tokens + (now - self.filled_at) * self.per_second
            self.tokens = tokens if tokens < self.capacity else self.capacity
            self.filled_at = now


@dataclass(slots=True)
class Gcra(Lenient):
    """Keeps one number: when the procession of calls let through so far would end, were it even."""

    rate: Rate
    burst: float
    factor: float = 1.0
    over_at: float = 0.0

    def __post_init__(self) -> None:
        _check_burst(self.burst)

    @property
    def interval(self) -> float:
        return self.rate.window / (self.rate.amount * self.factor)

    def take(self, now: float, amount: float = 1.0) -> bool:
        if self.wait(now, amount) > 0:
            return False
        self.over_at = max(now, self.over_at) + amount * self.interval
        return True

    def wait(self, now: float, amount: float = 1.0) -> float:
        early = self.over_at - (self.burst - amount) * self.interval - now
        return early if early > ROUNDING * self.interval else 0.0

    def yield_to(self, now: float, amount: float = 1.0) -> None:
        interval = self.interval
        self.over_at = min(max(now, self.over_at) + amount * interval, now + 2 * self.burst * interval)

    def scale(self, factor: float, now: float) -> None:
        self.factor = factor

    def standing(self, now: float) -> Standing:
        until_over = max(0.0, self.over_at - now)
        used = until_over / self.interval
        return Standing(
            limit=self.rate.amount * self.factor,
            window=self.rate.window,
            used=used,
            remaining=max(0.0, self.burst - used),
            reset=until_over,
            retry=self.wait(now),
            burst=self.burst,
            relief=until_over,
        )


def _check_burst(burst: float) -> None:
    if not 1 <= burst <= MOST_PER_WINDOW:
        raise ValueError(f"burst must be within 1 and {MOST_PER_WINDOW:,}, not {burst:g}")
