"""What a scenario is put together from: limits and who they hold for, queues, neighbours, streams of work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .notation import LONGEST_DURATION, Rate
from .quota import ALGORITHMS, Quota, make_quota

REFILLING = ("bucket", "gcra")
UNITS = ("calls", "tokens")
MOST_LIMITS = 16
MOST_KEYS = 1_000_000
MOST_SERVERS = 100_000
MOST_ROOM = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One rule of the server's."""

    algorithm: str = "bucket"
    rate: Rate | None = None
    burst: float | None = None
    """What a bucket holds, and how far GCRA lets calls come before their turn; ``None`` is the rate's amount."""
    at_once: int | None = None
    phase: float | None = None
    """When a window begins; ``None`` leaves it to the seed, as clients do not know it either."""
    of: str = "calls"

    def __post_init__(self) -> None:
        check_one_of("algorithm", self.algorithm, ALGORITHMS)
        check_one_of("of", self.of, UNITS)
        counts_depth = self.algorithm == "concurrency"
        if counts_depth and self.of == "tokens":
            raise ValueError("of='tokens' is for limits with a rate; concurrency counts calls")
        for name, meant_for in (
            ("rate", not counts_depth),
            ("at_once", counts_depth),
            ("burst", self.refills),
            ("phase", self.algorithm == "window"),
        ):
            value = getattr(self, name)
            if value is not None and not meant_for:
                raise ValueError(f"{name}={value} means nothing to algorithm {self.algorithm!r}; leave it out")
            if value is None and meant_for and name in ("rate", "at_once"):
                raise ValueError(f"{name} is missing; algorithm {self.algorithm!r} needs it")
        self.make(0.0)

    def make(self, draw: float) -> Quota:
        """The quota at the start; ``draw`` in [0, 1) decides what is left to chance."""
        rate = self.rate or Rate(1.0)
        burst = max(1.0, rate.amount) if self.burst is None else self.burst
        phase = rate.window * draw if self.phase is None else self.phase
        return make_quota(
            self.algorithm, rate=rate, burst=burst, at_once=self.at_once or 1, phase=phase, scales_burst=False
        )

    @property
    def refills(self) -> bool:
        """Whether it comes back evenly instead of counting what fits in."""
        return self.algorithm in REFILLING

    @property
    def count(self) -> float:
        """How much it allows: in its window, or at once."""
        return self.rate.amount if self.rate else float(self.at_once or 1)

    def outlasts(self, horizon: float) -> bool:
        """Whether it is a stock for the whole run rather than a pace, like a quota per day in a run of an hour."""
        return self.rate is not None and not self.refills and self.rate.window > horizon


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits that hold at once, and for whom."""

    limits: tuple[Limit, ...] = ()
    keys: int = 1
    shared: bool = False
    """Whether its keys use one budget together, or have one like it each."""

    def __post_init__(self) -> None:
        check_within("keys", self.keys, 1, MOST_KEYS)
        check_few("limits", self.limits, MOST_LIMITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Servers behind the quota that work first come, first served; calls wait for them."""

    servers: int
    room: int
    """Calls that may wait; one more is refused with 503."""
    thrash: float = 0.0
    """A call takes longer by this share for each call per server that waits when it arrives."""

    def __post_init__(self) -> None:
        check_within("servers", self.servers, 1, MOST_SERVERS)
        check_within("room", self.room, 0, MOST_ROOM)
        check_within("thrash", self.thrash, 0, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another tenant with priority on the first key's budget: ``on`` seconds there, ``off`` seconds away."""

    rate: Rate
    on: float = 1.0
    off: float = 0.0

    def __post_init__(self) -> None:
        check_within("on", self.on, 0.001, LONGEST_DURATION)
        check_within("off", self.off, 0, LONGEST_DURATION)


class Stream(NamedTuple):
    """From ``at`` on work arrives at ``rate``."""

    rate: Rate
    at: float


class Mark(NamedTuple):
    """An instant after which it is measured how soon the quota is used well again."""

    name: str
    at: float


def check_within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name}={value!r} must be within {low:,} and {high:,}")


def check_one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r} must be one of {', '.join(choices)}")


def check_few(name: str, values: tuple[object, ...], most: int) -> None:
    if len(values) > most:
        raise ValueError(f"{name} has {len(values)} entries; at most {most} fit")
