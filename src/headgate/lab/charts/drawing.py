"""Describe a drawing once, so that it can be written as SVG and as PNG.

Three marks are enough for every picture of a run; a drawing is a page and its marks in
the order in which they are laid on it. A unit is one pixel of an SVG at its natural
size, x grows to the right and y down, and words stand on their y.

    Line(points, colour)      one stroke through all points, dashed if asked
    Box(x, y, width, height, colour)
    Words(x, y, text)         anchored at their start, middle or end

A ``Scale`` places instants and values on the page; ticks, units and legends are the same in every chart.

The font with which an SVG will be shown is not known. ``width_of`` therefore tells the
width in the widest of the usual ones (DejaVu Sans): what fits by it, fits in all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Literal, TypeAlias

INK = "#1f2933"
BOLD = 600
"""From this weight on, a font without half tones shows its bold face."""

Point: TypeAlias = tuple[float, float]
Anchor: TypeAlias = Literal["start", "middle", "end"]

_NARROW, _USUAL, _WIDE, _WIDEST = 0.42, 0.65, 0.80, 1.05
"""Shares of the font size."""
_NARROW_LETTERS = frozenset(" !'(),-./:;I[\\]fijlrt|·")
_USUAL_LETTERS = frozenset('"$*?_`{}0123456789EFJLPSTYabcdeghknopqsuvxyz')
_WIDE_LETTERS = frozenset("&ABCDGHKNOQRUVXZw")
_BOLDER = 1.13


@dataclass(frozen=True, slots=True)
class Line:
    points: Sequence[Point]
    colour: str
    width: float = 1.0
    dash: tuple[float, float] | None = None
    """How long each dash and each gap is."""


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True, slots=True)
class Words:
    x: float
    y: float
    text: str
    size: int = 12
    colour: str = INK
    anchor: Anchor = "start"
    weight: int = 400

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", one_line(self.text))

    @property
    def left(self) -> float:
        """Where the words begin in the widest font; in no other do they reach further."""
        return (
            self.x
            - width_of(self.text, self.size, self.weight) * {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        )

    @property
    def right(self) -> float:
        return self.left + width_of(self.text, self.size, self.weight)


Mark: TypeAlias = Line | Box | Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    width: int
    height: int
    title: str
    """For screen readers."""
    marks: tuple[Mark, ...]
    background: str = "#ffffff"

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", one_line(self.title))


def one_line(text: str) -> str:
    """The text without line ends and signs that cannot be printed; no file format then trips over it."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def width_of(text: str, size: float, weight: int = 400) -> float:
    """The most room the text may take."""
    return sum(map(_share_of, text)) * size * (_BOLDER if weight >= BOLD else 1.0)


def _share_of(sign: str) -> float:
    if sign in _USUAL_LETTERS:
        return _USUAL
    if sign in _NARROW_LETTERS:
        return _NARROW
    return _WIDE if sign in _WIDE_LETTERS else _WIDEST


def fitted(text: str, room: float, size: float, weight: int = 400) -> str:
    """The text, or as much of its beginning as there is room for."""
    text = one_line(text)
    if width_of(text, size, weight) <= room:
        return text
    room -= width_of("…", size, weight)
    end, taken = 0, 0.0
    while end < len(text) and (taken := taken + width_of(text[end], size, weight)) <= room:
        end += 1
    return text[:end].rstrip(" ·,") + "…"


def wrapped(text: str, room: float, size: float, *, most_lines: int) -> list[str]:
    """The text in lines that fit; the last one is cut short if there would be more."""
    lines: list[str] = []
    rest = one_line(text).split(" ")
    while rest and rest != [""]:
        taken = 1
        while taken < len(rest) and width_of(" ".join(rest[: taken + 1]), size) <= room:
            taken += 1
        if len(lines) == most_lines - 1:
            taken = len(rest)
        lines.append(fitted(" ".join(rest[:taken]), room, size))
        rest = rest[taken:]
    return lines


# -- the colours of every picture, one meaning each
# Blue against orange stays apart for all common kinds of colour blindness; where two
# colours might not, the marks also differ in shape, brightness or place.

PALE, GRID = "#64707d", "#e6e9ed"
LEARNED, QUOTA = "#1668c7", "#e08700"
CALLS = "#cfe0f5"
REFUSED = "#d1242f"
OUTAGE = "#f7d9d9"
BREAKER = "#8250df"
WAITING, IN_FLIGHT = "#c9ced6", "#0b6e69"


# -- scales, round numbers for their ticks, and the entries of a legend

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
    """A number short enough for an axis: 0.5, 250, 1,000, 20k, 1.5M."""
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
