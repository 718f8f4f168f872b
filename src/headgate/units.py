"""The short forms of settings and options: ``50/s``, ``200_000 per day``, ``40ms``, ``0.5@10s``, ``12s+3s``.

Each reader returns a value or raises ``ValueError`` with a sentence that shows the right form, so that a command line
can print it unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_PER_WINDOW = 1_000_000
"""The largest amount a quota may allow in one window; it bounds what a mock server must remember."""

LONGEST_DURATION = 31 * 86400.0
LARGEST_FACTOR = 1000

LONGEST_TEXT = 64

_UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0}
_UNITS |= {"h": 3600.0, "hr": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0}
_NUMBER = r"(?:[0-9]{1,12}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})"
_AMOUNT = r"(?:[0-9][0-9_,]*(?:\.[0-9]*)?|\.[0-9]+)"
_DURATION = re.compile(rf"({_NUMBER})\s*([a-z]*)")
_PER_WINDOW = re.compile(rf"({_AMOUNT})\s*(?:/|per)\s*({_NUMBER})?\s*([a-z]+)")


@dataclass(frozen=True, slots=True)
class Rate:
    """``amount`` calls in every ``window`` seconds."""

    amount: float
    window: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.amount <= MOST_PER_WINDOW:
            raise ValueError(f"a rate must be above 0 and at most {MOST_PER_WINDOW:,}, not {self.amount:,.10g}")
        if not 0 < self.window <= LONGEST_DURATION:
            raise ValueError(f"a rate's window must be above 0 s and at most 31 days, not {self.window:,.10g} s")

    @property
    def per_second(self) -> float:
        return self.amount / self.window

    def __str__(self) -> str:
        names = {1.0: "s", 60.0: "min", 3600.0: "h", 86400.0: "day"}
        return f"{self.amount:.10g}/{names.get(self.window, f'{self.window:.10g}s')}"


@dataclass(frozen=True, slots=True)
class Step:
    """From ``at`` on the quota is ``factor`` times what was configured."""

    factor: float
    at: float

    def __str__(self) -> str:
        return f"{self.factor:.10g}@{self.at:.10g}s"


@dataclass(frozen=True, slots=True)
class Outage:
    """Every call in the ``duration`` seconds after ``at`` fails."""

    at: float
    duration: float

    @property
    def until(self) -> float:
        return self.at + self.duration

    def __str__(self) -> str:
        return f"{self.at:.10g}s+{self.duration:.10g}s"


def read_whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def read_duration(text: str) -> float:
    """Seconds from ``40ms``, ``1.5s``, ``2min``, ``1h``, ``3d`` or a bare number of seconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    unit = _unit(match[2] or "s") if match else None
    if match is None or unit is None:
        raise ValueError(f"{text!r} is not a duration; write 40ms, 1.5s, 2min, 1h or 3d")
    duration = float(match[1]) * unit
    if duration > LONGEST_DURATION:
        raise ValueError(f"{text!r} is too long; the limit is 31 days")
    return duration


def read_rate(text: str) -> Rate:
    """A rate from ``50/s``, ``600/min``, ``200/10s`` or ``5000/h``."""
    found = _per_window(text)
    if found is None:
        raise ValueError(f"{text!r} is not a rate; write 50/s, 600/min or 200/10s")
    return Rate(*found)


def read_quota(text: str) -> tuple[float, float]:
    """``"500/min"``, ``"200_000 per day"`` or ``"100/10s"`` as (amount, window in seconds); not in milliseconds."""
    found = _per_window(text, shortest_unit=1.0)
    if found is None:
        shown = text[:LONGEST_TEXT]
        raise ValueError(f"{shown!r} is not a limit; write it like '500/min', '10/s', '200000/day' or '100/10s'")
    return found


def _per_window(text: str, shortest_unit: float = 0.0) -> tuple[float, float] | None:
    """An amount, and the window in seconds that it is for."""
    match = _PER_WINDOW.fullmatch(text.strip().lower()) if len(text) <= LONGEST_TEXT else None
    unit = _unit(match[3]) if match else None
    if match is None or unit is None or unit < shortest_unit:
        return None
    return float(re.sub("[_,]", "", match[1])), float(match[2] or 1) * unit


def _unit(name: str) -> float | None:
    """Seconds in a unit; its plural will do."""
    return _UNITS.get(name) or (_UNITS.get(name.removesuffix("s")) if len(name) > 2 else None)


def read_step(text: str) -> Step:
    """A change of quota from ``0.5@10s``: half of it from second 10 on."""
    factor, at_sign, at = text.strip().partition("@")
    if not at_sign or not re.fullmatch(_NUMBER, factor):
        raise ValueError(f"{text!r} is not a step; write 0.5@10s for half the quota from second 10 on")
    if not 0 < float(factor) <= LARGEST_FACTOR:
        raise ValueError(
            f"{text!r}: the factor must be above 0 and at most {LARGEST_FACTOR}; for no quota use an outage"
        )
    return Step(float(factor), read_duration(at))


def read_outage(text: str) -> Outage:
    """A time of failure from ``12s+3s``: three seconds from second 12 on."""
    at, plus, duration = text.strip().partition("+")
    if not plus:
        raise ValueError(f"{text!r} is not an outage; write 12s+3s for three seconds from second 12 on")
    outage = Outage(read_duration(at), read_duration(duration))
    if not outage.duration:
        raise ValueError(
            f"{text!r}: an outage must last longer than 0 s; write 12s+3s for three seconds from second 12 on"
        )
    return outage
