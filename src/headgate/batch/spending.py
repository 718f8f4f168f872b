"""What a batch may spend, in tokens and in money, and what it has.

A row reserves what it is expected to take before it starts, and settles what it really took. So
a cap is not overrun by what is in flight, as far as the estimates hold.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.decision import UNKNOWN
from ..limiter.checks import Cost
from .config import BatchConfig

ROUNDING = 1.0 + 1e-9
"""Sums of small amounts are not exact."""


class Spending:
    def __init__(self, config: BatchConfig) -> None:
        self._prices = {"money": 1.0, **config.prices}
        self._most_tokens = UNKNOWN if config.max_tokens is None else config.max_tokens
        self._most_money = UNKNOWN if config.max_cost is None else config.max_cost
        self.is_capped = min(self._most_tokens, self._most_money) < UNKNOWN
        self.tokens = self.money = 0.0
        """Spent, earlier runs included."""
        self._reserved_tokens = self._reserved_money = 0.0

    def allows(self, cost: Cost) -> bool:
        """Whether a row of this cost would stay within the caps."""
        tokens, money = self.worth(cost)
        return (
            self.tokens + self._reserved_tokens + tokens <= self._most_tokens * ROUNDING
            and self.money + self._reserved_money + money <= self._most_money * ROUNDING
        )

    def reserve(self, cost: Cost) -> None:
        self._hold(cost, 1.0)

    def free(self, cost: Cost) -> None:
        """What was reserved is not out any more."""
        self._hold(cost, -1.0)

    def charge(self, tokens: float, money: float) -> None:
        self.tokens += tokens
        self.money += money

    def worth(self, cost: Cost) -> tuple[float, float]:
        """Tokens and money of a cost. A plain number is a number of requests; a dimension called money is just that."""
        if not isinstance(cost, Mapping):
            return 0.0, self._prices.get("requests", 0.0) * cost
        money = sum(self._prices.get(dimension, 0.0) * amount for dimension, amount in cost.items())
        if "tokens" in cost:
            return cost["tokens"], money
        return sum(amount for dimension, amount in cost.items() if dimension.endswith("tokens")), money

    def _hold(self, cost: Cost, sign: float) -> None:
        tokens, money = self.worth(cost)
        self._reserved_tokens += sign * tokens
        self._reserved_money += sign * money
