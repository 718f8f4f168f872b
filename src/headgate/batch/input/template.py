"""A request with gaps, filled from each row.

    {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Translate into {language}: {text}"}]}

The template is JSON, parsed once; gaps are filled in its strings *after* that, so no value, whatever quotes
or braces it holds, can break out of its string. ``{name}`` is the row's column or field; ``{a.b}`` also finds a
field inside a field. A string that is one gap and nothing else keeps the value's type, and
``{name:json}`` reads a number, a list or an object out of a CSV's text. ``{{`` and ``}}`` are braces.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError

LONGEST_QUOTE = 60
"""Characters of the input that an error repeats."""
LARGEST_TEMPLATE = 8 << 20
DEEPEST_TEMPLATE = 100
MOST_SHOWN = 12
"""Columns that an error lists."""

Values = Mapping[str, Any]
Filler = Callable[[Values], Any]
"""Makes one part of the request out of a row's values."""

_PIECES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_AS_JSON = ":json"


class MissingError(Exception):
    """The row has no such field, or cannot give it as asked; the message says which. Never leaves this package."""


class Template:
    """``fill(values)`` gives the request's JSON for one row."""

    __slots__ = ("_fill", "digest", "makes_lines", "names", "names_rows")

    def __init__(self, text: str, source: str = "template") -> None:
        if len(text) > LARGEST_TEMPLATE:
            raise ConfigError(f"{source}: the template has {len(text):,} characters; the limit is {LARGEST_TEMPLATE:,}")
        try:
            parsed = json.loads(text.removeprefix("\ufeff"))
        except ValueError as error:
            raise ConfigError(f"{source}: the template is not valid JSON: {error}") from None
        except RecursionError:
            raise ConfigError(
                f"{source}: the template is nested too deeply; the limit is {DEEPEST_TEMPLATE} levels"
            ) from None
        if not isinstance(parsed, dict):
            raise ConfigError(
                f'{source}: the template must be a JSON object, such as {{"model": ..., "messages": ...}}'
            )
        names: dict[str, None] = {}
        self._fill = _filler(parsed, source, names, 0)
        self.names = tuple(names)
        """The columns or fields it asks for."""
        self.makes_lines = "body" in parsed
        """It makes whole lines of a batch file (custom_id, method, url, body), not bodies alone."""
        self.names_rows = self.makes_lines and "custom_id" in parsed
        self.digest = hashlib.blake2b(json.dumps(parsed).encode(), digest_size=16).hexdigest()
        """Changes when the template does, but not with its spaces."""

    @classmethod
    def read(cls, path: str | Path) -> Template:
        """Read a template from a file."""
        try:
            with open(path, encoding="utf-8") as file:
                return cls(file.read(LARGEST_TEMPLATE + 1), str(path))
        except OSError as error:
            raise ConfigError(f"cannot read the template {path} ({error.strerror})") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: the template is not valid UTF-8") from None

    def fill(self, values: Values) -> dict[str, Any]:
        """Raises ``MissingError``."""
        filled: dict[str, Any] = self._fill(values)
        return filled

    def check_columns(self, columns: Iterable[str], source: str) -> None:
        """Say at once, not row by row, that a column is missing."""
        known = list(columns)
        if missing := [name for name in self.names if name not in known]:
            raise ConfigError(f"{source} has no column for the template's {{{missing[0]}}}; {listing('column', known)}")


def listing(what: str, names: list[str]) -> str:
    shown = ", ".join(quoted(name) for name in names[:MOST_SHOWN])
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"the {what}s are {shown}{more}" if names else f"there are no {what}s"


def _filler(part: Any, source: str, names: dict[str, None], depth: int) -> Filler:
    if depth > DEEPEST_TEMPLATE:
        raise ConfigError(f"{source}: the template is nested too deeply; the limit is {DEEPEST_TEMPLATE} levels")
    if isinstance(part, str):
        return _text_filler(part, source, names)
    if isinstance(part, dict):
        held = [(name, _filler(value, source, names, depth + 1)) for name, value in part.items()]
        return lambda values: {name: fill(values) for name, fill in held}
    if isinstance(part, list):
        entries = [_filler(entry, source, names, depth + 1) for entry in part]
        return lambda values: [fill(values) for fill in entries]
    return lambda values: part


def _text_filler(text: str, source: str, names: dict[str, None]) -> Filler:
    pieces: list[str | Filler] = []
    at = 0
    for found in _PIECES.finditer(text):
        pieces.append(text[at : found.start()])
        at = found.end()
        if found[0] in ("{{", "}}"):
            pieces.append(found[0][0])
        elif not found[1]:
            raise ConfigError(
                f"{source}: {quoted(text)} has a single '{found[0]}'; write {{name}} for a column, or double the brace"
            )
        else:
            pieces.append(_gap(found[1], names))
    pieces.append(text[at:])
    kept = [piece for piece in pieces if piece]
    if len(kept) == 1 and not isinstance(kept[0], str):
        return kept[0]
    if all(isinstance(piece, str) for piece in kept):
        plain = "".join(map(str, kept))
        return lambda values: plain
    return lambda values: "".join(piece if isinstance(piece, str) else _as_text(piece(values)) for piece in kept)


def _gap(asked: str, names: dict[str, None]) -> Filler:
    name = asked.removesuffix(_AS_JSON)
    names[name] = None
    if name == asked:
        return lambda values: _value(values, name)
    return lambda values: _parsed(_value(values, name), name)


def _value(values: Values, name: str) -> Any:
    if name in values:
        return values[name]
    inside: Any = values
    for step in name.split("."):
        if not isinstance(inside, Mapping) or step not in inside:
            raise MissingError(f"no field for the template's {{{name}}}; {listing('field', list(values))}")
        inside = inside[step]
    return inside


def _parsed(value: Any, name: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise MissingError(f"{{{name}{_AS_JSON}}} is not valid JSON: {quoted(value)}") from None


def _as_text(value: Any) -> str:
    """A value inside of a text: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def quoted(text: str) -> str:
    """A piece of input fit for an error: printable, short, in quotes."""
    return repr(text if len(text) <= LONGEST_QUOTE else f"{text[: LONGEST_QUOTE - 3]}...")
