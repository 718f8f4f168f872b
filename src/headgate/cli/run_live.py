"""A run as people watch it: one screen with a bar and a line for each key, plain lines into a pipe, or JSON lines."""

from __future__ import annotations

import json
import sys
from typing import Protocol, Self

import click
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headgate.core.words import printable, span
from headgate.limiter.snapshot import SharingSnapshot

from . import say
from .live_display import LiveDisplay
from .run_progress import Progress, why
from .run_words import Ending
from .sharing import in_words

LINE_EVERY, SCREEN_EVERY = 5.0, 0.25
WIDEST = 120


class View(Protocol):
    every: float
    """Seconds between two looks."""

    def show(self, progress: Progress) -> None: ...
    def say(self, sentence: str) -> None: ...
    def end(self, ending: Ending) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class Quiet:
    """Says the last line alone."""

    every = LINE_EVERY

    def __init__(self, *, to_stderr: bool) -> None:
        self._to_stderr = to_stderr

    def show(self, progress: Progress) -> None:
        pass

    def say(self, sentence: str) -> None:
        pass

    def end(self, ending: Ending) -> None:
        say(ending.next, err=self._to_stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Lines(Quiet):
    """A line now and then."""

    def show(self, progress: Progress) -> None:
        say(progress.line(), err=True)

    def say(self, sentence: str) -> None:
        say(sentence, err=True)

    def end(self, ending: Ending) -> None:
        say(ending.about, err=self._to_stderr)
        for reason in ending.why:
            say(f"  {reason}", err=self._to_stderr)
        super().end(ending)


class JsonLines(Quiet):
    def show(self, progress: Progress) -> None:
        click.echo(json.dumps(progress.fields()), err=self._to_stderr)

    def end(self, ending: Ending) -> None:
        click.echo(json.dumps(ending.fields), err=self._to_stderr)


class Screen(Lines):
    """Shows each look in place, on standard error."""

    every = SCREEN_EVERY

    def __init__(self, console: Console, *, to_stderr: bool) -> None:
        super().__init__(to_stderr=to_stderr)
        self._console = console
        self._display = LiveDisplay(console)

    def show(self, progress: Progress) -> None:
        self._display.show(self.screen(progress))

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.__exit__()

    def screen(self, progress: Progress) -> RenderableType:
        width = min(self._console.width, WIDEST)
        parts: list[RenderableType] = [self._bar(progress, width), self._sums(progress)]
        parts += [self._keys(progress)] if progress.lanes else []
        parts += about_sharing(progress.sharing)
        if progress.elsewhere:
            parts.append(Text(f"  {printable(progress.elsewhere)}", "yellow", overflow="fold"))
        if progress.trouble:
            parts.append(Text(f"  {printable(progress.trouble)}", "red", no_wrap=True, overflow="ellipsis"))
        if progress.stopping:
            waits = f"{progress.in_flight:,} calls are under way; Ctrl-C again leaves them"
            parts.append(Text(f"  stopping: {waits}", "yellow"))
        return Group(*parts)

    def _bar(self, progress: Progress, width: int) -> Table:
        table = Table.grid(padding=(0, 2))
        of = "" if progress.rows is None else f" of {progress.rows:,}"
        bar = ProgressBar(
            total=progress.rows, completed=progress.final, width=max(10, width - 50), complete_style="green"
        )
        share = f"{progress.final / progress.rows:4.0%}" if progress.rows else ""
        table.add_row(f"  {progress.done:,} done{of}", bar, share)
        return table

    def _sums(self, progress: Progress) -> Text:
        text = Text(f"  {progress.rate:.1f} rows/s")
        if progress.left is not None and progress.rate:
            text.append(f", about {span(progress.left)} to go")
        if progress.dead:
            text.append(f", {progress.dead:,} dead", "red")
        if progress.tokens:
            text.append(f", {progress.tokens:,} tokens")
        if progress.cost:
            text.append(f", cost {progress.cost:,.4g}")
        return text

    def _keys(self, progress: Progress) -> Table:
        table = Table(box=None, pad_edge=True, header_style="dim", width=min(self._console.width, WIDEST))
        table.add_column("key", overflow="ellipsis", no_wrap=True)
        for name in ("learned", "in flight"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("why it waits", overflow="ellipsis", no_wrap=True, ratio=1)
        for lane in progress.lanes:
            rate = "" if lane.rate is None else f"{lane.rate:,.1f}/s"
            style = "yellow" if lane.reason and not lane.in_flight else "dim"
            key = Text(progress.name_of(lane))  # no markup: models have any names
            reason = Text(printable(why(lane)), style)
            table.add_row(key, Text(rate, "cyan"), f"{lane.in_flight:,}", reason)
        return table


def about_sharing(sharing: SharingSnapshot | None) -> list[Text]:
    """A line where a quota is shared with others, or the store is lost."""
    words = in_words(sharing)
    style = "yellow" if sharing is not None and sharing.is_lost else "dim"
    return [Text(f"  {words}", style, no_wrap=True, overflow="ellipsis")] if words else []


def view_of(*, as_json: bool, quiet: bool, to_stderr: bool) -> View:
    """``to_stderr``: standard output belongs to the answers."""
    if as_json:
        return JsonLines(to_stderr=to_stderr)
    if quiet:
        return Quiet(to_stderr=to_stderr)
    console = screen_console(to_stderr=to_stderr)
    return Lines(to_stderr=to_stderr) if console is None else Screen(console, to_stderr=to_stderr)


def screen_console(*, to_stderr: bool) -> Console | None:
    """Where a live screen can be drawn; None if there is no terminal, or results are printed on it."""
    console = Console(stderr=True, highlight=False)
    return None if not console.is_terminal or (to_stderr and sys.stdout.isatty()) else console
