"""One run of a crawl: puts its parts together, and drives them from the first URL to the last.

    frontier ─> Scheduler ─> lane of each host (HostDriver) ─> Pipeline ─> frontier, outputs ─> the caller's iteration
        ^                          │ no page: OutcomeWriter        │ URLs found
        └──────────────────────────┴───────────────────────────────┘

A URL is in memory from ``take`` until what became of it is on disk; so memory is bounded by what is held, and a crash
costs no more than the fetches that were under way.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from ..clock import Clock
from ..core.decision import UNKNOWN
from ..engine.lane import Lane, LaneWait
from ..engine.supervisor import Stop, StopReason, Supervisor
from ..engine.worker_pool import WorkerPool
from ..events import CrawlEvent, EventDispatcher, Listener
from ..formatting import format_seconds, plural
from ..limiter import AdaptiveRateLimiter
from .config import CrawlConfig
from .fetch.credentials import OriginCredentials
from .fetch.gated_fetcher import Fetch, GatedFetcher
from .fetch.http import HttpFetcher
from .fetch.memory_budget import MemoryBudget
from .frontier import FoundUrl, Visit
from .frontier.bounds import Bounds
from .frontier.frontier import Frontier
from .host_driver import HostDriver, OutcomeWriter
from .output import Output, Page, WarcOutput
from .page.processor import Extract, Follow, PageProcessor
from .pipeline import PageLimit, Pipeline
from .report import CrawlReport, CrawlReporter
from .robots_cache import RobotsCache
from .scheduler import Backlog, Host, Scheduler
from .status import CrawlStatus
from .url import Scope

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

QUEUED_PER_FETCH = 2
"""For each fetch that a host may have at once, so many of its URLs are in memory."""
OPEN_PER_WORKER = 2
"""Pages for each worker that are fetched or being fetched and not on disk; a crash would fetch them again."""
MOST_NAMED = 10
"""Seeds by which a crawl is known; of more, a digest."""
SPENT_PATIENCE = 900.0
"""Seconds without anything to start after which a crawl waits no longer for credentials that are not accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlSetup:
    """Everything that stays the same from one run of a crawl to the next."""

    config: CrawlConfig
    seeds: tuple[str, ...]
    scope: Scope
    limiter: AdaptiveRateLimiter
    clock: Clock
    rng: random.Random
    outputs: tuple[Output, ...]
    follow: Follow | None
    extract: Extract | None
    headers: Mapping[str, Mapping[str, str]]
    """By origin."""
    credentials: Mapping[str, OriginCredentials]
    resolver: AbstractResolver | None
    fetch: Fetch | None
    """In place of the crawl's own HTTP client."""


class CrawlRun:
    def __init__(
        self,
        setup: CrawlSetup,
        frontier_path: str,
        *,
        listener: Callable[[], Listener | None],
        is_paused: Callable[[], bool],
        deliver: asyncio.Queue[Page | None] | None = None,
    ) -> None:
        """``listener`` returns the present listener of events; ``deliver`` takes each page once it is on disk."""
        config, clock, limiter = setup.config, setup.clock, setup.limiter
        self._setup, self._clock, self._config = setup, clock, config
        self.report = CrawlReport()
        self.began_at = clock.now()
        self.frontier = Frontier(
            frontier_path,
            identity=identity_of(config, setup.seeds, {*setup.headers, *setup.credentials}),
            outputs=setup.outputs,
            per_host=QUEUED_PER_FETCH * config.per_host,
            bounds=Bounds(per_host=config.max_per_host, per_shape=config.max_per_shape),
            left_out=self._leave_out,
            clock=clock,
        )
        self._reporter = CrawlReporter(self.report, EventDispatcher(CrawlEvent, clock, listener))
        self._supervisor = Supervisor(self._on_stop)
        self._backlog = Backlog(self.report, clock)
        self.memory = MemoryBudget(config.max_held)
        self._limit = PageLimit(config.max_pages, self.report)
        self._pool: WorkerPool[Visit] = WorkerPool(
            config.workers,
            max_open=OPEN_PER_WORKER * config.workers,
            is_blocked=lambda: not self.memory.is_open or self._limit.is_full,
        )
        self._client = HttpFetcher(
            config, setup.headers, setup.resolver, self.memory, lambda: len(self.scheduler.lanes)
        )
        self._fetcher = GatedFetcher(
            limiter, setup.fetch or self._client, config, setup.rng, self._reporter.called, setup.credentials
        )
        self._outcomes = OutcomeWriter(
            self.frontier,
            setup.scope,
            self._reporter,
            self._backlog,
            self._supervisor,
            max_redirects=config.max_redirects,
        )
        self._processor = PageProcessor(
            setup.scope,
            agent=config.robots_agent,
            follow=setup.follow,
            extract=setup.extract,
            keeps_response=any(isinstance(output, WarcOutput) for output in setup.outputs),
        )
        self._pipeline = Pipeline(
            pool=self._pool,
            limit=self._limit,
            memory=self.memory,
            fetcher=self._fetcher,
            processor=self._processor,
            frontier=self.frontier,
            outcomes=self._outcomes,
            backlog=self._backlog,
            reporter=self._reporter,
            report=self.report,
            supervisor=self._supervisor,
            clock=clock,
            deliver=None if deliver is None else deliver.put,
        )
        robots = RobotsCache(
            self.frontier,
            self._fetcher,
            self._reporter,
            self._backlog,
            clock,
            agent=config.robots_agent,
            sitemap_scope=setup.scope if config.sitemaps and config.max_depth != 0 else None,
        )
        self._driver = HostDriver(
            clock=clock,
            pool=self._pool,
            fetcher=self._fetcher,
            robots=robots,
            outcomes=self._outcomes,
            reporter=self._reporter,
            start_fetch=self._pipeline.start_fetch,
            is_paused=is_paused,
            per_host=config.per_host,
            delay=config.delay,
        )
        self.scheduler = Scheduler(
            self.frontier,
            self._backlog,
            self._supervisor,
            clock,
            make_lane=self._make_lane,
            reject=self._outcomes.fail,
            is_enough=self._is_enough,
            is_too_long=self._is_too_long,
        )
        self.status = CrawlStatus(self.scheduler, self._fetcher, self._limit, self.memory, clock.now)
        self._scheduling: asyncio.Task[None] | None = None

    @property
    def in_flight(self) -> int:
        """Fetches under way."""
        return len(self._pool.working)

    # ------------------------------------------------------------------ from the first URL to the last

    async def run(self) -> None:
        """Until the frontier is empty or something stops it. However it ends, nothing is left held."""
        report = self.report
        try:
            counts = await self.frontier.begin()
            report.before, report.failed_before, report.hosts = counts.pages, counts.failed, counts.hosts
            report.open = counts.open + await self.frontier.add(FoundUrl(url, 0) for url in self._setup.seeds)
            async with self._client:
                await self._crawl()
        finally:
            report.elapsed = self._clock.now() - self.began_at
            await self.frontier.close()
        if self._supervisor.failure is not None:
            raise self._supervisor.failure

    def stop(self, reason: StopReason, detail: str = "", *, now: bool = False) -> None:
        """Start nothing any more; ``now``: and wait for nothing that is under way."""
        self._supervisor.stop(reason, detail, now=now)

    async def _crawl(self) -> None:
        self._pipeline.start()
        timer, deadline = None, self._config.deadline
        if deadline is not None:
            stop = partial(self.stop, StopReason.DEADLINE, f"after {format_seconds(deadline)}", now=True)
            timer = asyncio.get_running_loop().call_later(deadline, stop)
        self._scheduling = self._supervisor.start(self.scheduler.run())
        try:
            await asyncio.wait([self._scheduling])
            await self._pipeline.wait_for_fetches()
        except asyncio.CancelledError:
            self.stop(StopReason.CANCELLED, now=True)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            await self._close()

    async def _close(self) -> None:
        """Finish what is under way, unless it was cancelled; what is still taken then goes back to the frontier."""
        try:
            await asyncio.gather(*self.scheduler.stop(), return_exceptions=True)
        finally:
            try:
                await self._pipeline.close()
            finally:
                await self._outcomes.drain()
        if self._supervisor.failure is None:
            counts = await self.frontier.counts()
            self.report.open, self.report.hosts = counts.open, counts.hosts

    def _on_stop(self, stop: Stop, now: bool) -> None:
        if self.report.stop is None:
            self.report.stop = stop
            is_worded = stop.reason is StopReason.STOPPED and stop.detail
            self._reporter.stopped("" if is_worded else stop.reason.value, stop.detail)
        if self._scheduling is not None:
            self._scheduling.cancel()
        self.scheduler.stop()
        if now:
            self._pipeline.cancel()

    # ------------------------------------------------------------------ what the parts ask

    def _make_lane(self, host: str) -> Lane[Host]:
        lane = Lane(Host(host, self._config.retry_budget), self._driver, self._clock)
        lane.wait_for(LaneWait.NOTHING)
        return lane

    def _leave_out(self, found: FoundUrl, why: str) -> None:
        """The frontier has enough of its kind."""
        self._reporter.left_out(found, why)
        self._processor.note_full(found)

    def _is_enough(self) -> bool:
        if self._limit.is_reached:
            self.stop(StopReason.MAX_PAGES, f"{plural(self._config.max_pages or 0, 'page')} written")
        return self._limit.is_reached

    def _is_too_long(self, wait: float) -> bool:
        """Nothing is under way or due for so long: stop if that is longer than the caller wants to wait."""
        longest = UNKNOWN if self._config.standstill is None else self._config.standstill
        if wait >= min(SPENT_PATIENCE, longest) and (spent := self._fetcher.spent_origins()):
            self.stop(StopReason.CREDENTIALS, f"every key for {spent[0]} is disabled")
            return True
        if wait < longest:
            return False
        self.report.come_back_in = wait
        self.stop(StopReason.STANDSTILL, f"no host can be fetched for {format_seconds(wait)}")
        return True


def identity_of(config: CrawlConfig, seeds: tuple[str, ...], signed_in: Collection[str]) -> dict[str, str]:
    """What must be the same for a crawl to be resumed: with other seeds, another scope, the rules for another agent or
    another login, its pages would be mixed with others. How fast, how long and how much may change.

    ``signed_in`` are origins with headers or credentials of their own.
    """
    named = " ".join(sorted(seeds))
    if len(seeds) > MOST_NAMED:
        digest = sha256(named.encode()).hexdigest()[:16]
        named = f"{' '.join(seeds[:MOST_NAMED])} and {len(seeds) - MOST_NAMED:,} more ({digest})"
    return {
        "seeds": named,
        "hosts": " ".join(sorted(config.hosts)),
        "subdomains": str(config.subdomains),
        "include": " ".join(config.include),
        "exclude": " ".join(config.exclude),
        "depth": str(config.max_depth),
        "private": str(config.allow_private) + "".join(f" {host}" for host in sorted(config.allowed_hosts)),
        "robots agent": config.robots_agent,
        "sitemaps": str(config.sitemaps),
        "types": " ".join(sorted(config.types)),
        "signed in at": " ".join(sorted(signed_in)),
    }
