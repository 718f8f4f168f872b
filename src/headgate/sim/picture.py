"""Draw a run as one SVG: what was learned against what was true, and where it hurt.

The picture is written by hand rather than by a plotting library, which would be the
largest dependency of the project for a single drawing.

    title and headline
    calls/s |  true quota ----.        shaded: outage, breaker open
            |  learned  ~~~~~~ `----
            |  bars: calls done per second
     429s   |  |  |        |||                       one tick per refusal
              0 s       5 s       10 s
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.sax.saxutils import escape

Points = Sequence[tuple[float, float]]
Spans = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 960, 500
LEFT, RIGHT, TOP, BOTTOM = 64, 936, 118, 402
TICKS_TOP, TICKS_BOTTOM = 410, 424
MOST_TICKS = 2_000
"""Refusals drawn at most; more would only be one red block."""
BAR = 0.5
"""Seconds that one bar of calls done stands for, unless the run is long."""
MOST_BARS = 240

INK, PALE, GRID = "#1f2933", "#64707d", "#e6e9ed"
LEARNED, QUOTA, DONE, REFUSED, OUTAGE, BREAKER = "#1668c7", "#e08700", "#cfe0f5", "#d1242f", "#f7d9d9", "#8250df"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPicture:
    """Instants are seconds since the run began, rates are calls per second."""

    title: str
    headline: str
    duration: float
    learned: Points
    quota: Points
    """Where the true quota changes; each value holds until the next."""
    done_at: Sequence[float]
    refused_at: Sequence[float]
    outages: Spans
    breaker_open: Spans

    def to_svg(self) -> str:
        top = nice_ceiling(1.05 * max((rate for _, rate in (*self.learned, *self.quota)), default=1.0), about=5)
        scale = Scale(max(self.duration, 0.1), top)
        parts = [
            *self._frame(),
            *self._shades(scale),
            *axes(scale),
            *self._bars(scale),
            *self._lines(scale),
            *self._ticks(scale),
            *legend(),
        ]
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            f'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, DejaVu Sans, sans-serif" role="img">'
        )
        return "\n".join([head, f"<title>{escape(self.title)}: {escape(self.headline)}</title>", *parts, "</svg>", ""])

    def _frame(self) -> Iterable[str]:
        yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        yield words(LEFT - 40, 38, self.title, size=20, weight=600)
        yield words(LEFT - 40, 62, self.headline, size=13, colour=PALE)
        yield words(LEFT - 40, TOP - 14, "calls per second", size=12, colour=PALE)

    def _shades(self, scale: Scale) -> Iterable[str]:
        for start, end in self.outages:
            left, right = scale.x(start), scale.x(end)
            yield box(left, TOP, right - left, BOTTOM - TOP, OUTAGE)
            yield words((left + right) / 2, TOP + 16, "outage", size=11, colour=REFUSED, anchor="middle")
        for start, end in self.breaker_open:
            left, right = scale.x(start), scale.x(end)
            yield box(left, TOP - 7, max(right - left, 1.5), 7, BREAKER)

    def _bars(self, scale: Scale) -> Iterable[str]:
        """Calls done, as rates, over slices of the run; the last slice may be shorter."""
        width = max(BAR, self.duration / MOST_BARS)
        counts = Counter(int(at / width) for at in self.done_at)
        for number, count in sorted(counts.items()):
            start, end = number * width, min((number + 1) * width, self.duration)
            if end - start < width / 4:
                continue
            left, right, y = scale.x(start), scale.x(end), scale.y(count / (end - start))
            yield box(left, y, right - left - 1, BOTTOM - y, DONE)

    def _lines(self, scale: Scale) -> Iterable[str]:
        corners: list[tuple[float, float]] = []
        for (start, rate), (end, _) in pairwise([*self.quota, (self.duration, 0.0)]):
            corners += [(start, rate), (end, rate)]
        yield path(scale, corners, QUOTA, width=2.5, dash="7 4")
        yield path(scale, self.learned, LEARNED, width=2.2)

    def _ticks(self, scale: Scale) -> Iterable[str]:
        yield words(LEFT - 10, TICKS_BOTTOM - 3, "429s", size=11, colour=REFUSED, anchor="end")
        step = math.ceil(len(self.refused_at) / MOST_TICKS) or 1
        for at in self.refused_at[::step]:
            x = scale.x(at)
            yield f'<path d="M{x:.1f} {TICKS_TOP}V{TICKS_BOTTOM}" stroke="{REFUSED}" stroke-width="1.2"/>'


@dataclass(frozen=True, slots=True)
class Scale:
    duration: float
    top: float

    def x(self, at: float) -> float:
        return LEFT + (RIGHT - LEFT) * min(max(at / self.duration, 0.0), 1.0)

    def y(self, rate: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * min(max(rate / self.top, 0.0), 1.0)


def axes(scale: Scale) -> Iterable[str]:
    for rate in ticks_up_to(scale.top, about=5):
        y = scale.y(rate)
        yield f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="{INK if rate == 0 else GRID}"/>'
        yield words(LEFT - 10, y + 4, f"{rate:g}", size=12, colour=PALE, anchor="end")
    for at in ticks_up_to(scale.duration, about=10):
        x = scale.x(at)
        yield f'<path d="M{x:.1f} {TICKS_BOTTOM + 4}v5" stroke="{PALE}"/>'
        yield words(x, TICKS_BOTTOM + 23, f"{at:g} s", size=12, colour=PALE, anchor="middle")


def legend() -> Iterable[str]:
    x, y = float(LEFT), HEIGHT - 22.0
    for name, colour, shape in (
        ("true quota (the client is never told)", QUOTA, "dashes"),
        ("learned rate", LEARNED, "line"),
        ("calls done per second", DONE, "box"),
        ("429", REFUSED, "tick"),
        ("outage", OUTAGE, "box"),
        ("breaker open", BREAKER, "box"),
    ):
        if shape == "box":
            yield box(x, y - 10, 18, 11, colour)
        elif shape == "tick":
            yield f'<path d="M{x + 9} {y - 11}v12" stroke="{colour}" stroke-width="2"/>'
        else:
            dash = ' stroke-dasharray="7 4"' if shape == "dashes" else ""
            yield f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="2.5"{dash}/>'
        yield words(x + 24, y, name, size=12)
        x += 52 + 5.9 * len(name)


def path(scale: Scale, points: Points, colour: str, *, width: float, dash: str = "") -> str:
    drawn = "L".join(f"{scale.x(at):.1f} {scale.y(rate):.1f}" for at, rate in points) or "0 0"  # nothing to draw
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="M{drawn}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"{dashes}/>'


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 0.0):.1f}" fill="{colour}"/>'


def words(
    x: float, y: float, text: str, *, size: int, colour: str = INK, anchor: str = "start", weight: int = 400
) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {where} font-size="{size}" font-weight="{weight}" fill="{colour}">{escape(text)}</text>'


def nice_step(span: float, about: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that cuts ``span`` into about so many pieces."""
    raw = max(span, 1e-9) / about
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * digit for digit in (1, 2, 5, 10) if raw <= power * digit * 1.0001)


def nice_ceiling(value: float, *, about: int) -> float:
    """The next step above a value, so that the top of an axis has a tick."""
    step = nice_step(value, about)
    return max(math.ceil(value / step) * step, 1.0)


def ticks_up_to(top: float, *, about: int) -> list[float]:
    step = nice_step(top, about)
    return [round(number * step, 9) for number in range(int(top / step + 1e-9) + 1)]
