"""The rows of an input, one after the other: a file or a pipe, packed or not, in any of the shapes we know.

    bytes ─> unpacked ─> lines ─> rows (index, line, raw bytes, digest) ─> request, only of those that are sent

A row's digest is of its raw bytes, so a run that goes on with a million rows of which nearly all
are done reads and hashes them but parses none. Blank lines are no rows. A row that is broken keeps its place and
its number: what is to become of it (``on_broken``) shows when its request is asked for.
"""

from __future__ import annotations

import hashlib
import io
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from ...core.decision import Outcome
from ...errors import ConfigError, Failed, InputError
from .shapes import CsvRecords, InvalidRowError, Request
from .sniff import FORMATS, shape_of
from .source import DIGEST_BYTES, STDIN, Source, records_of
from .template import Template, quoted

LONGEST_ROW = 32 << 20
"""Bytes: some pictures fit into it. A longer row is broken."""
MOST_MARKS = 1 << 18
"""Places where lines and rows get out of step that are remembered; 16 bytes each."""


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
    """What is wrong with a row whose name an earlier row has."""
    return f"custom_id {quoted(name)} is already used by {where}; each row needs its own"


class InputRow:
    """One row of the input."""

    __slots__ = ("_is_nameless", "_request", "_rows", "counts_tokens", "digest", "index", "line", "problem", "raw")

    def __init__(self, rows: Rows, index: int, line: int, raw: bytes, digest: bytes, problem: str = "") -> None:
        self._rows = rows
        self._request: Request | None = None
        self._is_nameless = bool(problem)
        self.index = index
        """Its place, from 0."""
        self.line = line
        """Where it begins in the input, from 1."""
        self.raw = raw
        self.digest = digest
        self.problem = problem
        """Why it cannot be sent, as far as is known; empty if nothing is wrong with it."""
        self.counts_tokens = True
        """Whether its tokens must fit a limit or a cap, and are estimated before it is sent."""

    @property
    def key(self) -> str:
        """The name its result goes by: its ``custom_id``, else its place. Never raises.

        A broken row's is made up, and unlike anything that rows are called: it must not take another's.
        """
        if self._is_nameless:
            return f"broken-line-{self.line}"
        if self._request is not None:
            return self._request.name
        return self._rows.shape.name(self.raw, self.index + 1) or f"broken-line-{self.line}"

    def request(self) -> Request:
        """What it asks for. Raises ``BrokenRowError``."""
        if self.problem:
            raise self.reject(self.problem)
        if self._request is None:
            try:
                self._request = self._rows.shape.request(self.raw, self.index + 1)
            except InvalidRowError as error:
                raise self.reject(str(error)) from None
        return self._request

    def reject(self, problem: str, *, keeps_name: bool = True) -> BrokenRowError:
        """It cannot be sent: ``request`` raises the error that is returned here."""
        self.problem = problem
        self._is_nameless |= not keeps_name
        return BrokenRowError(self._rows.name, self.line, problem, stops=self._rows.stops)

    def __repr__(self) -> str:
        return f"<InputRow {self.index} at line {self.line}, {len(self.raw)} bytes>"


class Rows:
    """An open input. A file may be read several times, standard input only once; ``with`` closes it."""

    def __init__(
        self,
        path: str,
        *,
        format: str = "auto",  # noqa: A002 - what people call it
        template: Template | None = None,
        name_field: str | None = None,
        delimiter: str | None = None,
        longest: int = LONGEST_ROW,
        on_broken: str = "stop",
        stdin: io.BufferedReader | None = None,
    ) -> None:
        """``path`` may be "-" for standard input. Reads as far as the first row, or a CSV's header.

        ``name_field`` is the column or field that holds each row's name; ``custom_id``, if there is one.
        Raises ``InputError`` or ``ConfigError``.
        """
        if format not in FORMATS:
            raise ConfigError(f"format={format!r} must be one of {', '.join(FORMATS)}")
        if on_broken not in ("stop", "dead"):
            raise ConfigError(f"on_broken={on_broken!r} must be 'stop' or 'dead'")
        if not 1 <= longest <= sys.maxsize >> 1:
            raise ConfigError(f"longest={longest!r} must be a number of bytes, 1 or more")
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii()):
            raise ConfigError(f"delimiter={delimiter!r} must be one character, such as ',' or ';'")
        self.name = "standard input" if path == STDIN else path
        self.stops = on_broken == "stop"
        self.template = template
        self._path, self._longest = path, longest
        self._marks = (array("Q"), array("Q"))
        """Rows from which on lines have run further ahead of them, and their lines."""
        source = Source(path, longest, stdin)
        self._begun: Source | None = source
        """The source that was opened to look at its beginning, until it is read from."""
        try:
            self.shape = shape_of(source, format, template, name_field, delimiter)
        except BaseException:
            self.close()
            raise

    @property
    def identity(self) -> dict[str, str]:
        """What must stay the same from run to run for the rows to mean the same."""
        template = "" if self.template is None else self.template.digest
        names = self.shape.name_field or ""
        identity = {"format": self.shape.label, "names": names, "template": template}
        if isinstance(self.shape, CsvRecords):
            identity |= {"columns": ", ".join(self.shape.columns), "delimiter": self.shape.delimiter}
        return identity

    @property
    def have_names(self) -> bool:
        """Whether they are called something of their own, which then must be theirs alone."""
        return self.shape.name_field is not None or (self.template is not None and self.template.names_rows)

    def line_of(self, index: int) -> int | None:
        """Where this row of those read so far begins; None where that is not known any more."""
        rows, lines = self._marks
        at = bisect_right(rows, index) - 1
        return None if at < 0 or len(rows) >= MOST_MARKS else lines[at] + index - rows[at]

    @property
    def can_be_read_again(self) -> bool:
        return self._path != STDIN

    def __iter__(self) -> Iterator[InputRow]:
        return self.read()

    def read(self, before_reading: Callable[[], object] | None = None) -> Iterator[InputRow]:
        """From the first row to the last. ``before_reading`` is called before each read, which a pipe may make long."""
        source = self.fresh_source()
        source.before_reading = before_reading
        try:
            yield from self._read(source)
        finally:
            source.close()

    def close(self) -> None:
        """What is being read closes itself at its end."""
        if self._begun is not None:
            self._begun.close()
            self._begun = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fresh_source(self) -> Source:
        """At its first row."""
        source, self._begun = self._begun, None
        if source is not None:
            return source
        if not self.can_be_read_again:
            raise InputError("standard input can be read only once")
        source = Source(self._path, self._longest)
        if isinstance(self.shape, CsvRecords):
            next(records_of(source, self.shape.delimiter), None)  # the header
        return source

    def mark(self, index: int, line: int) -> int:
        """Note that lines are now this much ahead of rows."""
        rows, lines = self._marks
        if len(rows) < MOST_MARKS and (not rows or rows[-1] < index):
            rows.append(index)
            lines.append(line)
        return line - index

    def _read(self, source: Source) -> Iterator[InputRow]:
        delimiter = self.shape.delimiter if isinstance(self.shape, CsvRecords) else None
        blake2b = hashlib.blake2b
        ahead = 0
        for index, (line, raw, problem) in enumerate(records_of(source, delimiter)):
            if line - index != ahead:
                ahead = self.mark(index, line)
            if isinstance(raw, bytes):
                yield InputRow(self, index, line, raw, blake2b(raw, digest_size=DIGEST_BYTES).digest(), problem)
            else:
                yield InputRow(self, index, line, b"", raw.digest, problem)
