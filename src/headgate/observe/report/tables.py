"""What a report says in words and tables, the same for every form it is written in."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ...formatting import format_seconds
from .run_report import MOST_ROWS, RunReport, ended, times_in_states

NOUNS = {"run": "rows", "crawl": "pages", "demo": "calls", "program": "calls"}

_FOLDER = re.compile(r" \(/[^)]*\)")
"""The folder of a store on this machine, which says nothing to a reader elsewhere."""
_WAITS = {
    "turn": "their turn, behind other rows",
    "pace": "the pace of their key",
    "permit": "their host's pace",
    "reading": "being read",
    "writing": "being written",
}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table; the first column is words, of the others those that are ``numbers`` stand to the right."""

    title: str
    about: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: tuple[str, ...] = ()
    more: int = 0
    """Rows that did not fit."""


def clock_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def heading(report: RunReport) -> str:
    return f"{report.snapshot.kind}: {report.snapshot.title}"


def facts(report: RunReport) -> list[tuple[str, str]]:
    """The numbers, the most wanted first."""
    seen = report.snapshot
    progress, noun = seen.progress, NOUNS.get(seen.kind, "rows")
    calls, refused, failed = report.calls()
    of = "" if progress.total is None else f" of {progress.total:,}"
    found = [("done", f"{progress.done:,}{of} {noun}")]
    found += [("dead", f"{progress.dead:,}")] if progress.dead else []
    found += [("still open", f"{progress.open:,}")] if progress.open else []
    pace = f", {report.pace:,.1f} {noun} a second" if report.pace else ""
    found.append(("took", f"{format_seconds(report.took)}{pace}"))
    found.append(("calls", f"{calls:,}"))
    found.append(("refused (429)", f"{refused:,}" + (f" ({refused / calls:.2%})" if calls and refused else "")))
    found += [("failed", f"{failed:,}")] if failed else []
    found += [("tokens", f"{progress.tokens:,}")] if progress.tokens else []
    found += [("cost", f"{progress.cost:,.4g}")] if progress.cost else []
    found += [("quota shared", _FOLDER.sub("", seen.store))] if seen.store else []
    found.append(("began", clock_time(seen.started_at)))
    found.append(("ended", clock_time(seen.at)))
    found.append(("where", f"process {seen.pid} on {seen.host}"))
    return found


def sheets(report: RunReport) -> list[Sheet]:
    """Those that have rows."""
    made = (_waited(report), _dead(report), _keys(report), _credentials(report), _events(report))
    return [sheet for sheet in made if sheet.rows]


def _waited(report: RunReport) -> Sheet:
    waited = report.waited()
    total = sum(seconds for _, seconds in waited)
    rows = [
        (_WAITS.get(why, why), format_seconds(seconds), f"{seconds / total:.0%}") for why, seconds in waited[:MOST_ROWS]
    ]
    about = f"The waits of all {NOUNS.get(report.snapshot.kind, 'rows')} added up; many wait at the same time."
    if not report.snapshot.waited:
        about = "Callers in the gate's queues, added up; those that were refused and came back later are not in it."
    return Sheet("Why it waited", about, ("for", "time", "share"), rows, ("time", "share"))


def _dead(report: RunReport) -> Sheet:
    rows = [(line.reason, f"{line.count:,}", line.example) for line in report.snapshot.dead]
    return Sheet("What was given up", "", ("reason", "count", "for example"), rows, ("count",))


def _keys(report: RunReport) -> Sheet:
    times = {line.key: times_in_states(line) for line in report.timelines}
    rows = []
    for line in report.keys[:MOST_ROWS]:
        shut = times.get(line.key, {})
        rows.append(
            (
                line.key,
                f"{line.rate:,.1f}/s" if line.rate else "",
                "" if line.said is None else f"{line.said:,.1f}/s",
                "" if line.known is None else f"{line.known:,.4g}/s",
                f"{ended(line):,}",
                f"{line.refused:,}",
                f"{line.failed:,}",
                format_seconds(line.latency) if line.latency else "",
                format_seconds(line.p95) if line.p95 else "",
                _or_empty(shut.get("held", 0.0)),
                _or_empty(shut.get("circuit", 0.0)),
            )
        )
    paces, calls = ("learned", "server says", "known limit"), ("calls", "429s", "failed")
    columns = ("key", *paces, *calls, "latency", "p95", "held", "circuit open")
    more = max(0, len(report.keys) - MOST_ROWS) + report.snapshot.more_keys
    about = (
        "The pace as it was learned at the end; a known limit is never exceeded, whatever was learned. "
        "Calls: those whose end is known. Held: it had to pause after a refusal."
    )
    return Sheet("Keys", about, columns, rows, columns[1:], more)


def _credentials(report: RunReport) -> Sheet:
    lines = report.snapshot.credentials
    rows = [
        (
            line.label,
            line.mark,
            line.provider,
            line.state + (f" for {format_seconds(line.rests)}" if line.rests else ""),
            line.reason,
        )
        for line in lines[:MOST_ROWS]
    ]
    columns = ("label", "mark", "of", "at the end", "why")
    about = "By their labels; what they are is in no report."
    return Sheet("Credentials", about, columns, rows, (), max(0, len(lines) - MOST_ROWS))


def _events(report: RunReport) -> Sheet:
    began = report.snapshot.started_at
    rows = [(f"{line.at - began:+.1f} s", line.kind, line.key, line.reason) for line in report.events]
    return Sheet("What happened last", "", ("when", "what", "key", "why"), rows)


def _or_empty(seconds: float) -> str:
    return format_seconds(seconds) if seconds else ""
