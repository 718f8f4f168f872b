"""The robots.txt of each origin: read before its first page, remembered in the frontier, and read again after a day.

    remembered? ─ no ─> fetched like every URL: permit, fetch, feedback, release
        │ yes                 │ 2xx, 4xx              │ 429, 5xx, no answer
        v                     v                       v
      rules <──────── rules, sitemaps         deferred for now, failed in the end

No page of a host may be fetched while its robots.txt is unreachable: RFC 9309 asks for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from ..clock import Clock
from .fetch.credentials import FetchPermit
from .fetch.gated_fetcher import Deferred, Fetched, FetchFailed, FetchOutcome, GatedFetcher, Redirected
from .fetch.response import FetchResponse
from .frontier import ROBOTS_PATH, FoundUrl, Reason, StoredRobots, Visit
from .frontier.frontier import Frontier
from .report import CrawlReporter
from .robots import LARGEST, Rules, rules_for
from .scheduler import Backlog
from .url import Scope, canonical, host_of

MOST_HOPS = 5
"""Redirects that are followed to a robots.txt; beyond, there is none (RFC 9309)."""
NOWHERE = 310
"""The status recorded for redirects that lead nowhere."""
MOST_TRIED = 100_000
"""Origins whose failed attempts are remembered."""
READ_ASIDE = 64 * 1024
"""Bytes of a robots.txt above which it is read in another thread: a large one takes a fifth of a second."""

NextPermit = Callable[[Visit], Awaitable[FetchPermit | Deferred]]
Known = tuple[Rules, float]
"""Rules, and until when they hold, on the crawl's clock."""


class RobotsCache:
    def __init__(
        self,
        frontier: Frontier,
        fetcher: GatedFetcher,
        reporter: CrawlReporter,
        backlog: Backlog,
        clock: Clock,
        *,
        agent: str,
        sitemap_scope: Scope | None,
    ) -> None:
        """``agent``: whose rules are read. ``sitemap_scope``: which sitemaps are followed; None: none at all."""
        self._frontier, self._fetcher, self._reporter = frontier, fetcher, reporter
        self._backlog, self._clock = backlog, clock
        self._agent, self._sitemap_scope = agent, sitemap_scope
        self._tried: dict[str, Visit] = {}
        """By origin, where robots.txt was unreachable: its visit, with the attempts so far."""

    async def recall(self, origin: str) -> Known | None:
        """The rules that the frontier remembers, if they are not too old."""
        stored = await self._frontier.robots(origin)
        if stored is None:
            return None
        rules = await self._rules(stored.status, stored.body)
        left = stored.fetched_at + rules.life - self._frontier.now()
        return (rules, self._clock.now() + left) if rules.known and left > 0.0 else None

    def visit_for(self, host: str, origin: str) -> Visit:
        """The visit that reads it, with the attempts so far."""
        return self._tried.get(origin) or Visit(0, f"{origin}{ROBOTS_PATH}", host, 0)

    async def read(
        self, visit: Visit, origin: str, permit: FetchPermit, next_permit: NextPermit
    ) -> Known | Deferred | FetchFailed:
        """Fetch the rules; ``next_permit`` gets the permit for each hop of a redirect."""
        outcome = await self._fetch(visit, permit, next_permit)
        if isinstance(outcome, Deferred):
            if len(self._tried) >= MOST_TRIED:
                self._tried.pop(next(iter(self._tried)))
            self._tried[origin] = replace(
                visit,
                attempts=visit.attempts + outcome.attempts,
                rate_limited=visit.rate_limited + outcome.rate_limited,
            )
            return outcome
        self._tried.pop(origin, None)
        if isinstance(outcome, FetchFailed):
            if not outcome.sent:
                return outcome
            why = f"{outcome.reason.detail}, so robots.txt could not be read"
            return FetchFailed(Reason("robots", why), attempts=0)
        assert isinstance(outcome, Fetched)
        return await self._store(visit, origin, outcome.response)

    async def _fetch(self, visit: Visit, permit: FetchPermit | Deferred, next_permit: NextPermit) -> FetchOutcome:
        """Fetch, following redirects at once: each hop by a permit of its own host."""
        for _ in range(MOST_HOPS + 1):
            if isinstance(permit, Deferred):
                return permit
            outcome = await self._fetcher.fetch(visit, permit)
            self._reporter.answered(outcome)
            if not isinstance(outcome, Redirected):
                return outcome
            last = outcome.response
            if outcome.target is None:
                break
            visit = replace(visit, url=outcome.target, host=host_of(outcome.target))
            permit = await next_permit(visit)
        if not isinstance(permit, Deferred):
            permit.abandon()
        return Fetched(replace(last, status=NOWHERE, body=b""), 0.0, 1)

    async def _rules(self, status: int, body: bytes) -> Rules:
        if len(body) > READ_ASIDE:
            return await asyncio.to_thread(rules_for, status, body, self._agent)
        return rules_for(status, body, self._agent)

    async def _store(self, visit: Visit, origin: str, response: FetchResponse) -> Known:
        """Remember them; the sitemaps first, so that they are not forgotten if the crawl ends here."""
        body = response.body[: LARGEST + 1]
        rules = await self._rules(response.status, body)
        if self._sitemap_scope is not None:
            self._backlog.opened(await self._frontier.add(_sitemaps(rules, visit.url, self._sitemap_scope)))
        await self._frontier.keep_robots(origin, StoredRobots(response.status, body, self._frontier.now()))
        self._reporter.robots_read(visit.host, visit.url, response.status, rules.problem)
        self._backlog.news.notify()
        return rules, self._clock.now() + rules.life


def _sitemaps(rules: Rules, url: str, scope: Scope) -> list[FoundUrl]:
    found = (canonical(sitemap, url) for sitemap in rules.sitemaps)
    return [FoundUrl(one, -1, url) for one in found if one is not None and not scope.refuses(one, -1)]
