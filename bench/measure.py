"""Time short statements side by side, so that a noisy machine is noisy for all of them alike.

A round measures every contender once; each round starts one contender further on; what counts
is each contender's minimum over the rounds. The statement is compiled into the timing loop
itself, as ``timeit`` does, so no wrapper is measured along with it. The clock is the processor time
of the whole process: helper threads of a peer count, other programs on the machine do not.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
