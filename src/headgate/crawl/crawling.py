"""One crawl: addresses come from the frontier, lanes send them off, and each one's end is on disk before it is told.

    frontier ─take─> lanes ─permit, fetch─> processing ─> output ─finish─> frontier ─> whoever iterates
        ^                      │ put off, given up, sent on                   │ addresses found
        └──────────────────────┴──────────────────────────────────────────────┘

An address is in memory from ``take`` until what became of it is written down; so memory is bounded by what is
held, and a crash costs no more than the fetches that were under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.words import span
from .address import host_of
from .asking import Asking
from .crew import Crew
from .discovery import Discovery
from .fates import Fates
from .frontier import Found, Frontier
from .frontier_records import Visit
from .keys import Leave
from .lanes import Lane
from .manners import Manners
from .output import Page, Result
from .output_warc import WarcOutput
from .processing import Processing, kind_of
from .report import CrawlReport
from .room import Room
from .stages import Stage
from .telling import Telling
from .visit import Arrived, Visiting

if TYPE_CHECKING:
    from .crawler import Crawler

READERS = 64
"""Pages that are read at a time: large ones in threads, and each has to hear from the frontier what is full."""
WRITERS = 128
"""Pages that wait for one commit."""

Work = tuple[Visit, Arrived, float]
Written = tuple[Visit, Result | None, list[Found], str, int]
"""A visit, its page, where that leads, what is said of it, and the bytes it takes in memory."""


class Crawl:
    def __init__(
        self, crawler: Crawler, frontier: Frontier, delivery: asyncio.Queue[Page | None] | None = None
    ) -> None:
        self.crawler, self.frontier, self._delivery = crawler, frontier, delivery
        self.config, self.scope, self.clock, self.limiter = (
            crawler.config,
            crawler.scope,
            crawler.clock,
            crawler.limiter,
        )
        config, report = self.config, CrawlReport()
        self.report = report
        self.telling = Telling(report, self.clock, lambda: crawler.on_event)
        self.tell = self.telling.tell
        self.room = Room(config.max_held)
        self.crew = Crew(config.workers, self.room, lambda: self.is_full)
        self._asking = Asking(config, crawler.headers, crawler.resolver, self.room, lambda: len(self.discovery.lanes))
        self.visiting = Visiting(
            self.limiter, crawler.fetch or self._asking, config, crawler.rng, self.telling.called, crawler.credentials
        )
        self.manners = Manners(self)
        self.discovery = Discovery(self)
        self.fates = Fates(self)
        self.stopping = ""
        """Why nothing starts any more."""
        self.cut_short = False
        """Whether nothing that is under way is waited for."""
        self.failure: BaseException | None = None
        self._processing = Processing(
            self.scope,
            agent=config.robots_agent,
            follow=crawler.follow,
            extract=crawler.extract,
            keeps_exchange=any(isinstance(output, WarcOutput) for output in crawler.outputs),
        )
        watched: dict[str, Any] = {"clock": self.clock, "failed": self.fail}
        room = config.workers
        self.reading: Stage[Work] = Stage(
            self._read, hands=READERS, room=room, times=report.stages["processing"], **watched
        )
        self.writing: Stage[Written] = Stage(
            self._write, hands=WRITERS, room=room, times=report.stages["output"], **watched
        )
        self._fetching: set[asyncio.Task[None]] = set()
        self._discovering: asyncio.Task[None] | None = None
        self.began_at = self.clock.now()
        self._pages_before = 0

    # ------------------------------------------------------------------ from the first address to the last

    async def go(self) -> None:
        """Until the frontier is empty or something stops it. However it ends, nothing is left held."""
        config = self.config
        try:
            counts = await self.frontier.begin()
            self.report.before = self._pages_before = counts.pages
            self.report.failed_before, self.report.hosts = counts.failed, counts.hosts
            self.report.open = counts.open + await self.frontier.add(Found(url, 0) for url in self.crawler.seeds)
            async with self._asking:
                self.reading.start()
                self.writing.start()
                timer = None
                if config.deadline is not None:
                    over = f"deadline: {span(config.deadline)} are over"
                    timer = asyncio.get_running_loop().call_later(config.deadline, partial(self.stop, over, now=True))
                self._discovering = asyncio.create_task(self.guarded(self.discovery.go))
                try:
                    await self._until_over()
                except asyncio.CancelledError:
                    self.stop("cancelled", now=True)
                    raise
                finally:
                    if timer is not None:
                        timer.cancel()
                    await self._close()
        finally:
            self.report.elapsed = self.clock.now() - self.began_at
            await self.frontier.close()
        if self.failure is not None:
            raise self.failure

    async def _until_over(self) -> None:
        assert self._discovering is not None
        await asyncio.wait([self._discovering])
        while self._fetching and not self.failure:
            await asyncio.wait([*self._fetching])

    def stop(self, reason: str, *, now: bool = False) -> None:
        """Start nothing any more; ``now``: and wait for nothing that is under way."""
        if not self.stopping:
            self.stopping = self.report.stopped = reason
            self.tell("stopped", reason=reason)
        if self._discovering is not None:
            self._discovering.cancel()
        self.discovery.stop()
        if now:
            self.cut_short = True
            for task in self._fetching:
                task.cancel()

    def fail(self, error: BaseException) -> None:
        """Something is wrong that no page is to blame for."""
        if self.failure is None:
            self.failure = error
        self.stop(f"failed: {type(error).__name__}", now=True)

    async def _close(self) -> None:
        """Finish what is under way, unless it was cut short; what is still taken then goes back to the frontier."""
        try:
            await asyncio.gather(*self.discovery.stop(), *self._fetching, return_exceptions=True)
            if not self.cut_short:
                await self.reading.drain()
                await self.writing.drain()
        finally:  # cancelled while it waits, say: nobody takes the pages any more
            await self.reading.close()
            await self.writing.close()
            await asyncio.gather(*self.fates.writing, return_exceptions=True)
        if self.failure is None:
            counts = await self.frontier.counts()
            self.report.open, self.report.hosts = counts.open, counts.hosts

    # ------------------------------------------------------------------ extraction

    @property
    def is_paused(self) -> bool:
        return self.crawler.is_paused

    @property
    def is_enough(self) -> bool:
        most = self.config.max_pages
        return most is not None and self._pages_before + self.report.pages >= most

    @property
    def is_full(self) -> bool:
        """Whether those under way may be the last pages that are wanted."""
        most = self.config.max_pages
        return most is not None and self._pages_before + self.report.pages + self.crew.open >= most

    def start(self, lane: Lane, visit: Visit, leave: Leave) -> None:
        """An address of this lane has leave, and goes."""
        crew, report = self.crew, self.report
        lane.in_flight += 1
        crew.working += 1
        crew.open += 1
        report.retries += visit.attempts > 0
        task = asyncio.create_task(self.guarded(self._attend, lane, visit, leave))
        self._fetching.add(task)
        task.add_done_callback(partial(self._left, leave))

    def _left(self, leave: Leave, task: asyncio.Task[None]) -> None:
        self._fetching.discard(task)
        leave.abandon()  # counts for a task alone that was cancelled before its first step: all others have ended it

    async def _attend(self, lane: Lane, visit: Visit, leave: Leave) -> None:
        try:
            fate = await self.visiting.visit(visit, leave)
        finally:
            lane.in_flight -= 1
            self.crew.working -= 1
            if visit.attempts:
                lane.budget.ended()
            lane.bell.ring()
            self.crew.pass_on()
        self.telling.answered(fate)
        if isinstance(fate, Arrived) and fate.fetched.status < 300:
            self.room.keep(len(fate.fetched.body))
            await self.reading.put((visit, fate, self.frontier.now()))
            return
        self.crew.written()
        self.fates.settle(visit, fate)

    def leave_out(self, found: Found, why: str) -> None:
        """The frontier has enough of its kind."""
        self.telling.left_out(host_of(found.url), kind_of(found), found.url, why)
        self._processing.note_full(found)

    # ------------------------------------------------------------------ processing and output

    async def _read(self, work: Work) -> None:
        visit, arrived, fetched_at = work
        agent = (("User-Agent", self.config.agent), ("Host", visit.host))
        result, found, said = await self._processing.read(visit, arrived, fetched_at, agent)
        await self.writing.put((visit, result, found, said, len(arrived.fetched.body)))

    async def _write(self, written: Written) -> None:
        visit, result, found, said, size = written
        added = await self.frontier.finish(visit, result, found, said or ("" if result is not None else "sitemap"))
        self.room.let_go(size)
        self.discovery.let_go(1, added - 1)
        self.report.pages += result is not None
        self.report.sitemaps += result is None
        self.crew.written()
        if result is None:
            return self.telling.read_sitemap(visit.host, visit.url, said)
        page = result.page
        self.tell("page", visit.host, url=page.url, status=page.status, attempts=page.attempts)
        if self._delivery is not None and not self.cut_short:
            await self._delivery.put(page)
        return None

    # ------------------------------------------------------------------ on the way

    async def guarded(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """What goes wrong in a task of ours ends the crawl instead of being lost with the task."""
        try:
            await work(*arguments)
        except Exception as error:
            self.fail(error)
