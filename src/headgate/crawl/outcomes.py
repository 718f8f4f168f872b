"""Outcomes without a page: a URL is deferred, redirected, failed or refused, and never dropped.

Each is recorded beside the pipeline, since nothing waits for it; a URL counts as held until it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ..engine.supervisor import Supervisor
from .fetch.gated_fetcher import Deferred, Fetched, FetchFailed, FetchOutcome, Redirected
from .frontier import FoundUrl, Reason, Visit
from .frontier.frontier import Frontier
from .report import CrawlReporter
from .scheduler import Backlog
from .scope import Scope
from .url import host_of


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
        task = asyncio.create_task(self._supervisor.guarded(self._written, writing, visits, opened))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _written(self, writing: Coroutine[Any, Any, int | None], visits: int, opened: int) -> None:
        added = await writing
        self._backlog.release(visits, opened + (added or 0))
