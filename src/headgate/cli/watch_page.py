"""Runs as a terminal shows them: all of them as a list, or one of them whole; and each as one line for a pipe."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headgate.core.words import printable, span
from headgate.observe.report_tables import NOUNS
from headgate.observe.snapshot import (
    CredentialLine,
    EventLine,
    KeyLine,
    ProgressLine,
    RunSnapshot,
    WaitLine,
    is_silent,
)
from headgate.observe.waiting import is_ordinary

WIDEST = 140
MOST_LISTED = 50
MOST_WAITS, MOST_KEYS, MOST_CREDENTIALS, MOST_DEAD, MOST_EVENTS = 6, 15, 8, 5, 8
LEAST_KEYS, AROUND_KEYS = 3, 4
ENDLESS = 1_000
"""Lines of what is no screen."""
SHORTEST_NAME, LEAST_WORDS, PADDING = 12, 20, 2
NOBODY = "No run is under way on this machine. headgate run, crawl and demo show themselves here while they go."
STATES = {"running": "green", "paused": "yellow", "stopping": "yellow", "ended": "dim"}
ENDINGS = {
    "stopped": ("stopped", ""),
    "failed": ("failed", ""),
    "lost": ("gone without a last word", " when last seen"),
}
"""How a run may have ended, if not well."""
CIRCUITS = {"closed": "green", "half_open": "yellow", "open": "bold red"}


class Column(NamedTuple):
    name: str
    rank: int
    """Where it is narrow, those with the lowest have their place first."""
    is_number: bool = False


OF_RUNS = (
    Column("run", 0),
    Column("state", 3),
    Column("done", 1, True),
    Column("pace", 4, True),
    Column("to go", 5, True),
    Column("what, why it waits", 2),
)
OF_KEYS = (
    Column("key", 0),
    Column("learned", 1, True),
    Column("server says", 7, True),
    Column("in flight", 4, True),
    Column("in line", 5, True),
    Column("429s", 2, True),
    Column("latency", 8, True),
    Column("circuit", 3),
    Column("why it waits", 6),
)


@dataclass(frozen=True, slots=True)
class Look:
    """A run at one moment."""

    snapshot: RunSnapshot
    events: Sequence[EventLine] = ()
    """The last that are worth a line."""


def far(progress: ProgressLine) -> str:
    of = "" if progress.total is None else f" of {progress.total:,}"
    return f"{progress.done:,} done{of}"


def line_of(seen: RunSnapshot) -> str:
    """For a pipe."""
    progress = seen.progress
    parts = [far(progress)]
    parts += [f"{progress.dead:,} dead"] if progress.dead else []
    parts += [f"{progress.rate:.1f}/s"]
    parts += [f"{span(progress.eta)} to go"] if progress.eta else []
    waits = "; ".join(behind(line) for line in seen.waits[:3])
    return f"{seen.run} {seen.state}: {', '.join(parts)}" + (f"; {waits}" if waits else "")


def ended_line(seen: RunSnapshot) -> str:
    """What is known of a run that is no more."""
    progress = seen.progress
    ended = progress.done + progress.dead
    of = "" if progress.total is None else f" of {progress.total:,}"
    dead = f", {progress.dead:,} of them dead" if progress.dead else ""
    how, last = ENDINGS.get(seen.ending, ("ended", ""))
    return f"{seen.title}: {how}, {ended:,}{of} {NOUNS.get(seen.kind, 'rows')}{dead}{last} ({seen.run})"


def behind(line: WaitLine) -> str:
    said = f" ({line.said})" if line.said else ""
    return (f"{line.behind:,} wait: " if line.behind else "") + line.sentence + said


def page_of(looks: Sequence[Look], width: int, height: int = ENDLESS) -> RenderableType:
    """One run whole, several as a list."""
    if not looks:
        return Text(NOBODY, "dim")
    if len(looks) == 1:
        return whole(looks[0].snapshot, looks[0].events, min(width, WIDEST), height)
    return listed([one.snapshot for one in looks], min(width, WIDEST))


# ---------------------------------------------------------------------- several


def listed(runs: Sequence[RunSnapshot], width: int) -> RenderableType:
    rows: list[list[Text]] = []
    for seen in runs[:MOST_LISTED]:
        progress = seen.progress
        share = f" {(progress.done + progress.dead) / progress.total:.0%}" if progress.total else ""
        about = _text(seen.title)
        if seen.waits:
            about.append(f"  {printable(behind(seen.waits[0]))}", _colour(seen.waits[0]))
        rows.append(
            [
                _text(seen.run),
                Text(seen.state, STATES.get(seen.state, "")),
                Text(f"{progress.done:,}{share}"),
                Text(f"{progress.rate:,.1f}/s", "cyan"),
                Text(span(progress.eta) if progress.eta else ""),
                about,
            ]
        )
    parts: list[RenderableType] = [Text(f"{len(runs):,} runs on this machine", "bold"), _table(OF_RUNS, rows, width)]
    if len(runs) > MOST_LISTED:
        parts.append(Text(f"... and {len(runs) - MOST_LISTED:,} more", "dim"))
    parts.append(Text("headgate watch RUN shows one of them whole", "dim"))
    return Group(*parts)


# ---------------------------------------------------------------------- one


def whole(seen: RunSnapshot, events: Sequence[EventLine], width: int, height: int) -> RenderableType:
    """Where it is low, keys give way first."""
    parts: list[RenderableType] = [_head(seen), _bar(seen.progress, width), _sums(seen)]
    if seen.waits:
        parts += [_title("why it waits")]
        parts += [_cut(f"  {behind(line)}", _colour(line)) for line in seen.waits[:MOST_WAITS]]
    place = len(parts)
    away = [line for line in seen.credentials if line.state in ("resting", "retired")]
    if away:
        parts += [_title("credentials that cannot be used")]
        parts += [_cut(f"  {_standing(line)}", "yellow") for line in away[:MOST_CREDENTIALS]]
    if seen.dead:
        parts += [_title("dead")]
        parts += [_cut(f"  {line.count:,} {line.reason}  {line.example}", "red") for line in seen.dead[:MOST_DEAD]]
    if events:
        parts += [_title("last")]
        for event in reversed(events[-MOST_EVENTS:]):  # what does not fit below is the oldest
            when = time.strftime("%H:%M:%S", time.localtime(event.at))
            parts.append(_cut(f"  {when}  {event.kind}  {event.key}  {event.reason}", "dim"))
    if seen.keys:
        titles = sum(isinstance(part, Text) and part.plain.startswith("\n") for part in parts)
        room = height - len(parts) - titles - AROUND_KEYS
        parts[place:place] = [Text(), _keys(seen, width, min(MOST_KEYS, max(LEAST_KEYS, room)))]
    return Group(*parts)


def _head(seen: RunSnapshot) -> Text:
    ago = max(0.0, seen.at - seen.started_at)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(printable(seen.run), "bold")
    text.append(f"  {seen.state}", STATES.get(seen.state, ""))
    text.append(f"  {printable(seen.title)}")
    text.append(f"  process {seen.pid}, for {span(ago)}", "dim")
    if is_silent(seen, time.time()):
        text.append(f"  as of {span(time.time() - seen.at)} ago: it does not answer", "red")
    return text


def _bar(progress: ProgressLine, width: int) -> RenderableType:
    if not progress.total:
        return Text(f"  {far(progress)}", "green")
    ended = progress.done + progress.dead
    table = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=progress.total, completed=ended, width=max(10, width - 50), complete_style="green")
    table.add_row(f"  {far(progress)}", bar, f"{ended / progress.total:4.0%}")
    return table


def _sums(seen: RunSnapshot) -> Text:
    progress = seen.progress
    text = Text(f"  {progress.rate:,.1f}/s", "cyan")
    rest = [f"about {span(progress.eta)} to go"] if progress.eta else []
    rest += [f"{progress.in_flight:,} in flight", f"{progress.open:,} open"]
    rest += [f"{progress.tokens:,} tokens"] if progress.tokens else []
    rest += [f"cost {progress.cost:,.4g}"] if progress.cost else []
    text.append(", " + ", ".join(rest), "default")
    if progress.dead:
        text.append(f", {progress.dead:,} dead", "red")
    if seen.store:
        text.append(f"  {printable(seen.store)}", "dim")
    return text


def _keys(seen: RunSnapshot, width: int, most: int) -> RenderableType:
    table = _table(OF_KEYS, [_cells(line) for line in seen.keys[:most]], width)
    more = len(seen.keys) - most + seen.more_keys
    return Group(table, Text(f"  ... and {more:,} more keys", "dim")) if more > 0 else table


def _cells(line: KeyLine) -> list[Text]:
    return [
        _text(line.key),
        Text(f"{line.rate:,.1f}/s" if line.rate else "", "cyan"),
        Text("" if line.said is None else f"{line.said:,.1f}/s"),
        Text(f"{line.in_flight:,}"),
        Text(f"{line.waiting:,}"),
        Text(f"{line.refused:,}", "red" if line.refused else "dim"),
        Text(span(line.latency) if line.latency else ""),
        Text(line.circuit.replace("_", "-"), CIRCUITS.get(line.circuit, "")),
        _text(line.reason, "dim"),
    ]


def _standing(line: CredentialLine) -> str:
    rests = f" for {span(line.rests)}" if line.rests else ""
    return f"{line.label} ({line.mark}) {line.state}{rests}" + (f": {line.reason}" if line.reason else "")


def _table(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> Table:
    """Where it is narrow, whole columns are left out. The first may be cut, and the last has what the others leave.

    Names in the first that differ are not cut alike, as long as there is room.
    """
    first, last = 0, len(columns) - 1
    sizes = [max([len(one.name), *(row[at].cell_len for row in rows)]) for at, one in enumerate(columns)]
    beside = sizes[min(range(1, len(columns)), key=lambda at: columns[at].rank)]
    room = width - beside - 2 * PADDING
    names = cut_apart([row[first].plain for row in rows], max(SHORTEST_NAME, width // 3), room)
    sizes[first], sizes[last] = max(map(len, (columns[first].name, *names))), LEAST_WORDS
    kept, room = list[int](), width
    for at in sorted(range(len(columns)), key=lambda at: columns[at].rank):
        if not kept or sizes[at] + PADDING <= room:
            kept.append(at)
            room -= sizes[at] + PADDING
    table = Table(box=None, pad_edge=True, header_style="dim", width=width if last in kept else None)
    for at in sorted(kept):
        justify: Literal["left", "right"] = "right" if columns[at].is_number else "left"
        size = sizes[at] if at == first else None
        ratio = 1 if at == last else None
        name = columns[at].name
        table.add_column(name, justify=justify, width=size, ratio=ratio, no_wrap=True, overflow="ellipsis")
    for name, row in zip(names, rows, strict=True):
        table.add_row(Text(name, row[first].style), *(row[at] for at in sorted(kept) if at != first))
    return table


def cut_apart(names: Sequence[str], width: int, most: int) -> list[str]:
    """Names cut to ``width``. Where two would look alike, their ends are kept, and up to ``most`` characters."""
    cut: list[str] = []
    for wide in range(width, max(width, most) + 1):
        for end in (0, wide // 2):
            cut = [one if len(one) <= wide else f"{one[: wide - end - 1]}…{one[len(one) - end :]}" for one in names]
            if len(set(cut)) == len(set(names)):
                return cut
    return cut


def _title(words: str) -> Text:
    return Text(f"\n {words}", "bold")


def _cut(words: str, style: str) -> Text:
    return Text(printable(words), style, no_wrap=True, overflow="ellipsis")


def _text(words: str, style: str = "") -> Text:
    """What another process says: shown, not obeyed."""
    return Text(printable(words), style)


def _colour(line: WaitLine) -> str:
    return "dim" if is_ordinary(line) else "yellow"
