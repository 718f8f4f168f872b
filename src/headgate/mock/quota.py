"""The ways servers count, exactly as the server counts them.

| algorithm   | a call is let through when                                                     |
|-------------|--------------------------------------------------------------------------------|
| bucket      | a token is left; tokens refill evenly up to the burst                          |
| gcra        | it comes at most ``burst - 1`` intervals before its turn in an even procession |
| window      | fewer than N were let through since the window began                           |
| log         | fewer than N were let through in the last ``window`` seconds                   |
| strict-log  | the same, but refused calls are counted too: hammering keeps out               |
| concurrency | fewer than N are being answered right now                                      |

They are pure: ``now`` is an argument and nothing here waits. Except for the strict log a refused call costs nothing.
``amount`` is 1 for a quota of calls and more for one of tokens.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

from ..units import MOST_PER_WINDOW, Rate

ROUNDING = 1e-6
"""What is missing by this much is missing by rounding only: of an amount, and of an interval."""


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """The state of a quota at one instant. Times are seconds from then; ``None`` is for what cannot be known."""

    limit: float
    window: float | None
    used: float
    remaining: float
    reset: float | None
    """Until nothing of it is used."""
    retry: float | None
    """Until the next call would be let through; 0 when it would be now."""
    burst: float
    """What it lets through at once when nothing of it is used."""
    relief: float | None
    """As ``reset``, but of a log only until its oldest call leaves."""


class Quota(Protocol):
    """A way of counting. What does nothing here (``refuse`` to ``end``) matters to some ways of counting only."""

    __slots__ = ()

    def take(self, now: float, amount: float = 1.0) -> bool:
        """Let one call through, or not."""

    def wait(self, now: float, amount: float = 1.0) -> float | None:
        """Seconds until ``take`` would let it through, 0 for now, ``None`` if only the end of another call can tell."""

    def scale(self, factor: float, now: float) -> None:
        """From ``now`` on allow ``factor`` times the configured amount."""

    def status(self, now: float) -> LimitStatus: ...

    def refuse(self, now: float, amount: float = 1.0) -> None:
        """The call was refused, here or by another limit that holds beside this one."""
        return

    def yield_to(self, now: float, amount: float = 1.0) -> None:
        """A client with priority takes from the quota too, whatever is left."""
        return

    def give_back(self, now: float, amount: float) -> None:
        """A call that was let through has taken so much less."""
        return

    def end(self, now: float) -> None:
        """The answer to a call that was let through has gone out."""
        return


def scaled_count(amount: float, factor: float) -> float:
    """A multiple of a number of calls: 0.3 times 10 is 3, and not a little less."""
    return round(amount * factor, 6)


@dataclass(slots=True)
class TokenBucket(Quota):
    """Quotas that come back evenly: the token bucket, and GCRA, which keeps the same promise with a single number."""

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

    def give_back(self, now: float, amount: float) -> None:
        self._refill(now)
        self.tokens = min(self.tokens + amount, self.capacity)

    def scale(self, factor: float, now: float) -> None:
        self._refill(now)
        self.factor = factor
        self.per_second = self.rate.per_second * factor
        if self.scales_burst:
            self.capacity = max(1.0, self.burst * factor)
            self.tokens = min(self.tokens, self.capacity)

    def status(self, now: float) -> LimitStatus:
        retry = self.wait(now)
        until_full = (self.capacity - self.tokens) / self.per_second
        return LimitStatus(
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
class Gcra(Quota):
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

    def give_back(self, now: float, amount: float) -> None:
        self.over_at -= amount * self.interval

    def scale(self, factor: float, now: float) -> None:
        self.factor = factor

    def status(self, now: float) -> LimitStatus:
        until_over = max(0.0, self.over_at - now)
        used = until_over / self.interval
        return LimitStatus(
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


STRICT_MEMORY = 8
"""A strict log remembers at most so many times its limit of refused calls."""


@dataclass(slots=True)
class FixedWindow(Quota):
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

    def give_back(self, now: float, amount: float) -> None:
        self._turn(now)
        self.used = max(0.0, self.used - amount)

    def scale(self, factor: float, now: float) -> None:
        self.limit = scaled_count(self.rate.amount, factor)

    def status(self, now: float) -> LimitStatus:
        self._turn(now)
        limit, left = self.limit, self._left(now)
        free = limit - self.used
        retry = 0.0 if free >= 1 else left
        return LimitStatus(limit, self.rate.window, self.used, max(0.0, free), left, retry, limit, left)

    def _left(self, now: float) -> float:
        return (self.number + 1) * self.rate.window + self.phase - now

    def _turn(self, now: float) -> None:
        number = int((now - self.phase) // self.rate.window)
        if number > self.number:
            self.number, self.used = number, 0.0


@dataclass(slots=True)
class SlidingLog(Quota):
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

    def give_back(self, now: float, amount: float) -> None:
        self._forget(now)
        while amount > 0 and self.entries:
            at, spent = self.entries.pop()
            self.used -= min(spent, amount)
            if spent > amount:
                self.entries.append((at, spent - amount))
            amount -= spent

    def scale(self, factor: float, now: float) -> None:
        self.limit = min(scaled_count(self.rate.amount, factor), MOST_PER_WINDOW)

    def status(self, now: float) -> LimitStatus:
        retry = self.wait(now)
        limit, window = self.limit, self.rate.window
        newest, oldest = (self.entries[-1][0], self.entries[0][0]) if self.entries else (now - window, now - window)
        return LimitStatus(
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
        raise ValueError(f"a {algorithm} counts whole calls, so {rate} would admit none; write 1/2s instead of 0.5/s")


@dataclass(slots=True)
class Concurrency(Quota):
    at_once: int
    in_flight: int = 0
    limit: float = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.at_once <= MOST_PER_WINDOW:
            raise ValueError(f"at_once must be within 1 and {MOST_PER_WINDOW:,}, not {self.at_once}")
        self.limit = self.at_once

    def take(self, now: float, amount: float = 1.0) -> bool:
        if self.in_flight + 1 > self.limit:
            return False
        self.in_flight += 1
        return True

    def wait(self, now: float, amount: float = 1.0) -> float | None:
        return 0.0 if self.in_flight + 1 <= self.limit else None

    def end(self, now: float) -> None:
        self.in_flight = max(0, self.in_flight - 1)

    def scale(self, factor: float, now: float) -> None:
        self.limit = scaled_count(self.at_once, factor)

    def status(self, now: float) -> LimitStatus:
        limit, used = self.limit, self.in_flight
        return LimitStatus(limit, None, used, max(0.0, limit - used), None, self.wait(now), limit, None)


ALGORITHMS = ("bucket", "gcra", "window", "log", "strict-log", "concurrency")


def make_quota(
    algorithm: str, *, rate: Rate, burst: float, at_once: int, phase: float = 0.0, scales_burst: bool = True
) -> Quota:
    """A new quota; each way of counting takes what it needs of these."""
    match algorithm:
        case "bucket":
            return TokenBucket(rate, burst, scales_burst)
        case "gcra":
            return Gcra(rate, burst)
        case "window":
            return FixedWindow(rate, phase)
        case "log" | "strict-log":
            return SlidingLog(rate, strict=algorithm == "strict-log")
        case "concurrency":
            return Concurrency(at_once)
    raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, not {algorithm!r}")
