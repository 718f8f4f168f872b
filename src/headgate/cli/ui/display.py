"""How a command shows its work: a screen that is redrawn, lines for a pipe, JSON lines for a program, or nothing.

    work ── look() ──> Frame ──┬── render(width, height)    a terminal
                               ├── lines()                  a pipe
                               └── fields()                 --json

and at the end one ``Summary``. Below are the parts that the screens of several commands are made of.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple, Protocol, Self

import click
from rich.console import Console, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...formatting import printable
from ...limiter.snapshot import SharingSnapshot
from ...reason_text import store_text
from .summary import Summary
from .terminal import LiveDisplay, say

LINE_EVERY, SCREEN_EVERY = 5.0, 0.25
WIDEST = 120
SHORTEST_NAME, LEAST_TEXT, PADDING = 12, 20, 2
"""Columns: of a name that is cut, of the last column of a table, and between two columns."""
CIRCUIT_STYLES = {"closed": "green", "half_open": "yellow", "open": "bold red"}


class Frame(Protocol):
    """The state of some work at one moment, in each form in which it may be shown."""

    def render(self, width: int, height: int) -> RenderableType: ...
    def lines(self) -> Sequence[str]: ...
    def fields(self) -> Sequence[dict[str, Any]]: ...


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
