"""How a crawl has ended, in a few sentences of which the last says what to do next, and in an exit code."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit

from headgate.batch.formats.writing import STDOUT
from headgate.core.words import span
from headgate.crawl.crawler import Crawler
from headgate.crawl.guard import is_for_private
from headgate.crawl.report import CrawlReport

from . import DONE, FAILED, STOPPED
from .run_words import AGAIN, Ending, clock_time
from .status import most

MOST_NAMED = 3
"""Addresses that are named as examples of what failed."""
LOOKED_AT = 1_000
"""... found among so many."""
KEPT_OUT = "refused_address"


def ending_of(crawler: Crawler, output: str, failures: str | None) -> Ending:
    report = crawler.report()
    code, next_ = _verdict(crawler, report, output, failures)
    return Ending(code=code, about=about(report), next=next_, fields=fields_of(report, code, next_))


def _verdict(crawler: Crawler, report: CrawlReport, output: str, failures: str | None) -> tuple[int, str]:
    word, _, said = report.stopped.partition(":")
    kept = any(one.path != STDOUT for one in crawler.outputs)
    go_on = AGAIN if kept else "With an output that is a file it could be gone on with."
    written = report.before + report.pages
    where = f"{output} has" if output != STDOUT else "There are"
    if word == "max_pages":
        return DONE, f"{where} {pages(written)}, as many as were asked for; with a larger --max-pages it goes on."
    if word == "standstill":
        seconds = report.come_back_in
        when = "" if seconds is None else f"; come back in {span(seconds)}, at {clock_time(time.time() + seconds)}"
        return STOPPED, f"Nothing can start for now{when}. {go_on} (--wait stays.)"
    if word == "credentials":
        return (
            STOPPED,
            f"No key is of use any more:{said}. With another one, or one that headgate keys has freed: {go_on}",
        )
    if word == "deadline":
        return STOPPED, f"The time is up ({said.strip()}). {go_on}"
    if report.stopped:
        return STOPPED, f"Stopped, with {report.open:,} address{'es' * (report.open != 1)} to go. {go_on}"
    if not written:
        return FAILED, f"No page was written. {_why_none(crawler)}"
    if failed := report.failed + report.failed_before:
        first = [one for one in lost(crawler) if one.state.value == "failed"][:MOST_NAMED]
        named = "".join(f"{': ' if not number else '; '}{one.url} ({one.reason})" for number, one in enumerate(first))
        names = f"{failures or '--failures FILE'} names them all."
        return FAILED, f"{where} {pages(written)}; {failed:,} address{'es' * (failed > 1)} failed{named}. {names}"
    return DONE, f"All is crawled: {where[0].lower() + where[1:] if output == STDOUT else where} {pages(written)}."


def _why_none(crawler: Crawler) -> str:
    for one in lost(crawler):
        is_kept_out = one.reason.partition(":")[0] == KEPT_OUT and is_for_private(urlsplit(one.url).hostname or "")
        hint = " --allow-private lets the crawl go there." if is_kept_out else ""
        return f"{one.url}: {one.reason.rstrip('.')}.{hint}"
    return "Check the addresses to begin with."


def lost(crawler: Crawler) -> list[Any]:
    return [] if crawler.frontier is None else crawler.lost(limit=LOOKED_AT)


def pages(count: int) -> str:
    return f"{count:,} page" + ("" if count == 1 else "s")


def about(report: CrawlReport) -> str:
    hosts = f" of {report.hosts:,} hosts" if report.hosts > 1 else ""
    before = f" ({report.before:,} more before)" if report.before else ""
    parts = [f"{pages(report.pages)}{hosts}{before}"]
    parts += [f"{report.failed:,} failed ({most(report.reasons)})"] if report.failed else []
    parts += [f"{report.refused:,} refused"] if report.refused else []
    parts += [f"{report.open:,} to go"] if report.open else []
    sums = [f"{report.fetches:,} requests in {span(report.elapsed)}"]
    sums += [f"{report.rate_limited:,} rate limited"] if report.rate_limited else []
    sums += [f"{report.retries:,} tried again"] if report.retries else []
    sums += [size(report.bytes)]
    return " ".join(filter(None, (f"{', '.join(parts)}; {', '.join(sums)}.", waits(report), left_out(report))))


def left_out(report: CrawlReport) -> str:
    """What was found and not followed, or not read, which nobody would miss by the numbers alone."""
    told = []
    if report.capped:
        kind, url = next(iter(report.capped.items()))
        others = f" and {len(report.capped) - 1:,} other kinds" if len(report.capped) > 1 else ""
        told.append(
            f"More addresses like {kind}{others} were found than are followed, such as {url}; --max-per-shape and "
            "--max-per-host let more in, with an output that is new."
        )
    if report.sitemap_problems:
        url, problem = next(iter(report.sitemap_problems.items()))
        count = len(report.sitemap_problems)
        several = f"{count:,} sitemaps were not read in whole, such as {url}" if count > 1 else url
        told.append(f"{several}: {problem}.")
    return " ".join(told)


def waits(report: CrawlReport) -> str:
    """How long a page was under way, stage by stage: the wait for a permit apart from the fetch."""
    told = []
    for name, wait, work in (("extraction", "for its permit", "to fetch"), ("processing", "", "to read"),
                             ("output", "", "to write")):  # fmt: skip
        stage = report.stages[name]
        if stage.passed and wait:
            told.append(f"{span(stage.waited / stage.passed)} {wait}")
        if stage.passed:
            told.append(f"{span((stage.worked + (0.0 if wait else stage.waited)) / stage.passed)} {work}")
    return f"A page took {', '.join(told)}." if told else ""


def size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"


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
