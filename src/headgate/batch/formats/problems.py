"""What can be wrong with a batch's files: with the input as a whole, with one of its rows, or with the output."""

from __future__ import annotations

from ...core.decision import Outcome
from ...errors import Failed, HeadgateError

LONGEST_QUOTE = 60
"""Characters of somebody's input that an error repeats."""


class InputError(HeadgateError):
    """The input cannot be read, or not on from here: the message says where it stopped and what to do."""


class OutputError(HeadgateError):
    """The output cannot be written. Nothing is lost: what is not in it is still to be written from the ledger."""


class BrokenRowError(Failed):
    """One row is not what it should be. It was not sent, and sending it again would change nothing."""

    outcome = Outcome.INVALID

    def __init__(self, source: str, line: int, what: str, *, stops: bool = False) -> None:
        super().__init__(source, f"line {line:,}: {what}")
        self.line = line
        self.what = what
        self.stops = stops
        """Whether whoever opened the input wants the run to stop here (``on_broken="stop"``)."""

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
