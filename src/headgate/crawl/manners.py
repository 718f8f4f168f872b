"""What each host asks of its visitors: its robots.txt, read before its first page and again after a day.

    remembered in the frontier? ─ no ─> fetched by the way of every visit: permit, fetch, feedback, release
           │ yes                              │ 2xx, 4xx          │ 429, 5xx, no answer
           v                                  v                   v
         rules <──────────────────────── rules, sitemaps     the host is shut for now, and given up in the end

Nobody may be visited whose robots.txt cannot be had: that is what RFC 9309 asks.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.decision import UNKNOWN
from .address import canonical, host_of
from .fetched import Fetched
from .frontier_records import Found, KeptRobots, Visit
from .keys import Leave
from .robots import LARGEST, Rules, rules_for
from .visit import Arrived, Fate, GivenUp, PutOff, SentOn

if TYPE_CHECKING:
    from .crawling import Crawl
    from .lanes import Lane

PATH = "/robots.txt"
MOST_HOPS = 5
"""Redirects that are followed to a robots.txt; beyond, there is none (RFC 9309)."""
NOWHERE = 310
"""Stands for redirects that lead nowhere."""
MOST_TRIED = 100_000
"""Origins whose vain tries are remembered."""
READ_ASIDE = 64 * 1024
"""Bytes of a robots.txt above which it is read in another thread: a large one takes a fifth of a second."""


def is_rulebook(visit: Visit) -> bool:
    return visit.number == 0


class Manners:
    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._tried: dict[str, Visit] = {}
        """By origin, where robots.txt could not be had: with its counts so far."""

    async def recall(self, lane: Lane, origin: str) -> bool:
        """Take the rules that are remembered, if there are any that are not too old."""
        crawl = self._crawl
        kept = await crawl.frontier.robots(origin)
        if kept is None:
            return False
        rules = await self._rules(kept.status, kept.body)
        left = kept.fetched_at + rules.life - crawl.frontier.now()
        if not rules.known or left <= 0.0:
            return False
        now = crawl.clock.now()
        lane.follow(origin, rules, until=now + left)
        lane.keep_distance(now)  # nobody knows when this host was asked last
        return True

    async def read(self, lane: Lane, origin: str, leave: Leave) -> None:
        """Fetch the rules by this leave; shut the lane if they cannot be had now, give it up if never."""
        tried = self._tried.get(origin) or Visit(0, f"{origin}{PATH}", lane.host, 0)
        fate = await self._ask(lane, tried, leave)
        if isinstance(fate, PutOff):
            if len(self._tried) >= MOST_TRIED:
                self._tried.pop(next(iter(self._tried)))
            self._tried[origin] = replace(
                tried, attempts=tried.attempts + fate.attempts, rate_limited=tried.rate_limited + fate.rate_limited
            )
            return lane.shut(fate.seconds, f"robots.txt: {fate.reason}")
        self._tried.pop(origin, None)
        if isinstance(fate, GivenUp):
            why = f"robots: no page may be asked for without robots.txt, which could not be had: {fate.reason}"
            never = GivenUp(why, attempts=0) if fate.sent else fate
            return lane.despair(origin, never)
        assert isinstance(fate, Arrived)
        return await self._keep(lane, origin, tried.url, fate.fetched)

    async def _ask(self, lane: Lane, visit: Visit, leave: Leave | PutOff) -> Fate:
        """The same way as every visit's, redirects followed at once: each hop by a permit of its own host."""
        visiting = self._crawl.visiting
        for _ in range(MOST_HOPS + 1):
            if isinstance(leave, PutOff):
                return leave
            fate = await visiting.visit(visit, leave)
            self._crawl.telling.answered(fate)
            if not isinstance(fate, SentOn):
                return fate
            answer = fate
            if fate.target is None:
                break
            visit = replace(visit, url=fate.target, host=host_of(fate.target))
            leave = await self._leave_again(lane, visit)
        if not isinstance(leave, PutOff):
            leave.abandon()
        return Arrived(replace(answer.fetched, status=NOWHERE, body=b""), 0.0, 1)

    async def _leave_again(self, lane: Lane, visit: Visit) -> Leave | PutOff:
        """Leave for the next hop. The host it leads to may be a slow one: no worker waits for it with us."""
        crawl, crew = self._crawl, self._crawl.crew
        crew.working -= 1
        try:
            if visit.host == lane.host and crawl.config.delay:
                crew.pass_on()
                await crawl.clock.sleep_async(crawl.config.delay)
            while True:
                lane.waits_for = "robots"
                crew.pass_on()
                leave = await crawl.visiting.leave(visit.url)
                if isinstance(leave, PutOff) or crew.free > 0:
                    return leave
                leave.abandon()
                lane.waits_for = "workers"
                crew.want(lane)
                await lane.bell.wait(UNKNOWN)
        finally:
            crew.working += 1
            lane.has_turn = False

    async def _rules(self, status: int, body: bytes) -> Rules:
        agent = self._crawl.config.robots_agent
        if len(body) > READ_ASIDE:
            return await asyncio.to_thread(rules_for, status, body, agent)
        return rules_for(status, body, agent)

    async def _keep(self, lane: Lane, origin: str, url: str, fetched: Fetched) -> None:
        """Remember them; the sitemaps first, so that they are not forgotten if we end here."""
        crawl = self._crawl
        body = fetched.body[: LARGEST + 1]
        rules = await self._rules(fetched.status, body)
        if crawl.config.sitemaps and crawl.config.max_depth != 0:
            crawl.report.open += await crawl.frontier.add(self._sitemaps(rules, url))
        await crawl.frontier.keep_robots(origin, KeptRobots(fetched.status, body, crawl.frontier.now()))
        lane.follow(origin, rules, until=crawl.clock.now() + rules.life)
        crawl.tell("robots", lane.host, url=url, status=fetched.status, reason=rules.problem)
        crawl.discovery.news.ring()

    def _sitemaps(self, rules: Rules, url: str) -> list[Found]:
        found = (canonical(sitemap, url) for sitemap in rules.sitemaps)
        return [Found(one, -1, url) for one in found if one is not None and not self._crawl.scope.refuses(one, -1)]
