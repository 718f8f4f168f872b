"""Draw a live run: what was learned against what was true, and where it hurt.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .chart import DASH, Points, Scale, Shape, Spans, nice_ceiling, sign, stairs, ticks_up_to
from .drawing import Box, Drawing, Line, Mark, Words
from .palette import BREAKER, CALLS, GRID, INK, LEARNED, OUTAGE, PALE, QUOTA, REFUSED
from .svg import to_svg

WIDTH, HEIGHT = 960, 500
LEFT, RIGHT, TOP, BOTTOM = 64, 936, 118, 402
TICKS_TOP, TICKS_BOTTOM = 410, 424
MOST_TICKS = 2_000
"""Refusals drawn at most; more would only be one red block."""
BAR = 0.5
"""Seconds that one bar of calls done stands for, unless the run is long."""
MOST_BARS = 240

LEGEND: tuple[tuple[str, str, Shape], ...] = (
    ("true quota (the client is never told)", QUOTA, "dashes"),
    ("learned rate", LEARNED, "line"),
    ("calls done per second", CALLS, "box"),
    ("429", REFUSED, "tick"),
    ("outage", OUTAGE, "box"),
    ("breaker open", BREAKER, "box"),
)


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
        return to_svg(self.drawing())

    def drawing(self) -> Drawing:
        highest = 1.05 * max((rate for _, rate in (*self.learned, *self.quota)), default=1.0)
        scale = Scale(
            left=LEFT,
            right=RIGHT,
            top=TOP,
            bottom=BOTTOM,
            duration=max(self.duration, 0.1),
            highest=max(nice_ceiling(highest, about=5), 1.0),
        )
        marks = (
            *self._head(),
            *self._shades(scale),
            *axes(scale),
            *self._bars(scale),
            *self._lines(scale),
            *self._ticks(scale),
            *legend(),
        )
        return Drawing(width=WIDTH, height=HEIGHT, title=f"{self.title}: {self.headline}", marks=marks)

    def _head(self) -> Iterator[Mark]:
        yield Words(LEFT - 40, 38, self.title, size=20, weight=600)
        yield Words(LEFT - 40, 62, self.headline, size=13, colour=PALE)
        yield Words(LEFT - 40, TOP - 14, "calls per second", colour=PALE)

    def _shades(self, scale: Scale) -> Iterator[Mark]:
        for start, end in self.outages:
            left, right = scale.x(start), scale.x(end)
            yield Box(left, TOP, right - left, BOTTOM - TOP, OUTAGE)
            yield Words((left + right) / 2, TOP + 16, "outage", size=11, colour=REFUSED, anchor="middle")
        for start, end in self.breaker_open:
            left, right = scale.x(start), scale.x(end)
            yield Box(left, TOP - 7, max(right - left, 1.5), 7, BREAKER)

    def _bars(self, scale: Scale) -> Iterator[Mark]:
        """Calls done, as rates, over slices of the run; the last slice may be shorter."""
        width = max(BAR, self.duration / MOST_BARS)
        counts = Counter(int(at / width) for at in self.done_at)
        for number, count in sorted(counts.items()):
            start, end = number * width, min((number + 1) * width, self.duration)
            if end - start < width / 4:
                continue
            left, right, y = scale.x(start), scale.x(end), scale.y(count / (end - start))
            yield Box(left, y, right - left - 1, BOTTOM - y, CALLS)

    def _lines(self, scale: Scale) -> Iterator[Mark]:
        yield Line(scale.place(stairs(self.quota, self.duration)), QUOTA, 2.5, DASH)
        yield Line(scale.place(self.learned), LEARNED, 2.2)

    def _ticks(self, scale: Scale) -> Iterator[Mark]:
        yield Words(LEFT - 10, TICKS_BOTTOM - 3, "429s", size=11, colour=REFUSED, anchor="end")
        step = math.ceil(len(self.refused_at) / MOST_TICKS) or 1
        for at in self.refused_at[::step]:
            x = scale.x(at)
            yield Line([(x, TICKS_TOP), (x, TICKS_BOTTOM)], REFUSED, 1.2)


def axes(scale: Scale) -> Iterator[Mark]:
    for rate in ticks_up_to(scale.highest, about=5):
        y = scale.y(rate)
        yield Line([(LEFT, y), (RIGHT, y)], INK if rate == 0 else GRID)
        yield Words(LEFT - 10, y + 4, f"{rate:g}", colour=PALE, anchor="end")
    for at in ticks_up_to(scale.duration, about=10):
        x = scale.x(at)
        yield Line([(x, TICKS_BOTTOM + 4), (x, TICKS_BOTTOM + 9)], PALE)
        yield Words(x, TICKS_BOTTOM + 23, f"{at:g} s", colour=PALE, anchor="middle")


def legend() -> Iterator[Mark]:
    x = float(LEFT)
    for name, colour, shape in LEGEND:
        yield from sign(x, HEIGHT - 22.0, name, colour, shape)
        x += 52 + 5.9 * len(name)
