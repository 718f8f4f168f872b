"""The part of the terminal that a command redraws in place, and what else is said on standard error meanwhile.

say("...") ──┬── a display is live: printed above it, which then is drawn again
             └── none is: a line on standard error
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_displays: list[LiveDisplay] = []
"""Those that are live; the last one has the terminal."""


class LiveDisplay:
    """``with LiveDisplay(console) as display:`` shows one thing after the other in the same place."""

    def __init__(self, console: Console, *, transient: bool = True) -> None:
        """``transient``: nothing of it stays at the end."""
        from rich.live import Live

        self._live = Live(console=console, auto_refresh=False, transient=transient)
        self._ends = ExitStack()

    def show(self, content: RenderableType) -> None:
        self._live.update(content, refresh=True)

    def print_above(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._ends.enter_context(_without_typed_controls())
        self._ends.enter_context(self._live)
        _displays.append(self)
        self._ends.callback(_displays.remove, self)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()


def echo(text: str, *, err: bool) -> None:
    """Print lines; a live display, which is on standard error, stays below them."""
    if _displays and err:
        _displays[-1].print_above(text)
    else:
        click.echo(text, err=err)


@contextmanager
def _without_typed_controls() -> Iterator[None]:
    """A terminal writes ^C where the cursor is, which moves what is drawn there by a line."""
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (AttributeError, OSError, ValueError, termios.error):  # nothing is typed here
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHOCTL
    termios.tcsetattr(terminal, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)
