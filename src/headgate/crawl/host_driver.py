"""What moves the lane of each host: whether a URL may be fetched now, and the permit for it.

    queued? ─> not shut ─> a worker is free ─> crawl-delay ─> permit ─> robots.txt known ─> take a URL, fetch it
      └──────────────── an obstacle: sleep until a notification or until its time ────────────────┘

A lane gets its permit first and takes a URL then, so a host that has to wait holds neither a worker nor a permit.
A host that must wait for long (its circuit is open, it asked for an hour's rest, its robots.txt is unreachable) is
shut: its URLs go back to the frontier with the time to come back, and it costs nothing meanwhile.

A slow host holds workers for as long as its answers take. So a host may have only a share of the workers that are free
(``SHARE``): the fewer are left, the fewer each may have, down to one. Many slow hosts together never take the last
workers from the quick ones.

Outcomes without a page (deferred, redirected, failed, refused) are recorded by the ``OutcomeWriter``, beside the
pipeline, since nothing waits for them; a URL counts as held until its outcome is recorded, and none is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ..clock import Clock
from ..engine.lane import Lane, LaneWait, Obstacle
from ..engine.supervisor import Supervisor
from ..engine.worker_pool import WorkerPool
from .fetch.credentials import FetchPermit
from .fetch.gated_fetcher import Deferred, Fetched, FetchFailed, FetchOutcome, GatedFetcher, Redirected
from .frontier import FoundUrl, Reason, Visit
from .frontier.frontier import Frontier
from .report import CrawlReporter
from .robots_cache import RobotsCache
from .scheduler import Backlog, Host, Rejected
from .url import Scope, host_of, origin_of


class OutcomeWriter:
    def __init__(
        self,
        frontier: Frontier,
        scope: Scope,
        reporter: CrawlReporter,
        backlog: Backlog,
        supervisor: Supervisor,
        *,
        max_redirects: int,
    ) -> None:
        self._frontier, self._scope, self._reporter = frontier, scope, reporter
        self._backlog, self._supervisor, self._max_redirects = backlog, supervisor, max_redirects
        self._writing: set[asyncio.Task[None]] = set()

    def record(self, visit: Visit, outcome: FetchOutcome) -> None:
        """Whatever came of a visit, short of a page."""
        if isinstance(outcome, Redirected):
            self._redirect(visit, outcome)
        elif isinstance(outcome, Deferred):
            self._defer(visit, outcome)
        elif isinstance(outcome, Fetched):
            status = outcome.response.status
            self.fail(visit, FetchFailed(Reason(f"http_{status}", f"answered {status}")))
        else:
            self.fail(visit, outcome)

    def fail(self, visit: Visit, failed: FetchFailed) -> None:
        """It will not be tried again; refused if nothing was sent."""
        if not failed.sent:
            self._reporter.refused(visit, failed.reason)
            return self._write(self._frontier.refuse(visit, failed.reason))
        self._reporter.failed(visit, failed)
        return self._write(self._frontier.fail(visit, failed.reason, attempts=failed.attempts))

    def defer_host(self, host: str, visits: list[Visit], seconds: float, reason: Reason) -> None:
        """Its URLs wait on disk, with the reason, until it opens again."""
        for visit in visits:
            self._reporter.deferred(visit, reason, seconds)
        self._write(self._rest(host, visits, seconds, reason), len(visits), opened=0)

    async def drain(self) -> None:
        """Wait until everything is recorded."""
        await asyncio.gather(*self._writing, return_exceptions=True)

    def _redirect(self, visit: Visit, outcome: Redirected) -> None:
        """Its target is a URL like any other, one redirect further."""
        target = outcome.target
        if target is None:
            return self._fail_redirect(visit, "redirects to an invalid URL")
        if target == visit.url:
            return self._fail_redirect(visit, "redirects to itself")
        if visit.redirects >= self._max_redirects:
            return self._fail_redirect(visit, f"{visit.redirects + 1} redirects in a row")
        if (why_not := self._scope.refuses(target, visit.depth)) is not None:
            outside = f"redirects to {host_of(target)}: the URL {why_not}"
            return self.fail(visit, FetchFailed(Reason("scope", outside), sent=False))
        self._reporter.redirected(visit, outcome.response.status, target)
        found = [FoundUrl(target, visit.depth, visit.found_on or visit.url, visit.redirects + 1)]
        return self._write(self._frontier.finish(visit, None, found, str(Reason("redirect", f"to {target}"))))

    def _fail_redirect(self, visit: Visit, detail: str) -> None:
        self.fail(visit, FetchFailed(Reason("redirect", detail)))

    def _defer(self, visit: Visit, outcome: Deferred) -> None:
        self._reporter.deferred(visit, outcome.reason, outcome.seconds)
        until = self._frontier.now() + outcome.seconds
        counts = {"attempts": outcome.attempts, "rate_limited": outcome.rate_limited}
        self._write(self._frontier.put_off(visit, until, str(outcome.reason), **counts), opened=0)

    async def _rest(self, host: str, visits: list[Visit], seconds: float, reason: Reason) -> None:
        await self._frontier.rest(host, self._frontier.now() + seconds, str(reason))
        await self._frontier.give_back(visits)

    def _write(self, writing: Coroutine[Any, Any, int | None], visits: int = 1, opened: int = -1) -> None:
        """``opened``: how many URLs more are open after it, besides those it adds."""
        task = self._supervisor.start(self._written(writing, visits, opened))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _written(self, writing: Coroutine[Any, Any, int | None], visits: int, opened: int) -> None:
        added = await writing
        self._backlog.release(visits, opened + (added or 0))


SHARE = 16
"""A host may have one in so many of the workers that are free."""

HostLane = Lane[Host]
StartFetch = Callable[[HostLane, Visit, FetchPermit], None]


class HostDriver:
    """The ``LaneDriver`` of a crawl."""

    def __init__(
        self,
        *,
        clock: Clock,
        pool: WorkerPool[Visit],
        fetcher: GatedFetcher,
        robots: RobotsCache,
        outcomes: OutcomeWriter,
        reporter: CrawlReporter,
        start_fetch: StartFetch,
        is_paused: Callable[[], bool],
        per_host: int,
        delay: float,
    ) -> None:
        """``per_host``: fetches of one host at once. ``delay``: seconds between two of its calls at least."""
        self._clock, self._pool, self._fetcher, self._robots = clock, pool, fetcher, robots
        self._outcomes, self._reporter, self._start_fetch = outcomes, reporter, start_fetch
        self._is_paused, self._per_host, self._delay = is_paused, per_host, delay

    # ------------------------------------------------------------------ may a fetch start?

    def _next_visit(self, lane: HostLane, now: float) -> Visit | Obstacle:
        """The visit whose turn it is, or what keeps it from starting, as far as can be told without the limiter."""
        host, pool = lane.route, self._pool
        if self._is_paused():
            return Obstacle(LaneWait.PAUSED)
        first = host.first(now)
        if first is None:
            return Obstacle(LaneWait.RETRY_BUDGET)  # until one of the retries in flight has ended
        if lane.in_flight >= max(1, min(self._per_host, pool.free // SHARE)):
            return Obstacle(LaneWait.ANSWERS)
        if not pool.is_free or (not lane.has_turn and pool.is_wanted_by_others(lane)):
            lane.wait_for(LaneWait.WORKERS)
            pool.want(lane)
            pool.dispatch()
            return Obstacle(LaneWait.WORKERS)
        if host.next_at > now:
            return Obstacle(LaneWait.CRAWL_DELAY, host.next_at - now)
        return first

    def on_wait(self, lane: HostLane, obstacle: Obstacle) -> float:
        if obstacle.wait is not LaneWait.WORKERS:
            lane.has_turn = False
            self._pool.dispatch()
        return obstacle.seconds

    async def send(self, lane: HostLane, now: float) -> Obstacle | None:
        """Get a permit, then start a fetch. Whatever comes in between is found by the next ``send``."""
        host, pool = lane.route, self._pool
        if lane.opens_at > now:
            self._outcomes.defer_host(host.name, host.take_all(), lane.opens_at - now, host.shut_reason)
            return None
        first = self._next_visit(lane, now)
        if isinstance(first, Obstacle):
            return first
        origin = origin_of(first.url)
        has_rules = host.knows_rules_of(first.url, now)
        if not has_rules and await self._recall_rules(host, origin):
            return None
        lane.wait_for(LaneWait.PACE)
        pool.dispatch()
        permit = await self._fetcher.acquire(first.url)
        if isinstance(permit, Deferred):
            self._shut(lane, permit.seconds, permit.reason)
            return None
        now = self._clock.now()
        if not pool.is_free or self._is_paused():
            permit.abandon()
            return None
        lane.has_turn = False
        if not has_rules:
            await self._read_rules(lane, origin, permit)
            return None
        visit = host.take(origin, now)
        if visit is None:
            permit.abandon()
            return None
        lane.wait_for(LaneWait.NOTHING)
        self._start_delay(host)
        self._start_fetch(lane, visit, permit)
        return None

    def _start_delay(self, host: Host) -> None:
        host.start_delay(self._clock.now(), max(self._delay, self._fetcher.min_delay(host.name)))

    def _shut(self, lane: HostLane, seconds: float, reason: Reason) -> None:
        """Nothing of this host starts for so long; its URLs wait on disk."""
        lane.opens_at = self._clock.now() + seconds
        lane.route.shut_reason = reason
        self._reporter.host_shut(lane.route.name, reason, seconds)

    def _reject(self, rejected: Rejected) -> None:
        for visit, why in rejected:
            self._outcomes.fail(visit, why)

    # ------------------------------------------------------------------ robots.txt comes before every page

    async def _recall_rules(self, host: Host, origin: str) -> bool:
        """Take the rules that the frontier remembers, if they are not too old."""
        known = await self._robots.recall(origin)
        if known is None:
            return False
        self._reject(host.set_rules(origin, *known))
        self._start_delay(host)  # when the host was asked last is not known
        return True

    async def _read_rules(self, lane: HostLane, origin: str, permit: FetchPermit) -> None:
        """Fetch the rules: a call like any other, made by the lane itself and counted as a worker's."""
        host, pool = lane.route, self._pool
        lane.wait_for(LaneWait.ROBOTS)
        lane.in_flight += 1
        task = asyncio.current_task()
        assert task is not None
        visit = pool.working[task] = self._robots.visit_for(host.name, origin)
        try:
            read = await self._robots.read(visit, origin, permit, partial(self._next_permit, lane, task))
        finally:
            pool.working.pop(task, None)
            lane.in_flight -= 1
            pool.dispatch()
        if isinstance(read, Deferred):
            self._shut(lane, read.seconds, Reason("robots.txt", str(read.reason)))
        elif isinstance(read, FetchFailed):
            self._reject(host.mark_unreachable(origin, read))
        else:
            self._reject(host.set_rules(origin, *read))
        self._start_delay(host)

    async def _next_permit(self, lane: HostLane, task: asyncio.Task[None], visit: Visit) -> FetchPermit | Deferred:
        """A permit for the next hop to a robots.txt. It may lead to a slow host: no worker waits for that."""
        pool = self._pool
        pool.working.pop(task, None)
        try:
            if visit.host == lane.route.name and self._delay:
                pool.dispatch()
                await self._clock.sleep_async(self._delay)
            while True:
                lane.wait_for(LaneWait.ROBOTS)
                pool.dispatch()
                permit = await self._fetcher.acquire(visit.url)
                if isinstance(permit, Deferred) or pool.free > 0:
                    return permit
                permit.abandon()
                lane.wait_for(LaneWait.WORKERS)
                pool.want(lane)
                await lane.notifier.wait()
        finally:
            pool.working[task] = visit
            lane.has_turn = False
