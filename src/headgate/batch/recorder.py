"""What became of rows, on its way into the ledger: gathered for a moment, so that many share the price of one commit.

    a row ends ──> gathered ──lot──> ledger.record_all ──on disk──> ``then``, row by row, in the same order

A lot goes off when the ledger's patience with it ends, when it is large, or as soon as anybody would have to wait for
it: when the workers may not run further ahead of the ledger, or none of them is at work. In such a hurry one lot is on
its way at a time; what ends meanwhile makes up the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from .ledger import Change

if TYPE_CHECKING:
    from .run import Run

LARGEST_LOT = 256

Then = Callable[[bool], None]
"""What to do once it is durable: True, or False if the row is another's by now and nothing was changed."""


class Recorder:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._patience = run.ledger.patience
        self._gathered: list[tuple[Change, Then]] = []
        self._timer: asyncio.TimerHandle | None = None
        self.pending = 0
        """Changes that are not durable yet: a crash would repeat their calls."""
        self.writing: set[asyncio.Task[None]] = set()

    def put(self, change: Change, then: Then) -> None:
        """Write this down soon; the run does not end before."""
        self.pending += 1
        self._gathered.append((change, then))
        if len(self._gathered) >= LARGEST_LOT or (not self.writing and self._run.crew.waits_for_ledger):
            self.send_off()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._patience, self.send_off)

    def send_off(self) -> None:
        """Write down what has gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            task = asyncio.create_task(self._run.guarded(self._write, gathered))
            self.writing.add(task)
            task.add_done_callback(self._written)

    async def _write(self, gathered: list[tuple[Change, Then]]) -> None:
        try:
            kept = await self._run.ledger.record_all([change for change, _ in gathered])
        finally:
            self.pending -= len(gathered)
        for (_, then), is_kept in zip(gathered, kept, strict=True):
            then(is_kept)
        self._run.telling.end_lot()
        self._run.crew.pass_on()

    def _written(self, task: asyncio.Task[None]) -> None:
        self.writing.discard(task)
        if self._gathered and not self.writing and self._run.crew.waits_for_ledger:
            self.send_off()
        if self._run.stopping:
            self._run.news.ring()
