"""What callers may ask for, checked before any lock is taken; an error names the argument, the value and the range."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from math import inf

from ..errors import ConfigError

Cost = float | Mapping[str, float]
MOST_DIMENSIONS = 32
MOST_ALSO = 16


def check_wait(name: str, value: float | None, least: str = "0") -> None:
    try:
        fine = value is None or value >= float(least)
    except TypeError:
        fine = False
    if not fine:
        raise ConfigError(f"{name}={value!r} must be a number of seconds, {least} or more")


def check_also(also: Iterable[str]) -> tuple[str, ...]:
    keys = tuple(islice(also, MOST_ALSO + 1))
    if len(keys) > MOST_ALSO or isinstance(also, str):
        raise ConfigError(f"also={keys!r} must be at most {MOST_ALSO} other keys")
    return keys


def check_cost(cost: Cost) -> None:
    amounts: Collection[float] = cost.values() if isinstance(cost, dict | Mapping) else (cost,)
    fine = 0 < len(amounts) <= MOST_DIMENSIONS
    try:
        for amount in amounts:
            if not 0 <= amount < inf:
                fine = False
    except (TypeError, ArithmeticError):
        fine = False
    if not fine or cost == 0:
        raise ConfigError(
            f"cost={repr(cost)[:200]} must be a finite number above 0, or numbers of 0 and more for up to "
            f"{MOST_DIMENSIONS} dimensions"
        )
