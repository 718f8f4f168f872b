"""How a live look is shown again and again: a screen that ends with q, plain lines in a pipe, or lines of JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import click
from rich.console import Console, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.text import Text

from . import say

LINE_EVERY, SCREEN_EVERY = 5.0, 1.0
MOST_ENDED = 50
"""Lines that are left behind on a terminal."""
GOODBYE = "qQ\x1b\x03"
FOOT = 2
"""Lines at the bottom, whatever stands above."""
HINT = Text("\n q or Ctrl-C ends this, not the runs", "dim")


@dataclass(frozen=True, slots=True)
class Frame:
    """What there is to show, in each of the ways in which it may be shown."""

    page: Callable[[int, int], RenderableType]
    """For a terminal of this width and so many lines."""
    lines: Sequence[str]
    fields: Sequence[dict[str, Any]]
    ended: Sequence[str] = ()
    """A line for each run that has ended since the last look."""
    is_over: bool = False
    """Nothing more will come."""


class View(Protocol):
    every: float

    def show(self, frame: Frame) -> None: ...


class JsonView:
    every = SCREEN_EVERY

    def show(self, frame: Frame) -> None:
        for fields in frame.fields:
            click.echo(json.dumps(fields))


class LineView:
    every = LINE_EVERY

    def __init__(self) -> None:
        self._last: Sequence[str] = ()

    def show(self, frame: Frame) -> None:
        for line in frame.ended:
            say(line)
        if frame.lines != self._last:  # what has not changed need not be said again
            for line in frame.lines:
                say(line)
        self._last = frame.lines


class ScreenView:
    every = SCREEN_EVERY

    def __init__(self, live: Live) -> None:
        self._live = live
        self.ended: list[str] = []
        """For whoever has left the screen."""

    def show(self, frame: Frame) -> None:
        self.ended += frame.ended
        console, layout = self._live.console, Layout()
        page = frame.page(console.width, console.height - FOOT)
        layout.split_column(Layout(page), Layout(HINT, size=FOOT))
        self._live.update(layout, refresh=True)


def follow(look: Callable[[], Frame], *, as_json: bool, every: float | None = None) -> None:
    """Look and show until somebody ends it, or until there is nothing more to come."""
    with _opened(as_json) as view, _typing() as is_ended_within:
        while True:
            frame = look()
            view.show(frame)
            if frame.is_over or is_ended_within(view.every if every is None else every):
                return


@contextmanager
def _opened(as_json: bool) -> Iterator[View]:
    console = Console(highlight=False)
    if as_json or not console.is_terminal or console.is_dumb_terminal:
        yield JsonView() if as_json else LineView()
        return
    live = Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop")
    view = ScreenView(live)
    try:
        with live:
            yield view
    finally:
        for line in view.ended[-MOST_ENDED:]:
            say(line)


@contextmanager
def _typing() -> Iterator[Callable[[float], bool]]:
    """Wait, and say whether a key was pressed meanwhile that ends it. Where nobody types it only waits."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()):
        yield _only_wait
        return
    try:
        import select
        import termios
        import tty
    except ImportError:  # Windows: Ctrl-C ends it
        yield _only_wait
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def is_ended_within(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([terminal], [], [], left)[0]:
                return False
            typed = sys.stdin.read(1)
            if not typed or typed in GOODBYE:
                return True
        return False

    tty.setcbreak(terminal)
    try:
        yield is_ended_within
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _only_wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False
