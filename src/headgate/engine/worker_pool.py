"""The workers: a bounded number of calls at once, and lanes that wait for a free one in turn.

    lane ──want──> waiting lanes ──dispatch: a worker is free──> lane ──start──> working ──> unrecorded ──> on disk

Recording an outcome takes no worker. But calls that ended and are not on disk yet would be repeated after a crash, so
there is a bound on all that are open: under way or unrecorded. The ``Recorder`` gathers outcomes for a moment, so that
many share the price of one commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from .lane import Lane, LaneWait
from .supervisor import Supervisor

LARGEST_LOT = 256
"""Outcomes that are recorded at once."""

J = TypeVar("J")
C = TypeVar("C")
Then = Callable[[bool], None]
"""What to do once it is durable: True, or False if another process has the row by now and nothing was changed."""


class WorkerPool(Generic[J]):
    """``J`` is what a worker works on."""

    def __init__(self, workers: int, *, max_open: int, is_blocked: Callable[[], bool] | None = None) -> None:
        """``is_blocked``: whether something else, such as memory, keeps calls from starting."""
        self.workers, self.max_open, self._is_blocked = workers, max_open, is_blocked
        self.working: dict[asyncio.Task[None], J] = {}
        """The calls under way, by the task that makes them."""
        self.unrecorded = 0
        """Outcomes that are not durable yet."""
        self.is_cancelled = False
        """Whether nothing that is under way is waited for."""
        self._waiting: dict[Lane[Any], None] = {}
        """Lanes that want a worker, in the order in which they asked."""

    @property
    def free(self) -> int:
        return self.workers - len(self.working)

    @property
    def is_free(self) -> bool:
        """Whether another call may start."""
        working = len(self.working)
        if working >= self.workers or working + self.unrecorded >= self.max_open:
            return False
        return self._is_blocked is None or not self._is_blocked()

    @property
    def waits_for_recording(self) -> bool:
        """Whether no call is under way, or none may start, before outcomes are recorded."""
        working = len(self.working)
        return not working or working + self.unrecorded >= self.max_open

    # ------------------------------------------------------------------ which lane gets a worker

    def is_turn_of(self, lane: Lane[Any]) -> bool:
        """Whether this lane may start a call now. If not, it is notified when that may be so."""
        if not self.is_free:
            self.want(lane)
            return False
        if not lane.has_turn:
            for other in list(self._waiting):
                if other is lane:
                    break
                if other.waits_for is LaneWait.WORKERS:
                    self.want(lane)
                    self.dispatch()
                    return False
                del self._waiting[other]
        self._waiting.pop(lane, None)
        return True

    def want(self, lane: Lane[Any]) -> None:
        """Notify the lane when a worker is free and its turn has come."""
        self._waiting.setdefault(lane)

    def is_wanted_by_others(self, lane: Lane[Any]) -> bool:
        return len(self._waiting) > (lane in self._waiting)

    def dispatch(self) -> None:
        """A worker may be free: notify the next lane that still waits for one."""
        while self._waiting and self.is_free:
            lane = next(iter(self._waiting))
            del self._waiting[lane]
            if lane.waits_for is LaneWait.WORKERS:
                lane.has_turn = True
                lane.notifier.notify()
                return

    # ------------------------------------------------------------------ calls

    def start(self, job: J, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let a worker do this. ``work`` takes its own task out of ``working`` when the call has ended."""
        task = asyncio.create_task(work)
        self.working[task] = job
        return task

    def cancel(self, has_begun: Callable[[J], bool] = lambda _: True) -> None:
        """Wait for no call any more: those that have begun are cancelled, the others find ``is_cancelled``."""
        self.is_cancelled = True
        for task, job in self.working.items():
            if has_begun(job):
                task.cancel()

    async def drain(self) -> None:
        """Wait until no call is under way."""
        while self.working:
            ended, _ = await asyncio.wait([*self.working])
            for task in ended:  # one that was cancelled before its first step could not do so itself
                self.working.pop(task, None)


class Recorder(Generic[C]):
    """Outcomes on their way to disk; ``C`` is one change to record.

        a call ends ──put──> gathered ──lot──> write ──durable──> ``then``, one by one, in the same order

    A lot is written when it is large, when the store's patience ends, or as soon as anything would have to wait for
    it: when workers may not run further ahead of the store, or none of them is at work. Then one lot is on its way at
    a time; what ends meanwhile makes up the next. The pool's ``unrecorded`` counts what is not durable yet.
    """

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
            task = self._supervisor.start(self._write_lot(lot))
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
