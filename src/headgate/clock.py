"""Where time comes from. Everything inside runs on ``now()``, which only ever goes forward.

``wall()`` is the time of day: for HTTP dates and stored state, never for waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


class Clock(Protocol):
    """Any object with these four methods can be a limiter's clock.

    Two marks may be added. ``runs_loop_timers`` says that event loops keep this clock's time, so that
    their own timers serve; ``runs_in_real_time`` that a thread may sleep on a lock instead of ``sleep``.
    """

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def wall(self) -> float:
        """Unix time."""
        ...

    def sleep(self, seconds: float, /) -> None: ...

    async def sleep_async(self, seconds: float, /) -> None: ...


class Timer(Protocol):
    """Something that is called later, unless it is cancelled before."""

    def cancel(self) -> object: ...


def call_later(clock: Clock, loop: asyncio.AbstractEventLoop, seconds: float, act: Callable[[], object]) -> Timer:
    """Have the loop, which must be this thread's, call ``act`` after so many seconds of this clock."""
    seconds = max(0.0, seconds)
    if getattr(clock, "runs_loop_timers", False):
        return loop.call_later(seconds, act)
    return loop.create_task(_sleep_then(clock, seconds, act))


async def _sleep_then(clock: Clock, seconds: float, act: Callable[[], object]) -> None:
    await clock.sleep_async(seconds)
    act()


class SystemClock:
    """The clock of the system."""

    runs_loop_timers = True
    runs_in_real_time = True
    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    sleep = staticmethod(time.sleep)

    async def sleep_async(self, seconds: float) -> None:
        import asyncio  # here, because a program without an event loop should not load one

        await asyncio.sleep(seconds)
