"""What every chart of a run needs: scales, round numbers for their ticks, and a legend's signs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Literal, TypeAlias

from .drawing import Box, Line, Mark, Point, Words

Points: TypeAlias = Sequence[tuple[float, float]]
"""(instant, value), in order of time."""
Spans: TypeAlias = Sequence[tuple[float, float]]
Shape: TypeAlias = Literal["line", "dashes", "box", "tick"]

DASH = (7.0, 4.0)
LONGEST_IN_SECONDS = 300.0
LONGEST_IN_MINUTES = 3 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A field of the page, and what its right and upper edge stand for; what lies beyond is drawn on the edge."""

    left: float
    right: float
    top: float
    bottom: float
    duration: float
    highest: float

    def x(self, at: float) -> float:
        return self.left + (self.right - self.left) * min(max(at / self.duration, 0.0), 1.0)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * min(max(value / self.highest, 0.0), 1.0)

    def moved(self, down: float) -> Scale:
        return replace(self, top=self.top + down, bottom=self.bottom + down)

    def place(self, points: Points) -> list[Point]:
        return [(self.x(at), self.y(value)) for at, value in points if not math.isnan(value)]


def stairs(points: Points, duration: float) -> list[tuple[float, float]]:
    """The corners of a value that holds until the next one."""
    corners: list[tuple[float, float]] = []
    for (start, value), (end, _) in pairwise([*points, (duration, 0.0)]):
        corners += [(start, value), (end, value)]
    return corners


def outline(points: Iterable[Point]) -> list[Point]:
    """The same line to the eye, with at most four points in each column of pixels and only the ends of level parts."""
    kept: list[Point] = []
    tenths = ((round(x, 1), round(y, 1)) for x, y in points)
    for _, group in groupby(tenths, key=lambda point: int(point[0])):
        column = list(group)
        order = range(len(column))
        lowest, highest = min(order, key=lambda n: column[n][1]), max(order, key=lambda n: column[n][1])
        for n in sorted({0, lowest, highest, len(column) - 1}):
            if len(kept) > 1 and kept[-2][1] == kept[-1][1] == column[n][1]:
                kept.pop()
            kept.append(column[n])
    return kept


def means(points: Points, duration: float, pieces: int) -> list[float]:
    """The mean of a value that holds until the next one, over so many equal pieces of the run."""
    width = duration / pieces
    sums = [0.0] * pieces
    for (start, value), (end, _) in pairwise([*points, (duration, 0.0)]):
        for number in range(max(int(start / width), 0), min(int(end / width) + 1, pieces)):
            sums[number] += value * max(min(end, (number + 1) * width) - max(start, number * width), 0.0)
    return [total / width for total in sums]


def nice_step(span: float, about: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that cuts ``span`` into about so many pieces."""
    raw = max(span, 1e-9) / about
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * digit for digit in (1, 2, 5, 10) if raw <= power * digit * 1.0001)


def nice_ceiling(value: float, *, about: int) -> float:
    """The next step at or above a value, so that the top of an axis has a tick."""
    step = nice_step(value, about)
    return max(math.ceil(value / step - 1e-9), 1) * step


def ticks_up_to(top: float, *, about: int) -> list[float]:
    step = nice_step(top, about)
    return [round(number * step, 12) for number in range(int(top / step + 1e-9) + 1)]


def time_unit(duration: float) -> tuple[float, str]:
    """In what to count the time of a run: (seconds, name)."""
    if duration <= LONGEST_IN_SECONDS:
        return 1.0, "s"
    return (60.0, "min") if duration <= LONGEST_IN_MINUTES else (3600.0, "h")


def pace_unit(highest: float) -> tuple[float, str]:
    """In what to tell a rate, so that it needs no leading zeros: (seconds, name)."""
    return next(
        ((seconds, name) for seconds, name in ((1.0, "s"), (60.0, "min")) if highest * seconds >= 1), (3600.0, "h")
    )


def brief(value: float) -> str:
    """A number short enough to stand beside an axis: 0.5, 250, 1,000, 20k, 1.5M."""
    if value >= 999_500:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if value >= 9_999.5 else f"{value:,.4g}"


def sign(x: float, y: float, name: str, colour: str, shape: Shape) -> Iterator[Mark]:
    """One entry of a legend: how it is drawn, and what it is called."""
    if shape == "box":
        yield Box(x, y - 10, 18, 11, colour)
    elif shape == "tick":
        yield Line([(x + 9, y - 11), (x + 9, y + 1)], colour, 2)
    else:
        yield Line([(x, y - 4), (x + 18, y - 4)], colour, 2.5, DASH if shape == "dashes" else None)
    yield Words(x + 24, y, name)
