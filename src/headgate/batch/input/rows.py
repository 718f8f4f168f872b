"""The rows of an input, one after the other: a file or a pipe, packed or not, in any of the shapes we know.

    bytes ─> unpacked ─> lines ─> rows (index, line, raw bytes, digest) ─> request, only of those that are sent

A row's digest is of its raw bytes, so a run that resumes a million rows of which nearly all
are done reads and hashes them but parses none. Blank lines are no rows. A row that is broken keeps its place and
its number; what happens to it (``on_broken``) is decided when its request is read.
"""

from __future__ import annotations

import csv
import hashlib
import io
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import PurePath
from types import TracebackType
from typing import Any, Self

from ...core.decision import Outcome
from ...errors import ConfigError, Failed, InputError
from .shapes import (
    NAME_IN_FRONT,
    BatchLines,
    CsvRecords,
    InvalidRowError,
    PlainLines,
    Request,
    Shape,
    object_in,
    record,
)
from .source import DIGEST_BYTES, STDIN, Line, Source, records_of
from .template import Template, listing, quoted

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

        A broken row gets a made-up name, which no other row can have.
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
        """Whether rows have names of their own, which must be unique."""
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
        """Close an input that was opened and not read; one that is being read closes itself at its end."""
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


# ---------------------------------------------------------------------- the shape of an input
#
#     .csv, .tsv       CSV, unless its first line is a JSON object
#     otherwise        JSON lines, if one of the first lines is a JSON object: that one shows of which kind
#     none is          CSV, if its first line has the columns that the template asks for
#
# A line that is broken shows nothing, so the next is looked at. A caller that knows better says the format.

MOST_COLUMNS = 10_000
FORMATS = ("auto", "batch", "jsonl", "csv")
_CSV = {".csv": ",", ".tsv": "\t"}
_JSON = (".json", ".jsonl", ".ndjson")
_DELIMITERS = (",", ";", "\t")


def shape_of(
    source: Source, given: str, template: Template | None, name_field: str | None, delimiter: str | None
) -> Shape:
    """Raises ``InputError`` or ``ConfigError``."""
    suffixes = [suffix.lower() for suffix in PurePath(source.name).suffixes]
    usual = next((_CSV[suffix] for suffix in suffixes if suffix in _CSV), None)
    if given == "csv" or (given == "auto" and usual and not any(map(_object_in, source.ahead(lambda _: True)))):
        return _csv(source, template, name_field, delimiter, usual or ",")
    first_object: dict[str, Any] | None = None

    def shows(line: Line) -> bool:
        nonlocal first_object
        first_object = _object_in(line)
        return first_object is not None or (given == "auto" and _has_columns(line, template, delimiter) is not None)

    seen = source.ahead(shows)
    if given == "auto" and seen:
        if first_object is None and _has_columns(seen[-1], template, delimiter):
            return _csv(source, template, name_field, delimiter, ",")
        _check_beginning(
            source.name, seen, is_json=first_object is not None or any(suffix in _JSON for suffix in suffixes)
        )
    if given == "batch" or (given == "auto" and template is None and _is_batch(first_object, seen)):
        if template is not None:
            raise ConfigError(f"{source.name}: the lines of a batch file are complete requests; remove the template")
        return BatchLines()
    has_name = name_field is None and first_object is not None and "custom_id" in first_object
    return PlainLines(template, "custom_id" if has_name else name_field)


def _csv(source: Source, template: Template | None, name_field: str | None, delimiter: str | None, usual: str) -> Shape:
    """A delimiter that was not given is the one that yields the columns that are asked for."""
    if delimiter is None and template is not None and (seen := source.ahead(lambda _: True)):
        delimiter = _has_columns(seen[0], template, None)
    return _csv_shape(source, template, name_field, delimiter or usual)


def _has_columns(line: Line, template: Template | None, delimiter: str | None) -> str | None:
    """The delimiter with which a header like this one has all columns of the template."""
    if template is None or not template.names or not isinstance(line, bytes):
        return None
    for tried in _DELIMITERS if delimiter is None else (delimiter,):
        try:
            if set(template.names) <= set(record(line.rstrip(b"\r"), tried)):
                return tried
        except InvalidRowError:
            continue
    return None


def _object_in(line: Line) -> dict[str, Any] | None:
    return object_in(line) if isinstance(line, bytes) else None


def _check_beginning(name: str, seen: list[Line], *, is_json: bool) -> None:
    """Raises ``InputError`` for what cannot be lines of JSON; ``is_json``: something says that they are."""
    first, second = (line.strip() if isinstance(line, bytes) else b"{" for line in (seen * 2)[:2])
    if first == b"[" or first.startswith(b"[{") or (first == b"{" and not second.startswith(b"{")):
        raise InputError(
            f"{name} is JSON over several lines; expected one object per line. Convert a list with jq -c '.[]', "
            "objects with jq -c ."
        )
    if not is_json and not first.startswith(b"{"):
        raise InputError(
            f"{name}: none of the first lines is a JSON object. For a CSV, pass a template that uses its columns; "
            "for broken lines, set the format (jsonl, batch or csv)"
        )


def _is_batch(first_object: dict[str, Any] | None, seen: list[Line]) -> bool:
    """Whether it was made for a vendor's batch API; of broken lines, some show it still."""
    if first_object is None:
        return any(isinstance(line, bytes) and NAME_IN_FRONT.match(line) for line in seen)
    return "custom_id" in first_object and not {"body", "params", "url"}.isdisjoint(first_object)


def _csv_shape(source: Source, template: Template | None, name_field: str | None, delimiter: str) -> CsvRecords:
    """Read the header and check that what is asked for is in it."""
    if template is None:
        raise ConfigError(f"{source.name}: a CSV needs a template (--template FILE) that makes requests of its columns")
    csv.field_size_limit(max(csv.field_size_limit(), source.longest))  # one for the whole process; its default is small
    header = next(records_of(source, delimiter), None)
    if header is None:
        raise InputError(f"{source.name} is empty; a CSV begins with a header line")
    try:
        if header.problem or not isinstance(header.raw, bytes):
            raise InvalidRowError(header.problem)
        columns = record(header.raw, delimiter)
    except InvalidRowError as error:
        raise InputError(f"{source.name}: line {header.line:,} (header): {error}") from None
    if len(columns) > MOST_COLUMNS:
        raise InputError(f"{source.name} has {len(columns):,} columns; the limit is {MOST_COLUMNS:,}")
    if len(set(columns)) < len(columns):
        twice = next(name for place, name in enumerate(columns) if name in columns[:place])
        raise InputError(f"{source.name} has two columns {quoted(twice)}; column names must be unique")
    template.check_columns(columns, source.name)
    if name_field is None and "custom_id" in columns:
        name_field = "custom_id"
    if name_field is not None and name_field not in columns:
        raise ConfigError(f"{source.name} has no column {quoted(name_field)}; {listing('column', columns)}")
    return CsvRecords(columns, template, name_field, delimiter)
