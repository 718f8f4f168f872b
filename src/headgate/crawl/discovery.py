"""Which addresses are next: taken from the frontier in small lots, host by host, and laid into the lanes.

The frontier is asked while there is room in memory, when there is news, and when something that was put off is due. The
crawl is over when it has nothing more to give and nothing is held that could lead to more.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from ..batch.bell import Bell
from ..core.decision import UNKNOWN
from ..core.words import span
from .frontier_records import Visit
from .lanes import Lane

if TYPE_CHECKING:
    from .crawling import Crawl

MOST_HELD = 10_000
"""Addresses in memory: waiting in lanes, under way or not yet written down."""
TAKE_EVERY = 0.01
"""Seconds between two looks into the frontier while there is news."""
LONG = 900.0
"""Seconds without anything to start after which nobody waits for credentials that are not accepted any more."""
IDLE_LANES = 1_000
"""Hosts without addresses that stay in memory, with their rules."""


class Discovery:
    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self.lanes: OrderedDict[str, Lane] = OrderedDict()
        self._look_through_at = IDLE_LANES
        self.held = 0
        self.news = Bell(crawl.clock)
        """Rings when there may be something to take, or the crawl may be over."""

    async def go(self) -> None:
        """Until there is nothing more, or something stops the crawl."""
        crawl, frontier = self._crawl, self._crawl.frontier
        while not crawl.stopping:
            room = MOST_HELD - self.held
            visits = await frontier.take(room) if room > 0 else []
            for visit in visits:
                self._take_up(visit)
            if crawl.is_enough:
                return crawl.stop(f"max_pages: {crawl.config.max_pages:,} pages are written")
            wait = UNKNOWN
            if len(visits) < room:
                next_at = await frontier.next_at()
                if next_at is None and not self.held:
                    return None
                wait = UNKNOWN if next_at is None else max(TAKE_EVERY, next_at - frontier.now())
                if not self.held and self._is_too_long(wait):
                    return None
            await self.news.wait(wait)
            await crawl.clock.sleep_async(TAKE_EVERY)
        return None

    def _is_too_long(self, wait: float) -> bool:
        crawl = self._crawl
        longest = UNKNOWN if crawl.config.standstill is None else crawl.config.standstill
        if wait >= min(LONG, longest) and (spent := crawl.visiting.spent()):
            crawl.stop(f"credentials: none for {spent[0]} is accepted any more")
            return True
        if wait < longest:
            return False
        crawl.report.come_back_in = wait
        crawl.stop(f"standstill: nothing can start; come back in {span(wait)}")
        return True

    def _take_up(self, visit: Visit) -> None:
        lane = self.lanes.get(visit.host)
        if lane is None:
            if len(self.lanes) >= self._look_through_at:
                self._forget_idle()
            lane = self.lanes[visit.host] = Lane(self._crawl, visit.host)
        self.held += 1
        if not lane.take_in(visit):
            return
        if lane.task is None:
            lane.task = asyncio.create_task(self._send_along(lane))
        else:
            lane.bell.ring()

    async def _send_along(self, lane: Lane) -> None:
        try:
            await self._crawl.guarded(lane.go)
        finally:
            lane.task = None
        self.lanes.move_to_end(lane.host)

    def _forget_idle(self) -> None:
        """The hosts that have been idle for longest make room for others."""
        idle = [host for host, lane in self.lanes.items() if lane.is_idle]
        for host in idle[: max(1, len(idle) - IDLE_LANES // 2)]:
            del self.lanes[host]
        self._look_through_at = max(IDLE_LANES, 2 * len(self.lanes))

    def let_go(self, visits: int, opened: int) -> None:
        """So many addresses are written down, or back in the frontier; so many more are open by that."""
        self.held -= visits
        self._crawl.report.open += opened
        self.news.ring()

    def ring(self) -> None:
        """An operator lets fetches start again."""
        for lane in self.lanes.values():
            lane.bell.ring()

    def waits(self) -> dict[str, int]:
        """How many hosts wait for what, in a word or two each."""
        now = self._crawl.clock.now()
        return dict(
            Counter(lane.standing(now) for lane in list(self.lanes.values()) if not lane.is_idle or lane.opens_at > now)
        )

    def stop(self) -> list[asyncio.Task[None]]:
        """Send nothing along any more; returns what is still on its way to its end."""
        tasks = [lane.task for lane in self.lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        return tasks
