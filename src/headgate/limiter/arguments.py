"""What callers may ask for. An error names the argument, the value and the range."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Literal

from ..checks import shown
from ..core.policy import costs_of
from ..core.quota import never_fits
from ..errors import ConfigError, CostTooLargeError

if TYPE_CHECKING:
    from .key_entry import KeyEntry

log = logging.getLogger("headgate")

Cost = float | Mapping[str, float]
WhenOpen = Literal["wait", "refuse"]
"""What a call does at an open circuit: wait for the next probe, or fail at once so that others can take over."""
MOST_DIMENSIONS = 32
MOST_COST = 1e12
"""Of any dimension, in one call: more is a mistake, and would make numbers that are none."""
MOST_ALSO = 16
LONGEST_NAME, LONGEST_COST = 40, 200
"""Characters of a dimension's name, and of a wrong cost, that are worth showing."""


def check_request(
    cost: Cost, max_wait: float | None, deadline_at: float | None, also: Iterable[str], when_open: object
) -> tuple[str, ...]:
    """Check all that a caller says of one call; returns the other keys it counts under."""
    if max_wait is not None:
        check_wait("max_wait", max_wait)
    if deadline_at is not None:
        check_wait("deadline_at", deadline_at, "-inf")
    if type(cost) is not int or cost != 1:
        check_cost(cost)
    if when_open != "refuse":
        check_when_open(when_open)
    return check_also(also) if also else ()


def check_wait(name: str, value: float, least: str = "0") -> None:
    try:
        fine = value + 0.0 >= float(least)
    except (TypeError, ArithmeticError):  # no number, or one that no clock can add
        fine = False
    if not fine:
        raise ConfigError(f"{name}={shown(value)} must be a number of seconds, {least} or more")


def check_when_open(value: object) -> None:
    if value not in ("wait", "refuse"):
        raise ConfigError(f"when_open={value!r} must be 'wait' or 'refuse'")


def check_also(also: Iterable[str]) -> tuple[str, ...]:
    keys = tuple(islice(also, MOST_ALSO + 1))
    if len(keys) > MOST_ALSO or isinstance(also, str):
        raise ConfigError(f"also={keys!r} must be a list of at most {MOST_ALSO} other keys")
    return keys


def check_cost(cost: Cost) -> None:
    is_one = isinstance(cost, int | float)
    amounts: Collection[float] = cost.values() if isinstance(cost, dict | Mapping) else (cost,) if is_one else ()
    fine = 0 < len(amounts) <= MOST_DIMENSIONS
    try:
        for amount in amounts:
            if not 0 <= amount + 0.0 <= MOST_COST:  # a Decimal compares, but cannot be added to what is spent
                fine = False
    except (TypeError, ArithmeticError):
        fine = False
    if not fine or cost == 0:
        raise ConfigError(
            f"cost={_shown(cost)} must be a number above 0, or numbers of 0 or more for up to {MOST_DIMENSIONS} "
            f"dimensions, each at most {MOST_COST:,.0f}"
        )


def check_fits(entry: KeyEntry, cost: Cost) -> None:
    """Raise if a known limit is smaller than what one call takes."""
    costs = costs_of(cost)
    quota = never_fits(entry.gate.config.quotas, costs) if entry.has_quotas else None
    if quota is not None:
        amount = costs[quota.dimension]
        reason = f"cost[{quota.dimension!r}]={amount:,.10g} is above the limit of {quota.amount:,.10g}"
        raise CostTooLargeError(entry.key, f"{reason} and can never be admitted")


def real_cost(cost: Cost) -> dict[str, float]:
    """What a call really cost, by dimension.

    The call was made, so an amount that cannot be is no reason to lose its answer: one that is too large is taken as
    the most there is, one that is no number leaves what was reserved. Either is warned of.
    """
    if isinstance(cost, dict) and 0 < len(cost) <= MOST_DIMENSIONS:
        try:
            for amount in cost.values():
                if not 0 <= amount + 0.0 <= MOST_COST:
                    break
            else:
                return cost  # as nearly always
        except (TypeError, ArithmeticError):
            pass  # told below
    amounts = dict(cost) if isinstance(cost, dict | Mapping) else {"requests": cost}
    wrong: list[str] = []
    try:
        for dimension, amount in list(amounts.items()):
            if amount > MOST_COST:
                amounts[dimension] = MOST_COST
            elif amount != amount:
                del amounts[dimension]
            else:
                continue
            wrong.append(str(dimension)[:LONGEST_NAME])
    except (TypeError, ArithmeticError):
        pass  # told below
    if not wrong:
        check_cost(cost)
    else:
        if amounts:
            check_cost(amounts)
        log.warning(
            "report(cost=%s): the limit is %.0f; %s was clamped or left as reserved",
            _shown(cost),
            MOST_COST,
            ", ".join(map(repr, wrong[:MOST_DIMENSIONS])),
            extra={"event": "cost_clamped"},
        )
    return amounts


def _shown(cost: object) -> str:
    try:
        return repr(cost)[:LONGEST_COST]
    except ValueError:  # a whole number of thousands of digits
        return type(cost).__name__
