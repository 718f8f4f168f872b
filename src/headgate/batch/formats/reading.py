"""The rows of an input, one after the other: a file or a pipe, packed or not, in any of the shapes we know.

    bytes ─> unpacked ─> lines ─> rows (index, line, raw bytes, digest) ─> request, only of those that are sent

A row's digest is of its raw bytes, so a run that goes on with a million rows of which nearly all
are done reads and hashes them but parses none. Blank lines are no rows. A row that is broken keeps its place and
its number: what is to become of it (``on_broken``) shows when somebody asks for its request.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import PurePath
from types import TracebackType
from typing import Any, Self

from ...errors import ConfigError
from .compression import Compression, is_damage, unpacked
from .lines import DIGEST_BYTES, LongLine, lines_of
from .problems import BrokenRowError, InputError, quoted
from .shapes import (
    BatchLines,
    CsvRecords,
    PlainLines,
    Request,
    Shape,
    UnfitRowError,
    is_batch_line,
    parsed,
    record,
    usual_name,
)
from .template import Template, listing

LONGEST_ROW = 32 << 20
"""Bytes: some pictures fit into it. A longer row is broken."""
MOST_COLUMNS = 10_000
FORMATS = ("auto", "batch", "jsonl", "csv")
STDIN = "-"
_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")


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
        """Why it is no row, if that shows without parsing it."""

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
                rows = self._rows
                raise BrokenRowError(rows.source, self.line, str(error), stops=rows.stops) from None
        return self._request

    def __repr__(self) -> str:
        return f"<InputRow {self.index} at line {self.line}, {len(self.raw)} bytes>"


class Rows:
    """An open input. Iterate it once; ``with`` closes it."""

    def __init__(
        self,
        source: str,
        *,
        format: str = "auto",  # noqa: A002 - what people call it
        template: Template | None = None,
        name_field: str | None = None,
        delimiter: str | None = None,
        longest: int = LONGEST_ROW,
        on_broken: str = "stop",
        stdin: io.BufferedReader | None = None,
    ) -> None:
        """``source`` is a path, or "-" for standard input. Opens it and reads as far as its first row.

        ``name_field`` is the column or field that holds each row's name (``custom_id``, if there is one).
        """
        if format not in FORMATS:
            raise ConfigError(f"format={format!r} must be one of {', '.join(FORMATS)}")
        if on_broken not in ("stop", "dead"):
            raise ConfigError(f"on_broken={on_broken!r} must be 'stop' or 'dead'")
        if not 1 <= longest <= sys.maxsize >> 1:
            raise ConfigError(f"longest={longest!r} must be a number of bytes, 1 or more")
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii()):
            raise ConfigError(f"delimiter={delimiter!r} must be one character, such as ',' or ';'")
        self.source = "standard input" if source == STDIN else source
        self.stops = on_broken == "stop"
        self.before_reading: Callable[[], object] | None = None
        """Called before each read, which may take long where the input is a pipe."""
        self._template = template
        self._name_field = name_field
        self._longest = longest
        self._line = 0
        self._stream = self._open(source, stdin)
        try:
            self._lines: Iterator[bytes | LongLine] = self._read_lines()
            self.shape = self._shape(source, format, delimiter)
        except BaseException:
            self.close()
            raise

    @property
    def identity(self) -> dict[str, str]:
        """What must stay the same from run to run for the rows to mean the same."""
        columns = ",".join(self._columns) if self.shape.label == "csv" else ""
        digest = "" if self._template is None else self._template.digest
        return {"format": self.shape.label, "columns": columns, "names": self._name_field or "", "template": digest}

    def __iter__(self) -> Iterator[InputRow]:
        return self._records() if self.shape.label == "csv" else self._one_each()

    def close(self) -> None:
        if self._stream is not sys.stdin.buffer:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ from bytes to lines

    def _open(self, source: str, stdin: io.BufferedReader | None) -> io.BufferedReader:
        try:
            if source == STDIN:
                stream = stdin or sys.stdin.buffer
            else:
                stream = open(source, "rb")  # noqa: SIM115 - closed by close()
            start = stream.peek(4)[:4]
        except OSError as error:
            raise InputError(f"{self.source}: cannot be read ({error.strerror or error})") from None
        if start.startswith(_WIDE_BOMS):
            raise InputError(f"{self.source}: is UTF-16; save it as UTF-8")
        return unpacked(stream, Compression.of_start(start), self.source)

    def _read_lines(self) -> Iterator[bytes | LongLine]:
        """Lines, with the reasons why there are no more in our own words."""
        lines = lines_of(self._stream, self._longest, self._wait)
        try:
            for line in lines:
                if not self._line and isinstance(line, bytes):
                    line = line.removeprefix(_BOM)
                self._line += 1
                yield line
        except Exception as error:
            if not is_damage(error) and not isinstance(error, OSError):
                raise
            what = "it is damaged, or cut off" if is_damage(error) else f"it cannot be read on ({error})"
            raise InputError(
                f"{self.source}: {what} after line {self._line:,}. What was read is safe; put the file right and run again"
            ) from None

    def _wait(self) -> None:
        if self.before_reading is not None:
            self.before_reading()

    # ------------------------------------------------------------------ which shape

    def _shape(self, source: str, given: str, delimiter: str | None) -> Shape:
        suffixes = [suffix.lower() for suffix in PurePath(source).suffixes]
        table = bool({".csv", ".tsv"}.intersection(suffixes))
        if given == "csv" or (given == "auto" and table):
            return self._csv(delimiter or ("\t" if ".tsv" in suffixes else ","))
        first = next((line for line in self._lines if not isinstance(line, bytes) or line.strip()), None)
        self._line -= first is not None
        if first is not None:
            self._lines = chain(self._count_again(first), self._lines)
        plain = first if isinstance(first, bytes) else b"{}"
        if given == "batch" or (given == "auto" and self._template is None and is_batch_line(plain)):
            if self._template is not None:
                raise ConfigError(f"{self.source}: a template is for plain rows; these are whole requests")
            return BatchLines()
        if self._name_field is None and _has_name(plain):
            self._name_field = "custom_id"
        return PlainLines(self._template, self._name_field)

    def _count_again(self, first: bytes | LongLine) -> Iterator[bytes | LongLine]:
        self._line += 1
        yield first

    def _csv(self, delimiter: str) -> Shape:
        if self._template is None:
            raise ConfigError(f"{self.source}: a CSV needs a template that says where its columns go")
        csv.field_size_limit(max(csv.field_size_limit(), self._longest))  # it is one for the whole process
        self._delimiter = delimiter
        for _, raw, problem in self._raw_records():
            try:
                if problem or isinstance(raw, LongLine):
                    raise UnfitRowError(problem or "it is too long")
                self._columns = record(raw, delimiter)
            except UnfitRowError as error:
                raise InputError(f"{self.source}: the header: {error}") from None
            break
        else:
            raise InputError(f"{self.source}: is empty; a CSV begins with the names of its columns")
        columns = self._columns
        if len(columns) > MOST_COLUMNS:
            raise InputError(f"{self.source}: has {len(columns):,} columns; at most {MOST_COLUMNS:,} can be")
        if twice := next((name for place, name in enumerate(columns) if name in columns[:place]), None):
            raise InputError(f"{self.source}: has two columns {quoted(twice)}; each needs a name of its own")
        self._template.check_columns(columns, self.source)
        if self._name_field is None and "custom_id" in columns:
            self._name_field = "custom_id"
        if self._name_field is not None and self._name_field not in columns:
            raise ConfigError(f"{self.source}: has no column {quoted(self._name_field)}; {listing('column', columns)}")
        return CsvRecords(columns, self._template, self._name_field, delimiter)

    # ------------------------------------------------------------------ from lines to rows

    def _one_each(self) -> Iterator[InputRow]:
        blake2b = hashlib.blake2b
        index = 0
        for line in self._lines:
            if not isinstance(line, bytes):
                yield InputRow(self, index, self._line, b"", line.digest, self._too_long(line.length))
            elif line and not line.isspace():
                raw = line[:-1] if line[-1] == 13 else line  # \r
                yield InputRow(self, index, self._line, raw, blake2b(raw, digest_size=DIGEST_BYTES).digest())
            else:
                continue
            index += 1

    def _records(self) -> Iterator[InputRow]:
        blake2b = hashlib.blake2b
        for index, (line, raw, problem) in enumerate(self._raw_records()):
            if isinstance(raw, bytes):
                yield InputRow(self, index, line, raw, blake2b(raw, digest_size=DIGEST_BYTES).digest(), problem)
            else:
                yield InputRow(self, index, line, b"", raw.digest, problem)

    def _raw_records(self) -> Iterator[tuple[int, bytes | LongLine, str]]:
        """Records with the lines they begin at. Only one with a quote in it may span lines: those csv looks at."""
        for line in self._lines:
            began, problem, whole = self._line, "", line
            if not isinstance(line, bytes):
                problem = self._too_long(line.length)
            elif b'"' in line:
                whole, problem = self._whole(line)
            elif not line or line.isspace():
                continue
            if isinstance(whole, bytes) and whole.endswith(b"\r"):
                whole = whole[:-1]
            yield began, whole, problem

    def _whole(self, first: bytes) -> tuple[bytes | LongLine, str]:
        """The record that begins with this line, with as many more lines as its quotes ask for."""
        pieces = [first]
        length, problem = len(first), ""

        def feed() -> Iterator[str]:
            nonlocal length, problem
            yield first.decode("latin-1") + "\n"  # quotes and delimiters are the same in UTF-8
            for line in self._lines:
                length += 1 + (len(line) if isinstance(line, bytes) else line.length)
                if length > self._longest or not isinstance(line, bytes):
                    problem = f"{self._too_long(length)}, up to line {self._line:,}: is a quote not closed?"
                    return
                pieces.append(line)
                yield line.decode("latin-1") + "\n"
            problem = "a quote is opened in it and never closed"

        try:
            next(csv.reader(feed(), delimiter=self._delimiter), None)
        except csv.Error:
            pass  # whoever asks for its request will be told
        return b"\n".join(pieces), problem

    def _too_long(self, length: int) -> str:
        return f"it is {length:,} bytes long; at most {self._longest:,} can be"


def is_same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _has_name(raw: bytes) -> bool:
    try:
        values: dict[str, Any] = parsed(raw)
    except UnfitRowError:
        return False
    return isinstance(values.get("custom_id"), str | int)
