"""Bound the time of many calls with one timer.

A timer of its own for each call, as HTTP libraries have it, costs a tenth of the whole exchange and hardly ever rings.
Here calls are only written down; the one timer looks, when the first of them would be late, who really is. It works as
``asyncio.timeout`` does: the task is cancelled from outside, and that is taken back on the way out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from math import inf
from typing import TypeVar

T = TypeVar("T")


class TimeLimits:
    """For the tasks of one event loop; each makes one call at a time."""

    def __init__(self) -> None:
        self._late_at: dict[asyncio.Task[object], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = inf

    async def hold(self, call: Awaitable[T], seconds: float) -> T:
        """Await the call; ``TimeoutError`` if it takes longer."""
        task = asyncio.current_task()
        assert task is not None
        loop, cancelling = task.get_loop(), task.cancelling()
        late_at = self._late_at[task] = loop.time() + seconds
        if late_at < self._rings_at:
            self._set(loop, late_at)
        try:
            return await call
        except asyncio.CancelledError:
            if task in self._late_at or task.cancelling() > cancelling + 1:  # somebody else wants it to end
                raise
        finally:
            if self._late_at.pop(task, None) is None:  # it was late
                task.uncancel()
        raise TimeoutError

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._rings_at = None, inf

    def _set(self, loop: asyncio.AbstractEventLoop, instant: float) -> None:
        self.close()
        self._timer, self._rings_at = loop.call_at(instant, self._ring, loop), instant

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        now, self._timer, self._rings_at = loop.time(), None, inf
        for task in [task for task, late_at in self._late_at.items() if late_at <= now]:
            del self._late_at[task]
            task.cancel()
        if self._late_at:
            self._set(loop, min(self._late_at.values()))
