"""The ways servers count, exactly as the server counts them.

| algorithm   | a call is let through when                                                     |
|-------------|--------------------------------------------------------------------------------|
| bucket      | a token is left; tokens refill evenly up to the burst                          |
| gcra        | it comes at most ``burst - 1`` intervals before its turn in an even procession |
| window      | fewer than N were let through since the window began                           |
| log         | fewer than N were let through in the last ``window`` seconds                   |
| strict-log  | the same, but refused calls are counted too: who hammers stays out             |
| concurrency | fewer than N are being answered right now                                      |

They are pure: ``now`` is an argument and nothing here waits. Except for the strict log a refused
call costs nothing. ``amount`` is 1 for a quota of calls and more for one of tokens. ``scale``
changes the quota to a multiple of what was first configured.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .notation import MOST_PER_WINDOW, Rate
from .refills import Gcra, TokenBucket
from .standing import Lenient, Quota, Standing, scaled_count
from .windows import FixedWindow, SlidingLog

__all__ = [
    "ALGORITHMS",
    "Concurrency",
    "FixedWindow",
    "Gcra",
    "Quota",
    "SlidingLog",
    "Standing",
    "TokenBucket",
    "make_quota",
]


@dataclass(slots=True)
class Concurrency(Lenient):
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

    def standing(self, now: float) -> Standing:
        limit, used = self.limit, self.in_flight
        return Standing(limit, None, used, max(0.0, limit - used), None, self.wait(now), limit, None)


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
