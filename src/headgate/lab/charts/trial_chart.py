"""Draw a live run on several keys: what was learned of each against what was true, and where it hurt.

    title and headline
    key-1                              calls, 429s, rests
    80/s |  true quota ----.        shaded: outage; a bar above: breaker open
         |  learned  ~~~~~~ `----
       0 |  bars: calls done per second
    429s |  |  |        |||
    key-2 ...
           0 s       5 s       10 s
    legend

Each key has a scale of its own: how well a small one is found matters as much as a large one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .drawing import (
    BREAKER,
    CALLS,
    DASH,
    LEARNED,
    OUTAGE,
    PALE,
    QUOTA,
    REFUSED,
    Box,
    Drawing,
    Line,
    Mark,
    Points,
    Scale,
    Shape,
    Spans,
    Words,
    nice_ceiling,
    outline,
    stairs,
)
from .drawing_file import to_svg
from .run_chart import LEFT, MARGIN, RIGHT, WIDTH, bars, curve, highest_of, legend, rate_grid, refusals, times

TOP = 116.0
ALL_PANELS = 330.0
"""Height of the fields of all keys together, with ..."""
SHORTEST = 90.0
"""... at least so much for each, and ..."""
BETWEEN = 68.0
"""... so much between two of them."""
BAR = 0.5
"""Seconds that one bar of calls done stands for, unless the run is long."""
MOST_BARS = 240

LEGEND: tuple[tuple[str, str, Shape], ...] = (
    ("true quota (hidden from the client)", QUOTA, "dashes"),
    ("learned rate", LEARNED, "line"),
    ("calls done per second", CALLS, "box"),
    ("429", REFUSED, "tick"),
    ("outage", OUTAGE, "box"),
    ("breaker open", BREAKER, "box"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPanel:
    """One key. Instants are seconds since the run began, rates are calls per second."""

    name: str
    headline: str
    learned: Points
    quota: Points
    """Where the true quota changes; each value holds until the next."""
    done_at: Sequence[float]
    refused_at: Sequence[float]
    breaker_open: Spans


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPicture:
    title: str
    headline: str
    duration: float
    outages: Spans
    panels: Sequence[KeyPanel]

    def to_svg(self) -> str:
        return to_svg(self.drawing())

    def drawing(self) -> Drawing:
        height = max(ALL_PANELS / len(self.panels), SHORTEST)
        marks: list[Mark] = [
            Words(MARGIN, 38, self.title, size=20, weight=600),
            Words(MARGIN, 62, self.headline, size=13, colour=PALE),
        ]
        top = TOP
        for panel in self.panels:
            scale = self._scale(panel, top, top + height)
            marks += self._panel(panel, scale)
            marks += times(scale.bottom + 26, scale.duration, labelled=panel is self.panels[-1])
            top = scale.bottom + BETWEEN
        bottom = top - BETWEEN
        marks += legend(bottom + 76, LEGEND)
        return Drawing(
            width=WIDTH, height=round(bottom + 98), title=f"{self.title}: {self.headline}", marks=tuple(marks)
        )

    def _scale(self, panel: KeyPanel, top: float, bottom: float) -> Scale:
        highest = 1.05 * highest_of([*panel.learned, *panel.quota]) or 1.0
        return Scale(
            left=LEFT,
            right=RIGHT,
            top=top,
            bottom=bottom,
            duration=max(self.duration, 0.1),
            highest=nice_ceiling(highest, about=8),
        )

    def _panel(self, panel: KeyPanel, scale: Scale) -> Iterator[Mark]:
        yield Words(MARGIN, scale.top - 15, panel.name, size=14, weight=600)
        yield Words(RIGHT, scale.top - 15, panel.headline, size=13, colour=PALE, anchor="end")
        for start, end in self.outages:
            left, right = scale.x(start), scale.x(end)
            yield Box(left, scale.top, right - left, scale.bottom - scale.top, OUTAGE)
        for start, end in panel.breaker_open:
            left, right = scale.x(start), scale.x(end)
            yield Box(left, scale.top - 7, max(right - left, 1.5), 7, BREAKER)
        yield from rate_grid(scale, 1.0, "s")
        yield from bars(self._done_per_second(panel), scale, CALLS)
        yield Line(outline(scale.place(stairs(panel.quota, self.duration))), QUOTA, 2.5, DASH)
        yield from curve(panel.learned, scale, LEARNED, 2.2)
        yield from refusals(panel.refused_at, scale)

    def _done_per_second(self, panel: KeyPanel) -> list[float]:
        """Calls done, as rates, over equal slices of the run."""
        slices = min(MOST_BARS, max(1, round(self.duration / BAR)))
        width = max(self.duration, 0.1) / slices
        counts = Counter(min(int(at / width), slices - 1) for at in panel.done_at)
        return [counts[number] / width for number in range(slices)]
