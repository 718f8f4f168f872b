"""Wait for a notification or for a time, whichever is first: one waiter, any number of notifiers."""

from __future__ import annotations

import asyncio

from ..clock import Clock
from ..core.decision import UNKNOWN


class Notifier:
    """A notification that comes while nothing waits is kept for the next ``wait``."""

    __slots__ = ("_clock", "_future", "_notified")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._future: asyncio.Future[None] | None = None
        self._notified = False

    def notify(self) -> None:
        self._notified = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float = UNKNOWN) -> None:
        """Sleep until a notification, or for so long."""
        if self._notified:
            self._notified = False
            return
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer: asyncio.TimerHandle | asyncio.Task[None] | None = None
        if seconds != UNKNOWN:
            if getattr(self._clock, "runs_loop_timers", False):
                timer = loop.call_later(max(0.0, seconds), self.notify)
            else:
                timer = loop.create_task(self._notify_after(max(0.0, seconds)))
        try:
            await self._future
        finally:
            self._future, self._notified = None, False
            if timer is not None:
                timer.cancel()

    async def _notify_after(self, seconds: float) -> None:
        await self._clock.sleep_async(seconds)
        self.notify()


class Alarm:
    """A sleep until an instant that may be moved forward meanwhile."""

    __slots__ = ("_clock", "_notifier", "_wakes_at")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._notifier = Notifier(clock)
        self._wakes_at = UNKNOWN

    def wake_by(self, instant: float) -> None:
        if instant < self._wakes_at:
            self._notifier.notify()

    async def sleep_until(self, instant: float) -> None:
        self._wakes_at = instant
        await self._notifier.wait(instant if instant == UNKNOWN else instant - self._clock.now())
