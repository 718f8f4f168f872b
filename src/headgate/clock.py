"""Where time comes from. Everything inside runs on ``now()``, which only ever goes forward.

``wall()`` is the time of day: for HTTP dates and stored state, never for waiting.
"""

from __future__ import annotations

import time
from typing import Protocol


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
