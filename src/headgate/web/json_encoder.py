"""JSON that every browser reads: numbers that are not finite are null, and no text breaks it.

``orjson`` writes a thousand keys in about a millisecond and is used where it is installed; what it will not write (half
a surrogate pair, a number of a hundred digits) the standard library does.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from ..observe.snapshot import plain

try:
    from orjson import dumps as _quickly
except ImportError:
    _quickly = None  # type: ignore[assignment]


def encoded(value: Any) -> bytes:
    """One line, for there is no raw line end in JSON: fit for a server-sent event."""
    if _quickly is not None:
        try:
            return _quickly(value, default=plain)
        except TypeError:
            pass
    try:
        return _plainly(value)
    except ValueError:
        return _plainly(_finite(plain(value)))


def _plainly(value: Any) -> bytes:
    return json.dumps(value, default=_opened, allow_nan=False, separators=(",", ":")).encode("ascii")


def _opened(value: Any) -> Any:
    """One step only: what is inside is left to the encoder, which is far quicker at it."""
    names = _field_names(value.__class__)
    return {name: getattr(value, name) for name in names} if names else plain(value)


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else ()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
