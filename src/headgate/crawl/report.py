"""What a crawl has done so far, in numbers, and the reporter that counts it and dispatches its events.

Every stage records how long pages waited in front of it and how long it worked on them, so that the wait for a
permit, which is politeness, is never mistaken for a slow server.

    stage        waits for                     works on
    discovery    its turn in the frontier      -
    extraction   a permit of its host          the fetch
    processing   a free place                  reading the page
    output       a free place                  the commit
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..engine.supervisor import Stop, StopReason
from ..events import EventDispatcher
from ..formatting import format_seconds
from .fetch.gated_fetcher import CallRecord, Deferred, Fetched, FetchFailed, FetchOutcome, Redirected
from .frontier import FoundUrl, Reason, Visit
from .output import Page
from .page.processor import kind_of
from .url import host_of

STAGES = ("extraction", "processing", "output")
MOST_REASONS = 100
"""Categories of failures that are counted apart."""
MOST_NAMED = 100
"""Sitemaps with problems, and kinds of which there are too many, that are named."""


@dataclass(slots=True)
class StageTimes:
    """One stage, summed over all pages that passed it."""

    passed: int = 0
    waited: float = 0.0
    worked: float = 0.0

    def add(self, waited: float, worked: float) -> None:
        self.passed += 1
        self.waited += waited
        self.worked += worked


@dataclass(slots=True, kw_only=True)
class CrawlReport:
    """A crawl, now or at its end. What this run did; ``before`` is what earlier runs of the same frontier did."""

    pages: int = 0
    """URLs that answered and are written."""
    failed: int = 0
    """URLs that failed for good, each recorded with its reason."""
    refused: int = 0
    """URLs not visited: robots.txt forbids it, they are out of scope, their address is private."""
    sent_on: int = 0
    """Redirects."""
    sitemaps: int = 0
    sitemap_problems: dict[str, str] = field(default_factory=dict)
    """Sitemaps that could not be read in whole, and why; the first of them."""
    capped: dict[str, str] = field(default_factory=dict)
    """Of which kinds (host and shape) more URLs were found than ``max_per_shape`` or ``max_per_host`` let in, and
    the first that was not followed; the first of those kinds."""
    put_off: int = 0
    """Times a URL was put off."""
    before: int = 0
    """Pages that earlier runs have written ..."""
    failed_before: int = 0
    """... and URLs that failed in them."""
    open: int = 0
    """URLs that are known and not visited yet."""
    hosts: int = 0
    """Hosts that are known."""

    fetches: int = 0
    """Requests, those for robots.txt included."""
    retries: int = 0
    """Requests for a URL that had failed before."""
    rate_limited: int = 0
    """Requests that were rate limited: 429 and the like."""
    bytes: int = 0
    """... of answers, unpacked."""
    statuses: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why URLs failed, by category."""
    stages: dict[str, StageTimes] = field(default_factory=lambda: {name: StageTimes() for name in STAGES})

    elapsed: float = 0.0
    stop: Stop | None = None
    """Why it ended before the frontier was empty; None if it did not."""
    come_back_in: float | None = None
    """In how many seconds it is worth going on, where that is known."""

    def __str__(self) -> str:
        """For ``print``: what became of the URLs, why some failed, and what it took."""
        counts = {"written": self.pages, "failed": self.failed, "refused": self.refused, "open": self.open}
        counts |= {"redirects": self.sent_on, "from earlier runs": self.before}
        pages = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count or what == "written")
        lines = [f"pages: {pages}"]
        failed = ", ".join(f"{count:,} {why}" for why, count in self.reasons.most_common(5))
        lines += [f"failed: {failed}"] * bool(self.failed)
        limited = f", {self.rate_limited:,} rate limited" if self.rate_limited else ""
        lines += [f"fetches: {self.fetches:,} from {self.hosts:,} hosts in {format_seconds(self.elapsed)}{limited}"]
        lines += [f"stopped: {self.stopped}"] * bool(self.stopped)
        return "\n".join(lines)

    @property
    def stopped(self) -> str:
        """The same as a text: its reason and a detail, or a caller's own words; empty if it was not stopped."""
        if self.stop is None:
            return ""
        is_worded = self.stop.reason is StopReason.STOPPED and self.stop.detail
        return self.stop.detail if is_worded else str(self.stop)

    @property
    def complete(self) -> bool:
        return self.stop is None and not self.open

    @property
    def pages_per_second(self) -> float:
        return self.pages / self.elapsed if self.elapsed > 0 else 0.0

    def note_failed(self, category: str) -> None:
        self.failed += 1
        self.reasons[category if category in self.reasons or len(self.reasons) < MOST_REASONS else "other"] += 1

    def note_sitemap(self, url: str, problem: str) -> None:
        if len(self.sitemap_problems) < MOST_NAMED:
            self.sitemap_problems[url] = problem

    def note_capped(self, kind: str, url: str) -> bool:
        """Whether that is news."""
        if kind in self.capped or len(self.capped) >= MOST_NAMED:
            return False
        self.capped[kind] = url
        return True


class CrawlReporter:
    """Counts what happens in a crawl in its report, and dispatches it as events."""

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
