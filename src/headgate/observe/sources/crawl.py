"""A crawl for a monitor: pages done and to go, what each host waits for, how many addresses wait behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...batch.ledger import LedgerError
from ...events import CrawlEvent, EventRecord
from ...formatting import for_display
from ...limiter import AdaptiveRateLimiter
from ..hub import EventEmitter
from ..snapshot import DeadLine, ProgressLine, WaitLine
from . import LastCauses, RecentRate, States, Waits

if TYPE_CHECKING:
    from ...crawl.crawler import Crawler
    from ...crawl.status import HostStatus
    from ...credentials import CredentialCoordinator

MOST_HOSTS = 200
MOST_EXAMPLES = 100
READ_EVERY = 5.0
"""Seconds between two looks into the frontier for how many addresses hosts have ..."""
READ_AGAIN = 0.5
"""... or so many, if another host is shut."""
_STAGES = {"extraction": "permit", "processing": "reading", "output": "writing"}
"""What pages wait for in front of each stage."""
_COUNTED = ("fetches", "retries", "rate_limited", "refused", "sent_on", "sitemaps", "put_off", "bytes", "hosts")


class CrawlSource:
    kind = "crawl"

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._recent = RecentRate()
        self._causes: LastCauses[HostStatus] = LastCauses(lambda host: host.host)
        self._open: dict[str, int] = {}
        self._shut: set[str] = set()
        self._read_at = float("-inf")
        seeds = crawler.seeds
        self.title = for_display(seeds[0]) + (f" and {len(seeds) - 1:,} more" if len(seeds) > 1 else "")
        self.clock = crawler.clock
        self.limiter: AdaptiveRateLimiter | None = crawler.limiter
        self.coordinators: Mapping[str, CredentialCoordinator] = {
            for_display(origin): keys.coordinator for origin, keys in crawler.credentials.items()
        }
        self.emitters: Sequence[EventEmitter] = (crawler,)
        self.on_event: Callable[[EventRecord], None] | None = self._keep_example
        self._examples: dict[str, str] = {}
        """By reason: the address of a page that has failed for it."""

    def progress(self) -> ProgressLine:
        """How many pages there will be is not known, so there is no total and no time to go."""
        report = self._crawler.report()
        return ProgressLine(
            done=report.before + report.pages,
            dead=report.failed_before + report.failed,
            open=report.open,
            in_flight=self._crawler.in_flight,
            rate=self._recent.rate(self.clock.now(), report.pages, is_paused=self._crawler.is_paused),
        )

    def dead(self) -> list[DeadLine]:
        reasons = dict(self._crawler.report().reasons)
        return [
            DeadLine(reason=why, count=count, example=self._examples.get(why, "")) for why, count in reasons.items()
        ]

    def _keep_example(self, event: EventRecord) -> None:
        """The first page that has failed for each reason."""
        if event.form is CrawlEvent and event.kind == "failed" and len(self._examples) < MOST_EXAMPLES:
            self._examples.setdefault(event.reason, for_display(event.fields["url"]))

    def counters(self) -> Mapping[str, float]:
        report = self._crawler.report()
        return {name: getattr(report, name) for name in _COUNTED}

    def waited(self) -> Mapping[str, float]:
        stages = self._crawler.report().stages
        return {_STAGES.get(name, name): stage.waited for name, stage in stages.items() if stage.waited}

    def waits(self, credentials: States) -> Waits:
        hosts = self._causes.of(self._crawler.hosts(MOST_HOSTS))
        behind = self._behind({host.host for host, cause in hosts if cause.waits_for == "shut"}) if hosts else {}
        found, for_workers, workers = [], 0, ""
        for host, cause in hosts:
            count = max(host.waiting, behind.get(host.host, 0) - host.in_flight)
            if cause.waits_for == "workers":
                for_workers, workers = for_workers + count, cause.text
            elif cause.text and cause.waits_for not in ("", "paused") and (count or cause.waits_for == "shut"):
                name, clause = for_display(host.host), for_display(cause.text)
                found.append(WaitLine.about(name, clause, behind=count, seconds=host.opens_in, code=cause.code))
        if workers:
            found.append(WaitLine(scope="workers", sentence=workers, behind=for_workers, code="workers"))
        return Waits(found, sum(line.behind for line in found))

    def _behind(self, shut: set[str]) -> Mapping[str, int]:
        """Open URLs by host. Most of them are only on disk, and all of a host that is shut."""
        now = self.clock.now()
        if now >= self._read_at + (READ_EVERY if shut <= self._shut else READ_AGAIN):
            self._read_at, self._shut = now, shut
            with suppress(LedgerError):  # it ends at this very moment; what was known will do
                self._open = self._crawler.open_by_host(MOST_HOSTS)
        return self._open

    def state(self) -> str:
        if self._crawler.report().stopped:
            return "stopping"
        return "paused" if self._crawler.is_paused else "running"

    def pause(self) -> None:
        self._crawler.pause()

    def resume(self) -> None:
        self._crawler.resume()

    def stop(self) -> None:
        self._crawler.stop()
