"""One crawl: addresses come from the frontier, lanes send them off, and each one's end is on disk before it is told.

    frontier ─take─> lanes ─permit, fetch─> processing ─> output ─finish─> frontier ─> whoever iterates
        ^                      │ put off, given up, sent on                   │ addresses found
        └──────────────────────┴──────────────────────────────────────────────┘

An address is in memory from ``take`` until what became of it is written down; so memory is bounded by ``MOST_HELD``,
and a crash costs no more than the fetches that were under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ..batch.bell import Bell
from ..core.words import span
from ..limiter import Permit
from .address import host_of
from .fetch import ANYTHING, fetch, new_session
from .fetched import Fetched, FetchLimits
from .frontier import Found, Frontier
from .frontier_records import Visit
from .guard import Guard
from .lanes import Crew, Lane
from .manners import PATH, Manners, is_rulebook
from .output import Page, Result
from .output_warc import WarcOutput
from .processing import Processing
from .report import CrawlEvent, CrawlReport
from .stages import Stage
from .visit import Arrived, Fate, GivenUp, PutOff, SentOn, Visiting

if TYPE_CHECKING:
    from .crawler import Crawler

log = logging.getLogger("headgate")

MOST_HELD = 10_000
"""Addresses in memory: waiting in lanes, under way or not yet written down."""
TAKE_EVERY = 0.01
"""Seconds between two looks into the frontier while there is news."""
IDLE_LANES = 1_000
"""Hosts without addresses that stay in memory, with their rules."""
READERS = 8
"""Pages that are read at a time; more than one only helps where large ones are read in threads."""
WRITERS = 128
"""Pages that wait for one commit."""

Work = tuple[Visit, Arrived, float]
Written = tuple[Visit, Result | None, list[Found]]


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
        self.crew = Crew(config.workers)
        self.visiting = Visiting(self.limiter, crawler.fetch or self._fetch, config, self.clock, crawler.rng)
        self.manners = Manners(self)
        self.lanes: OrderedDict[str, Lane] = OrderedDict()
        self.held = 0
        self.news = Bell(self.clock)
        """Rings when there may be something to take, or the crawl may be over."""
        self.stopping = ""
        """Why nothing starts any more."""
        self.cut_short = False
        """Whether nothing that is under way is waited for."""
        self.failure: BaseException | None = None
        self._guard = Guard(allow_private=config.allow_private, allowed_hosts=config.allowed_hosts)
        self._limits = FetchLimits(
            total=config.timeout, first_byte=min(config.first_byte, config.timeout), largest=config.max_size
        )
        self._processing = Processing(
            frontier,
            self.scope,
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
        self._tasks: set[asyncio.Task[None]] = set()
        """Fetches, and what is being written down beside the stages."""
        self._fetching: set[asyncio.Task[None]] = set()
        self._discovery: asyncio.Task[None] | None = None
        self.began_at = self.clock.now()
        self._pages_before = 0

    # ------------------------------------------------------------------ from the first address to the last

    async def go(self) -> None:
        """Until the frontier is empty or something stops it. However it ends, nothing is left held."""
        config = self.config
        try:
            counts = await self.frontier.begin()
            self.report.before = self._pages_before = counts.pages
            await self.frontier.add(Found(url, 0) for url in self.crawler.seeds)
            async with new_session(
                self._guard, agent=config.agent, connections=config.workers, resolver=self.crawler.resolver
            ) as self._session:
                self.reading.start()
                self.writing.start()
                timer = None
                if config.deadline is not None:
                    over = f"deadline: {span(config.deadline)} are over"
                    timer = asyncio.get_running_loop().call_later(config.deadline, partial(self.stop, over, now=True))
                self._discovery = asyncio.create_task(self.guarded(self._discover))
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
        assert self._discovery is not None
        await asyncio.wait([self._discovery])
        while self._fetching and not self.failure:
            await asyncio.wait([*self._fetching])

    def stop(self, reason: str, *, now: bool = False) -> None:
        """Start nothing any more; ``now``: and wait for nothing that is under way."""
        if not self.stopping:
            self.stopping = self.report.stopped = reason
            self.tell("stopped", reason=reason)
        if self._discovery is not None:
            self._discovery.cancel()
        for lane in self.lanes.values():
            if lane.task is not None:
                lane.task.cancel()
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
        lanes = [lane.task for lane in self.lanes.values() if lane.task is not None]
        for task in lanes:
            task.cancel()
        await asyncio.gather(*lanes, *self._fetching, return_exceptions=True)
        if not self.cut_short:
            await self.reading.drain()
            await self.writing.drain()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.reading.close()
        await self.writing.close()
        if self.failure is None:
            counts = await self.frontier.counts()
            self.report.open, self.report.hosts = counts.open, counts.hosts

    # ------------------------------------------------------------------ discovery

    async def _discover(self) -> None:
        """Take addresses from the frontier for as long as there are any, or may be."""
        frontier, clock = self.frontier, self.clock
        while not self.stopping:
            room = MOST_HELD - self.held
            visits = await frontier.take(room) if room > 0 else []
            for visit in visits:
                self._take_up(visit)
            if self.is_enough:
                self.stop(f"max_pages: {self.config.max_pages:,} pages are written")
                return
            if len(visits) == room:
                await self.news.wait()
                continue
            next_at = await frontier.next_at()
            if next_at is None and not self.held:
                return
            wait = float("inf") if next_at is None else next_at - frontier.now()
            if not self.held and self.config.standstill is not None and wait >= self.config.standstill:
                self.report.come_back_in = wait
                self.stop(f"standstill: nothing can start; come back in {span(wait)}")
                return
            await self.news.wait(max(TAKE_EVERY, wait))
            await clock.sleep_async(TAKE_EVERY)

    def _take_up(self, visit: Visit) -> None:
        lane = self.lanes.get(visit.host)
        if lane is None:
            if len(self.lanes) >= IDLE_LANES:
                self._forget_idle()
            lane = self.lanes[visit.host] = Lane(self, visit.host)
        self.held += 1
        if not lane.take_in(visit):
            return
        if lane.task is None:
            lane.task = asyncio.create_task(self._send_along(lane))
        else:
            lane.bell.ring()

    async def _send_along(self, lane: Lane) -> None:
        await self.guarded(lane.go)
        lane.task = None
        self.lanes.move_to_end(lane.host)

    def _forget_idle(self) -> None:
        """The hosts that have been idle for longest make room for others."""
        idle = [host for host, lane in self.lanes.items() if lane.is_idle]
        for host in idle[: max(1, len(idle) - IDLE_LANES // 2)]:
            del self.lanes[host]

    @property
    def is_enough(self) -> bool:
        most = self.config.max_pages
        return most is not None and self._pages_before + self.report.pages >= most

    @property
    def is_full(self) -> bool:
        """Whether those under way may be the last pages that are wanted."""
        most = self.config.max_pages
        return most is not None and self._pages_before + self.report.pages + self.crew.open >= most

    # ------------------------------------------------------------------ extraction

    def start(self, lane: Lane, visit: Visit, permit: Permit) -> None:
        """An address of this lane leaves, by this permit."""
        crew, report = self.crew, self.report
        lane.in_flight += 1
        crew.working += 1
        crew.open += 1
        report.fetches += 1
        report.retries += visit.attempts > 0
        task = asyncio.create_task(self.guarded(self._attend, lane, visit, permit))
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)

    async def _attend(self, lane: Lane, visit: Visit, permit: Permit) -> None:
        began_at = self.clock.now()
        try:
            fate = await self.visiting.visit(visit, permit)
        finally:
            lane.in_flight -= 1
            self.crew.working -= 1
            if visit.attempts:
                lane.budget.ended()
            lane.bell.ring()
            self.crew.pass_on()
        self.report.stages["extraction"].add(permit.waited, self.clock.now() - began_at)
        self.note_answer(fate)
        if isinstance(fate, Arrived) and fate.fetched.status < 300:
            await self.reading.put((visit, fate, self.frontier.now()))
            return
        self.crew.open -= 1
        if isinstance(fate, Arrived):
            self.give_up(visit, GivenUp(f"http_{fate.fetched.status}: answered {fate.fetched.status}"))
        elif isinstance(fate, SentOn):
            self.send_on(visit, fate)
        elif isinstance(fate, PutOff):
            self.put_off(visit, fate)
        else:
            self.give_up(visit, fate)

    async def _fetch(self, visit: Visit) -> Fetched:
        is_listing = visit.found_on.endswith(PATH) or visit.url.endswith((".xml", ".xml.gz"))
        return await fetch(
            self._session,
            visit.url,
            limits=self._limits,
            guard=self._guard,
            accept=ANYTHING if is_listing or is_rulebook(visit) else self.config.types,
            headers_by_origin=self.crawler.headers,
        )

    def note_answer(self, fate: Fate) -> None:
        report = self.report
        if isinstance(fate, Arrived | SentOn):
            report.statuses[fate.fetched.status] += 1
            report.bytes += len(fate.fetched.body)
        elif isinstance(fate, PutOff):
            report.rate_limited += fate.rate_limited

    # ------------------------------------------------------------------ processing and output

    async def _read(self, work: Work) -> None:
        visit, arrived, fetched_at = work
        agent = (("User-Agent", self.config.agent), ("Host", visit.host))
        result, found = await self._processing.read(visit, arrived, fetched_at, agent)
        await self.writing.put((visit, result, found))

    async def _write(self, written: Written) -> None:
        visit, result, found = written
        await self.frontier.finish(visit, result, found, "" if result is not None else "sitemap")
        self.crew.open -= 1
        self._ended()
        if result is None:
            self.report.sitemaps += 1
            return
        page = result.page
        self.report.pages += 1
        waited = {"extraction": page.wait}
        self.tell(
            "page",
            visit.host,
            url=page.url,
            status=page.status,
            attempts=page.attempts,
            waited=waited,
            worked={"extraction": page.fetch},
        )
        if self._delivery is not None and not self.cut_short:
            await self._delivery.put(page)

    # ------------------------------------------------------------------ every other end of a visit

    def send_on(self, visit: Visit, fate: SentOn) -> None:
        """A redirect: its target is an address like any other, one redirect further."""
        target, reason = fate.target, ""
        if target is None:
            return self.give_up(visit, GivenUp("redirect: leads to no address that can be visited"))
        if visit.redirects >= self.config.max_redirects:
            return self.give_up(visit, GivenUp(f"redirect: {visit.redirects + 1} redirects in a row"))
        if (why_not := self.scope.refuses(target, visit.depth)) is not None:
            return self.refuse(visit, f"scope: redirects to {host_of(target)}, to an address that {why_not}")
        self.report.sent_on += 1
        self.tell("sent_on", visit.host, url=visit.url, status=fate.fetched.status, reason=f"to {target}")
        found = [Found(target, visit.depth, visit.found_on or visit.url, visit.redirects + 1)]
        return self._end(self.frontier.finish(visit, None, found, reason or f"redirect: to {target}"))

    def put_off(self, visit: Visit, fate: PutOff) -> None:
        self.report.put_off += 1
        self.tell("put_off", visit.host, url=visit.url, reason=fate.reason, seconds=fate.seconds)
        until = self.frontier.now() + fate.seconds
        counts = {"attempts": fate.attempts, "rate_limited": fate.rate_limited}
        self._end(self.frontier.put_off(visit, until, fate.reason, **counts))

    def put_host_off(self, lane: Lane, seconds: float) -> None:
        """Its addresses wait on disk, with the reason, until it opens again."""
        visits = list(lane.stock)
        lane.stock.clear()
        self.report.put_off += len(visits)
        for visit in visits:
            self.tell("put_off", visit.host, url=visit.url, reason=lane.why_shut, seconds=seconds)
        self._end(self._rest(lane, visits, seconds), len(visits))

    async def _rest(self, lane: Lane, visits: list[Visit], seconds: float) -> None:
        await self.frontier.rest(lane.host, self.frontier.now() + seconds, lane.why_shut)
        await self.frontier.give_back(visits)

    def give_up(self, visit: Visit, fate: GivenUp) -> None:
        if not fate.sent:
            return self.refuse(visit, fate.reason)
        self.report.note_failed(fate.reason)
        self.tell("failed", visit.host, url=visit.url, reason=fate.reason, attempts=visit.attempts + 1)
        return self._end(self.frontier.fail(visit, fate.reason))

    def refuse(self, visit: Visit, reason: str) -> None:
        self.report.refused += 1
        self.tell("refused", visit.host, url=visit.url, reason=reason)
        self._end(self.frontier.refuse(visit, reason))

    def _end(self, writing: Coroutine[Any, Any, Any], visits: int = 1) -> None:
        task = asyncio.create_task(self.guarded(self._write_down, writing, visits))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_down(self, writing: Awaitable[Any], visits: int) -> None:
        await writing
        for _ in range(visits):
            self._ended()

    def _ended(self) -> None:
        self.held -= 1
        self.news.ring()

    # ------------------------------------------------------------------ on the way

    async def guarded(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """What goes wrong in a task of ours ends the crawl instead of being lost with the task."""
        try:
            await work(*arguments)
        except Exception as error:
            self.fail(error)

    def tell(self, kind: str, host: str = "", **facts: Any) -> None:
        """Tell whoever listens; a listener that raises costs nobody a page."""
        listener = self.crawler.on_event
        if listener is None:
            return
        try:
            listener(CrawlEvent(at=self.clock.now(), kind=kind, host=host, **facts))
        except Exception:
            log.exception("a listener failed on %s", kind)
