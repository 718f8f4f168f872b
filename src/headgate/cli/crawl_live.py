"""A crawl as people watch it: one screen with a bar and a line for each host, plain lines in a pipe, or JSON lines."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, cast

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headgate.core.words import span
from headgate.crawl.crawler import Crawler, HostLook
from headgate.crawl.report import CrawlReport
from headgate.limiter.snapshot import SharingSnapshot
from headgate.wire.redaction import for_display

from .crawl_words import pages, size
from .run_live import WIDEST, JsonLines, Lines, Quiet, Screen, View, about_sharing, screen_console
from .sharing import as_fields, in_words

LATELY = 20.0
"""Seconds by whose pace the pages a second are told."""
MOST_HOSTS = 10
MOST_LOOKED_AT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    report: CrawlReport
    rate: float
    hosts: list[HostLook]
    """The busiest."""
    waits: dict[str, int]
    """Hosts by what they wait for."""
    stopping: bool
    sharing: SharingSnapshot | None = None

    @property
    def done(self) -> int:
        return self.report.before + self.report.pages

    @property
    def in_flight(self) -> int:
        return sum(host.in_flight for host in self.hosts)

    def troubles(self) -> list[tuple[str, int]]:
        report = self.report
        told = (("failed", report.failed), ("refused", report.refused), ("rate limited", report.rate_limited))
        return [(word, count) for word, count in told if count]

    def line(self) -> str:
        """For a pipe."""
        parts = [pages(self.done), f"{self.rate:.1f}/s", f"{self.report.open:,} to go", f"{self.report.hosts:,} hosts"]
        parts += [f"{count:,} {word}" for word, count in self.troubles()]
        parts += [shared] if (shared := in_words(self.sharing)) else []
        reasons = [f"{host.host}: {host.reason}" for host in self.hosts if host.reason and not host.in_flight]
        return ", ".join(parts) + (f"; {'; '.join(reasons[:3])}" if reasons else "")

    def fields(self) -> dict[str, Any]:
        report = self.report
        return {
            "event": "progress",
            "pages": self.done,
            "rate": round(self.rate, 3),
            "open": report.open,
            "failed": report.failed,
            "refused": report.refused,
            "rate_limited": report.rate_limited,
            "bytes": report.bytes,
            "waits": self.waits,
            "sharing": as_fields(self.sharing),
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


class Looker:
    """Looks at a crawl again and again, and remembers enough to tell its pace."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._marks: deque[tuple[float, int]] = deque()

    def look(self) -> Progress:
        crawler, report = self._crawler, self._crawler.report()
        now = crawler.clock.now()
        self._marks.append((now, report.pages))
        while len(self._marks) > 2 and self._marks[0][0] < now - LATELY:
            self._marks.popleft()
        (began_at, began), (at, count) = self._marks[0], self._marks[-1]
        return Progress(
            report=report,
            rate=(count - began) / (at - began_at) if at > began_at else 0.0,
            hosts=crawler.hosts(MOST_HOSTS),
            waits=crawler.waits(),
            stopping=bool(report.stopped),
            sharing=crawler.limiter.look_at_sharing(),
        )


class CrawlScreen(Screen):
    def screen(self, progress: Any) -> RenderableType:
        seen = cast(Progress, progress)
        parts: list[RenderableType] = [self._head(seen), self._share(seen), self._times(seen), self._hosts(seen)]
        parts += about_sharing(seen.sharing)
        if seen.stopping:
            parts.append(
                Text(f"  stopping: {seen.in_flight:,} fetches are under way; Ctrl-C again leaves them", "yellow")
            )
        return Group(*parts)

    def _head(self, seen: Progress) -> Text:
        report = seen.report
        text = Text("  ", no_wrap=True, overflow="ellipsis")
        text.append(pages(seen.done), "bold green")
        text.append(f"  {seen.rate:.1f}/s", "cyan")
        text.append(
            f"  {report.open:,} to go  {report.hosts:,} host{'' if report.hosts == 1 else 's'}  {size(report.bytes)}"
        )
        for word, count in seen.troubles():
            text.append(f"  {count:,} {word}", "red" if word == "failed" else "yellow")
        return text

    def _share(self, seen: Progress) -> Table:
        """Of the addresses that are known; there are more to come."""
        table = Table.grid(padding=(0, 2))
        report = seen.report
        ended = seen.done + report.failed + report.refused + report.sent_on + report.sitemaps
        known = ended + report.open
        width = max(10, min(self._console.width, WIDEST) - 30)
        bar = ProgressBar(total=max(1, known), completed=ended, width=width, complete_style="green")
        table.add_row(" ", bar, f"{ended / known:4.0%} of those known" if known else "")
        return table

    def _times(self, seen: Progress) -> Text:
        text = Text("  a page waits ", "dim")
        stages = seen.report.stages
        for number, (name, words) in enumerate(
            (
                ("extraction", ("for its permit", "the fetch")),
                ("processing", ("", "reading")),
                ("output", ("", "writing")),
            )
        ):
            stage = stages[name]
            if not stage.passed:
                continue
            if not number:
                text.append(f"{span(stage.waited / stage.passed)} {words[0]}; ", "dim")
            text.append(
                f"{words[1]} takes {span(stage.worked / stage.passed)}" + ("" if name == "output" else ", "), "dim"
            )
        return text

    def _hosts(self, seen: Progress) -> Table:
        table = Table(box=None, pad_edge=True, header_style="dim", width=min(self._console.width, WIDEST))
        table.add_column("host", overflow="ellipsis", no_wrap=True, max_width=40)
        for name in ("learned", "in flight", "next"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("why it waits", overflow="ellipsis", no_wrap=True, ratio=1)
        for host in seen.hosts:
            rate = "" if host.rate is None else f"{host.rate:,.1f}/s"
            style = "yellow" if host.opens_in is not None else "dim"
            table.add_row(Text(for_display(host.host)), Text(rate, "cyan"), f"{host.in_flight:,}", f"{host.waiting:,}",
                          Text(for_display(host.reason), style))  # fmt: skip
        if len(seen.hosts) < sum(seen.waits.values()):
            others = ", ".join(
                f"{count:,} {what}" for what, count in sorted(seen.waits.items(), key=lambda one: -one[1])
            )
            table.add_row(Text("all hosts", "dim"), "", "", "", Text(others, "dim"))
        return table


def view_of(*, as_json: bool, quiet: bool, to_stderr: bool) -> View:
    """``to_stderr``: standard output belongs to the pages."""
    if as_json:
        return JsonLines(to_stderr=to_stderr)
    if quiet:
        return Quiet(to_stderr=to_stderr)
    console = screen_console(to_stderr=to_stderr)
    return Lines(to_stderr=to_stderr) if console is None else CrawlScreen(console, to_stderr=to_stderr)
