"""The records of a CSV as raw bytes. A quoted field may hold line breaks, so a record may be several lines.

Where a record ends is for ``csv`` to say, but only a line with a quote in it can be the
beginning of several; and most of those show at a glance that they are whole.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ...errors import ConfigError, InputError
from .errors import quoted
from .shapes import CsvRecords, InvalidRowError, record
from .source import Line, Source
from .template import Template, listing

MOST_COLUMNS = 10_000
_ONE_LINE = {
    delimiter: re.compile(
        rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^"%b\r\n]*+)(?:%b(?:"[^"]*+(?:""[^"]*+)*+"|[^"%b\r\n]*+))*+\r?'
        % (3 * (re.escape(delimiter.encode()),))
    )
    for delimiter in (",", ";", "\t")
}
"""A record whose quotes are all in their places and closed on its line."""


class RawRecord(NamedTuple):
    line: int
    """Where it begins."""
    raw: Line
    problem: str = ""


def csv_shape(source: Source, template: Template | None, name_field: str | None, delimiter: str) -> CsvRecords:
    """Read the header and check that what is asked for is in it."""
    if template is None:
        raise ConfigError(f"{source.name}: a CSV needs a template that says where its columns go")
    csv.field_size_limit(max(csv.field_size_limit(), source.longest))  # one for the whole process; its default is small
    header = next(records_of(source, delimiter), None)
    if header is None:
        raise InputError(f"{source.name}: is empty; a CSV begins with the names of its columns")
    try:
        if header.problem or not isinstance(header.raw, bytes):
            raise InvalidRowError(header.problem)
        columns = record(header.raw, delimiter)
    except InvalidRowError as error:
        raise InputError(f"{source.name}: line {header.line:,}, the header: {error}") from None
    if len(columns) > MOST_COLUMNS:
        raise InputError(f"{source.name}: has {len(columns):,} columns; at most {MOST_COLUMNS:,} can be")
    if len(set(columns)) < len(columns):
        twice = next(name for place, name in enumerate(columns) if name in columns[:place])
        raise InputError(f"{source.name}: has two columns {quoted(twice)}; each needs a name of its own")
    template.check_columns(columns, source.name)
    if name_field is None and "custom_id" in columns:
        name_field = "custom_id"
    if name_field is not None and name_field not in columns:
        raise ConfigError(f"{source.name}: has no column {quoted(name_field)}; {listing('column', columns)}")
    return CsvRecords(columns, template, name_field, delimiter)


def records_of(source: Source, delimiter: str) -> Iterator[RawRecord]:
    """From here to the end; blank lines are no records."""
    usual = _ONE_LINE.get(delimiter)
    quick = usual.fullmatch if usual else None
    for line in source.lines:
        began = source.line
        if not isinstance(line, bytes):
            yield RawRecord(began, line, too_long(line.length, source))
        elif b'"' in line and not (quick and quick(line)):
            raw, problem = _whole(line, source, delimiter)
            yield RawRecord(began, raw.removesuffix(b"\r"), problem)
        elif line and not line.isspace():
            yield RawRecord(began, line.removesuffix(b"\r"))


def too_long(length: int, source: Source) -> str:
    return f"it is {length:,} bytes long; at most {source.longest:,} can be"


def _whole(first: bytes, source: Source, delimiter: str) -> tuple[bytes, str]:
    """The record that begins with this line, with as many more lines as its quotes ask for."""
    pieces = [first]
    length, problem = len(first), ""

    def feed() -> Iterator[str]:
        nonlocal length, problem
        yield first.decode("latin-1") + "\n"  # quotes and delimiters are the same in UTF-8
        for line in source.lines:
            length += 1 + (len(line) if isinstance(line, bytes) else line.length)
            if length > source.longest or not isinstance(line, bytes):
                problem = f"{too_long(length, source)}, and goes on to line {source.line:,}: is a quote not closed?"
                return
            pieces.append(line)
            yield line.decode("latin-1") + "\n"
        problem = "a quote is opened in it and never closed"

    with suppress(csv.Error):  # raised when its request is asked for
        next(csv.reader(feed(), delimiter=delimiter), None)
    return b"\n".join(pieces), problem
