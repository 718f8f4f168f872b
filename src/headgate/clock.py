"""Where time comes from. Everything inside runs on ``now()``, which only ever goes forward.

``wall()`` is the time of day: for HTTP dates and stored state, never for waiting.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Any object with these four methods can be a limiter's clock."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def wall(self) -> float:
        """Unix time."""
        ...

    def sleep(self, seconds: float) -> None: ...

    async def sleep_async(self, seconds: float) -> None: ...


class SystemClock:
    """The real one. Event loops run on it too, so their own timers can be used."""

    follows_loop = True
    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    sleep = staticmethod(time.sleep)

    async def sleep_async(self, seconds: float) -> None:
        import asyncio  # here, because a program without an event loop should not load one

        await asyncio.sleep(seconds)
