"""What becomes of an address that brought no page: it is put off, sent on, given up or refused, and never dropped.

Each is written down beside the stages, since nobody waits for it; an address counts as held until it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from .address import host_of
from .frontier_records import Found, Visit
from .visit import Arrived, Fate, GivenUp, PutOff, SentOn

if TYPE_CHECKING:
    from .crawling import Crawl
    from .lanes import Lane


class Fates:
    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self.writing: set[asyncio.Task[None]] = set()

    def settle(self, visit: Visit, fate: Fate) -> None:
        """Whatever came of a visit, short of a page."""
        if isinstance(fate, SentOn):
            self.send_on(visit, fate)
        elif isinstance(fate, PutOff):
            self.put_off(visit, fate)
        elif isinstance(fate, Arrived):
            self.give_up(visit, GivenUp(f"http_{fate.fetched.status}: answered {fate.fetched.status}"))
        else:
            self.give_up(visit, fate)

    def send_on(self, visit: Visit, fate: SentOn) -> None:
        """A redirect: its target is an address like any other, one redirect further."""
        crawl, target = self._crawl, fate.target
        if target is None:
            return self.give_up(visit, GivenUp("redirect: leads to no address that can be visited"))
        if target == visit.url:
            return self.give_up(visit, GivenUp("redirect: leads back to itself"))
        if visit.redirects >= crawl.config.max_redirects:
            return self.give_up(visit, GivenUp(f"redirect: {visit.redirects + 1} redirects in a row"))
        if (why_not := crawl.scope.refuses(target, visit.depth)) is not None:
            return self.refuse(visit, f"scope: redirects to {host_of(target)}, to an address that {why_not}")
        crawl.report.sent_on += 1
        crawl.tell("sent_on", visit.host, url=visit.url, status=fate.fetched.status, reason=f"to {target}")
        found = [Found(target, visit.depth, visit.found_on or visit.url, visit.redirects + 1)]
        return self._write(crawl.frontier.finish(visit, None, found, f"redirect: to {target}"))

    def put_off(self, visit: Visit, fate: PutOff) -> None:
        crawl = self._crawl
        crawl.report.put_off += 1
        crawl.tell("put_off", visit.host, url=visit.url, reason=fate.reason, seconds=fate.seconds)
        until, counts = (
            crawl.frontier.now() + fate.seconds,
            {"attempts": fate.attempts, "rate_limited": fate.rate_limited},
        )
        self._write(crawl.frontier.put_off(visit, until, fate.reason, **counts), opened=0)

    def put_host_off(self, lane: Lane, seconds: float) -> None:
        """Its addresses wait on disk, with the reason, until it opens again."""
        crawl, visits = self._crawl, list(lane.stock)
        lane.stock.clear()
        crawl.report.put_off += len(visits)
        for visit in visits:
            crawl.tell("put_off", visit.host, url=visit.url, reason=lane.why_shut, seconds=seconds)
        self._write(self._rest(lane, visits, seconds), len(visits), opened=0)

    async def _rest(self, lane: Lane, visits: list[Visit], seconds: float) -> None:
        frontier = self._crawl.frontier
        await frontier.rest(lane.host, frontier.now() + seconds, lane.why_shut)
        await frontier.give_back(visits)

    def give_up(self, visit: Visit, fate: GivenUp) -> None:
        if not fate.sent:
            return self.refuse(visit, fate.reason)
        crawl = self._crawl
        crawl.report.note_failed(fate.reason)
        attempts = visit.attempts + fate.attempts
        crawl.tell("failed", visit.host, url=visit.url, reason=fate.reason, attempts=attempts)
        return self._write(crawl.frontier.fail(visit, fate.reason, attempts=fate.attempts))

    def refuse(self, visit: Visit, reason: str) -> None:
        crawl = self._crawl
        crawl.report.refused += 1
        crawl.tell("refused", visit.host, url=visit.url, reason=reason)
        self._write(crawl.frontier.refuse(visit, reason))

    def _write(self, writing: Coroutine[Any, Any, int | None], visits: int = 1, opened: int = -1) -> None:
        """``opened``: how many addresses more are open after it, besides those it adds."""
        task = asyncio.create_task(self._crawl.guarded(self._written, writing, visits, opened))
        self.writing.add(task)
        task.add_done_callback(self.writing.discard)

    async def _written(self, writing: Coroutine[Any, Any, int | None], visits: int, opened: int) -> None:
        added = await writing
        self._crawl.discovery.let_go(visits, opened + (added or 0))
