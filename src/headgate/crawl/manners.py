"""What each host asks of its visitors: its robots.txt, read before its first page and again after a day.

    remembered in the frontier? ─ no ─> fetched by the way of every visit: permit, fetch, feedback, release
           │ yes                              │ 2xx, 4xx          │ 429, 5xx, no answer
           v                                  v                   v
         rules <──────────────────────── rules, sitemaps     the host is shut for now, and given up in the end

Nobody may be visited whose robots.txt cannot be had: that is what RFC 9309 asks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..limiter import Permit
from .address import canonical, host_of, origin_of
from .fetched import Fetched
from .frontier_records import Found, KeptRobots, Visit
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
"""Hosts whose vain tries are remembered."""


def is_rulebook(visit: Visit) -> bool:
    return visit.number == 0


class Manners:
    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._tried: dict[str, Visit] = {}
        """Where robots.txt could not be had: with its counts so far."""

    async def recall(self, lane: Lane) -> None:
        """Take the rules that are remembered, if they are not too old."""
        crawl = self._crawl
        kept = await crawl.frontier.robots(lane.host)
        if kept is None:
            return
        rules = rules_for(kept.status, kept.body, crawl.config.robots_agent)
        left = kept.fetched_at + rules.life - crawl.frontier.now()
        if rules.known and left > 0.0:
            now = crawl.clock.now()
            lane.follow(rules, until=now + left)
            lane.keep_distance(now)  # nobody knows when this host was asked last

    async def read(self, lane: Lane, permit: Permit) -> None:
        """Fetch the rules by this permit; shut the lane if they cannot be had now, give it up if never."""
        origin = origin_of(lane.stock[0].url)
        tried = self._tried.get(lane.host) or Visit(0, f"{origin}{PATH}", lane.host, 0)
        fate = await self._ask(tried, permit)
        if isinstance(fate, PutOff):
            if len(self._tried) >= MOST_TRIED:
                self._tried.pop(next(iter(self._tried)))
            self._tried[lane.host] = replace(
                tried, attempts=tried.attempts + fate.attempts, rate_limited=tried.rate_limited + fate.rate_limited
            )
            return lane.shut(fate.seconds, f"robots.txt: {fate.reason}")
        self._tried.pop(lane.host, None)
        if isinstance(fate, GivenUp):
            lane.hopeless = GivenUp(f"robots: no robots.txt to be had: {fate.reason}") if fate.sent else fate
            return None
        assert isinstance(fate, Arrived)
        await self._keep(lane, tried.url, fate.fetched)
        return None

    async def _ask(self, visit: Visit, permit: Permit | PutOff) -> Fate:
        """The same way as every visit's, redirects followed at once: each hop by a permit of its own host."""
        visiting = self._crawl.visiting
        for _ in range(MOST_HOPS + 1):
            if isinstance(permit, PutOff):
                return permit
            fate = await visiting.visit(visit, permit)
            self._crawl.note_answer(fate)
            if not isinstance(fate, SentOn):
                return fate
            answer = fate
            if fate.target is None:
                break
            visit = replace(visit, url=fate.target, host=host_of(fate.target))
            permit = await visiting.leave(visit.host)
        if not isinstance(permit, PutOff):
            permit.abandon()
        return Arrived(replace(answer.fetched, status=NOWHERE, body=b""), 0.0, 1)

    async def _keep(self, lane: Lane, url: str, fetched: Fetched) -> None:
        """Remember them; the sitemaps first, so that they are not forgotten if we end here."""
        crawl = self._crawl
        body = fetched.body[: LARGEST + 1]
        rules = rules_for(fetched.status, body, crawl.config.robots_agent)
        if crawl.config.sitemaps:
            crawl.report.open += await crawl.frontier.add(self._sitemaps(rules, url))
        await crawl.frontier.keep_robots(lane.host, KeptRobots(fetched.status, body, crawl.frontier.now()))
        lane.follow(rules, until=crawl.clock.now() + rules.life)
        crawl.tell("robots", lane.host, url=url, status=fetched.status, reason=rules.problem)
        crawl.discovery.news.ring()

    def _sitemaps(self, rules: Rules, url: str) -> list[Found]:
        found = (canonical(sitemap, url) for sitemap in rules.sitemaps)
        return [Found(one, 0, url) for one in found if one is not None and not self._crawl.scope.refuses(one, 0)]
