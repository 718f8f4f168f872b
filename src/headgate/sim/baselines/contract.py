"""What a strategy is to the lab: two methods, and the seat it is given.

    on_send(now)      -> 0    send one call now; asking has taken the slot
                      -> d    not yet: ask again in d seconds; nothing was taken
    on_response(now, status, latency, headers)       what became of a call: it left at now - latency

``status`` is 200, 429, a 5xx, or 0 when the caller gave up waiting. ``headers`` are in lower case.
Nothing here reads a clock or rolls dice of its own, so a strategy is as repeatable as the lab.

A baseline is asked once for each process and answers with its clients. One client is one controller
for each API key and the number of workers who share them:

    [([a, b], 64)]                64 workers, two keys, everything known to all
    [([a1, b1], 1), ([a2, b2], 1), ...]    each worker remembers for itself, and may share something behind
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

OK = 200
TOO_MANY = 429

Headers: TypeAlias = Mapping[str, str] | None


class Contract(Protocol):
    def on_send(self, now: float) -> float: ...

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None: ...


Clients: TypeAlias = list[tuple[list[Contract], int]]


class Foresight(Protocol):
    """What the oracle may ask of the server. Everybody else has to find out by calling."""

    @property
    def trip(self) -> float:
        """Seconds a call is under way to the server, without jitter."""

    @property
    def oracle_out(self) -> list[int]:
        """For each key the oracles' calls that are not yet answered, kept by them: all processes know of each other."""

    def free_in(self, now: float, key: int) -> float:
        """0 if a call that arrives now would be admitted, else seconds until one would be."""

    def at_once(self, now: float, key: int) -> float:
        """How many calls the server works on at one time, if that is what it limits; else infinity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where the clients of one process sit, and what they may know."""

    process: int
    processes: int
    workers: int
    """Of this process."""
    keys: int
    rng: random.Random
    nominal: float
    """Calls a second that all keys together allow at the start: for those alone who are told the quota."""
    world: Foresight
    """For the oracle alone."""

    @property
    def share(self) -> float:
        """What of the quota falls to this process on one key, if it is split evenly."""
        return self.nominal / self.processes / self.keys


def shared_by_all(seat: Seat, controller: Callable[[int], Contract]) -> Clients:
    """One controller for each key, and all workers of the process behind it."""
    return [([controller(key) for key in range(seat.keys)], seat.workers)]


def one_per_worker(seat: Seat, worker: Callable[[int], Contract]) -> Clients:
    """Each worker with controllers of its own, one for each key."""
    return [([worker(key) for key in range(seat.keys)], 1) for _ in range(seat.workers)]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A published way to deal with a quota one does not know."""

    make: Callable[[Seat], Clients]
    about: str
    """One line for a list of strategies."""
    foresees: bool = False
    """Its calls are settled when they are sent and travel without jitter: what it foresaw is what happens."""
