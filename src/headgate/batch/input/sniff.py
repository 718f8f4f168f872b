"""What an input is: by its name, and by as many of its first lines as it takes to be sure.

    .csv, .tsv       CSV, unless its first line is a JSON object
    otherwise        JSON lines, if one of the first lines is a JSON object: that one shows of which kind
    none is          CSV, if its first line has the columns that the template asks for

A line that is broken shows nothing, so the next is looked at. A caller that knows better says the format.
"""

from __future__ import annotations

import csv
from pathlib import PurePath
from typing import Any

from ...errors import ConfigError, InputError
from .shapes import NAME_IN_FRONT, BatchLines, CsvRecords, InvalidRowError, PlainLines, Shape, object_in, record
from .source import Line, Source, records_of
from .template import Template, listing, quoted

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
