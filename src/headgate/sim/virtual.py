"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it.

    result = run(main)           # an hour of timers in a moment, the same every time

Nothing sleeps: when every task waits, the loop's time is moved to the earliest timer. Real
sockets are not watched, so what needs the network does not belong here.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from math import ulp
from typing import Any, TypeVar

T = TypeVar("T")


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


class _JumpingSelector(selectors.SelectSelector):
    """Says at once that nothing is ready, and moves the clock by as long as it should have waited."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("every task waits for something that no timer will bring")
            self._clock.advance(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: LoopClock) -> None:
        super().__init__(_JumpingSelector(clock))
        self._virtual_clock = clock

    @property
    def _clock_resolution(self) -> float:
        """Timers this close are due; never finer than what an instant this late can tell apart."""
        return max(1e-9, 2 * ulp(self._virtual_clock.time))

    @_clock_resolution.setter
    def _clock_resolution(self, _: float) -> None:
        """asyncio sets that of the machine's clock."""

    def time(self) -> float:
        return self._virtual_clock.now()


def run(main: Callable[[LoopClock], Coroutine[Any, Any, T]], *, start: float = 0.0) -> T:
    """Run ``main(clock)`` to its end in virtual time."""
    clock = LoopClock(start)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(main(clock))
