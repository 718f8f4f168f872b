"""Time short statements side by side, and judge them: a noisy machine is then equally noisy for all of them.

A round measures every contender once; each round starts one contender further on; what counts
is each contender's minimum over the rounds. The statement is compiled into the timing loop
itself, as ``timeit`` does, so no wrapper is measured along with it. The clock is the processor time
of the whole process: helper threads of a peer count, other programs on the machine do not.

``CostRow`` has the contenders of one operation, ``CostResult`` their minima. A mark is a ratio to the best peer in the
same run. It comes from a reference measurement, which it carries along: 900 ns beside botocore's 942 makes a mark of
0.955 times the best peer.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any, TypeVar

Names = Mapping[str, object]
T = TypeVar("T")

ONE_KEY = ("api",)
MOST_CALLS = 1 << 24
"""Calls one sample makes at most, however little each of them costs."""

LOOP = """
{kind} loop(keys, count):
    started_at = clock()
    for key in islice(keys, count):
        {statement}
    return clock() - started_at
"""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do a row's operation: a statement, and what makes the names it uses.

    The statement may use ``key``, the next of ``keys`` in turn. With ``await`` or ``async with``
    in it, it runs in an event loop of its own, and ``build`` may be a coroutine function.
    """

    name: str
    statement: str
    build: Callable[[], Names | Awaitable[Names]]
    keys: Sequence[str] = ONE_KEY

    @property
    def is_async(self) -> bool:
        return self.statement.startswith(("await", "async"))


class Sampler:
    """A contender that is built, warmed up and ready to be timed again and again."""

    def __init__(self, contender: Contender, lasts: float) -> None:
        self._event_loop = asyncio.new_event_loop()
        self._keys: Iterator[str] = cycle(contender.keys)
        built = contender.build()
        names = self._finish(built) if inspect.isawaitable(built) else built
        scope: dict[str, Any] = {**names, "clock": time.process_time, "islice": islice}
        kind = "async def" if contender.is_async else "def"
        exec(LOOP.format(kind=kind, statement=contender.statement), scope)
        self._loop: Callable[[Iterator[str], int], float | Awaitable[float]] = scope["loop"]
        self._run(len(contender.keys))
        self._calls = 1
        while self._calls < MOST_CALLS and (took := self._run(self._calls)) < lasts:
            self._calls = min(MOST_CALLS, max(2 * self._calls, int(self._calls * 1.1 * lasts / max(took, 1e-6))))

    def sample(self) -> float:
        """Nanoseconds per call."""
        return self._run(self._calls) / self._calls * 1e9

    def _run(self, calls: int) -> float:
        took = self._loop(self._keys, calls)
        return self._finish(took) if inspect.isawaitable(took) else took

    def _finish(self, awaitable: Awaitable[T]) -> T:
        async def finish() -> T:
            return await awaitable

        return self._event_loop.run_until_complete(finish())


def interleave(
    contenders: Mapping[str, Contender], rounds: int, sample: float, say: Callable[[str], None]
) -> dict[str, float]:
    """Each contender's lowest cost in nanoseconds over the rounds, by the mapping's own keys.

    A sample takes at least so many seconds: long beside the grain of the clock and of the scheduler.
    """
    samplers: dict[str, Sampler] = {}
    for place, (label, contender) in enumerate(contenders.items(), 1):
        say(f"preparing {place}/{len(contenders)}: {label}")
        samplers[label] = Sampler(contender, sample)
    lowest = dict.fromkeys(samplers, float("inf"))
    labels = list(samplers)
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            say(f"round {turn + 1}/{rounds}")
            start = turn * len(labels) // rounds
            for label in labels[start:] + labels[:start]:
                _let_timer_threads_end()
                lowest[label] = min(lowest[label], samplers[label].sample())
    finally:
        gc.enable()
    return lowest


def _let_timer_threads_end() -> None:
    """A contender's clean-up (limits starts a timer thread for it) must not run in another's sample."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(timeout=1.0)


# -- rows of contenders, and what they are held to


@dataclass(frozen=True, slots=True)
class Mark:
    """At most this many nanoseconds on a machine where the best peer takes ``beside``."""

    at_most: float
    beside: float

    @property
    def ratio(self) -> float:
        return self.at_most / self.beside


@dataclass(frozen=True, slots=True)
class CostRow:
    """Contenders for one operation.

    ``asides`` are measured and shown but are no rivals: a peer used as its documentation does not
    show, or made to do more than the row asks. ``added_to`` names the floor whose own cost is
    taken off each of the others.
    """

    name: str
    title: str
    floors: tuple[Contender, ...]
    peers: tuple[Contender, ...]
    ours: tuple[tuple[Contender, Mark], ...]
    note: str
    asides: tuple[Contender, ...] = ()
    added_to: str | None = None

    @property
    def contenders(self) -> tuple[Contender, ...]:
        return (*self.floors, *self.peers, *self.asides, *(contender for contender, _ in self.ours))


@dataclass(slots=True)
class CostResult:
    """A row's minima in nanoseconds, by contender."""

    row: CostRow
    lowest: dict[str, float] = field(default_factory=dict)

    @property
    def best_peer(self) -> str:
        return min((peer.name for peer in self.row.peers), key=self.lowest.__getitem__)

    def ratio(self, contender: Contender) -> float:
        return self.lowest[contender.name] / self.lowest[self.best_peer]


def results_of(rows: tuple[CostRow, ...], lowest: dict[str, float]) -> list[CostResult]:
    """Sort the minima of one interleaved run back into rows, taking off what the bare call costs."""
    results = []
    for row in rows:
        measured = {contender.name: lowest[label(row, contender)] for contender in row.contenders}
        if row.added_to is not None:
            bare = measured.pop(row.added_to)
            measured = {name: cost - bare for name, cost in measured.items()}
        results.append(CostResult(row, measured))
    return results


def label(row: CostRow, contender: Contender) -> str:
    return f"{row.name}: {contender.name}"
