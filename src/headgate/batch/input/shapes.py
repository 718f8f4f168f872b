"""The shapes rows come in, and how each becomes a request.

    BatchLines    {"custom_id", "method", "url", "body"}, as OpenAI's batch API takes them,
                  or {"custom_id", "params"}, as Anthropic's does
    PlainLines    any JSON object: the body itself, or the values for a template
    CsvRecords    a header, then records that may span lines: the values for a template

A row's name (its ``custom_id``) is wanted of every row, also of those that are done and are only
skipped; its request only of those that are sent. So the name is read from the front of the line, where
nearly all files have it, without parsing what follows, and the whole is parsed only when that does not work.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from math import isinf
from typing import Any, NamedTuple, NoReturn, Protocol

from ...wire.parse import FLEX
from .template import MissingError, Template, listing, quoted

try:
    from orjson import loads as _quickly
except ModuleNotFoundError:
    _quickly = None  # type: ignore[assignment]


PLAIN_LINE = re.compile(
    rb'\{"custom_id": ?"([^"\\\x00-\x1f]{1,1024})", ?(?:"method": ?"POST", ?)?'
    rb'(?:"url": ?"([^"\\\x00-\x1f]{0,2048})", ?)?"(?:body|params)": ?(?=\{)'
)
"""A line as nearly all files have it, up to its body. What follows then is the body and a bracket."""


class Request(NamedTuple):
    """What one row asks for."""

    name: str
    method: str = "POST"
    path: str = ""
    """Below the target's base URL; empty is the target's usual one."""
    body: bytes | None = None
    model: str = ""
    tier: str = ""
    """"flex", if it asks for that service tier; it may be full while the others are not."""

    def content(self) -> Any:
        """What is in the body, for counting its tokens; None without a body. It is read each time."""
        return None if self.body is None else parse_json(self.body)


def plain_request(raw: bytes) -> Request | None:
    """The request in a line as nearly all files have them, and whole; its body is sent unchanged.

        {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
        └──────────────────────── known by its form ────────────────────────┘└ body ┘

    The body is read for its model and to see that it is valid, and not written again. All other lines take longer.
    """
    found = PLAIN_LINE.match(raw)
    if found is None or raw[-1:] != b"}":
        return None
    written = raw[found.end() : -1]
    try:
        body, name, path = parse_finite_json(written), found[1].decode(), (found[2] or b"").decode()
    except (ValueError, RecursionError):
        return None
    if type(body) is not dict or body.get("stream") is True:
        return None
    model = body.get("model")
    return Request(name, "POST", path, written, model if type(model) is str else "", tier_of(body))


def tier_of(body: Mapping[str, object]) -> str:
    return FLEX if body.get("service_tier") == FLEX else ""


LONGEST_NAME = 1_024
"""Characters of a ``custom_id``."""
METHODS = ("POST", "GET", "PUT", "PATCH", "DELETE")
NAME_IN_FRONT = re.compile(rb'[ \t]*\{[ \t]*"custom_id"[ \t]*:[ \t]*"([^"\\\x00-\x1f]{1,1024})"')


class InvalidRowError(Exception):
    """This row is not a valid request; the message says why. Never leaves this package."""


class Shape(Protocol):
    """``number`` is a row's place, from 1: its name where rows have no other. Of a broken row, ``name`` is empty."""

    @property
    def label(self) -> str: ...
    @property
    def name_field(self) -> str | None: ...
    def name(self, raw: bytes, number: int) -> str: ...
    def request(self, raw: bytes, number: int) -> Request: ...


class BatchLines:
    """Lines made for a vendor's batch API."""

    label = "batch"
    name_field = "custom_id"

    def name(self, raw: bytes, number: int) -> str:
        found = NAME_IN_FRONT.match(raw)
        try:
            return found[1].decode() if found else _name(parsed(raw).get("custom_id"))
        except (InvalidRowError, UnicodeDecodeError):
            return ""

    def request(self, raw: bytes, number: int) -> Request:
        plain = plain_request(raw)
        if plain is not None:
            return plain
        request = line_request(parsed(raw))
        found = NAME_IN_FRONT.match(raw)
        if found and found[1].decode() != request.name:
            raise InvalidRowError("more than one custom_id")
        return request


class PlainLines:
    """JSON objects that are bodies, or values for a template. ``name_field`` holds the row's name, if it has one."""

    label = "jsonl"

    def __init__(self, template: Template | None = None, name_field: str | None = None) -> None:
        self._template = template
        self.name_field = name_field

    def name(self, raw: bytes, number: int) -> str:
        return _name_only(self._template, self.name_field, number, lambda: parsed(raw))

    def request(self, raw: bytes, number: int) -> Request:
        values = parsed(raw)
        if self._template is not None:
            return filled(self._template, values, self.name_field, number)
        name = _named(values, self.name_field, number)
        return body_request({field: value for field, value in values.items() if field != self.name_field}, name=name)


class CsvRecords:
    """Records under a header."""

    label = "csv"

    def __init__(self, columns: Sequence[str], template: Template, name_field: str | None, delimiter: str) -> None:
        self.columns = columns
        self._template = template
        self.name_field = name_field
        self.delimiter = delimiter

    def name(self, raw: bytes, number: int) -> str:
        return _name_only(self._template, self.name_field, number, lambda: self._values(raw))

    def request(self, raw: bytes, number: int) -> Request:
        return filled(self._template, self._values(raw), self.name_field, number)

    def _values(self, raw: bytes) -> dict[str, str]:
        fields = record(raw, self.delimiter)
        if len(fields) != len(self.columns):
            raise InvalidRowError(f"the header has {len(self.columns)} fields, this row has {len(fields)}")
        return dict(zip(self.columns, fields, strict=True))


def record(raw: bytes, delimiter: str) -> list[str]:
    """The fields of one CSV record."""
    try:
        text = raw.decode()
        lines = [text] if b"\n" not in raw else [f"{line}\n" for line in text.split("\n")]
        records = list(csv.reader(lines, delimiter=delimiter))
    except UnicodeDecodeError:
        raise InvalidRowError("not valid UTF-8") from None
    except csv.Error as error:
        raise InvalidRowError(f"not valid CSV: {error}") from None
    if len(records) != 1:
        raise InvalidRowError("not valid CSV: line break outside quotes")
    return records[0]


def parsed(raw: bytes) -> dict[str, Any]:
    """The JSON object in a line."""
    try:
        value = decode_strictly(raw.decode())
    except UnicodeDecodeError:
        raise InvalidRowError("not valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise InvalidRowError(f"not valid JSON: {error.msg.removesuffix(' at')} at column {error.colno}") from None
    except ValueError as error:  # a number of ten thousand digits, NaN
        raise InvalidRowError(f"cannot be read as JSON: {error}") from None
    except RecursionError:
        raise InvalidRowError("nested too deeply") from None
    if not isinstance(value, dict):
        raise InvalidRowError(f"expected a JSON object, got {quoted(raw[:100].decode('utf-8', 'replace'))}")
    return value


def line_request(line: dict[str, Any], name: str = "") -> Request:
    """A line of a vendor's batch file; ``name`` is for one that has none of its own."""
    name = name or _name(line.get("custom_id"))
    if "params" in line and "body" not in line:
        body, method, path = line["params"], "POST", line.get("url", "")
    else:
        body, method, path = line.get("body"), line.get("method", "POST"), line.get("url", "")
    if not isinstance(method, str) or method.upper() not in METHODS:
        raise InvalidRowError(f"method must be one of {', '.join(METHODS)}; got {quoted(str(method))}")
    if not isinstance(path, str):
        raise InvalidRowError("url must be a path, such as /v1/chat/completions")
    if body is None and method.upper() in ("GET", "DELETE"):
        return Request(name=name, method=method.upper(), path=path)
    if not isinstance(body, dict):
        raise InvalidRowError("body is missing or not a JSON object")
    return body_request(body, name=name, method=method.upper(), path=path)


def body_request(body: dict[str, Any], *, name: str, method: str = "POST", path: str = "") -> Request:
    if body.get("stream") is True:
        raise InvalidRowError('"stream": true is not supported in a batch; remove it')
    try:
        written = _encode(body).encode()
    except (ValueError, RecursionError):
        raise InvalidRowError("body has a number that is too large for JSON, or is nested too deeply") from None
    model = body.get("model")
    return Request(
        name=name,
        method=method,
        path=path,
        body=written,
        model=model if isinstance(model, str) else "",
        tier=tier_of(body),
    )


def filled(template: Template, values: dict[str, Any], name_field: str | None, number: int) -> Request:
    try:
        made = template.fill(values)
    except MissingError as error:
        raise InvalidRowError(str(error)) from None
    name = "" if template.names_rows else _named(values, name_field, number)
    return line_request(made, name) if template.makes_lines else body_request(made, name=name)


def _name_only(
    template: Template | None, name_field: str | None, number: int, values: Callable[[], dict[str, Any]]
) -> str:
    """The row's name with no more work than it takes."""
    try:
        if template is not None and template.names_rows:
            return filled(template, values(), name_field, number).name
        return _named(values() if name_field else {}, name_field, number)
    except InvalidRowError:
        return ""


def object_in(raw: bytes) -> dict[str, Any] | None:
    """The JSON object in a line, if there is one."""
    try:
        return parsed(raw)
    except InvalidRowError:
        return None


def _named(values: dict[str, Any], field: str | None, number: int) -> str:
    if field is None:
        return f"row-{number}"
    if field not in values:
        raise InvalidRowError(f"no field {quoted(field)} for the row's id; {listing('field', list(values))}")
    return _name(values[field], field)


def _name(given: object, field: str = "custom_id") -> str:
    name = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise InvalidRowError(f"{field} must be a string of 1 to {LONGEST_NAME:,} characters")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidRowError(f"{field} contains an invalid character (a lone surrogate)") from None
    return name


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


# ---------------------------------------------------------------------- JSON that is only looked into
#
# Nothing read here is written out again, so numbers may lose digits on the way. With ``orjson`` installed it is read a
# few times faster; what ``orjson`` refuses (half a character, very deep nesting) is left to ``json``, so that the same
# input is valid with it and without.


def parse_json(raw: bytes) -> Any:
    """What is in it. Raises ``ValueError`` or ``RecursionError`` where it is not valid JSON."""
    if _quickly is not None:
        try:
            return _quickly(raw)
        except ValueError:
            pass
    return decode_strictly(raw.decode())


def parse_finite_json(raw: bytes) -> Any:
    """The same, and a number too large for one (1e999), which others take for endless, raises too."""
    if _quickly is not None:
        try:
            return _quickly(raw)
        except ValueError:
            pass
    return _decode_finite(raw.decode())


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not valid JSON")


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text[:20]} is too large a number for JSON")
    return number


decode_strictly = json.JSONDecoder(parse_constant=_no_constant).decode
"""JSON as its standard has it, without Python's NaN and Infinity."""
_decode_finite = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite).decode
