"""JSON that is looked into and then passed on as it was written: of a body its model, of an answer what it took.

Nothing read here is written out again, so numbers may lose digits on the way. With ``orjson`` installed it
is read a few times faster; what that refuses (half a character, a tower of brackets) is for ``json`` to judge, so that
the same is good JSON with it and without.
"""

from __future__ import annotations

import json
from math import isinf
from typing import Any, NoReturn

try:
    from orjson import loads as _quickly
except ModuleNotFoundError:
    _quickly = None  # type: ignore[assignment]


def parse_json(raw: bytes) -> Any:
    """What is in it. Raises ``ValueError`` or ``RecursionError`` where it is no JSON that can be read."""
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
    raise ValueError(f"{word} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text[:20]} is no number that JSON can hold")
    return number


decode_strictly = json.JSONDecoder(parse_constant=_no_constant).decode
"""JSON as its standard has it, without Python's NaN and Infinity."""
_decode_finite = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite).decode
