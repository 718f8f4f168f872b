"""The calls of a batch: the caller's worker function, within its time, and one row after the other by one worker.

start(attempt) ──> function ──> attempt: what it means ──> outcomes: learn, settle ──┐
                      ^                                                              │ a row of the same lane that
                      └───────────────────────── the next ───────────────────────────┘ may go at once
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from ..core.decision import UNKNOWN
from ..engine.lane import LaneWait
from ..engine.supervisor import Supervisor
from ..engine.worker_pool import WorkerPool
from ..limiter import AdaptiveRateLimiter
from ..limiter.call_hooks import CallInfo, around
from .attempt import Attempt, ItemContext
from .item import Backlog
from .lanes import AFTER_AN_ANSWER, LaneSet, RowLane
from .outcomes import Outcomes
from .pricing import SpendingCaps

Worker = Callable[[Any, ItemContext], Any]
"""``worker(item, ctx)``: a coroutine function, or a plain one, which then runs in threads."""
Following = Callable[[RowLane], Attempt | None]
"""The next call of a lane, if nothing whatever stands in its way."""


def is_async(worker: Worker) -> bool:
    """Whether it is a coroutine function, or an object whose call is one."""
    return inspect.iscoroutinefunction(worker) or inspect.iscoroutinefunction(
        getattr(worker, "__call__", None)  # noqa: B004 - not whether it can be called
    )


class WorkerFunction:
    """Calls the caller's function for one attempt: on the loop or in a thread, within its time, observed."""

    def __init__(self, worker: Worker, limiter: AdaptiveRateLimiter, *, threads: int, attempt_timeout: float | None):
        self._worker, self._limiter, self._most_threads = worker, limiter, threads
        self._is_async = is_async(worker)
        self._has_timeout = attempt_timeout is not None
        self._threads: ThreadPoolExecutor | None = None

    def __call__(self, attempt: Attempt) -> Awaitable[Any]:
        context = ItemContext(attempt)
        if self._limiter.events.around:
            return self._observed(attempt, context)
        if self._has_timeout or attempt.item.deadline_at != UNKNOWN:
            return self._bounded(attempt, context)
        return self._call(attempt, context)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    async def _observed(self, attempt: Attempt, context: ItemContext) -> Any:
        info = CallInfo(attempt.attempt, credential=context.credential_label or "")
        with around(self._limiter.events.around, attempt.permit, info):
            return await self._bounded(attempt, context)

    async def _bounded(self, attempt: Attempt, context: ItemContext) -> Any:
        seconds = min(attempt.attempt_timeout, attempt.time_left())
        async with asyncio.timeout(None if seconds == UNKNOWN else seconds):
            return await self._call(attempt, context)

    def _call(self, attempt: Attempt, context: ItemContext) -> Awaitable[Any]:
        value = attempt.item.value
        if self._is_async:
            work: Awaitable[Any] = self._worker(value, context)
            return work
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._most_threads, "headgate-batch")
        loop = asyncio.get_running_loop()
        if self._limiter.events.around:  # what observers put around the call is to be seen in the thread too
            return loop.run_in_executor(self._threads, copy_context().run, self._worker, value, context)
        return loop.run_in_executor(self._threads, self._worker, value, context)


class CallLoop:
    """Lets workers work. Each goes on with the next row of its lane as long as no other lane wants a worker."""

    def __init__(
        self,
        function: Callable[[Attempt], Awaitable[Any]],
        *,
        pool: WorkerPool[Attempt],
        lanes: LaneSet,
        outcomes: Outcomes,
        spending: SpendingCaps,
        backlog: Backlog,
        supervisor: Supervisor,
    ) -> None:
        self._function, self._pool, self._lanes, self._outcomes = function, pool, lanes, outcomes
        self._spending, self._backlog, self._supervisor = spending, backlog, supervisor

    def start(self, attempt: Attempt, following: Following) -> None:
        attempt.task = self._pool.start(attempt, self._work(attempt, following))

    async def _work(self, attempt: Attempt, following: Following) -> None:
        pool, outcomes = self._pool, self._outcomes
        ongoing: Attempt | None = attempt
        is_wanted = True
        """Until this task is cancelled from outside."""
        try:
            while ongoing is not None:
                attempt = ongoing
                is_cancelled = pool.is_cancelled
                if not is_cancelled:
                    attempt.has_begun = True
                    try:
                        attempt.complete(await self._function(attempt))
                    except Exception as error:
                        attempt.fail(error)
                    except asyncio.CancelledError:
                        is_cancelled, is_wanted = pool.is_cancelled, False
                        attempt.cancel()
                del pool.working[attempt.task]
                attempt.lane.in_flight -= 1
                outcomes.settle(attempt, outcomes.learn(attempt, is_cancelled))
                self._notify_lanes(attempt)
                ongoing = self._next_after(attempt, following) if is_wanted else None
            pool.dispatch()
            if not pool.working:  # it may be that nothing can start for hours, which lanes find out
                self._lanes.notify(self._lanes.all(), (LaneWait.COOLDOWN,))
        except Exception as error:
            pool.working.pop(attempt.task, None)
            self._supervisor.fail(error)

    def _next_after(self, attempt: Attempt, following: Following) -> Attempt | None:
        """The next call of the same worker: of the same lane, unless another wants a worker too."""
        pool, lane = self._pool, attempt.lane
        if self._supervisor.stopped is not None or not pool.is_free or pool.is_wanted_by_others(lane):
            return None
        upcoming = following(lane)
        if upcoming is not None:
            upcoming.task = attempt.task
            pool.working[upcoming.task] = upcoming
        return upcoming

    def _notify_lanes(self, attempt: Attempt) -> None:
        """An end of a call may be what other lanes wait for."""
        lanes = self._lanes.all() if self._spending.is_capped else attempt.lane.route.group.lanes
        self._lanes.notify(lanes, AFTER_AN_ANSWER)
        if self._supervisor.stopped is not None:
            self._backlog.progress.notify()
