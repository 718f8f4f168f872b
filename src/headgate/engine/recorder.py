"""Outcomes on their way to disk: gathered for a moment, so that many share the price of one commit.

    a call ends ──> gathered ──lot──> write ──durable──> ``then``, one by one, in the same order

A lot goes off when it is large, when the store's patience with it ends, or as soon as anything would have to wait for
it: when workers may not run further ahead of the store, or none of them is at work. In such a hurry one lot is on its
way at a time; what ends meanwhile makes up the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from .supervisor import Supervisor
from .worker_pool import WorkerPool

LARGEST_LOT = 256

C = TypeVar("C")
Then = Callable[[bool], None]
"""What to do once it is durable: True, or False if another process has the row by now and nothing was changed."""


class Recorder(Generic[C]):
    """``C`` is one change to record. The pool's ``unrecorded`` counts those that are not durable yet."""

    def __init__(
        self,
        write: Callable[[Sequence[C]], Awaitable[Sequence[bool]]],
        pool: WorkerPool[Any],
        supervisor: Supervisor,
        *,
        patience: float,
        on_written: Callable[[], None],
    ) -> None:
        """``patience``: seconds that a change may wait for others. ``on_written`` is called after each lot."""
        self._write, self._pool, self._supervisor = write, pool, supervisor
        self._patience, self._on_written = patience, on_written
        self._gathered: list[tuple[C, Then]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()

    def put(self, change: C, then: Then) -> None:
        """Record this soon; the run does not end before."""
        self._pool.unrecorded += 1
        self._gathered.append((change, then))
        if len(self._gathered) >= LARGEST_LOT or (not self._writing and self._pool.waits_for_recording):
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._patience, self.flush)

    def flush(self) -> None:
        """Write what has gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._gathered:
            lot, self._gathered = self._gathered, []
            task = asyncio.create_task(self._supervisor.guarded(self._write_lot, lot))
            self._writing.add(task)
            task.add_done_callback(self._written)

    async def drain(self) -> None:
        """Wait until everything that was put is durable."""
        while self._gathered or self._writing:
            self.flush()
            await asyncio.wait([*self._writing])

    async def _write_lot(self, lot: list[tuple[C, Then]]) -> None:
        try:
            kept = await self._write([change for change, _ in lot])
        finally:
            self._pool.unrecorded -= len(lot)
        for (_, then), is_kept in zip(lot, kept, strict=True):
            then(is_kept)
        self._pool.dispatch()

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        if self._gathered and not self._writing and self._pool.waits_for_recording:
            self.flush()
        self._on_written()
