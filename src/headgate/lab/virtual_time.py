"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it.

    result = run(main)           # an hour of timers in a moment, the same every time

Nothing sleeps: when every task waits, the loop's time is moved to the earliest timer. Real
sockets are not watched, so what needs the network does not belong here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Args = TypeVarTuple("Args")

CANCELLED_BEFORE_SWEEP = 1000
"""Cancelled timers that may lie among the others."""


class VirtualClock:
    """A clock that moves only when told to, or when something sleeps on it."""

    def __init__(self, start: float = 0.0, wall: float = 1_800_000_000.0) -> None:
        self.time = start
        self._wall_offset = wall - start

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time + self._wall_offset

    def advance(self, seconds: float) -> None:
        self.time += seconds

    def sleep(self, seconds: float) -> None:
        if not seconds >= 0:
            raise ValueError(f"seconds={seconds!r} must be 0 or more")
        self.advance(seconds)

    async def sleep_async(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


class LoopClock(VirtualClock):
    """The clock of a virtual loop: its timers are the loop's own."""

    runs_loop_timers = True

    async def sleep_async(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs whatever is ready; once nothing is, moves the clock to the earliest timer.

    Timers of one instant run in the order they were made. There is no selector: looking at real files
    and sockets would cost more than all the rest of a simulated call.
    """

    def __init__(self, clock: LoopClock) -> None:
        super().__init__()
        self._clock = clock
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._made = count()
        self._cancelled = 0

    def time(self) -> float:
        return self._clock.time

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._made), timer))
        return timer

    def close(self) -> None:
        super().close()
        self._timers.clear()

    def _timer_handle_cancelled(self, _: asyncio.TimerHandle) -> None:
        """Called by a timer that is cancelled; once most of them are, they go."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_BEFORE_SWEEP and self._cancelled > len(self._timers) // 2:
            self._timers[:] = [entry for entry in self._timers if not entry[2].cancelled()]
            heapify(self._timers)
            self._cancelled = 0

    def _write_to_self(self) -> None:
        """Called after another thread has added something to do; nothing has to be woken."""

    def _run_once(self) -> None:
        timers, ready, clock = self._timers, self._ready, self._clock
        if not ready and not self._stopping:
            while timers and timers[0][2].cancelled():
                heappop(timers)
            if not timers:
                raise RuntimeError("deadlock: every task waits and no timer is set")
            if timers[0][0] > clock.time:
                clock.time = timers[0][0]
        now = clock.time
        while timers and timers[0][0] <= now:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):  # what these add has its turn in the next round
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    if TYPE_CHECKING:  # of the base class, which asyncio's own loops are made of
        _ready: deque[asyncio.Handle]
        _stopping: bool


def run(main: Callable[[LoopClock], Coroutine[Any, Any, T]], *, start: float = 0.0) -> T:
    """Run ``main(clock)`` to its end in virtual time."""
    clock = LoopClock(start)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(main(clock))
