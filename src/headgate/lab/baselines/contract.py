"""What a strategy is to the lab: two methods, and the setup it is given.

    on_send(now)      -> 0    send one call now; asking has taken the slot
                      -> d    not yet: ask again in d seconds; nothing was taken
    on_response(now, status, latency, headers)       what became of a call: it left at now - latency

``status`` is 200, 429, a 5xx, or 0 when the caller gave up waiting. ``headers`` are in lower case.
Nothing here reads a clock or rolls dice of its own, so a strategy is as repeatable as the lab.

A baseline is asked once for each process and answers with its clients. One client is one controller
for each API key and the number of workers that share them:

    [([a, b], 64)]                64 workers, two keys, everything known to all
    [([a1, b1], 1), ([a2, b2], 1), ...]    each worker remembers for itself, and may share something behind
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from ..simulated_server import SimulatedServer

OK = 200
TOO_MANY = 429
UNAVAILABLE = 503

Headers: TypeAlias = Mapping[str, str] | None


class Contract(Protocol):
    def on_send(self, now: float) -> float: ...

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None: ...


Clients: TypeAlias = list[tuple[list[Contract], int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSetup:
    """Where the clients of one process sit, and what they may know."""

    processes: int
    workers: int
    """Of this process."""
    keys: int
    rng: random.Random
    nominal: float
    """Calls a second that all keys together allow at the start: only for strategies that are told the quota."""
    server: SimulatedServer
    """For the oracle and the informed client alone: every other strategy has to find out by calling."""

    @property
    def share(self) -> float:
        """This process's part of the quota on one key, if it is split evenly."""
        return self.nominal / self.processes / self.keys


def shared_by_all(setup: ClientSetup, controller: Callable[[int], Contract]) -> Clients:
    """One controller for each key, and all workers of the process behind it."""
    return [([controller(key) for key in range(setup.keys)], setup.workers)]


def one_per_worker(setup: ClientSetup, worker: Callable[[int], Contract]) -> Clients:
    """Each worker with controllers of its own, one for each key."""
    return [([worker(key) for key in range(setup.keys)], 1) for _ in range(setup.workers)]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A published way to deal with a quota one does not know."""

    make: Callable[[ClientSetup], Clients]
    about: str
    """One line for a list of strategies."""
    foresees: bool = False
    """Its calls are settled when they are sent and travel without jitter: what it foresaw is what happens."""


# -- what several baselines share ----------------------------------------------------------------

ROUNDING = 1e-9
"""An instant this near has come."""


def wait_until(instant: float, now: float) -> float:
    """0 when the instant has come, else the seconds until it does."""
    return instant - now if now < instant - ROUNDING else 0.0


def told_to_wait(headers: Headers) -> float:
    """Retry-After in seconds. 0 if it is absent or a date, which these clients do not read."""
    try:
        return float(headers["retry-after"]) if headers else 0.0
    except (KeyError, ValueError):
        return 0.0


class Slots:
    """Calls leave one interval apart. A slot missed by up to ``slack`` seconds is made up for, an older one is lost."""

    __slots__ = ("next_at",)

    def __init__(self) -> None:
        self.next_at = 0.0

    def ask(self, now: float, *, interval: float, slack: float, not_before: float = 0.0) -> float:
        """Take the next slot and say 0, or say in how many seconds it comes."""
        wait = wait_until(max(self.next_at, not_before), now)
        if not wait:
            self.next_at = max(self.next_at, now - slack) + interval
        return wait


class Tokens:
    """A bucket on the client's side: it fills at ``rate`` up to ``capacity``; a call takes one."""

    __slots__ = ("capacity", "filled_at", "held", "rate")

    def __init__(self, rate: float, capacity: float, held: float = 1.0) -> None:
        self.rate, self.capacity, self.held = rate, capacity, held
        self.filled_at = 0.0

    def fill(self, now: float) -> None:
        self.held = min(self.capacity, self.held + (now - self.filled_at) * self.rate)
        self.filled_at = now

    def take(self, now: float) -> float:
        """Take a token and say 0, or say in how many seconds there will be one."""
        self.fill(now)
        if self.held < 1.0 - ROUNDING:
            return (1.0 - self.held) / self.rate
        self.held -= 1.0
        return 0.0
