"""Wait for something to happen or for a time to come, whichever is first: one sleeper, any number of ringers."""

from __future__ import annotations

import asyncio

from ..clock import Clock
from ..core.decision import UNKNOWN


class Bell:
    """A bell that rang while nobody listened is heard by the next who does."""

    __slots__ = ("_clock", "_future", "_rung")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._future: asyncio.Future[None] | None = None
        self._rung = False

    def ring(self) -> None:
        self._rung = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float = UNKNOWN) -> None:
        """Sleep until it rings, or for so long."""
        if self._rung:
            self._rung = False
            return
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer: asyncio.TimerHandle | asyncio.Task[None] | None = None
        if seconds != UNKNOWN:
            if getattr(self._clock, "runs_loop_timers", False):
                timer = loop.call_later(max(0.0, seconds), self.ring)
            else:
                timer = loop.create_task(self._ring_after(max(0.0, seconds)))
        try:
            await self._future
        finally:
            self._future, self._rung = None, False
            if timer is not None:
                timer.cancel()

    async def _ring_after(self, seconds: float) -> None:
        await self._clock.sleep_async(seconds)
        self.ring()
