"""What a command prints and returns: messages, exit codes, and a display that is redrawn in place.

    say("...", err=True) ──┬── a display is live: printed above it, which is then drawn again
                           └── none is: a line on standard error

rich is imported only when something is drawn, so that ``headgate --help`` stays quick.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

DONE, USAGE, FAILED, STOPPED = 0, 2, 3, 4
"""Exit codes; ``cli/__init__.py`` says what each means."""
SHORTEST_SECRET = 4
"""Characters; a shorter one would remove half of the words."""
PIPE_WIDTH = 400
"""Columns of a table that goes to a program: wide enough for the longest label."""


class CommandFailed(click.ClickException):
    """The command line was right but the command failed: one sentence for a person, exit code 3."""

    exit_code = FAILED


class CannotStart(CommandFailed):
    """Nothing was sent: the work cannot begin with these files or settings. Exit code 2."""

    exit_code = USAGE


# ---------------------------------------------------------------------- messages


def say(text: str, *, err: bool = False) -> None:
    """Print lines for a person; control codes in names and in servers' answers are escaped."""
    from ...formatting import printable

    lines = "\n".join(map(printable, text.split("\n")))
    if err and _displays:
        _displays[-1].print_above(lines)
    else:
        click.echo(lines, err=err)


def complain(sentence: str) -> None:
    """Print one line on standard error, without control codes."""
    say(f"headgate: {' '.join(sentence.split())}", err=True)


def table_console() -> Console:
    """A console for tables on standard output; in a pipe, lines are not cut to the width of a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


class SecretFilter:
    """Removes the secrets that were used from text that is shown, should a server have sent one back."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({one for one in secrets if len(one) >= SHORTEST_SECRET}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        from ...formatting import HIDDEN

        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def inside(self, value: Any) -> Any:
        """The same for all strings in lists and mappings."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {self(str(name)): self.inside(each) for name, each in value.items()}
        return [self.inside(each) for each in value] if isinstance(value, list | tuple) else value


# ---------------------------------------------------------------------- a display that is redrawn in place


class LiveDisplay:
    """``with LiveDisplay(console) as display:`` draws one thing after the other in the same place."""

    def __init__(self, console: Console, *, transient: bool = True) -> None:
        """``transient``: it is erased at the end."""
        from rich.live import Live

        self._live = Live(console=console, auto_refresh=False, transient=transient)
        self._exits = ExitStack()

    def show(self, content: RenderableType) -> None:
        self._live.update(content, refresh=True)

    def print_above(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._exits.enter_context(_without_control_echo())
        self._exits.enter_context(self._live)
        _displays.append(self)
        self._exits.callback(_displays.remove, self)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()


_displays: list[LiveDisplay] = []
"""The live ones; the last has the terminal."""


@contextmanager
def _without_control_echo() -> Iterator[None]:
    """Keep the terminal from writing ^C at the cursor, which would move what is drawn there by a line."""
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (AttributeError, OSError, ValueError, termios.error):  # standard input is no terminal
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHOCTL
    termios.tcsetattr(terminal, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)
