"""One experiment: what the server allows, what befalls it, how it is called, and for how long.

    clients                  network               server
    workers x processes  --> round_trip, jitter --> keys -> budgets -> limits (all of them must agree)
    arrivals, tokens     <-- headers            <-- queue, service_time, steps, outages, hangs, flapping

A scenario is plain, checked data: it can be compared, pickled and written down as a small TOML file
(``scenario_file``). ``SimulatedServer`` brings its server to life. Instants are seconds since the start.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ..mock.dialects import DIALECTS
from ..mock.quota import ALGORITHMS, Quota, make_quota
from ..units import LARGEST_FACTOR, LONGEST_DURATION, Outage, Rate, Step

# -- what a scenario is put together from: limits and the keys they hold for, queues, neighbours, streams of work

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
                raise ValueError(f"{name}={value} has no effect on algorithm {self.algorithm!r}; remove it")
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
    """Limits that hold at once, and for which keys."""

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
        raise ValueError(f"{name} has {len(values)} entries; the limit is {most}")


RETRY_AFTER = ("none", "exact", "short", "long", "date")
HEADERS = tuple(DIALECTS)

MOST_CHANGES = 1_000
"""Steps, outages, hangs, arrivals and marks: so many of each."""
MOST_WORKERS = 100_000
MOST_PROCESSES = 1_000
LARGEST_DRAW = 4.0
"""No call needs more than so many times the usual number of tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    note: str = ""
    horizon: float = 300.0

    budgets: tuple[Budget, ...]
    steps: tuple[Step, ...] = ()
    """Every limit, and the speed of a queue, from then on as a multiple of the configured one."""
    outages: tuple[Outage, ...] = ()
    """Answered with 503 at once."""
    hangs: tuple[Outage, ...] = ()
    """Not answered at all."""
    flapping: float = 0.0
    """The share of admitted calls that fail with 500."""
    neighbour: Neighbour | None = None
    queue: Queue | None = None
    service_time: float = 0.15
    """The mean; times are distributed lognormally, with ``service_variation`` times the mean as their deviation."""
    service_variation: float = 0.5
    retry_after: str = "none"
    retry_after_long: float = 20.0
    """What ``retry_after = "long"`` says, whatever is true."""
    headers: str = "none"

    round_trip: float = 0.04
    jitter: float = 0.25
    """Each way takes half of the round trip, give or take up to this share."""

    workers: int = 64
    """In each process."""
    processes: int = 1
    starts: tuple[float, ...] = ()
    """When each process starts; empty for all at 0."""
    together: bool = False
    """Whether the processes share one controller."""
    timeout: float = 60.0
    """Seconds after which a client gives up on an answer."""
    arrivals: tuple[Stream, ...] = ()
    """How work comes in, over all processes; empty for all of it at the start and without an end."""
    arrive_together: int = 1
    """Work comes in lots of this size."""
    tokens: float = 0.0
    """What a call costs of a limit of tokens: the mean of a lognormal distribution like that of service times."""
    tokens_variation: float = 0.0

    marks: tuple[Mark, ...] = ()
    settling: float = 10.0
    """Seconds over which the quota must be used well to count as reached."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            check_within(name, getattr(self, name), low, high)
        check_one_of("retry_after", self.retry_after, RETRY_AFTER)
        check_one_of("headers", self.headers, HEADERS)
        for name in ("steps", "outages", "hangs", "arrivals", "marks"):
            check_few(name, getattr(self, name), MOST_CHANGES)
        for name in ("steps", "outages", "hangs", "arrivals"):
            object.__setattr__(self, name, tuple(sorted(getattr(self, name), key=lambda change: change.at)))
        if self.starts and len(self.starts) != self.processes:
            raise ValueError(f"starts has {len(self.starts)} times for processes={self.processes}; give one for each")
        for name, instants in (("starts", self.starts), ("marks", [mark.at for mark in self.marks])):
            for at in instants:
                check_within(name, at, 0, self.horizon)
        for step in self.steps:
            check_within("steps", step.factor, 1 / LARGEST_FACTOR, LARGEST_FACTOR)
        self._check_budgets()

    def _check_budgets(self) -> None:
        limits = [limit for budget in self.budgets for limit in budget.limits]
        if not self.budgets or (not limits and self.queue is None):
            raise ValueError("limits is empty; give at least one, or a bounded queue")
        check_within("keys", self.keys, 1, MOST_KEYS)
        of_tokens = [limit for limit in limits if limit.of == "tokens"]
        if of_tokens and not self.tokens:
            raise ValueError("tokens is missing; a limit of tokens needs the cost of a call")
        least = min([1.0, *(step.factor for step in self.steps)])
        for limit in limits:
            room = limit.make(0.0).status(0.0).burst if limit.refills else limit.count * least
            needed = self.most_tokens if limit.of == "tokens" else 1.0
            if room < needed:
                raise ValueError(
                    f"the limit of {limit.rate or limit.at_once} has room for {room:g} {limit.of} at worst, "
                    f"but one call may need {needed:g}; no call would be admitted"
                )
        if self.neighbour and not (self.budgets[0].limits and self.budgets[0].limits[0].rate):
            raise ValueError("neighbour needs a rate; the first limit has none")

    @property
    def keys(self) -> int:
        return sum(budget.keys for budget in self.budgets)

    @property
    def nominal(self) -> float:
        """Calls a second that all keys together allow at the start, in the long run."""
        paces = [self._pace(budget) * (1 if budget.shared else budget.keys) for budget in self.budgets]
        served = self.queue.servers / self.service_time if self.queue else math.inf
        return min(sum(paces), served)

    def factor_at(self, now: float) -> float:
        return next((step.factor for step in reversed(self.steps) if step.at <= now), 1.0)

    def is_down_at(self, now: float) -> bool:
        return any(outage.at <= now < outage.until for outage in (*self.outages, *self.hangs))

    def quota_at(self, now: float) -> float:
        """Calls a second that all keys together truly allow."""
        return 0.0 if self.is_down_at(now) else self.nominal * self.factor_at(now)

    def allowed_between(self, start: float, end: float) -> float:
        """How many calls the quota refills from ``start`` to ``end``, without any burst."""
        edges = {start, end, *(step.at for step in self.steps)}
        edges.update(edge for outage in (*self.outages, *self.hangs) for edge in (outage.at, outage.until))
        inside = sorted(edge for edge in edges if start <= edge <= end)
        return sum(self.quota_at(left) * (right - left) for left, right in pairwise(inside))

    def arrival_times(self) -> Iterator[float]:
        """When each piece of work comes in, until the horizon; nothing for work that is all there at the start."""
        ends = [*(stream.at for stream in self.arrivals[1:]), self.horizon]
        for stream, end in zip(self.arrivals, ends, strict=True) if self.arrivals else ():
            lot = 0
            while (at := stream.at + lot * self.arrive_together / stream.rate.per_second) < min(end, self.horizon):
                yield from [at] * self.arrive_together
                lot += 1

    @property
    def most_tokens(self) -> float:
        """What a call costs of a limit of tokens at most."""
        return LARGEST_DRAW * self.tokens if self.tokens_variation else self.tokens

    def draw_tokens(self, rng: random.Random) -> float:
        """What one call costs of a limit of tokens."""
        if not self.tokens_variation:
            return self.tokens
        drawn = rng.lognormvariate(*lognormal(self.tokens, self.tokens_variation))
        return float(max(1, round(min(drawn, self.most_tokens))))

    def _pace(self, budget: Budget) -> float:
        paces, stocks = [], []
        for limit in budget.limits:
            if limit.rate is None:
                paces.append((limit.at_once or 1) / self.service_time)
                continue
            cost = self.tokens if limit.of == "tokens" else 1.0
            if limit.outlasts(self.horizon):
                stocks.append(limit.rate.amount / cost / self.horizon)
            else:
                paces.append(limit.rate.per_second / cost)
        return min(paces or stocks, default=math.inf)


def lognormal(mean: float, variation: float) -> tuple[float, float]:
    """Mu and sigma of the lognormal distribution with this mean and this deviation in units of the mean."""
    variance = math.log(1 + variation**2)
    return math.log(mean) - variance / 2, math.sqrt(variance)


_RANGES: dict[str, tuple[float, float]] = {
    "horizon": (1, LONGEST_DURATION),
    "flapping": (0, 1),
    "service_time": (0.0001, 3600),
    "service_variation": (0, 10),
    "retry_after_long": (1, LONGEST_DURATION),
    "round_trip": (0, 60),
    "jitter": (0, 1),
    "workers": (1, MOST_WORKERS),
    "processes": (1, MOST_PROCESSES),
    "timeout": (0.001, LONGEST_DURATION),
    "arrive_together": (1, MOST_WORKERS),
    "tokens": (0, 1_000_000),
    "tokens_variation": (0, 10),
    "settling": (0.5, LONGEST_DURATION),
}
