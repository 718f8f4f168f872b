"""Monitored runs as a terminal shows them: several as a list, one in full; and each as one line for a pipe."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ...formatting import format_seconds, printable
from ...observe.report import NOUNS
from ...observe.snapshot import (
    CredentialLine,
    EventLine,
    KeyLine,
    ProgressLine,
    RunSnapshot,
    WaitLine,
    is_silent,
    plain,
)
from ...observe.sources import is_ordinary
from .display import CIRCUIT_STYLES, STATE_WORDS, Column, cost_text, fitted_table, note, plural, progress_row

WIDEST = 140
MOST_LISTED = 50
MOST_WAITS, MOST_KEYS, MOST_CREDENTIALS, MOST_DEAD, MOST_EVENTS = 6, 15, 8, 5, 8
LEAST_KEYS, AROUND_KEYS = 3, 4
MOST_WORKERS = 20
ENDLESS = 1_000
"""Lines, where there is no screen to fit into."""
HERE = "on this machine"
NO_RUNS = "No run is active on this machine. headgate run, crawl, proxy and demo appear here while they run."
NO_FLEET = "No run reports to this store. Batches on several machines (Ray, Spark) appear here while they run."
STATE_STYLES = {"running": "green", "paused": "yellow", "stopping": "yellow", "ended": "dim"}
ENDINGS = {
    "stopped": ("stopped", ""),
    "failed": ("failed", ""),
    "lost": ("ended unexpectedly", " when last seen"),
}
"""How a run that did not end well has ended, and what to say of its numbers."""
ENDED_FIELDS = ("run", "title", "kind", "at", "ending", "progress")
"""What ``--json`` has of a run that has ended."""

RUN_COLUMNS = (
    Column("run", 0),
    Column("state", 3),
    Column("done", 1, True),
    Column("rate", 4, True),
    Column("to go", 5, True),
    Column("what, why it waits", 2),
)
KEY_COLUMNS = (
    Column("key", 0),
    Column("learned", 1, True),
    Column("server limit", 7, True),
    Column("in flight", 4, True),
    Column("waiting", 5, True),
    Column("429s", 2, True),
    Column("latency", 8, True),
    Column("circuit", 3),
    Column("why it waits", 6),
)


MEMBER_COLUMNS = (
    Column("worker", 0),
    Column("state", 1),
    Column("done", 2, True),
    Column("failed", 4, True),
    Column("rate", 3, True),
    Column("in flight", 5, True),
    Column("429s", 6, True),
    Column("seen", 7, True),
)


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one moment, and its last events that are worth a line."""

    snapshot: RunSnapshot
    events: Sequence[EventLine] = ()


def done_text(progress: ProgressLine) -> str:
    of = "" if progress.total is None else f" of {progress.total:,}"
    return f"{progress.done:,} done{of}"


def run_line(seen: RunSnapshot) -> str:
    """One line for a pipe."""
    progress = seen.progress
    parts = [done_text(progress)]
    parts += [f"{progress.dead:,} failed"] if progress.dead else []
    parts += [f"{progress.rate:.1f}/s"] if progress.rate else []
    parts += [f"{format_seconds(progress.eta)} to go"] if progress.eta else []
    waits = "; ".join(wait_text(line) for line in seen.waits[:3])
    return f"{seen.run} {seen.state}: {', '.join(parts)}" + (f"; {waits}" if waits else "")


def ended_line(seen: RunSnapshot) -> str:
    """The last known state of a run that has ended."""
    progress = seen.progress
    ended = progress.done + progress.dead
    of = "" if progress.total is None else f" of {progress.total:,}"
    dead = f", {progress.dead:,} of them failed" if progress.dead else ""
    how, last = ENDINGS.get(seen.ending, ("ended", ""))
    return f"{seen.title}: {how}, {ended:,}{of} {NOUNS.get(seen.kind, 'rows')}{dead}{last} ({seen.run})"


def wait_text(line: WaitLine) -> str:
    message = f" ({line.said})" if line.said else ""
    return (f"{line.behind:,} waiting: " if line.behind else "") + line.sentence + message


# ---------------------------------------------------------------------- all runs of a machine or of a store


@dataclass(frozen=True, slots=True)
class RunsFrame:
    """A ``Frame`` of the runs of this machine or of a store, or of one of them."""

    views: Sequence[RunView]
    new_events: Sequence[Sequence[EventLine]]
    """Of each view, those that no earlier frame had."""
    ended: Sequence[RunSnapshot]
    """The runs that have ended since the last frame."""
    is_over: bool
    """Whether the chosen run has ended: no more frames will come."""
    where: str = HERE

    def lines(self) -> list[str]:
        lines = [run_line(view.snapshot) for view in self.views]
        nothing = [] if self.is_over else [self._nothing()]
        return [*self.ended_lines(), *(lines or nothing)]

    def _nothing(self) -> str:
        return NO_RUNS if self.where == HERE else NO_FLEET

    def ended_lines(self) -> list[str]:
        return [ended_line(one) for one in self.ended]

    def render(self, width: int, height: int) -> RenderableType:
        """One run in full, several as a list."""
        if not self.views:
            return Text(self._nothing(), "dim")
        if len(self.views) == 1:
            return run_page(self.views[0], width, height)
        return run_list([one.snapshot for one in self.views], min(width, WIDEST), self.where)

    def fields(self) -> list[dict[str, Any]]:
        return [
            *(
                {"event": "run", **plain(view.snapshot), "events": plain(list(new))}
                for view, new in zip(self.views, self.new_events, strict=True)
            ),
            *({"event": "ended", **{name: plain(getattr(one, name)) for name in ENDED_FIELDS}} for one in self.ended),
        ]


# ---------------------------------------------------------------------- several


def run_list(runs: Sequence[RunSnapshot], width: int, where: str) -> RenderableType:
    rows: list[list[Text]] = []
    for seen in runs[:MOST_LISTED]:
        progress = seen.progress
        share = f" {(progress.done + progress.dead) / progress.total:.0%}" if progress.total else ""
        about = _text(seen.title)
        if seen.waits:
            about.append(f"  {printable(wait_text(seen.waits[0]))}", _wait_style(seen.waits[0]))
        rows.append(
            [
                _text(seen.run),
                Text(seen.state, STATE_STYLES.get(seen.state, "")),
                Text(f"{progress.done:,}{share}"),
                Text(f"{progress.rate:,.1f}/s", "cyan"),
                Text(format_seconds(progress.eta) if progress.eta else ""),
                about,
            ]
        )
    parts: list[RenderableType] = [
        Text(f"{plural(len(runs), 'run')} {where}", "bold"),
        fitted_table(RUN_COLUMNS, rows, width),
    ]
    if len(runs) > MOST_LISTED:
        parts.append(Text(f"... and {len(runs) - MOST_LISTED:,} more", "dim"))
    parts.append(
        Text(f"headgate watch {'RUN' if where == HERE else '--store URL --run NAME'} shows one in full", "dim")
    )
    return Group(*parts)


# ---------------------------------------------------------------------- one


def run_page(view: RunView, width: int, height: int) -> RenderableType:
    """In a low terminal, the table of keys is cut first."""
    seen, events, width = view.snapshot, view.events, min(width, WIDEST)
    parts: list[RenderableType] = [_head(seen), _bar(seen.progress, width), _counts(seen)]
    if seen.waits:
        parts += [_title("why it waits")]
        parts += [note(wait_text(line), _wait_style(line)) for line in seen.waits[:MOST_WAITS]]
    place = len(parts)
    unusable = [line for line in seen.credentials if line.state in ("resting", "retired")]
    if unusable:
        parts += [_title("unavailable keys")]
        parts += [note(_credential_text(line), "yellow") for line in unusable[:MOST_CREDENTIALS]]
    if seen.dead:
        parts += [_title("failed")]
        parts += [note(f"{line.count:,} {line.reason}  {line.example}", "red") for line in seen.dead[:MOST_DEAD]]
    if events:
        parts += [_title("last")]
        for event in reversed(events[-MOST_EVENTS:]):  # what does not fit below is the oldest
            when = time.strftime("%H:%M:%S", time.localtime(event.at))
            parts.append(note(f"{when}  {event.kind}  {event.key}  {event.reason}", "dim"))
    if seen.keys:
        titles = sum(isinstance(part, Text) and part.plain.startswith("\n") for part in parts)  # take two lines
        room = height - len(parts) - titles - AROUND_KEYS
        parts[place:place] = [Text(), _keys(seen, width, min(MOST_KEYS, max(LEAST_KEYS, room)))]
    if seen.members:
        parts += [_title("workers"), _members(seen, width)]
    return Group(*parts)


def _head(seen: RunSnapshot) -> Text:
    ago = max(0.0, seen.at - seen.started_at)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(printable(seen.run), "bold")
    text.append(f"  {seen.state}", STATE_STYLES.get(seen.state, ""))
    if seen.ending in ENDINGS:
        text.append(f" ({ENDINGS[seen.ending][0]})", "yellow")
    if seen.title != seen.run:
        text.append(f"  {printable(seen.title)}")
    process = f"process {seen.pid}, " if seen.pid else ""
    text.append(f"  {process}{'ran' if seen.ending else 'running'} for {format_seconds(ago)}", "dim")
    if is_silent(seen, time.time()):
        text.append(f"  not responding; as of {format_seconds(time.time() - seen.at)} ago", "red")
    return text


def _bar(progress: ProgressLine, width: int) -> RenderableType:
    if not progress.total:
        return Text(f"  {done_text(progress)}", "green")
    return progress_row(done_text(progress), progress.done + progress.dead, progress.total, width)


def _counts(seen: RunSnapshot) -> Text:
    progress = seen.progress
    text = Text(f"  {progress.rate:,.1f}/s, " if progress.rate else "  ", "cyan")
    rest = [f"about {format_seconds(progress.eta)} to go"] if progress.eta else []
    rest += [f"{progress.in_flight:,} in flight", f"{progress.open:,} open"]
    rest += [plural(progress.tokens, "token")] if progress.tokens else []
    rest += [cost_text(progress.cost)] if progress.cost else []
    text.append(", ".join(rest), "default")
    if progress.dead:
        text.append(f", {progress.dead:,} failed", "red")
    if seen.store:
        text.append(f"  {printable(seen.store)}", "dim")
    return text


def _keys(seen: RunSnapshot, width: int, most: int) -> RenderableType:
    table = fitted_table(KEY_COLUMNS, [_cells(line) for line in seen.keys[:most]], width)
    more = len(seen.keys) - most + seen.more_keys
    return Group(table, Text(f"  ... and {more:,} more keys", "dim")) if more > 0 else table


def _members(seen: RunSnapshot, width: int) -> RenderableType:
    rows = [
        [
            _text(line.name),
            Text(line.state, "red" if line.state == "lost" else "green"),
            Text(f"{line.done:,}"),
            Text(f"{line.failed:,}", "red" if line.failed else "dim"),
            Text(f"{line.rate:,.1f}/s", "cyan"),
            Text(f"{line.in_flight:,}"),
            Text(f"{line.refused:,}", "red" if line.refused else "dim"),
            Text(f"{format_seconds(line.seen_ago)} ago", "dim"),
        ]
        for line in seen.members[:MOST_WORKERS]
    ]
    table = fitted_table(MEMBER_COLUMNS, rows, width)
    more = len(seen.members) - MOST_WORKERS + seen.more_members
    return Group(table, Text(f"  ... and {more:,} more workers", "dim")) if more > 0 else table


def _cells(line: KeyLine) -> list[Text]:
    return [
        _text(line.key),
        Text(f"{line.rate:,.1f}/s" if line.rate else "", "cyan"),
        Text("" if line.said is None else f"{line.said:,.1f}/s"),
        Text(f"{line.in_flight:,}"),
        Text(f"{line.waiting:,}"),
        Text(f"{line.refused:,}", "red" if line.refused else "dim"),
        Text(format_seconds(line.latency) if line.latency else ""),
        Text(line.circuit.replace("_", "-"), CIRCUIT_STYLES.get(line.circuit, "")),
        _text(line.reason, "dim"),
    ]


def _credential_text(line: CredentialLine) -> str:
    rests = f" for {format_seconds(line.rests)}" if line.rests else ""
    return f"{line.label} ({line.mark}) {STATE_WORDS.get(line.state, line.state)}{rests}" + (
        f": {line.reason}" if line.reason else ""
    )


def _title(words: str) -> Text:
    return Text(f"\n {words}", "bold")


def _text(words: str, style: str = "") -> Text:
    """Text of another process; control codes are escaped."""
    return Text(printable(words), style)


def _wait_style(line: WaitLine) -> str:
    return "dim" if is_ordinary(line) else "yellow"
