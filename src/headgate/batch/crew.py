"""The workers: so many calls at once, and the writing down after each, which keeps no worker busy."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .attempt import Attempt, ItemContext

if TYPE_CHECKING:
    from .lanes import Lane
    from .run import Run

_RUNG_BY_AN_END = ("retry_budget", "caps", "circuit", "credential", "limiter")
"""What lanes wait for that somebody's answer may bring."""

WRITTEN_BESIDE = 4
"""Calls for each worker that may be written down while it works on; more would be repeated after a crash."""


class Crew:
    def __init__(self, run: Run, workers: int) -> None:
        self._run = run
        self.free = workers
        self._most_recording = WRITTEN_BESIDE * workers
        self._recording = 0
        """Calls that have ended and are being written down: a crash would repeat them."""
        self.working: dict[asyncio.Task[None], Attempt] = {}
        """Calls of the worker that are under way."""
        self.writing: set[asyncio.Task[None]] = set()
        """What is being written down."""
        self._wanting: deque[Lane] = deque()
        self._cutting_short = False

    # ------------------------------------------------------------------ who gets a worker

    def want(self, lane: Lane) -> None:
        """The lane is rung when a worker is free and its turn has come."""
        if lane not in self._wanting:
            self._wanting.append(lane)

    def pass_on(self) -> None:
        """A worker is free: tell the next who wants one. Those who wait for something else by now do not."""
        while self.free and self._wanting:
            lane = self._wanting.popleft()
            if lane.waits_for == "workers":
                lane.bell.ring()
                return

    def start(self, attempt: Attempt) -> None:
        self.free -= 1
        self.working[asyncio.create_task(self._run.guarded(self._attend, attempt))] = attempt

    # ------------------------------------------------------------------ the work

    async def _attend(self, attempt: Attempt) -> None:
        """Let the worker work, then write down what came of it."""
        run, task = self._run, asyncio.current_task()
        assert task is not None
        cut_short = self._cutting_short
        if not cut_short:
            attempt.under_way = True
            try:
                attempt.answered(await run.runner.call(attempt, ItemContext(attempt)))
            except Exception as error:
                attempt.failed(error)
            except asyncio.CancelledError:
                cut_short = self._cutting_short
                attempt.cancelled()
        del self.working[task]
        self.writing.add(task)
        try:
            self._recording += 1
            self.free += self._recording <= self._most_recording
            attempt.lane.in_flight -= 1
            state = run.fates.learn(attempt, cut_short)
            self.pass_on()
            self._ring_after(attempt)
            await run.fates.write(attempt, state)
        finally:
            self._recording -= 1
            if self._recording >= self._most_recording:
                self.free += 1
                self.pass_on()
            self._written(task)

    def write_aside(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Write something down without waiting for it here; the run does not end before."""
        task = asyncio.create_task(self._run.guarded(work, *arguments))
        self.writing.add(task)
        task.add_done_callback(self._written)

    def cut_short(self) -> None:
        """Wait for no call any more. What has not begun will not; what has is cancelled."""
        self._cutting_short = True
        for task, attempt in self.working.items():
            if attempt.under_way:
                task.cancel()

    async def go_home(self) -> None:
        """Wait until everybody is done."""
        while self.working or self.writing:
            ended, _ = await asyncio.wait([*self.working, *self.writing])
            for task in ended:  # they have left by themselves, unless somebody else has cancelled them
                self.working.pop(task, None)
                self.writing.discard(task)

    def _ring_after(self, attempt: Attempt) -> None:
        run = self._run
        for lane in run.all_lanes() if run.spending.is_capped else run.lanes.get(attempt.item.key, ()):
            if lane.waits_for in _RUNG_BY_AN_END:
                lane.bell.ring()
        if run.stopping:
            run.news.ring()

    def _written(self, task: asyncio.Task[None]) -> None:
        self.writing.discard(task)
        if self._run.stopping:
            self._run.news.ring()
