"""Which URLs are next: taken from the frontier in small lots, host by host, and queued for the lane of each host.

The frontier is asked while there is room in memory, when there is news, and when something that was deferred is due.
The crawl is over when the frontier has nothing more to give and nothing is held that could lead to more.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from ..clock import Clock
from ..core.decision import UNKNOWN
from ..engine.lane import Lane, LaneWait, Notifier
from ..engine.supervisor import Supervisor
from .fetch.gated_fetcher import FetchFailed
from .frontier.frontier import Frontier
from .frontier.records import Visit
from .host import Host
from .report import CrawlReport

MOST_HELD = 10_000
"""URLs in memory: queued, under way or not yet recorded."""
TAKE_EVERY = 0.01
"""Seconds between two looks into the frontier while there is news."""
IDLE_LANES = 1_000
"""Hosts without URLs that stay in memory, with their rules."""


class Backlog:
    """How many URLs are in memory, and how many are open in all; its news wake the scheduler."""

    def __init__(self, report: CrawlReport, clock: Clock) -> None:
        self._report = report
        self.held = 0
        self.news = Notifier(clock)
        """Notified when there may be something to take, or the crawl may be over."""

    def opened(self, count: int) -> None:
        """So many more URLs are open."""
        self._report.open += count

    def release(self, visits: int, opened: int) -> None:
        """So many URLs are recorded, or back in the frontier; so many more are open by that."""
        self.held -= visits
        self._report.open += opened
        self.news.notify()


class Scheduler:
    def __init__(
        self,
        frontier: Frontier,
        backlog: Backlog,
        supervisor: Supervisor,
        clock: Clock,
        *,
        make_lane: Callable[[str], Lane[Host]],
        reject: Callable[[Visit, FetchFailed], None],
        is_enough: Callable[[], bool],
        is_too_long: Callable[[float], bool],
    ) -> None:
        """``make_lane`` makes the lane to a host; ``reject`` records a visit that may not be made. The crawl ends when
        it ``is_enough``, or when nothing is under way and the next URL is due after a wait that ``is_too_long``."""
        self._frontier, self._backlog, self._supervisor, self._clock = frontier, backlog, supervisor, clock
        self._make_lane, self._reject, self._is_enough, self._is_too_long = make_lane, reject, is_enough, is_too_long
        self.lanes: OrderedDict[str, Lane[Host]] = OrderedDict()
        """By host, those that were busy last at the end."""
        self._running: dict[str, asyncio.Task[None]] = {}
        self._sweep_at = IDLE_LANES

    async def run(self) -> None:
        """Until there is nothing more, or something stops the crawl."""
        frontier, backlog = self._frontier, self._backlog
        while self._supervisor.stopped is None:
            room = MOST_HELD - backlog.held
            visits = await frontier.take(room) if room > 0 else []
            for visit in visits:
                self._queue(visit)
            if self._is_enough():
                return
            wait = UNKNOWN
            if len(visits) < room:
                next_at = await frontier.next_at()
                if next_at is None and not backlog.held:
                    return
                wait = UNKNOWN if next_at is None else max(TAKE_EVERY, next_at - frontier.now())
                if not backlog.held and self._is_too_long(wait):
                    return
            await backlog.news.wait(wait)
            await self._clock.sleep_async(TAKE_EVERY)

    def wake(self) -> None:
        """Let every lane look again: an operator lets fetches start."""
        for lane in self.lanes.values():
            lane.notifier.notify()

    def stop(self) -> list[asyncio.Task[None]]:
        """Start nothing any more; returns the lanes that are still on their way to their end."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        return tasks

    def is_idle(self, lane: Lane[Host]) -> bool:
        return not lane.route.queue and not lane.in_flight and lane.route.name not in self._running

    # ------------------------------------------------------------------ lanes

    def _queue(self, visit: Visit) -> None:
        lane = self.lanes.get(visit.host)
        if lane is None:
            if len(self.lanes) >= self._sweep_at:
                self._forget_idle()
            lane = self.lanes[visit.host] = self._make_lane(visit.host)
        self._backlog.held += 1
        if (why_not := lane.route.add(visit)) is not None:
            self._reject(visit, why_not)
        elif visit.host in self._running:
            lane.notifier.notify()
        else:
            self._running[visit.host] = asyncio.create_task(self._run_lane(lane))

    async def _run_lane(self, lane: Lane[Host]) -> None:
        host, supervisor = lane.route, self._supervisor
        try:
            await supervisor.guarded(lane.run, lambda: not host.queue or supervisor.stopped is not None)
        finally:
            lane.wait_for(LaneWait.NOTHING)
            del self._running[host.name]
        self.lanes.move_to_end(host.name)

    def _forget_idle(self) -> None:
        """The hosts that have been idle for longest make room for others."""
        idle = [name for name, lane in self.lanes.items() if self.is_idle(lane)]
        for name in idle[: max(1, len(idle) - IDLE_LANES // 2)]:
            del self.lanes[name]
        self._sweep_at = max(IDLE_LANES, 2 * len(self.lanes))
