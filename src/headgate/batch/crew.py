"""The workers: so many calls at once. Writing down what came of a call keeps no worker busy."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from .attempt import Attempt, ItemContext

if TYPE_CHECKING:
    from .lanes import Lane
    from .run import Run

_RUNG_BY_AN_END = ("retry_budget", "caps", "circuit", "credential", "credential_held", "limiter")
"""What lanes wait for that somebody's answer may bring."""

WRITTEN_BESIDE = 4
"""Calls for each worker that may be written down while it works on; more would be repeated after a crash."""


class Crew:
    def __init__(self, run: Run, workers: int) -> None:
        self._run = run
        self._workers = workers
        self.most_open = (1 + WRITTEN_BESIDE) * workers
        self.working: dict[asyncio.Task[None], Attempt] = {}
        """Calls of the worker that are under way."""
        self._wanting: deque[Lane] = deque()
        self._cutting_short = False

    # ------------------------------------------------------------------ who gets a worker

    @property
    def is_free(self) -> bool:
        """Whether another call may start."""
        working = len(self.working)
        return working < self._workers and working + self._run.recorder.pending < self.most_open

    @property
    def waits_for_ledger(self) -> bool:
        """Whether nobody works on before more is written down."""
        working = len(self.working)
        return not working or working + self._run.recorder.pending >= self.most_open

    def want(self, lane: Lane) -> None:
        """The lane is rung when a worker is free and its turn has come."""
        if lane not in self._wanting:
            self._wanting.append(lane)

    def pass_on(self) -> None:
        """A worker is free: tell the next who wants one. Those who wait for something else by now do not."""
        while self._wanting and self.is_free:
            lane = self._wanting.popleft()
            if lane.waits_for == "workers":
                lane.bell.ring()
                return

    def start(self, attempt: Attempt) -> None:
        attempt.task = asyncio.create_task(self._attend(attempt))
        self.working[attempt.task] = attempt

    # ------------------------------------------------------------------ the work

    async def _attend(self, attempt: Attempt) -> None:
        """Let the worker work and see to what came of it, row after row as long as nobody else wants the worker."""
        run = self._run
        ongoing: Attempt | None = attempt
        is_wanted = True
        """Until somebody cancels this task."""
        try:
            while ongoing is not None:
                attempt = ongoing
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
                        is_wanted = False
                del self.working[attempt.task]
                attempt.lane.in_flight -= 1
                run.fates.write(attempt, run.fates.learn(attempt, cut_short))
                self._ring_after(attempt)
                ongoing = self._next_after(attempt) if is_wanted else None
            self.pass_on()
            if not self.working:
                self._ring_those_who_pause()
        except Exception as error:
            self.working.pop(attempt.task, None)
            run.fail(error)

    def _next_after(self, attempt: Attempt) -> Attempt | None:
        """The next call of the same worker: of the same lane, unless another wants a worker too."""
        lane = attempt.lane
        if self._run.stopping or not self.is_free:
            return None
        if self._wanting and any(other is not lane for other in self._wanting):
            return None
        following = lane.next_at_once()
        if following is not None:
            following.task = attempt.task
            self.working[following.task] = following
        return following

    def cut_short(self) -> None:
        """Wait for no call any more. What has not begun will not; what has is cancelled."""
        self._cutting_short = True
        for task, attempt in self.working.items():
            if attempt.under_way:
                task.cancel()

    async def go_home(self) -> None:
        """Wait until everybody is done, and everything is written down."""
        recorder = self._run.recorder
        writing = recorder.writing
        while self.working or recorder.pending:
            recorder.send_off()
            ended, _ = await asyncio.wait([*self.working, *writing])
            for task in ended:  # they have left by themselves, unless somebody else has cancelled them
                self.working.pop(task, None)
                writing.discard(task)

    def _ring_those_who_pause(self) -> None:
        """Nobody works any more: it may be that nothing can start for hours, which lanes find out."""
        for lane in self._run.all_lanes():
            if lane.waits_for == "cooldown":
                lane.bell.ring()

    def _ring_after(self, attempt: Attempt) -> None:
        run = self._run
        for lane in run.all_lanes() if run.spending.is_capped else run.lanes.get(attempt.item.key, ()):
            if lane.waits_for in _RUNG_BY_AN_END:
                lane.bell.ring()
        if run.stopping:
            run.news.ring()
