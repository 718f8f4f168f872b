"""The four ways servers count, exactly as the server counts them.

| algorithm   | a call is let through when                                   |
|-------------|--------------------------------------------------------------|
| bucket      | a token is left; tokens refill evenly up to the burst        |
| window      | fewer than N were let through since the window began         |
| log         | fewer than N were let through in the last ``window`` seconds |
| concurrency | fewer than N are being answered right now                    |

They are pure: ``now`` is an argument and nothing here waits. A refused call costs
nothing. ``scale`` changes the quota to a multiple of what was first configured.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from .notation import MOST_PER_WINDOW, Rate

ALMOST_A_TOKEN = 1 - 1e-9
"""A token that is whole but for rounding counts as whole."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a quota stands at one instant. Times are seconds from then; ``None`` is for what cannot be known."""

    limit: float
    window: float | None
    used: float
    remaining: float
    reset: float | None
    """Until nothing of it is used."""
    retry: float | None
    """Until the next call would be let through; 0 when it would be now."""


class Quota(Protocol):
    def take(self, now: float) -> bool:
        """Let one call through, or not."""

    def end(self, now: float) -> None:
        """The answer to a call that was let through has gone out."""

    def scale(self, factor: float, now: float) -> None:
        """From ``now`` on allow ``factor`` times the configured amount."""

    def standing(self, now: float) -> Standing: ...


@dataclass(slots=True)
class TokenBucket:
    rate: Rate
    burst: float
    factor: float = 1.0
    tokens: float = field(init=False)
    filled_at: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.burst <= MOST_PER_WINDOW:
            raise ValueError(f"burst must be within 1 and {MOST_PER_WINDOW:,}, not {self.burst:g}")
        self.tokens = self.burst

    @property
    def capacity(self) -> float:
        return max(1.0, self.burst * self.factor)

    def take(self, now: float) -> bool:
        self._refill(now)
        if self.tokens < ALMOST_A_TOKEN:
            return False
        self.tokens -= 1
        return True

    def end(self, now: float) -> None:
        pass

    def scale(self, factor: float, now: float) -> None:
        self._refill(now)
        self.factor = factor
        self.tokens = min(self.tokens, self.capacity)

    def standing(self, now: float) -> Standing:
        self._refill(now)
        per_second = self.rate.per_second * self.factor
        return Standing(
            limit=self.rate.amount * self.factor,
            window=self.rate.window,
            used=self.capacity - self.tokens,
            remaining=max(0.0, self.tokens),
            reset=(self.capacity - self.tokens) / per_second,
            retry=0.0 if self.tokens >= ALMOST_A_TOKEN else (1 - self.tokens) / per_second,
        )

    def _refill(self, now: float) -> None:
        passed = max(0.0, now - self.filled_at) if self.filled_at is not None else 0.0
        self.tokens = min(self.capacity, self.tokens + passed * self.rate.per_second * self.factor)
        self.filled_at = now if self.filled_at is None else max(now, self.filled_at)


@dataclass(slots=True)
class FixedWindow:
    """Windows follow one another from instant 0; a window that is not full is lost."""

    rate: Rate
    factor: float = 1.0
    number: int = 0
    used: int = 0

    def take(self, now: float) -> bool:
        self._turn(now)
        if self.used + 1 > self.rate.amount * self.factor:
            return False
        self.used += 1
        return True

    def end(self, now: float) -> None:
        pass

    def scale(self, factor: float, now: float) -> None:
        self.factor = factor

    def standing(self, now: float) -> Standing:
        self._turn(now)
        limit = self.rate.amount * self.factor
        left = (self.number + 1) * self.rate.window - now
        free = limit - self.used
        return Standing(limit, self.rate.window, self.used, max(0.0, free), left, 0.0 if free >= 1 else left)

    def _turn(self, now: float) -> None:
        number = int(now // self.rate.window)
        if number > self.number:
            self.number, self.used = number, 0


@dataclass(slots=True)
class SlidingLog:
    rate: Rate
    factor: float = 1.0
    admitted_at: deque[float] = field(default_factory=deque)

    @property
    def limit(self) -> float:
        return min(self.rate.amount * self.factor, MOST_PER_WINDOW)

    def take(self, now: float) -> bool:
        self._forget(now)
        if len(self.admitted_at) + 1 > self.limit:
            return False
        self.admitted_at.append(now)
        return True

    def end(self, now: float) -> None:
        pass

    def scale(self, factor: float, now: float) -> None:
        self.factor = factor

    def standing(self, now: float) -> Standing:
        self._forget(now)
        limit, used = self.limit, len(self.admitted_at)
        reset = self.admitted_at[-1] + self.rate.window - now if used else 0.0
        over = used - int(limit)
        retry = self.admitted_at[min(over, used - 1)] + self.rate.window - now if over >= 0 and used else 0.0
        return Standing(limit, self.rate.window, used, max(0.0, limit - used), reset, retry)

    def _forget(self, now: float) -> None:
        while self.admitted_at and self.admitted_at[0] <= now - self.rate.window:
            self.admitted_at.popleft()


@dataclass(slots=True)
class Concurrency:
    at_once: int
    factor: float = 1.0
    in_flight: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.at_once <= MOST_PER_WINDOW:
            raise ValueError(f"at_once must be within 1 and {MOST_PER_WINDOW:,}, not {self.at_once}")

    def take(self, now: float) -> bool:
        if self.in_flight + 1 > self.at_once * self.factor:
            return False
        self.in_flight += 1
        return True

    def end(self, now: float) -> None:
        self.in_flight = max(0, self.in_flight - 1)

    def scale(self, factor: float, now: float) -> None:
        self.factor = factor

    def standing(self, now: float) -> Standing:
        limit = self.at_once * self.factor
        free = limit - self.in_flight
        return Standing(limit, None, self.in_flight, max(0.0, free), None, 0.0 if free >= 1 else None)


ALGORITHMS = ("bucket", "window", "log", "concurrency")


def make_quota(algorithm: str, *, rate: Rate, burst: float, at_once: int) -> Quota:
    if algorithm in ("window", "log") and rate.amount < 1:
        raise ValueError(f"a {algorithm} counts whole calls, so {rate} admits none; write 1/2s instead of 0.5/s")
    match algorithm:
        case "bucket":
            return TokenBucket(rate, burst)
        case "window":
            return FixedWindow(rate)
        case "log":
            return SlidingLog(rate)
        case "concurrency":
            return Concurrency(at_once)
    raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, not {algorithm!r}")
