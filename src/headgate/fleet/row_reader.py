"""A row of an engine's columns as a row that can be sent: its values as JSON, its request, its name in the memory.

    {"id": 7, "text": "..."} ─> the columns that are needed, as JSON ─> InputRow ─> request ─> digest, 16 bytes

Columns have null in every place where a row has no value, also inside of structs. A struct's null fields are left out,
since most servers reject them.
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from ..batch.input.rows import BrokenRowError, InputRow
from ..batch.input.shapes import BatchLines, PlainLines, Shape
from ..batch.row_targets import RowValidator
from ..batch.target import Target
from .settings import RowSettings

KEY_BYTES = 16
NO_KEY = bytes(KEY_BYTES)
"""The digest of a row that cannot be sent."""
DEEPEST = 100
_TEXTS = (datetime.date, datetime.time, decimal.Decimal, uuid.UUID)
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class UnfitValueError(Exception):
    """A value has no form in JSON; the message says which and why. Never leaves this package."""


class _Columns:
    """What an ``InputRow`` asks of its input."""

    name = "row"
    stops = False

    def __init__(self, shape: Shape) -> None:
        self.shape = shape


class RowReader:
    """Makes rows of the values of columns."""

    def __init__(self, settings: RowSettings, target: Target) -> None:
        self._format, self._id_column = settings.format, settings.id_column
        self._template = template = settings.parsed_template()
        self._needed: set[str] | None = None
        """The columns that the request is made of; None for all of them."""
        if template is not None:
            self._needed = {*template.names, *(name.partition(".")[0] for name in template.names)}
            if self._id_column is not None:
                self._needed.add(self._id_column)
        self._plain = _Columns(PlainLines(template, self._id_column))
        self._lines = _Columns(BatchLines())
        self._target = target.identity["target"].encode()

    def row(self, values: Mapping[str, Any]) -> InputRow:
        """Never raises: what is wrong with it shows when its request is asked for.

        The digest is what its answer is remembered by: its name, if it has one, and all that is sent. Without an id
        column, rows with the same request have the same digest, and share one answer.
        """
        is_line, problem, raw = self._is_line(values), "", b""
        try:
            raw = _encode(self._line(values) if is_line else self._values(values)).encode()
        except UnfitValueError as error:
            problem = str(error)
        except (ValueError, TypeError, RecursionError) as error:
            problem = f"its values cannot be written as JSON ({type(error).__name__})"
        columns: Any = self._lines if is_line else self._plain
        row = InputRow(columns, 0, 1, raw, NO_KEY, problem)
        try:
            request = row.request()
        except BrokenRowError:
            return row
        is_named = is_line or self._id_column is not None or (self._template is not None and self._template.names_rows)
        digest = blake2b(digest_size=KEY_BYTES)
        for part in (request.name if is_named else "", request.method, request.path):
            digest.update(b"%d:%b" % (len(part.encode()), part.encode()))
        digest.update(self._target + b"\0" + (request.body or b""))
        row.digest = digest.digest()
        return row

    def _is_line(self, values: Mapping[str, Any]) -> bool:
        if self._format != "auto":
            return self._format == "batch"
        return self._template is None and "custom_id" in values and ("body" in values or "params" in values)

    def _values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        needed = self._needed
        if needed is None:  # the columns are the body
            return {name: fit for name, value in values.items() if (fit := json_value(value, name)) is not None}
        return {name: json_value(value, name) for name, value in values.items() if name in needed}

    def _line(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A line of a batch file; its body may be a struct, or the JSON of one as a text."""
        line = {}
        for name in ("custom_id", "method", "url", "body", "params"):
            value = json_value(values.get(name), name)
            if name in ("body", "params") and isinstance(value, str):
                try:
                    value = json.loads(value)
                except (ValueError, RecursionError):
                    raise UnfitValueError(f"column {name!r} is not valid JSON") from None
            if value is not None:
                line[name] = value
        if self._id_column is not None:
            line["custom_id"] = json_value(values.get(self._id_column), self._id_column)
        return line


def checked_key(validator: RowValidator, row: InputRow) -> str:
    """The gate key of a row that can be sent. Raises ``BrokenRowError``."""
    validator.check(row)
    return validator.key(row)


def json_value(value: Any, column: str, depth: int = 0) -> Any:
    """A value of a column as JSON has it: NumPy's and pandas' as Python's, dates as texts, NaN and NaT as null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value == value else None
    if depth > DEEPEST:
        raise UnfitValueError(f"column {column!r} is nested more than {DEEPEST} levels deep")
    if isinstance(value, Mapping):
        fields = {str(name): json_value(one, column, depth + 1) for name, one in value.items()}
        return {name: one for name, one in fields.items() if one is not None}
    if isinstance(value, list | tuple):
        return [json_value(one, column, depth + 1) for one in value]
    if isinstance(value, bytes | bytearray | memoryview):
        raise UnfitValueError(f"column {column!r} holds bytes; encode them as text first, such as base64")
    if hasattr(value, "asDict"):  # a struct of Spark's
        return json_value(value.asDict(), column, depth + 1)
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        plain = value.tolist()
        if type(plain) is not type(value):
            return json_value(plain, column, depth + 1)
    if value != value or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, _TEXTS):
        return value.isoformat() if hasattr(value, "isoformat") else str(value)
    raise UnfitValueError(f"column {column!r} holds a {type(value).__name__}, which JSON cannot represent")
