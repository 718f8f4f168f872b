"""The stages a page passes, each with a bounded queue in front of it and a watch over both.

    frontier ─> discovery ─> extraction ─> processing ─> output ─> frontier and file ─> whoever iterates
                (lanes)      permit,fetch   read, follow   commit

A full queue holds up the stage before it, and in the end discovery: what is not begun waits on disk. Discovery and
extraction wait host by host (``lanes.py``, ``visit.py``); here is what comes after, where all pages are alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ..clock import Clock
from .report import StageTimes

T = TypeVar("T")


class Stage(Generic[T]):
    """So many hands that take from one queue. What ``work`` raises ends the crawl (``failed``), not only a hand."""

    def __init__(
        self,
        work: Callable[[T], Awaitable[None]],
        *,
        hands: int,
        room: int,
        clock: Clock,
        times: StageTimes,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._work, self._clock, self._times, self._failed = work, clock, times, failed
        self._queue: asyncio.Queue[tuple[T, float]] = asyncio.Queue(room)
        self._hands = hands
        self._tasks: list[asyncio.Task[None]] = []
        self.busy = 0
        """Pages that are being worked on."""

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work_on()) for _ in range(self._hands)]

    async def put(self, page: T) -> None:
        """Returns once there is room."""
        await self._queue.put((page, self._clock.now()))

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    async def drain(self) -> None:
        """Wait until everything that was put has been worked on."""
        await self._queue.join()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work_on(self) -> None:
        now, queue = self._clock.now, self._queue
        while True:
            page, since = await queue.get()
            began_at = now()
            self.busy += 1
            try:
                await self._work(page)
            except Exception as error:
                self._failed(error)
            finally:
                self.busy -= 1
                queue.task_done()
            self._times.add(began_at - since, now() - began_at)
