"""A run's report: one file with charts and numbers, to be read anywhere.

    notes = Notes(monitor)                       # while it runs: how far it was, once a second at most
    with announced(monitor, notes.take): ...
    write_report(report_of(monitor, notes), "run.html")      # or run.md

It has what a snapshot has, so no secret is in it, and it loads nothing from any host: it can be sent anywhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple

from ..formatting import format_seconds
from .event_buffer import ALARMING, MOST_KEPT, chosen, is_routine
from .history import STATES
from .monitor import RunMonitor
from .snapshot import EventLine, KeyLine, RunSnapshot, Timeline

MOST_NOTES = 600
MOST_PICTURES = 8
"""Keys that are drawn: the busiest."""
MOST_ROWS = 30
"""Of any table; what does not fit is counted."""
MOST_EVENTS = 40
FORMS = (".html", ".md")
_RESERVED = ALARMING - {"item_dead", "failed"}
"""What has a place among the last events however much else there is; the dead have a table of their own."""


class Note(NamedTuple):
    at: float
    """Unix time."""
    done: int
    dead: int


class Notes:
    """How far a run was, again and again: close together in a short run, further apart the longer it goes."""

    def __init__(self, monitor: RunMonitor) -> None:
        self._monitor = monitor
        self._every = 0.25
        self.kept: list[Note] = []
        self.has_begun = False
        """Whether a call has been asked for."""

    def take(self) -> None:
        now = self._monitor.clock.wall()
        if self.kept and self.kept[-1].at <= now < self.kept[-1].at + self._every:
            return
        seen = self._monitor.snapshot()
        progress = seen.progress
        self.has_begun = self.has_begun or bool(seen.keys)
        self.kept.append(Note(now, progress.done, progress.dead))
        if len(self.kept) >= MOST_NOTES:
            self._every *= 2
            self.kept = self.kept[::2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    snapshot: RunSnapshot
    notes: Sequence[Note] = ()
    timelines: Sequence[Timeline] = ()
    events: Sequence[EventLine] = ()
    """Those worth a line, the last of them; half of the places are for what an operator should look at."""
    ending: str = ""
    """What the run itself said at its end."""

    @property
    def took(self) -> float:
        return max(0.0, self.snapshot.at - self.snapshot.started_at)

    @property
    def pace(self) -> float:
        """Finished a second, in this run."""
        if len(self.notes) < 2 or self.notes[-1].at <= self.notes[0].at:
            return 0.0
        first, last = self.notes[0], self.notes[-1]
        return max(0, last.done + last.dead - first.done - first.dead) / (last.at - first.at)

    @property
    def keys(self) -> list[KeyLine]:
        """The busiest first."""
        return sorted(self.snapshot.keys, key=lambda line: -line.sent)

    def calls(self) -> tuple[int, int, int]:
        """Those whose end is known, refused and failed ones, of all keys that are known."""
        keys = self.snapshot.keys
        return sum(map(ended, keys)), sum(one.refused for one in keys), sum(one.failed for one in keys)

    def waited(self) -> list[tuple[str, float]]:
        """Seconds by what for, the longest first; without rows, what callers in queues waited for."""
        told = self.snapshot.waited or queue_waits(self.timelines)
        return sorted(((why, seconds) for why, seconds in told.items() if seconds > 0), key=lambda one: -one[1])


def report_of(monitor: RunMonitor, notes: Notes, ending: str = "") -> RunReport:
    """To be called when the run is over and ``monitor`` is closed."""
    keys = monitor.history.keys()[:MOST_PICTURES]
    worth = [line for line in monitor.buffer.after(0, most=2 * MOST_KEPT) if not is_routine(line)]
    snapshot, kept = monitor.snapshot(), list(notes.kept)
    if kept:
        kept.append(Note(snapshot.at, snapshot.progress.done, snapshot.progress.dead))
    return RunReport(
        snapshot=snapshot,
        notes=kept,
        timelines=monitor.history.timelines(keys, -inf),
        events=chosen(worth, MOST_EVENTS, lambda line: line.kind not in _RESERVED),
        ending=ending,
    )


def ended(line: KeyLine) -> int:
    """Calls whose end is known; of those that were let through, some were never sent."""
    return line.done + line.refused + line.failed


_STATE_TEXT = {
    "open": "the rate limit",
    "ramp": "the ramp after a pause",
    "held": "a hold after a 429",
    "circuit": "an open circuit",
}


def queue_waits(timelines: Sequence[Timeline]) -> dict[str, float]:
    sums = dict.fromkeys(_STATE_TEXT.values(), 0.0)
    for line in timelines:
        for (began, ended), waiting, state in zip(pairwise(line.at), line.waiting[1:], line.state[1:], strict=True):
            sums[_STATE_TEXT[state]] += max(0.0, ended - began) * waiting
    return sums


def times_in_states(line: Timeline) -> Mapping[str, float]:
    """Seconds that a key was open, ramping, held or shut by its circuit."""
    sums = dict.fromkeys(STATES, 0.0)
    for (began, ended), state in zip(pairwise(line.at), line.state[1:], strict=True):
        sums[state] += max(0.0, ended - began)
    return sums


def form_of(path: str) -> str:
    """How this file is to be written; ``ValueError`` says what there is."""
    form = Path(path).suffix.lower()
    if form not in FORMS:
        raise ValueError(f"{path!r} does not end in .html or .md; the ending selects the format")
    return form


def write_report(report: RunReport, path: str) -> None:
    """Raises ``OSError`` where it cannot be written; a file that was there is replaced by a whole one."""
    from .report_documents import as_html, as_markdown

    text = as_html(report) if form_of(path) == ".html" else as_markdown(report)
    target = Path(path)
    draft = target.with_name(f".{target.name}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


# ---------------------------------------------------------------------- words and tables, the same for both forms

NOUNS = {"run": "rows", "crawl": "pages", "demo": "calls", "program": "calls"}

_FOLDER = re.compile(r" \(/[^)]*\)")
"""The folder of a store on this machine, which says nothing to a reader elsewhere."""
WAIT_NAMES = {
    "turn": "other rows in front",
    "pace": "the rate limit of the key",
    "permit": "the rate limit of the host",
    "reading": "parsing",
    "writing": "writing",
}

_CREDENTIAL_STATES = {"held": "in use", "retired": "disabled"}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table. The first column is text; those in ``numbers`` are right-aligned."""

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
    found += [("failed", f"{progress.dead:,}")] if progress.dead else []
    found += [("still open", f"{progress.open:,}")] if progress.open else []
    pace = f", {report.pace:,.1f} {noun}/s" if report.pace else ""
    found.append(("took", f"{format_seconds(report.took)}{pace}"))
    found.append(("calls", f"{calls:,}"))
    found.append(("rate limited (429)", f"{refused:,}" + (f" ({refused / calls:.2%})" if calls and refused else "")))
    found += [("failed calls", f"{failed:,}")] if failed else []
    found += [("tokens", f"{progress.tokens:,}")] if progress.tokens else []
    found += [("cost", f"{progress.cost:,.4g}")] if progress.cost else []
    found += [("quota shared", _FOLDER.sub("", seen.store))] if seen.store else []
    found.append(("started", clock_time(seen.started_at)))
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
        (WAIT_NAMES.get(why, why), format_seconds(seconds), f"{seconds / total:.0%}")
        for why, seconds in waited[:MOST_ROWS]
    ]
    about = f"Sum over all {NOUNS.get(report.snapshot.kind, 'rows')}, many of which wait at the same time."
    if not report.snapshot.waited:
        about = "Sum over all waiting callers, without those that were refused and retried later."
    return Sheet("Why it waited", about, ("waited for", "time", "share"), rows, ("time", "share"))


def _dead(report: RunReport) -> Sheet:
    rows = [(line.reason, f"{line.count:,}", line.example) for line in report.snapshot.dead]
    return Sheet("Failed", "", ("reason", "count", "for example"), rows, ("count",))


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
    paces, calls = ("learned", "server states", "known limit"), ("calls", "429s", "failed")
    columns = ("key", *paces, *calls, "latency", "p95", "held", "circuit open")
    more = max(0, len(report.keys) - MOST_ROWS) + report.snapshot.more_keys
    about = (
        "Learned: the rate at the end; a known limit is never exceeded. Calls: those with a known outcome. "
        "Held: paused after a 429."
    )
    return Sheet("Keys", about, columns, rows, columns[1:], more)


def _credentials(report: RunReport) -> Sheet:
    lines = report.snapshot.credentials
    rows = [
        (
            line.label,
            line.mark,
            line.provider,
            _CREDENTIAL_STATES.get(line.state, line.state)
            + (f" for {format_seconds(line.rests)}" if line.rests else ""),
            line.reason,
        )
        for line in lines[:MOST_ROWS]
    ]
    columns = ("label", "mark", "provider", "state at the end", "reason")
    about = "By label; the secrets are in no report."
    return Sheet("Credentials", about, columns, rows, (), max(0, len(lines) - MOST_ROWS))


def _events(report: RunReport) -> Sheet:
    began = report.snapshot.started_at
    rows = [(f"{line.at - began:+.1f} s", line.kind, line.key, line.reason) for line in report.events]
    return Sheet("Last events", "", ("time", "event", "key", "reason"), rows)


def _or_empty(seconds: float) -> str:
    return format_seconds(seconds) if seconds else ""
