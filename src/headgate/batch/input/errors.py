"""What can be wrong with a row of the input."""

from __future__ import annotations

from ...core.decision import Outcome
from ...errors import Failed

LONGEST_QUOTE = 60
"""Characters of the input that an error repeats."""


class BrokenRowError(Failed):
    """One row is not what it should be. It was not sent, and sending it again would change nothing."""

    outcome = Outcome.INVALID

    def __init__(self, source: str, line: int, what: str, *, stops: bool = False) -> None:
        super().__init__(source, f"line {line:,}: {what}")
        self.line = line
        self.what = what
        self.stops = stops
        """Whether the run is to stop here (``on_broken="stop"``)."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_broken, (type(self), self.provider, self.line, self.what, self.stops))


def _broken(kind: type[BrokenRowError], source: str, line: int, what: str, stops: bool) -> BrokenRowError:
    return kind(source, line, what, stops=stops)


def same_name(name: str, where: str) -> str:
    """What is wrong with a row whose name another one has that stands before it."""
    return f"{where} has the same custom_id, {quoted(name)}; each row needs one of its own"


def quoted(text: str) -> str:
    """A piece of input fit for an error: printable, short, in quotes."""
    return repr(text if len(text) <= LONGEST_QUOTE else f"{text[: LONGEST_QUOTE - 3]}...")
