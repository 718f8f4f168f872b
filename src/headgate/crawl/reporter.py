"""What happens in a crawl: counted in its report, and dispatched as events."""

from __future__ import annotations

from ..events import EventDispatcher
from .fetch.gated_fetcher import CallRecord, Deferred, Fetched, FetchFailed, FetchOutcome, Redirected
from .frontier.records import FoundUrl, Reason, Visit
from .output.page import Page
from .page.processor import kind_of
from .report import CrawlReport
from .url import host_of


class CrawlReporter:
    def __init__(self, report: CrawlReport, events: EventDispatcher) -> None:
        self._report, self._events = report, events

    # ------------------------------------------------------------------ fetches

    def called(self, call: CallRecord) -> None:
        visit, report = call.visit, self._report
        report.fetches += 1
        report.stages["extraction"].add(call.waited, call.latency)
        self._events.dispatch(
            "call",
            visit.host,
            url=visit.url,
            status=call.status,
            attempts=visit.attempts + 1,
            seconds=call.retry_after,
            waited={"extraction": call.waited},
            worked={"extraction": call.latency},
            credential=call.credential,
        )

    def answered(self, outcome: FetchOutcome) -> None:
        if isinstance(outcome, Fetched | Redirected):
            self._report.statuses[outcome.response.status] += 1
            self._report.bytes += len(outcome.response.body)
        elif isinstance(outcome, Deferred):
            self._report.rate_limited += outcome.rate_limited

    # ------------------------------------------------------------------ what became of a URL

    def page_written(self, visit: Visit, page: Page) -> None:
        self._report.pages += 1
        self._events.dispatch("page", visit.host, url=page.url, status=page.status, attempts=page.attempts)

    def sitemap_read(self, visit: Visit, problem: str) -> None:
        self._report.sitemaps += 1
        if problem:
            self._report.note_sitemap(visit.url, problem)
        self._events.dispatch("sitemap", visit.host, detail=problem, url=visit.url)

    def redirected(self, visit: Visit, status: int, target: str) -> None:
        self._report.sent_on += 1
        self._events.dispatch("sent_on", visit.host, detail=f"to {target}", url=visit.url, status=status)

    def deferred(self, visit: Visit, reason: Reason, seconds: float) -> None:
        self._report.put_off += 1
        self._events.dispatch("put_off", visit.host, *reason, url=visit.url, seconds=seconds)

    def failed(self, visit: Visit, failed: FetchFailed) -> None:
        self._report.note_failed(failed.reason.category)
        attempts = visit.attempts + failed.attempts
        self._events.dispatch("failed", visit.host, *failed.reason, url=visit.url, attempts=attempts)

    def refused(self, visit: Visit, reason: Reason) -> None:
        self._report.refused += 1
        self._events.dispatch("refused", visit.host, *reason, url=visit.url)

    # ------------------------------------------------------------------ hosts, bounds and the crawl itself

    def robots_read(self, host: str, url: str, status: int, problem: str) -> None:
        self._events.dispatch("robots", host, detail=problem, url=url, status=status)

    def host_shut(self, host: str, reason: Reason, seconds: float) -> None:
        self._events.dispatch("host_shut", host, *reason, seconds=seconds)

    def left_out(self, found: FoundUrl, why: str) -> None:
        """There are more URLs of a kind than are followed: reported once for each kind."""
        host = host_of(found.url)
        if self._report.note_capped(f"{host}{kind_of(found)}", found.url):
            self._events.dispatch("capped", host, detail=why, url=found.url)

    def stopped(self, reason: str, detail: str) -> None:
        self._events.dispatch("stopped", "", reason, detail)
