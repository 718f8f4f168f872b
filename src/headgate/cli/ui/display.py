"""How a command shows its work: a screen that is redrawn, lines for a pipe, JSON lines for a program, or nothing.

    work ── sample() ──> Frame ──┬── render(width, height)    a terminal
                                 ├── lines()                  a pipe
                                 └── fields()                 --json

and at the end one ``Summary``. Below are the phrases and the parts of screens that several commands use.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

import click
from rich.console import Console, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...batch.report import FailureGroup, Failures, Remedy
from ...formatting import format_number, format_seconds, printable
from ...formatting import plural as plural
from ...limiter.snapshot import SharingSnapshot
from ...reason_text import store_text
from .terminal import LiveDisplay, say

if TYPE_CHECKING:
    from ...credentials import CredentialCoordinator

RESUME = "Re-run to resume."
MOST_KEYS = 5
MOST_GROUPS = 3
"""Groups of failures shown to a person."""
MOST_LISTED = 10
"""Reasons and processes shown to a person."""
LONGEST_MESSAGE = 200
"""Characters of a server's message."""
TODAY = 12 * 3600.0
LEAST_COST = 0.0001

LINE_EVERY, SCREEN_EVERY = 5.0, 0.25
WIDEST = 120
SHORTEST_NAME, LEAST_TEXT, PADDING = 12, 20, 2
"""Columns: of a name that is cut, of the last column of a table, and between two columns."""
STATE_WORDS = {"retired": "disabled"}
"""States of a key that people read under another name."""
CIRCUIT_STYLES = {"closed": "green", "half_open": "yellow", "open": "bold red"}


class Frame(Protocol):
    """The state of some work at one moment, in each form in which it may be shown."""

    def render(self, width: int, height: int) -> RenderableType: ...
    def lines(self) -> Sequence[str]: ...
    def fields(self) -> Sequence[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How work has ended: sentences for a person, of which the last says what to do next; fields; an exit code."""

    code: int
    headline: str
    """What was done."""
    next: str
    """What to do now: the last line."""
    fields: dict[str, Any]
    details: list[str] = field(default_factory=list)
    """Further reasons for failed or waiting rows; ``next`` has the first."""


class Mode(Enum):
    QUIET = "quiet"
    LINES = "lines"
    JSON = "json"
    SCREEN = "screen"


class Display:
    """Shows frames and a summary in one mode; a context manager around the time in which frames are shown."""

    def __init__(
        self,
        mode: Mode,
        *,
        every: float | None = None,
        summary_err: bool = False,
        lines_err: bool = True,
        console: Console | None = None,
        transient: bool = True,
    ) -> None:
        """``every``: seconds between two frames. ``summary_err``, ``lines_err``: print these on standard error."""
        self.mode = mode
        self.every = every or (SCREEN_EVERY if mode is Mode.SCREEN else LINE_EVERY)
        self._summary_err, self._lines_err = summary_err, lines_err
        self.console = Console(stderr=True, highlight=False) if console is None else console
        self._live = LiveDisplay(self.console, transient=transient) if mode is Mode.SCREEN else None
        self._last: Sequence[str] = ()

    def show(self, frame: Frame) -> None:
        if self._live is not None:
            self._live.show(frame.render(self.console.width, self.console.height))
        elif self.mode is Mode.JSON:
            for fields in frame.fields():
                click.echo(json.dumps(fields), err=self._summary_err)
        elif self.mode is Mode.LINES:
            lines = frame.lines()
            for line in lines:
                if line not in self._last:  # what has not changed is not repeated
                    say(line, err=self._lines_err)
            self._last = lines

    def say(self, sentence: str) -> None:
        """A remark for a person at the terminal."""
        if self.mode in (Mode.LINES, Mode.SCREEN):
            say(sentence, err=True)

    def end(self, summary: Summary) -> None:
        if self.mode is Mode.JSON:
            click.echo(json.dumps(summary.fields), err=self._summary_err)
            return
        details = [] if self.mode is Mode.QUIET else [summary.headline, *(f"  {one}" for one in summary.details)]
        for line in (*filter(None, details), summary.next):
            say(line, err=self._summary_err)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.__exit__()


def open_display(*, as_json: bool, quiet: bool, stdout_is_taken: bool) -> Display:
    """``stdout_is_taken``: standard output carries the results; then nothing is drawn on the same terminal."""
    if as_json or quiet:
        return Display(Mode.JSON if as_json else Mode.QUIET, summary_err=stdout_is_taken)
    console = Console(stderr=True, highlight=False)
    can_draw = console.is_terminal and not (stdout_is_taken and sys.stdout.isatty())
    return Display(Mode.SCREEN if can_draw else Mode.LINES, summary_err=stdout_is_taken, console=console)


# ---------------------------------------------------------------------- parts of screens


def progress_row(label: str, completed: float, total: float | None, width: int, *more: RenderableType) -> Table:
    """``label ━━━━━━━━━━━╺━━━━ 72%``."""
    table = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=total, completed=completed, width=max(10, width - 50), complete_style="green")
    table.add_row(f"  {label}", bar, f"{completed / total:4.0%}" if total else "", *more)
    return table


def note(words: str, style: str) -> Text:
    """One line; what does not fit is cut, control codes are escaped."""
    return Text(f"  {printable(words)}", style, no_wrap=True, overflow="ellipsis")


def sharing_text(sharing: SharingSnapshot | None) -> str:
    """With how many processes quotas are shared; empty where this one is alone."""
    if sharing is None or (sharing.members == 1 and not sharing.is_lost):
        return ""
    return store_text(sharing.where, sharing.members, sharing.is_lost)


def sharing_note(sharing: SharingSnapshot | None) -> list[Text]:
    text = sharing_text(sharing)
    return [note(text, "yellow" if sharing is not None and sharing.is_lost else "dim")] if text else []


class Column(NamedTuple):
    name: str
    rank: int
    """In a narrow terminal, columns with the lowest rank are placed first."""
    is_number: bool = False


def fitted_table(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> Table:
    """A table for ``width`` columns: whole columns are left out where there is no room for them.

    The first one may be cut, the last one gets the room that is left. Names in the first that differ still differ
    after the cut, as long as there is room.
    """
    first, last = 0, len(columns) - 1
    sizes = [max([len(one.name), *(row[at].cell_len for row in rows)]) for at, one in enumerate(columns)]
    beside = sizes[min(range(1, len(columns)), key=lambda at: columns[at].rank)]
    room = width - beside - 2 * PADDING
    names = cut_apart([row[first].plain for row in rows], max(SHORTEST_NAME, width // 3), room)
    sizes[first], sizes[last] = max(map(len, (columns[first].name, *names))), LEAST_TEXT
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
    """Names cut to ``width``. Where two would become equal, their ends are kept, and up to ``most`` characters."""
    cut: list[str] = []
    for wide in range(width, max(width, most) + 1):
        for end in (0, wide // 2):
            cut = [one if len(one) <= wide else f"{one[: wide - end - 1]}…{one[len(one) - end :]}" for one in names]
            if len(set(cut)) == len(set(names)):
                return cut
    return cut


# ---------------------------------------------------------------------- phrases of summaries


def with_retired_keys(summary: Summary, coordinators: Iterable[CredentialCoordinator]) -> Summary:
    """Add the keys that are disabled by now: the work ends without them, only slower."""
    retired = [one for coordinator in coordinators for one in coordinator.states() if one.state == "retired"]
    fields = {**summary.fields, "keys_lost": [{"key": one.label, "reason": one.reason} for one in retired]}
    if not retired:
        return replace(summary, fields=fields)
    named = ", ".join(f"{one.label} ({one.reason})" for one in retired[:MOST_KEYS])
    more = f" and {len(retired) - MOST_KEYS:,} more" if len(retired) > MOST_KEYS else ""
    sentence = f"Disabled keys: {named}{more}; see headgate keys."
    return replace(summary, headline=f"{summary.headline} {sentence}", fields=fields)


def until(seconds: float | None) -> str:
    """`` until 14:20 (3 min)``; empty where the end is not known."""
    return "" if seconds is None else f" until {clock_time(time.time() + seconds)} ({format_seconds(seconds)})"


def clock_time(at: float, *, seconds: bool = False) -> str:
    """``14:20``, with the date where that is not within half a day."""
    is_near = abs(at - time.time()) < TODAY
    short = "%H:%M:%S" if seconds else "%H:%M"
    return time.strftime(short if is_near else "%Y-%m-%d %H:%M", time.localtime(at))


def top_counts(reasons: Mapping[str, int]) -> str:
    """``12 transient, 3 invalid``, the most frequent first."""
    by_count = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{count:,} {word}" for word, count in by_count[:MOST_LISTED])


def cost_text(cost: float) -> str:
    return f"cost {format_number(cost, 4)}" if cost >= LEAST_COST else f"cost below {LEAST_COST:.4f}"


def sentence(text: str) -> str:
    """The text with one full stop at its end."""
    return f"{text.rstrip('.')}."


# ---------------------------------------------------------------------- failed rows, grouped by error

REMEDIES = {
    Remedy.CHECK_ADDRESS: "check the model, --to, --path and the url of the rows",
    Remedy.CHECK_REQUEST: "correct the rows",
    Remedy.CHECK_KEY: "pass a valid key with --keys",
    Remedy.CHECK_ACCOUNT: "check the account's billing, then headgate keys free, or pass another key with --keys",
    Remedy.CHECK_NETWORK: "check --to and the network",
    Remedy.MAKE_SMALLER: "make the rows smaller",
    Remedy.MORE_TIME: "allow rows more time",
    Remedy.WAIT: "try again later",
}


def failure_text(group: FailureGroup) -> str:
    """``20 invalid: 404 Not Found (such as row-3; check --to ...)``, for one line of a terminal."""
    said = printable(group.said)
    said = said.rstrip(".") if len(said) <= LONGEST_MESSAGE else f"{said[:LONGEST_MESSAGE]} ..."
    example = f"{'custom_id' if group.count == 1 else 'such as'} {printable(group.example)}"
    hints = [example] if group.example else []
    hints += [] if group.remedy is None else [REMEDIES[group.remedy]]
    return (
        f"{group.count:,} {group.category}"
        + (f": {said}" if said else "")
        + (f" ({'; '.join(hints)})" if hints else "")
    )


def failure_fields(failures: Failures) -> list[dict[str, Any]]:
    return [
        {
            "state": state,
            "reason": group.category,
            "said": group.said,
            "count": group.count,
            "example": group.example,
            "status": group.status,
            "remedy": None if group.remedy is None else group.remedy.value,
        }
        for state, groups in (("dead", failures.dead), ("waiting", failures.waiting))
        for group in groups[:MOST_LISTED]
    ]
