"""What may be set or passed, checked at the door: an error names the field, the value if it is a number, and the range.

What is no number is told by its kind alone: it may be a secret in the wrong place.
"""

from __future__ import annotations

from math import inf

from .errors import ConfigError

FINITE = "a finite number above 0"
WHOLE = "a whole number, 1 or more"
LONGEST_SHOWN = 64
"""Bits of an integer that is repeated in a message."""


def check(name: str, value: object, fine: bool, range_: str) -> None:
    if not fine:
        raise ConfigError(f"{name}={shown(value)} must be {range_}")


def check_whole(name: str, value: object, least: int = 1) -> None:
    check(name, value, is_whole(value, least), f"a whole number, {least} or more")


def check_finite(name: str, value: object) -> None:
    check(name, value, 0 < number(value) < inf, FINITE)


def check_time(name: str, seconds: object) -> None:
    check(name, seconds, seconds is None or number(seconds) > 0, "a number of seconds above 0; inf is no bound")


def is_whole(value: object, least: int = 1) -> bool:
    """True and False are no numbers here: who writes one has meant something else."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def number(value: object) -> float:
    """The value if it can be compared, else one that no comparison holds for."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else float("nan")


def shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > LONGEST_SHOWN:
        return "an integer of more than 64 bits"
    return repr(value) if isinstance(value, int | float | None) else type(value).__name__
