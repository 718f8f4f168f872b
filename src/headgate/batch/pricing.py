"""What tokens cost, and what a batch may spend. Prices are the user's: they change too often to be part of a program.
``"auto"`` takes those that the package genai-prices publishes, for models without a price of their own.

    Prices.of({"gpt-4o-mini*": "0.15/0.60", "claude-*": {"input": 3, "output": 15, "cached": 0.3}})

Amounts are per million tokens, in whichever currency. A name may hold ``*``; of several that fit, the longest counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from math import isfinite
from typing import Any, Protocol, Self

from ..core.decision import UNKNOWN
from ..errors import ConfigError
from ..limiter.permit import Cost
from ..wire.token_usage import Usage

MILLION = 1_000_000
MOST_PRICES = 10_000
HIGHEST_PRICE = 1e9
AUTO = "auto"
"""In place of a model and its price: published prices."""
_PUBLISHED_AS = {"gemini": "google", "xai": "x-ai"}
"""What genai-prices calls a vendor, where that is another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a million tokens."""

    input: float
    output: float = 0.0
    cached: float | None = None
    """Of input that came from the vendor's cache; None is the same as other input."""

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached"):
            amount = getattr(self, name)
            if amount is None and name == "cached":
                continue
            number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not number or not isfinite(amount) or not 0 <= amount <= HIGHEST_PRICE:
                raise ConfigError(f"price {name}={amount!r} must be an amount per million tokens, 0 or more")

    @classmethod
    def of(cls, given: object) -> Self:
        """A price, ``"input/output"``, or a mapping with the fields' names."""
        if isinstance(given, cls):
            return given
        if isinstance(given, str) and re.fullmatch(r"[0-9.]{1,20}(/[0-9.]{1,20}){1,2}", given):
            try:
                amounts = [float(amount) for amount in given.split("/")]
                return cls(**dict(zip(("input", "output", "cached"), amounts, strict=False)))
            except ValueError:
                pass
        if isinstance(given, Mapping) and "input" in given and given.keys() <= {"input", "output", "cached"}:
            return cls(**given)
        raise ConfigError(
            f"{repr(given)[:80]} is not a price per million tokens; expected 'input/output', such as '0.15/0.60'"
        )

    def cost(self, usage: Usage) -> float:
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input - usage.cached
        return (fresh * self.input + usage.cached * cached + usage.output * self.output) / MILLION


class Prices:
    """Prices by model: the user's own, then those that are published, if ``auto``."""

    __slots__ = ("_auto", "_by_name", "_found", "_vendor")

    def __init__(self, by_name: Mapping[str, Price] | None = None, *, auto: bool = False, vendor: str = "") -> None:
        """``vendor``: whose published prices; empty is the first vendor with a model of that name."""
        given = dict(by_name or {})
        if len(given) > MOST_PRICES:
            raise ConfigError(f"prices has {len(given):,} entries; the limit is {MOST_PRICES:,}")
        self._by_name = dict(sorted(given.items(), key=lambda one: (-len(one[0]), one[0])))
        self._found: dict[str, Price | None] = {}
        self._auto, self._vendor = _published_prices() if auto else None, vendor

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Self:
        """Prices as a configuration file has them; the name ``auto`` is for those that are published."""
        prices = {}
        for name, price in given.items():
            if name == AUTO:
                continue
            try:
                prices[name] = Price.of(price)
            except ConfigError as error:
                raise ConfigError(f"price of {name}: {error}") from None
        return cls(prices, auto=AUTO in given)

    def at(self, vendor: str) -> Prices:
        """The same, by this vendor's published prices."""
        if self._auto is None:
            return self
        known = _PUBLISHED_AS.get(vendor, vendor)
        return Prices(self._by_name, auto=True, vendor=known if self._auto.has_vendor(known) else "")

    @staticmethod
    def table(texts: Iterable[str]) -> dict[str, object]:
        """``MODEL=IN/OUT`` or ``auto`` each, as they are typed; for ``of``."""
        prices: dict[str, object] = {}
        for text in texts:
            if text == AUTO:
                prices[AUTO] = AUTO
                continue
            model, equals, price = text.rpartition("=")
            if not equals or not model:
                raise ConfigError(f"{text!r} is not auto or MODEL=IN/OUT, such as gpt-4o-mini=0.15/0.60")
            prices[model] = price
        return prices

    def __bool__(self) -> bool:
        return bool(self._by_name) or self._auto is not None

    def is_known(self, model: str) -> bool:
        """Whether the model's tokens have a price."""
        return self.cost(model, Usage(1, 1)) is not None

    def price_of(self, model: str) -> Price | None:
        """The user's own; None if there is none."""
        if model not in self._found:
            if len(self._found) >= MOST_PRICES:
                self._found.clear()
            self._found[model] = self._by_name.get(model) or next(
                (price for name, price in self._by_name.items() if fnmatchcase(model, name)), None
            )
        return self._found[model]

    def cost(self, model: str, usage: Usage) -> float | None:
        """None if the model's price is not known: that is not the same as free."""
        price = self.price_of(model) if self._by_name else None
        if price is not None:
            return price.cost(usage)
        return None if self._auto is None else self._auto.cost(self._vendor, model, usage)


class _PublishedPrices:
    """The price lists of the package genai-prices, in US dollars."""

    def __init__(self, package: Any) -> None:
        self._package = package
        self._unknown: set[tuple[str, str]] = set()
        self._vendors = {one.id for one in package.data.providers}

    def has_vendor(self, name: str) -> bool:
        return name in self._vendors

    def cost(self, vendor: str, model: str, usage: Usage) -> float | None:
        if not model or (vendor, model) in self._unknown:
            return None
        counted = self._package.Usage(
            input_tokens=usage.input, output_tokens=usage.output, cache_read_tokens=usage.cached
        )
        try:
            found = self._package.calc_price(counted, model_ref=model, provider_id=vendor or None)
        except LookupError:
            if len(self._unknown) < MOST_PRICES:
                self._unknown.add((vendor, model))
            return None
        return float(found.total_price)


@lru_cache(maxsize=1)
def _published_prices() -> _PublishedPrices:
    """Raises ``ConfigError`` where the package is not installed."""
    try:
        import genai_prices
        import genai_prices.data  # its price lists: a part of the package, no request
    except ModuleNotFoundError:
        raise ConfigError('price auto needs genai-prices: pip install "headgate[prices]"') from None
    return _PublishedPrices(genai_prices)


ROUNDING = 1.0 + 1e-9
"""Sums of small amounts are not exact."""


class Budget(Protocol):
    """What rows may spend: a row reserves what it is expected to take before it starts, and is charged for what it
    really took. So a cap is not overrun by what is in flight, as far as the estimates hold.
    """

    is_capped: bool
    look_again: float
    """Seconds after which a row that is not allowed may be, though no row of this run has ended."""

    def allows(self, tokens: float, money: float) -> bool:
        """Whether a row that takes so much may start."""
        ...

    def reserve(self, tokens: float, money: float) -> None: ...

    def free(self, tokens: float, money: float) -> None:
        """What was reserved is not out any more."""
        ...

    def charge(self, tokens: float, money: float) -> None: ...

    def is_spent(self, tokens: float, money: float) -> bool:
        """Whether a row that is not allowed never will be, once nothing is in flight."""
        ...


class FixedBudget:
    """The ``Budget`` of one run alone: what it was given at the beginning."""

    look_again = UNKNOWN

    def __init__(self, max_tokens: float | None, max_cost: float | None) -> None:
        self._most_tokens = UNKNOWN if max_tokens is None else max_tokens
        self._most_money = UNKNOWN if max_cost is None else max_cost
        self.is_capped = min(self._most_tokens, self._most_money) < UNKNOWN
        self.tokens = self.money = 0.0
        """Spent, earlier runs included."""
        self._reserved_tokens = self._reserved_money = 0.0

    def allows(self, tokens: float, money: float) -> bool:
        return (
            self.tokens + self._reserved_tokens + tokens <= self._most_tokens * ROUNDING
            and self.money + self._reserved_money + money <= self._most_money * ROUNDING
        )

    def reserve(self, tokens: float, money: float) -> None:
        self._reserved_tokens += tokens
        self._reserved_money += money

    def free(self, tokens: float, money: float) -> None:
        self.reserve(-tokens, -money)

    def charge(self, tokens: float, money: float) -> None:
        self.tokens += tokens
        self.money += money

    def is_spent(self, tokens: float, money: float) -> bool:
        return True


def worth(cost: Cost, prices: Mapping[str, float]) -> tuple[float, float]:
    """Tokens and money of a cost. A plain number is a number of requests; a dimension called money is just that."""
    if not isinstance(cost, Mapping):
        return 0.0, prices.get("requests", 0.0) * cost
    money = sum(prices.get(dimension, float(dimension == "money")) * amount for dimension, amount in cost.items())
    if "tokens" in cost and not ("input_tokens" in cost and "output_tokens" in cost):
        return cost["tokens"], money
    counted = (amount for dimension, amount in cost.items() if dimension.endswith("tokens") and dimension != "tokens")
    return sum(counted), money
