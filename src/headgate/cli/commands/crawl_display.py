"""What a crawl shows: its progress at one moment, and how it has ended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from rich.console import Group, RenderableType
from rich.text import Text

from ...crawl.crawler import Crawler
from ...crawl.fetch.ssrf_guard import is_for_private
from ...crawl.frontier import LostUrl
from ...crawl.report import CrawlReport
from ...crawl.status import HostStatus
from ...engine.output_file import STDOUT
from ...engine.supervisor import Stop, StopReason
from ...formatting import for_display, format_seconds, redact
from ...limiter.snapshot import SharingSnapshot
from ...observe.sources import RecentRate
from ..ui.display import (
    RESUME,
    WIDEST,
    Column,
    Summary,
    fitted_table,
    note,
    plural,
    progress_row,
    sentence,
    sharing_note,
    sharing_text,
    top_counts,
    until,
    with_retired_keys,
)
from ..ui.shared_state import sharing_fields
from ..ui.terminal import DONE, FAILED, STOPPED, CommandFailed

# ---------------------------------------------------------------------- progress
# The progress of a crawl at one moment: pages, rate, what is left, and for each host why it waits.


MOST_HOSTS = 10
COLUMNS = (
    Column("host", 0),
    Column("learned", 1, True),
    Column("in flight", 3, True),
    Column("next", 4, True),
    Column("why it waits", 2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlProgress:
    """A ``Frame`` of a crawl."""

    report: CrawlReport
    rate: float
    hosts: list[HostStatus]
    """The busiest."""
    waits: dict[str, int]
    """Hosts by what they wait for."""
    stopping: bool
    sharing: SharingSnapshot | None = None

    @property
    def done(self) -> int:
        return self.report.before + self.report.pages

    @property
    def problems(self) -> list[tuple[str, int]]:
        report = self.report
        counts = (("failed", report.failed), ("refused", report.refused), ("rate limited", report.rate_limited))
        return [(word, count) for word, count in counts if count]

    def lines(self) -> list[str]:
        report = self.report
        parts = [
            plural(self.done, "page"),
            *self._rate_texts(),
            f"{report.open:,} to go",
            plural(report.hosts, "host"),
        ]
        parts += [f"{count:,} {word}" for word, count in self.problems]
        parts += [shared] if (shared := sharing_text(self.sharing)) else []
        waits = [f"{host.host}: {host.reason}" for host in self.hosts if host.reason and not host.in_flight]
        return [", ".join(parts) + (f"; {'; '.join(waits[:3])}" if waits else "")]

    def render(self, width: int, height: int) -> RenderableType:
        width = min(width, WIDEST)
        parts: list[RenderableType] = [self._totals(), self._bar(width), self._times()]
        parts += [fitted_table(COLUMNS, [*map(_cells, self.hosts), *self._all_hosts()], width)] if self.hosts else []
        parts += sharing_note(self.sharing)
        if self.stopping:
            fetches = plural(sum(host.in_flight for host in self.hosts), "call")
            parts.append(note(f"stopping: {fetches} in flight; press Ctrl-C again to stop now", "yellow"))
        return Group(*parts)

    def _rate_texts(self) -> list[str]:
        """The rate, once there is one."""
        return [f"{self.rate:.1f}/s"] if self.rate >= 0.05 else []

    def _totals(self) -> Text:
        report = self.report
        text = Text("  ", no_wrap=True, overflow="ellipsis")
        text.append(plural(self.done, "page"), "bold green")
        text.append("".join(f"  {rate}" for rate in self._rate_texts()), "cyan")
        text.append(f"  {report.open:,} to go  {plural(report.hosts, 'host')}  {format_size(report.bytes)}")
        for word, count in self.problems:
            text.append(f"  {count:,} {word}", "red" if word == "failed" else "yellow")
        return text

    def _bar(self, width: int) -> RenderableType:
        """The share of the URLs known so far; more are found on the way."""
        report = self.report
        ended = self.done + report.failed + report.refused + report.sent_on + report.sitemaps
        known = ended + report.open
        return progress_row("", ended, known or None, width + 20, *(["of the known URLs"] if known else []))

    def _times(self) -> Text:
        parts = [f"{what} {format_seconds(seconds)}" for seconds, what in stage_times(self.report)]
        return Text(f"  average per page: {', '.join(parts)}" if parts else "", "dim")

    def _all_hosts(self) -> list[list[Text]]:
        """A last row, where there are more hosts than are listed."""
        if len(self.hosts) >= sum(self.waits.values()):
            return []
        counts = sorted(self.waits.items(), key=lambda one: -one[1])
        text = ", ".join(f"{count:,} {what}" for what, count in counts)
        return [[Text("all hosts", "dim"), Text(), Text(), Text(), Text(text, "dim")]]

    def fields(self) -> list[dict[str, Any]]:
        report = self.report
        return [
            {
                "event": "progress",
                "pages": self.done,
                "rate": round(self.rate, 3),
                "open": report.open,
                "failed": report.failed,
                "refused": report.refused,
                "rate_limited": report.rate_limited,
                "bytes": report.bytes,
                "waits": self.waits,
                "sharing": sharing_fields(self.sharing),
                "hosts": [
                    {
                        "host": host.host,
                        "learned": None if host.rate is None else round(host.rate, 3),
                        "in_flight": host.in_flight,
                        "waiting": host.waiting,
                        "opens_in": None if host.opens_in is None else round(host.opens_in, 1),
                        "reason": host.reason,
                    }
                    for host in self.hosts
                ],
            }
        ]


def _cells(host: HostStatus) -> list[Text]:
    return [
        Text(for_display(host.host)),
        Text("" if host.rate is None else f"{host.rate:,.1f}/s", "cyan"),
        Text(f"{host.in_flight:,}"),
        Text(f"{host.waiting:,}"),
        Text(for_display(host.reason), "yellow" if host.opens_in is not None else "dim"),
    ]


def stage_times(report: CrawlReport) -> list[tuple[float, str]]:
    """Average seconds of a page, stage by stage: the wait for a permit apart from the fetch."""
    times: list[tuple[float, str]] = []
    fetch, read, write = (report.stages[name] for name in ("extraction", "processing", "output"))
    if fetch.passed:
        times += [(fetch.waited / fetch.passed, "wait"), (fetch.worked / fetch.passed, "fetch")]
    for stage, what in ((read, "parse"), (write, "write")):
        if stage.passed:
            times.append(((stage.worked + stage.waited) / stage.passed, what))
    return times


def format_size(count: float) -> str:
    """``812 bytes``, ``13.7 kB``."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"


class ProgressSampler:
    """Samples a crawl and remembers enough to tell its rate."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._rate = RecentRate()

    def sample(self) -> CrawlProgress:
        crawler, report = self._crawler, self._crawler.report()
        return CrawlProgress(
            report=report,
            rate=self._rate.rate(crawler.clock.now(), report.pages),
            hosts=crawler.hosts(MOST_HOSTS),
            waits=crawler.waits(),
            stopping=bool(report.stopped),
            sharing=crawler.limiter.look_at_sharing(),
        )


# ---------------------------------------------------------------------- the end
# How a crawl has ended, in sentences, in fields and as an exit code; and the list of what failed.


MOST_EXAMPLES = 3
"""Failed URLs that are named ..."""
MOST_SEARCHED = 1_000
"""... found among so many."""
MOST_READ = 1_000
PRIVATE_ADDRESS = "refused_address"


def summarize(crawler: Crawler, output: str, failures: str | None) -> Summary:
    """The end of a crawl. ``failures``: the file with the failed URLs, if there is one."""
    report = crawler.report()
    code, next_ = _outcome(crawler, report, output, failures)
    return _summary(crawler, report, code, next_)


def summarize_failure(crawler: Crawler, error: Exception) -> Summary:
    """The end of a crawl whose files failed under it: a full disk, a frontier that is gone."""
    return _summary(crawler, crawler.report(), STOPPED, f"{sentence(redact(str(error)))} {RESUME}")


def _summary(crawler: Crawler, report: CrawlReport, code: int, next_: str) -> Summary:
    summary = Summary(code=code, headline=counts_text(report), next=next_, fields=fields_of(report, code, next_))
    return with_retired_keys(summary, (one.coordinator for one in crawler.credentials.values()))


def _outcome(crawler: Crawler, report: CrawlReport, output: str, failures: str | None) -> tuple[int, str]:
    written = plural(report.before + report.pages, "page")
    result = f"{written} on standard output" if output == STDOUT else f"{output} has {written}"
    if report.stop is not None:
        return _stop_outcome(crawler, report, report.stop, result)
    if not report.before + report.pages:
        return FAILED, f"No page was written. {_why_none(crawler)}"
    if failed := report.failed + report.failed_before:
        first = [one for one in _lost(crawler) if one.state.value == "failed"][:MOST_EXAMPLES]
        examples = "; ".join(f"{one.url} ({one.reason})" for one in first)
        more = f"All of them are in {failures}." if failures else "Pass --failures FILE to list them all."
        return FAILED, f"{result}; {plural(failed, 'URL')} failed" + (f": {examples}" if examples else "") + f". {more}"
    return DONE, f"The crawl is complete: {result}."


def _stop_outcome(crawler: Crawler, report: CrawlReport, stop: Stop, result: str) -> tuple[int, str]:
    can_resume = any(one.path != STDOUT for one in crawler.outputs)
    again = RESUME if can_resume else "It cannot be resumed because the output is not a file."
    match stop.reason:
        case StopReason.MAX_PAGES:
            return DONE, f"{result}, the limit of --max-pages; raise it to continue."
        case StopReason.STANDSTILL:
            wait = f"{again.rstrip('.')}, or pass --wait."
            return STOPPED, f"No host can be fetched{until(report.come_back_in)}. {wait}"
        case StopReason.CREDENTIALS:
            return (
                STOPPED,
                f"No usable key: {stop.detail}. Pass another key, or enable one with `headgate keys free`. {again}",
            )
        case StopReason.DEADLINE:
            return STOPPED, f"The deadline has passed ({stop.detail}). {again}"
    return STOPPED, f"Stopped with {plural(report.open, 'URL')} to go. {again}"


def _why_none(crawler: Crawler) -> str:
    for one in _lost(crawler):
        is_private = one.category == PRIVATE_ADDRESS and is_for_private(urlsplit(one.url).hostname or "")
        hint = " Pass --allow-private to crawl private addresses." if is_private else ""
        return f"{one.url}: {sentence(one.reason)}{hint}"
    return "Check the start URLs."


def _lost(crawler: Crawler) -> list[LostUrl]:
    return [] if crawler.frontier is None else crawler.lost(limit=MOST_SEARCHED)


def write_failures(crawler: Crawler, path: str) -> None:
    """A line of JSON for each URL that failed or was refused."""
    after = 0
    try:
        with open(path, "w", encoding="utf-8") as file:
            while lost := crawler.lost(after, MOST_READ):
                for one in lost:
                    fields = {
                        "url": one.url,
                        "state": one.state.value,
                        "reason": one.reason,
                        "attempts": one.attempts,
                        "found_on": one.found_on,
                    }
                    file.write(json.dumps(fields, ensure_ascii=False) + "\n")
                after = lost[-1].number
    except OSError as error:
        raise CommandFailed(f"cannot write {path} ({error.strerror}); choose another file with --failures.") from None


# ---------------------------------------------------------------------- what was done


def counts_text(report: CrawlReport) -> str:
    hosts = f" from {report.hosts:,} hosts" if report.hosts > 1 else ""
    before = f" ({report.before:,} more from earlier runs)" if report.before else ""
    parts = [f"{plural(report.pages, 'page')}{hosts}{before}"]
    parts += [f"{report.failed:,} failed ({top_counts(report.reasons)})"] if report.failed else []
    parts += [f"{report.refused:,} refused"] if report.refused else []
    parts += [f"{report.open:,} to go"] if report.open else []
    totals = [f"{plural(report.fetches, 'request')} in {format_seconds(report.elapsed)}"]
    totals += [f"{report.rate_limited:,} rate limited"] if report.rate_limited else []
    totals += [f"{report.retries:,} retr{'y' if report.retries == 1 else 'ies'}"] if report.retries else []
    totals += [format_size(report.bytes)]
    times = ", ".join(f"{what} {format_seconds(seconds)}" for seconds, what in stage_times(report))
    average = f"Average per page: {times}." if times else ""
    return " ".join(filter(None, (f"{', '.join(parts)}; {', '.join(totals)}.", average, _left_out(report))))


def _left_out(report: CrawlReport) -> str:
    """What was found and not followed, or not read: the counts alone would not show it."""
    told = []
    if report.capped:
        kind, url = next(iter(report.capped.items()))
        others = f" and {len(report.capped) - 1:,} other patterns" if len(report.capped) > 1 else ""
        told.append(
            f"Skipped further URLs like {kind}{others}, such as {url}; to follow them, raise --max-per-shape or "
            "--max-per-host and use a new output."
        )
    if report.sitemap_problems:
        url, problem = next(iter(report.sitemap_problems.items()))
        count = len(report.sitemap_problems)
        several = f"{count:,} sitemaps could not be read completely, such as {url}" if count > 1 else url
        told.append(f"{several}: {problem}.")
    return " ".join(told)


def fields_of(report: CrawlReport, code: int, next_: str) -> dict[str, Any]:
    return {
        "event": "end",
        "exit_code": code,
        "pages": report.pages,
        "before": report.before,
        "failed": report.failed,
        "refused": report.refused,
        "sent_on": report.sent_on,
        "sitemaps": report.sitemaps,
        "sitemap_problems": report.sitemap_problems,
        "capped": report.capped,
        "put_off": report.put_off,
        "open": report.open,
        "hosts": report.hosts,
        "fetches": report.fetches,
        "retries": report.retries,
        "rate_limited": report.rate_limited,
        "bytes": report.bytes,
        "statuses": {str(status): count for status, count in sorted(report.statuses.items())},
        "reasons": dict(report.reasons),
        "stages": {
            name: {"passed": one.passed, "waited": round(one.waited, 3), "worked": round(one.worked, 3)}
            for name, one in report.stages.items()
        },
        "elapsed": round(report.elapsed, 3),
        "stopped": report.stopped,
        "come_back_in": report.come_back_in,
        "next": next_,
    }
