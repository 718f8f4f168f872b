"""Checks of settings and arguments. Their error names the field, the value and the range.

A value that is not a number is described by its type alone: it may be a secret in the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf, nan
from typing import Any, Self

ACCESS_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")
FINITE = "a finite number above 0"
WHOLE = "a whole number, 1 or more"
LONGEST_VALUE = 200
"""Characters of a wrong value that are repeated in a message."""
LONGEST_SHOWN = 64
"""Bits of an integer that is repeated in a message."""


class HeadgateError(Exception):
    """The base class of Headgate's exceptions."""


class ConfigError(HeadgateError, ValueError):
    """A setting or an argument is out of range: the message names the field, the value and the range."""

    setting: str = ""
    """The field, where the check knows it."""

    @classmethod
    def of(cls, setting: str, message: str) -> Self:
        error = cls(message)
        error.setting = setting
        return error


def check(name: str, value: object, fine: bool, range_: str) -> None:
    if not fine:
        raise ConfigError.of(name, f"{name}={shown(value)} must be {range_}")


def check_field(
    config: object, name: str, holds: Callable[[Any], object], range_: str, say: Callable[[object], str] | None = None
) -> None:
    """Check a field of a configuration. A value that ``holds`` cannot look at is out of range, too."""
    value = getattr(config, name)
    try:
        fine = holds(value)
    except (TypeError, AttributeError, ArithmeticError):
        fine = False
    if not fine:
        raise ConfigError(f"{name}={(say or shown)(value)[:LONGEST_VALUE]} must be {range_}")


def check_token(token: object, hint: str = "") -> None:
    """Check what a proxy or a page is told to ask for."""
    fine = token is None or (isinstance(token, str) and ACCESS_TOKEN.fullmatch(token) is not None)
    check("token", token, fine, f"16 to 200 letters, digits, - and _{hint}, or None")


def check_whole(name: str, value: object, least: int = 1) -> None:
    check(name, value, is_whole(value, least), f"a whole number, {least} or more")


def check_finite(name: str, value: object) -> None:
    check(name, value, 0 < number(value) < inf, FINITE)


def check_time(name: str, seconds: object) -> None:
    check(name, seconds, seconds is None or number(seconds) > 0, "a number of seconds above 0 (inf: no limit)")


def is_whole(value: object, least: int = 1) -> bool:
    """Whether it is an integer from ``least`` on; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def number(value: object) -> float:
    """The value as a float; nan, for which no comparison holds, if it is no number or beyond what a float holds."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return nan
    try:
        return float(value)
    except OverflowError:
        return nan


def shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > LONGEST_SHOWN:
        return "an integer of more than 64 bits"
    return repr(value) if isinstance(value, int | float | None) else type(value).__name__
