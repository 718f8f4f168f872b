"""Parameters and bodies of the page's API, checked on arrival: known names, bounded values, each given once.

An error names the rule that was broken and repeats nothing of what was sent.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from ..observe.snapshot import Action

LONGEST_NAME = 500
MOST_CHOSEN_KEYS = 20
MOST_EVENTS = 200
MOST_PARAMETERS = 32
LATEST = 1e11
"""Unix time; anything later is in other units."""
LARGEST_NUMBER = 10**15
ACTIONS = ("pause", "resume", "stop", "park", "free", "limit")
_FIELDS = {"run", "kind", "target", "value"}


class BadRequestError(Exception):
    """The request is not valid; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    run: str | None = None
    keys: tuple[str, ...] = ()
    after: int = 0
    most: int = MOST_EVENTS
    since: float = 0.0


def read_query(query: bytes, *known: str) -> Query:
    """The parameters of these names; ``keys`` may be given several times, any other name once."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=MOST_PARAMETERS,
        )
    except ValueError:
        raise BadRequestError("Malformed query string") from None
    found: dict[str, Any] = {}
    keys: list[str] = []
    for name, value in pairs:
        if name not in known:
            raise BadRequestError(f"Unknown parameter; expected one of {', '.join(known)}")
        if len(value) > LONGEST_NAME:
            raise BadRequestError(f"Parameter too long (limit {LONGEST_NAME} characters)")
        if name == "keys":
            keys.append(value)
        elif name in found:
            raise BadRequestError(f"{name} is given twice")
        else:
            found[name] = _value(name, value)
    if len(keys) > MOST_CHOSEN_KEYS:
        raise BadRequestError(f"Too many keys (limit {MOST_CHOSEN_KEYS})")
    return Query(keys=tuple(dict.fromkeys(keys)), **found)


def _value(name: str, value: str) -> object:
    if name == "run":
        return value or None
    most = {"after": LARGEST_NUMBER, "most": MOST_EVENTS, "since": LATEST}[name]
    try:
        number = float(value) if name == "since" else int(value)
    except ValueError:
        number = -1
    if not (value.isascii() and 0 <= number <= most):
        raise BadRequestError(f"{name} must be a number from 0 to {most:g}")
    return number


def read_action(body: bytes) -> tuple[str | None, Action]:
    """The name of the run (None: the only one), and what to do."""
    try:
        asked = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise BadRequestError("Body must be JSON") from None
    if not isinstance(asked, dict) or not asked.keys() <= _FIELDS:
        raise BadRequestError(f"Body must be an object with {', '.join(sorted(_FIELDS))}")
    if not (isinstance(kind := asked.get("kind"), str) and kind in ACTIONS):
        raise BadRequestError(f"kind must be one of {', '.join(ACTIONS)}")
    run, target, value = asked.get("run"), asked.get("target", ""), asked.get("value")
    if not (run is None or _is_name(run)) or not _is_name(target):
        raise BadRequestError(f"run and target must be strings of up to {LONGEST_NAME} characters")
    if not (value is None or _is_number(value)):
        raise BadRequestError("value must be a number, 0 or more, or null")
    return run, Action(kind=kind, target=target, value=None if value is None else float(value))


def _no_number(_: str) -> NoReturn:
    raise ValueError


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_NAME


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= LARGEST_NUMBER and math.isfinite(value)
