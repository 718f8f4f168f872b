"""What may be set, checked when it is set: an error names the field, the value if it is a number, and the range."""

from __future__ import annotations

from ..errors import ConfigError

FINITE = "a finite number above 0"


def check(name: str, value: object, fine: bool, range_: str) -> None:
    if not fine:
        shown = repr(value) if isinstance(value, int | float | None) else type(value).__name__
        raise ConfigError(f"{name}={shown} must be {range_}")  # what is no number may be a secret in the wrong place


def check_time(name: str, seconds: object) -> None:
    check(name, seconds, seconds is None or number(seconds) > 0, "a number of seconds above 0; inf is no bound")


def number(value: object) -> float:
    """The value if it can be compared, else one that no comparison holds for."""
    return value if isinstance(value, int | float) else float("nan")
