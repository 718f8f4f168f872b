"""What can be asked of a recorded run: another quota, more keys, more workers; and how that is written.

x2  0.5/s   the quota      +2  5   the keys      50   the workers
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...units import LARGEST_FACTOR, Rate, read_rate
from .trace import MOST_KEYS


@dataclass(frozen=True, slots=True)
class Times:
    """So many times the quota that was seen."""

    factor: float

    def __str__(self) -> str:
        return f"x{self.factor:g}"


@dataclass(frozen=True, slots=True)
class Keys:
    """So many keys, or so many more than there were."""

    count: int
    is_more: bool = False

    def number(self, recorded: int) -> int:
        return self.count + recorded if self.is_more else self.count

    def __str__(self) -> str:
        return f"{self.count:,} {'more ' if self.is_more else ''}key{'' if self.count == 1 else 's'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What is to be different; ``None`` leaves it as it was recorded."""

    rate: Times | Rate | None = None
    """A ``Rate`` takes the place of the quota that was seen, over all recorded keys and from beginning to end."""
    keys: Keys | None = None
    workers: int | None = None

    def __str__(self) -> str:
        rate = "" if self.rate is None else f"quota {self.rate}"
        keys = "" if self.keys is None else str(self.keys)
        workers = "" if self.workers is None else f"{self.workers:,} worker{'' if self.workers == 1 else 's'}"
        return ", ".join(filter(None, (rate, keys, workers))) or "as recorded"


AS_RECORDED = WhatIf()


def read_whatif_rate(text: str) -> Times | Rate:
    """``x2`` is twice the quota that was seen, ``100/s`` another one."""
    written = text.strip().lower()
    if not written.startswith("x"):
        try:
            return read_rate(written)
        except ValueError:
            raise ValueError(f"{text!r} is not a rate; write x2 for twice the quota, or 100/s") from None
    try:
        factor = float(written[1:])
    except ValueError:
        factor = math.nan
    if not 1 / LARGEST_FACTOR <= factor <= LARGEST_FACTOR:
        raise ValueError(f"{text!r}: a factor is within {1 / LARGEST_FACTOR:g} and {LARGEST_FACTOR}, as in x2 or x0.5")
    return Times(factor)


def read_whatif_keys(text: str) -> Keys:
    """``+2`` is two more keys than there were, ``5`` is five."""
    written = text.strip()
    number = written.removeprefix("+")
    if not (number.isascii() and number.isdigit() and 1 <= int(number[:9]) <= MOST_KEYS):
        raise ValueError(f"{text!r} is no number of keys within 1 and {MOST_KEYS:,}; write +2 for two more, or 5")
    return Keys(int(number), is_more=written.startswith("+"))
