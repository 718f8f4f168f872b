"""The rows of an input, one after the other: a file or a pipe, packed or not, in any of the shapes we know.

    bytes ─> unpacked ─> lines ─> rows (index, line, raw bytes, digest) ─> request, only of those that are sent

A row's digest is of its raw bytes, so a run that goes on with a million rows of which nearly all
are done reads and hashes them but parses none. Blank lines are no rows. A row that is broken keeps its place and
its number: what is to become of it (``on_broken``) shows when somebody asks for its request.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import PurePath
from types import TracebackType
from typing import Self

from ...errors import ConfigError
from .lines import DIGEST_BYTES
from .problems import BrokenRowError, InputError
from .records import csv_shape, records_of, too_long
from .shapes import (
    BatchLines,
    CsvRecords,
    PlainLines,
    Request,
    Shape,
    UnfitRowError,
    has_name,
    is_batch_line,
    usual_name,
)
from .source import STDIN, Source
from .template import Template

LONGEST_ROW = 32 << 20
"""Bytes: some pictures fit into it. A longer row is broken."""
FORMATS = ("auto", "batch", "jsonl", "csv")
_CARRIAGE_RETURN = 13


class InputRow:
    """One row of the input."""

    __slots__ = ("_request", "_rows", "digest", "index", "line", "problem", "raw")

    def __init__(self, rows: Rows, index: int, line: int, raw: bytes, digest: bytes, problem: str = "") -> None:
        self._rows = rows
        self._request: Request | None = None
        self.index = index
        """Its place, from 0."""
        self.line = line
        """Where it begins in the input, from 1."""
        self.raw = raw
        self.digest = digest
        self.problem = problem
        """Why it is no row, where that shows without parsing it."""

    @property
    def key(self) -> str:
        """The name its result goes by: its ``custom_id``, else its place. Never raises."""
        if self._request is not None:
            return self._request.name
        return usual_name(self.index + 1) if self.problem else self._rows.shape.name(self.raw, self.index + 1)

    def request(self) -> Request:
        """What it asks for. Raises ``BrokenRowError``."""
        if self._request is None:
            try:
                if self.problem:
                    raise UnfitRowError(self.problem)
                self._request = self._rows.shape.request(self.raw, self.index + 1)
            except UnfitRowError as error:
                raise self.broken(str(error)) from None
        return self._request

    def broken(self, what: str) -> BrokenRowError:
        """The error that says what is wrong with this row."""
        return BrokenRowError(self._rows.name, self.line, what, stops=self._rows.stops)

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
        suffixes = {suffix.lower() for suffix in PurePath(path).suffixes}
        self._delimiter = delimiter or ("\t" if ".tsv" in suffixes else ",")
        source = Source(path, longest, stdin)
        self._begun: Source | None = source
        """The source that was opened to look at its beginning, until it is read from."""
        try:
            if format == "csv" or (format == "auto" and suffixes & {".csv", ".tsv"}):
                self.shape: Shape = csv_shape(source, template, name_field, self._delimiter)
            else:
                self.shape = self._json_shape(source, format, name_field)
        except BaseException:
            self.close()
            raise

    @property
    def identity(self) -> dict[str, str]:
        """What must stay the same from run to run for the rows to mean the same."""
        template = "" if self.template is None else self.template.digest
        columns = ", ".join(self.shape.columns) if isinstance(self.shape, CsvRecords) else ""
        names = self.shape.name_field or ""
        return {"format": self.shape.label, "columns": columns, "names": names, "template": template}

    @property
    def can_be_read_again(self) -> bool:
        return self._path != STDIN

    def __iter__(self) -> Iterator[InputRow]:
        return self.read()

    def read(self, before_reading: Callable[[], object] | None = None) -> Iterator[InputRow]:
        """From the first row to the last. ``before_reading`` is called before each read, which a pipe may make long."""
        source = self._fresh_source()
        source.before_reading = before_reading
        try:
            yield from self._records(source) if isinstance(self.shape, CsvRecords) else self._lines(source)
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

    def _fresh_source(self) -> Source:
        """At its first row."""
        source, self._begun = self._begun, None
        if source is not None:
            return source
        if not self.can_be_read_again:
            raise InputError("standard input can be read only once")
        source = Source(self._path, self._longest)
        if isinstance(self.shape, CsvRecords):
            next(records_of(source, self._delimiter), None)  # the header
        return source

    def _json_shape(self, source: Source, given: str, name_field: str | None) -> Shape:
        first = source.first()
        line = first if isinstance(first, bytes) else b""
        if given == "batch" or (given == "auto" and self.template is None and is_batch_line(line)):
            if self.template is not None:
                raise ConfigError(f"{self.name}: a template is for plain rows; these are whole requests")
            return BatchLines()
        return PlainLines(self.template, "custom_id" if name_field is None and has_name(line) else name_field)

    def _lines(self, source: Source) -> Iterator[InputRow]:
        blake2b = hashlib.blake2b
        index = 0
        for line in source.lines:
            if not isinstance(line, bytes):
                yield InputRow(self, index, source.line, b"", line.digest, too_long(line.length, source))
            elif line and not line.isspace():
                raw = line[:-1] if line[-1] == _CARRIAGE_RETURN else line
                yield InputRow(self, index, source.line, raw, blake2b(raw, digest_size=DIGEST_BYTES).digest())
            else:
                continue
            index += 1

    def _records(self, source: Source) -> Iterator[InputRow]:
        blake2b = hashlib.blake2b
        for index, (line, raw, problem) in enumerate(records_of(source, self._delimiter)):
            if isinstance(raw, bytes):
                yield InputRow(self, index, line, raw, blake2b(raw, digest_size=DIGEST_BYTES).digest(), problem)
            else:
                yield InputRow(self, index, line, b"", raw.digest, problem)
