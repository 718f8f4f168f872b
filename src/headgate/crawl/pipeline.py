"""The stages a page passes, each with a bounded queue in front of it.

    stage in reports   what it does                            by
    extraction         fetch, by the permit of its lane        fetch/gated_fetcher.py
        │ no page: deferred, redirected, failed ────────────>  host_driver.py
    processing         read the page, choose links to follow   page/processor.py
    output             commit page and links, then deliver     frontier/frontier.py

A full queue holds up the stage before it, and in the end the lanes: what is not begun waits on disk. Fetches wait host
by host (``host_driver.py``); the stages after them do not tell hosts apart. A page counts as open from its fetch until
it is on disk, and so do the bytes of its body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from ..clock import Clock
from ..engine.supervisor import Supervisor
from ..engine.worker_pool import WorkerPool
from .fetch.credentials import FetchPermit
from .fetch.gated_fetcher import Fetched, GatedFetcher
from .fetch.memory_budget import MemoryBudget
from .frontier import FoundUrl, Visit
from .frontier.frontier import Frontier
from .host_driver import HostLane, OutcomeWriter
from .output import Page, Result
from .page.processor import PageProcessor
from .report import CrawlReport, CrawlReporter, StageTimes
from .scheduler import Backlog

READERS = 64
"""Pages that are read at a time: large ones in threads, and each has to hear from the frontier what is full."""
WRITERS = 128
"""Pages that wait for one commit."""
SITEMAP = "sitemap"
"""The reason of a visit that is done without a page."""

T = TypeVar("T")
Work = tuple[Visit, Fetched, float]
"""A visit, its answer, and when it was fetched."""
Written = tuple[Visit, Result | None, list[FoundUrl], str, int]
"""A visit, its page, where that leads, what is wrong with it, and the bytes it takes in memory."""


class PageLimit:
    """How many pages are wanted."""

    def __init__(self, max_pages: int | None, report: CrawlReport) -> None:
        self._max_pages, self._report = max_pages, report
        self.open = 0
        """Fetches that may still become pages."""

    @property
    def is_reached(self) -> bool:
        return self._max_pages is not None and self._report.before + self._report.pages >= self._max_pages

    @property
    def is_full(self) -> bool:
        """Whether those under way may be the last pages that are wanted."""
        if self._max_pages is None:
            return False
        return self._report.before + self._report.pages + self.open >= self._max_pages


class Stage(Generic[T]):
    """A number of workers that take from one queue. What ``work`` raises ends the crawl, not only a worker."""

    def __init__(
        self,
        work: Callable[[T], Awaitable[None]],
        *,
        workers: int,
        room: int,
        clock: Clock,
        times: StageTimes,
        supervisor: Supervisor,
    ) -> None:
        self._work, self._workers, self._clock, self._times = work, workers, clock, times
        self._supervisor = supervisor
        self._queue: asyncio.Queue[tuple[T, float]] = asyncio.Queue(room)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run()) for _ in range(self._workers)]

    async def put(self, page: T) -> None:
        """Returns once there is room."""
        await self._queue.put((page, self._clock.now()))

    async def drain(self) -> None:
        """Wait until everything that was put has been worked on."""
        await self._queue.join()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        now, queue = self._clock.now, self._queue
        while True:
            page, since = await queue.get()
            began_at = now()
            try:
                await self._supervisor.guarded(self._work, page)
            finally:
                queue.task_done()
            self._times.add(began_at - since, now() - began_at)


class Pipeline:
    def __init__(
        self,
        *,
        pool: WorkerPool[Visit],
        limit: PageLimit,
        memory: MemoryBudget,
        fetcher: GatedFetcher,
        processor: PageProcessor,
        frontier: Frontier,
        outcomes: OutcomeWriter,
        backlog: Backlog,
        reporter: CrawlReporter,
        report: CrawlReport,
        supervisor: Supervisor,
        clock: Clock,
        deliver: Callable[[Page], Awaitable[None]] | None,
    ) -> None:
        """``deliver`` hands a page to the caller once it is on disk."""
        self._pool, self._limit, self._memory, self._fetcher, self._processor = pool, limit, memory, fetcher, processor
        self._frontier, self._outcomes, self._backlog, self._reporter = frontier, outcomes, backlog, reporter
        self._report, self._supervisor, self._deliver = report, supervisor, deliver
        self._fetching: set[asyncio.Task[None]] = set()
        stage = partial(Stage, room=pool.workers, clock=clock, supervisor=supervisor)
        self._processing: Stage[Work] = stage(self._process, workers=READERS, times=report.stages["processing"])
        self._output: Stage[Written] = stage(self._write, workers=WRITERS, times=report.stages["output"])

    # ------------------------------------------------------------------ from the first page to the last

    def start(self) -> None:
        self._processing.start()
        self._output.start()

    async def wait_for_fetches(self) -> None:
        while self._fetching and self._supervisor.failure is None:
            await asyncio.wait([*self._fetching])

    def cancel(self) -> None:
        """Wait for nothing that is under way."""
        self._pool.cancel()
        for task in self._fetching:
            task.cancel()

    async def close(self) -> None:
        """Finish what is under way, unless it was cancelled."""
        try:
            await asyncio.gather(*self._fetching, return_exceptions=True)
            if not self._pool.is_cancelled:
                await self._processing.drain()
                await self._output.drain()
        finally:  # cancelled while it waits, say: the pages have no taker any more
            await self._processing.close()
            await self._output.close()

    # ------------------------------------------------------------------ fetch ("extraction")

    def start_fetch(self, lane: HostLane, visit: Visit, permit: FetchPermit) -> None:
        """Fetch a URL of this lane, by this permit."""
        lane.in_flight += 1
        self._limit.open += 1
        self._report.retries += visit.attempts > 0
        task = self._pool.start(visit, self._supervisor.guarded(self._fetch, lane, visit, permit))
        self._fetching.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._fetching.discard(task)
            self._pool.working.pop(task, None)
            permit.abandon()  # counts only for a task that was cancelled before its first step: all others ended it

        task.add_done_callback(ended)

    async def _fetch(self, lane: HostLane, visit: Visit, permit: FetchPermit) -> None:
        pool, task = self._pool, asyncio.current_task()
        assert task is not None
        try:
            outcome = await self._fetcher.fetch(visit, permit)
        finally:
            pool.working.pop(task, None)
            pool.unrecorded += 1
            lane.in_flight -= 1
            if visit.attempts:
                lane.route.budget.ended()
            lane.notifier.notify()
            pool.dispatch()
        self._reporter.answered(outcome)
        if isinstance(outcome, Fetched) and outcome.response.status < 300:
            self._memory.keep(len(outcome.response.body))
            await self._processing.put((visit, outcome, self._frontier.now()))
            return
        self._recorded()
        self._outcomes.record(visit, outcome)

    def _recorded(self) -> None:
        """What came of a fetch is on disk, or is no page."""
        self._limit.open -= 1
        self._pool.unrecorded -= 1
        self._pool.dispatch()

    # ------------------------------------------------------------------ read ("processing") and write ("output")

    async def _process(self, work: Work) -> None:
        visit, fetched, fetched_at = work
        result, found, problem = await self._processor.read(visit, fetched, fetched_at)
        await self._output.put((visit, result, found, problem, len(fetched.response.body)))

    async def _write(self, written: Written) -> None:
        visit, result, found, problem, size = written
        reason = problem or ("" if result is not None else SITEMAP)
        added = await self._frontier.finish(visit, result, found, reason)
        self._memory.release(size)
        self._backlog.release(1, added - 1)
        if result is None:
            self._reporter.sitemap_read(visit, problem)
        else:
            self._reporter.page_written(visit, result.page)
        self._recorded()
        if result is not None and self._deliver is not None and not self._pool.is_cancelled:
            await self._deliver(result.page)
