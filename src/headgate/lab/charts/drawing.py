"""Describe a drawing once, so that it can be written as SVG and as PNG.

Three marks are enough for every picture of a run; a drawing is a page and its marks in
the order in which they are laid on it. A unit is one pixel of an SVG at its natural
size, x grows to the right and y down, and words stand on their y.

    Line(points, colour)      one stroke through all points, dashed if asked
    Box(x, y, width, height, colour)
    Words(x, y, text)         anchored at their start, middle or end

The font with which an SVG will be shown is not known. ``width_of`` therefore tells the
width in the widest of the usual ones (DejaVu Sans): what fits by it, fits in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
