"""Draw simulated runs: one panel for each strategy, all on the same axes.

    title and note
    name                                          goodput and 429s
    200/s |  true quota ----.              shaded: outage
          |  learned  ~~~~~~ `----
        0 |  bars: calls admitted
     429s |  |  |        |||
       32 |  filled: calls waiting, line: calls in flight
        0 |
            0 s       5 s       10 s
    legend

Runs come as plain points, so that anything that can count calls can be drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...errors import ConfigError
from ..measures import BIN, Run
from ..scenario import Scenario
from .drawing import (
    CALLS,
    DASH,
    GRID,
    IN_FLIGHT,
    INK,
    LEARNED,
    OUTAGE,
    PALE,
    QUOTA,
    REFUSED,
    WAITING,
    Box,
    Drawing,
    Line,
    Mark,
    Points,
    Scale,
    Shape,
    Spans,
    Words,
    brief,
    fitted,
    means,
    nice_ceiling,
    outline,
    pace_unit,
    sign,
    stairs,
    ticks_up_to,
    time_unit,
    width_of,
    wrapped,
)

WIDTH, MARGIN, LEFT, RIGHT = 960, 24, 64, 930
MOST_PANELS = 6
NOTE_LINES = 2
TICK = 1.2
MOST_BARS, FEWEST_BARS = 240, 24
SHORTEST_BAR = 0.5
NARROW_BAR = 5.0
CALLS_PER_BAR = 5
"""A bar that stands for fewer calls shows chance rather than a rate, so slow runs get longer bars."""
ABOVE_QUOTA = 1.5
"""Rates beyond so many times the highest quota leave the chart: one wild guess must not flatten the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPanel:
    """One run. Instants are seconds since it began, rates are calls per second; each value holds until the next."""

    name: str
    headline: str
    learned: Points
    """What the strategy took for the quota; empty if it learns no rate."""
    admitted: Points
    refused_at: Sequence[float]
    waiting: Points
    """Calls in the queue: those of workers at the gate, and those that no worker has taken yet."""
    in_flight: Points


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPicture:
    """One to ``MOST_PANELS`` runs in the same scenario."""

    title: str
    note: str
    duration: float
    quota: Points
    """What was true; each value holds until the next."""
    outages: Spans
    panels: Sequence[RunPanel]
    quota_name: str = "true quota"

    def __post_init__(self) -> None:
        if not 0 < self.duration < math.inf:
            raise ConfigError(f"duration={self.duration!r} must be above 0 s and finite")
        if not 1 <= len(self.panels) <= MOST_PANELS:
            raise ConfigError(f"panels: expected 1 to {MOST_PANELS} runs, got {len(self.panels)}")

    def drawing(self) -> Drawing:
        marks: list[Mark] = list(self._head())
        rates, workers = self._first_fields(top=106.0 if len(marks) <= 2 else 124.0)
        pitch = workers.bottom - rates.top + 54
        for number, panel in enumerate(self.panels):
            down = number * pitch
            marks += self._panel(panel, rates.moved(down), workers.moved(down))
            marks += times(workers.bottom + down + 4, self.duration, labelled=number == len(self.panels) - 1)
        bottom = workers.bottom + (len(self.panels) - 1) * pitch
        marks += legend(bottom + 56, self._shown())
        return Drawing(width=WIDTH, height=round(bottom + 80), title=f"{self.title}: {self.note}", marks=tuple(marks))

    def _head(self) -> Iterator[Mark]:
        room = WIDTH - 2 * MARGIN
        size = 20 if width_of(self.title, 20, 600) <= room else 16
        yield Words(MARGIN, 38, fitted(self.title, room, size, 600), size=size, weight=600)
        for number, line in enumerate(wrapped(self.note, room, 13, most_lines=NOTE_LINES)):
            yield Words(MARGIN, 62 + 18 * number, line, size=13, colour=PALE)

    def _first_fields(self, top: float) -> tuple[Scale, Scale]:
        """Where the first panel's rates and workers go; the more panels, the flatter they are."""
        among = len(self.panels)
        bottom = top + max(44 + 240 / among, 100)
        sides = {"left": LEFT, "right": RIGHT, "duration": self.duration}
        rates = Scale(**sides, top=top, bottom=bottom, highest=self._highest_rate())
        strip = bottom + 34
        crowd = max(highest_of([*panel.waiting, *panel.in_flight]) for panel in self.panels)
        most = nice_ceiling(max(crowd, 1.0), about=5)
        return rates, Scale(**sides, top=strip, bottom=strip + (44 if among == 1 else 34), highest=most)

    def _highest_rate(self) -> float:
        quota = highest_of(self.quota)
        seen = max(max(highest_of(panel.learned), *self._bars(panel)) for panel in self.panels)
        highest = 1.05 * max(quota, min(seen, ABOVE_QUOTA * quota) if quota else seen) or 1.0
        seconds, _ = pace_unit(highest)
        return nice_ceiling(highest * seconds, about=8) / seconds

    def _bars(self, panel: RunPanel) -> list[float]:
        quota = highest_of(self.quota)
        steady = min(CALLS_PER_BAR / quota if quota else 0.0, self.duration / FEWEST_BARS)
        width = max(SHORTEST_BAR, steady, self.duration / MOST_BARS)
        return means(panel.admitted, self.duration, math.ceil(self.duration / width))

    def _panel(self, panel: RunPanel, rates: Scale, workers: Scale) -> Iterator[Mark]:
        yield from header(panel, rates)
        for start, end in (span for span in self.outages if span[0] < self.duration):
            left, right = rates.x(start), rates.x(end)
            yield Box(left, rates.top, max(right - left, 1.0), workers.bottom - rates.top, OUTAGE)
        yield from rate_grid(rates, *pace_unit(rates.highest))
        yield from worker_grid(workers)
        yield from bars(self._bars(panel), rates, CALLS)
        yield from bars(means(panel.waiting, self.duration, MOST_BARS), workers, WAITING)
        yield from curve(panel.learned, rates, LEARNED, 2.2)
        yield from curve(panel.in_flight, workers, IN_FLIGHT, 1.8)
        yield Line(outline(rates.place(stairs(self.quota, self.duration))), QUOTA, 2.2, DASH)
        yield from refusals(panel.refused_at, rates)

    def _shown(self) -> Iterator[tuple[str, str, Shape]]:
        """What the legend has to explain."""
        if self.quota:
            yield self.quota_name, QUOTA, "dashes"
        if any(panel.learned for panel in self.panels):
            yield "learned rate", LEARNED, "line"
        yield "calls admitted", CALLS, "box"
        if any(panel.refused_at for panel in self.panels):
            yield "429", REFUSED, "tick"
        if self.outages:
            yield "outage", OUTAGE, "box"
        yield "calls waiting", WAITING, "box"
        yield "calls in flight", IN_FLIGHT, "line"


def highest_of(points: Points) -> float:
    return max((value for _, value in points if math.isfinite(value)), default=0.0)


def header(panel: RunPanel, rates: Scale) -> Iterator[Mark]:
    y = rates.top - 15
    headline = fitted(panel.headline, 0.6 * (RIGHT - MARGIN), 13)
    room = RIGHT - MARGIN - width_of(headline, 13) - 24
    name = Words(MARGIN, y, fitted(panel.name, room, 14, 600), size=14, weight=600)
    yield name
    yield Words(RIGHT, y, headline, size=13, colour=PALE, anchor="end")
    wildest = max((rate for _, rate in panel.learned if not math.isnan(rate)), default=0.0)
    if wildest > rates.highest:
        seconds, unit = pace_unit(rates.highest)
        aside = f"learned up to {brief(wildest * seconds)}/{unit}" if wildest < math.inf else "no learned limit"
        if width_of(aside, 12) + 12 <= room - (name.right - name.left):
            yield Words(name.right + 12, y, aside, colour=LEARNED)


def rate_grid(rates: Scale, seconds: float, unit: str) -> Iterator[Mark]:
    """Lines for round rates by the unit, which the highest names."""
    ticks = ticks_up_to(rates.highest * seconds, about=4 if rates.bottom - rates.top > 150 else 2)
    for amount in ticks:
        y = rates.y(amount / seconds)
        yield Line([(LEFT, y), (RIGHT, y)], GRID)
        label = brief(amount) + (f"/{unit}" if amount == ticks[-1] else "")
        yield Words(LEFT - 10, y + 4, label, colour=PALE, anchor="end")


def worker_grid(workers: Scale) -> Iterator[Mark]:
    for count in (0.0, workers.highest):
        y = workers.y(count)
        yield Line([(LEFT, y), (RIGHT, y)], GRID)
        yield Words(LEFT - 10, y + 4, brief(count), size=11, colour=PALE, anchor="end")


def bars(values: Sequence[float], scale: Scale, colour: str) -> Iterator[Mark]:
    """Equal parts of the run side by side: apart where there is room for it, else without seams."""
    width = (RIGHT - LEFT) / len(values)
    gap = 1.0 if width > NARROW_BAR else -0.5
    for number, value in enumerate(values):
        left, y = LEFT + number * width, scale.y(value)
        if y < scale.bottom:
            yield Box(left, y, min(width - gap, RIGHT - left), scale.bottom - y, colour)
    yield Line([(LEFT, scale.bottom), (RIGHT, scale.bottom)], INK)


def curve(points: Points, scale: Scale, colour: str, width: float) -> Iterator[Mark]:
    if points:
        yield Line(outline(scale.place([*points, (scale.duration, points[-1][1])])), colour, width)


def refusals(refused_at: Sequence[float], rates: Scale) -> Iterator[Mark]:
    """A tick for each; ticks that touch become one."""
    top, bottom = rates.bottom + 8, rates.bottom + 22
    yield Words(LEFT - 10, bottom - 3, "429s", size=11, colour=REFUSED, anchor="end")
    start = end = -math.inf
    for x in (*sorted({rates.x(at) for at in refused_at}), math.inf):
        if x - end > TICK:
            if start > 0:
                yield Box(start - TICK / 2, top, end - start + TICK, bottom - top, REFUSED)
            start = x
        end = x


def times(top: float, duration: float, *, labelled: bool) -> Iterator[Mark]:
    seconds, unit = time_unit(duration)
    for amount in ticks_up_to(duration / seconds, about=10):
        x = LEFT + (RIGHT - LEFT) * min(amount * seconds / duration, 1.0)
        yield Line([(x, top), (x, top + 5)], PALE)
        if labelled:
            yield Words(x, top + 19, f"{brief(amount)} {unit}", colour=PALE, anchor="middle")


def legend(y: float, entries: Iterable[tuple[str, str, Shape]]) -> Iterator[Mark]:
    x = float(LEFT)
    for name, colour, shape in entries:
        yield from sign(x, y, name, colour, shape)
        x += 24 + width_of(name, 12) + 16


# -- from a run to its picture: what was counted by half seconds becomes points to draw


def picture_of(
    runs: Sequence[tuple[str, Run]],
    *,
    title: str,
    note: str,
    outages: Spans = (),
    duration: float | None = None,
    quota_name: str = "true quota",
) -> RunsPicture:
    """Runs that were watched, each with its headline, in one server; up to ``duration`` if that is given."""
    first = runs[0][1]
    end = first.horizon if duration is None else duration
    return RunsPicture(
        title=title,
        note=note,
        duration=end,
        quota=quota_of(first, end),
        outages=[(start, until) for start, until in outages if start < end],
        panels=[panel_of(run, headline, end) for headline, run in runs],
        quota_name=quota_name,
    )


def panel_of(run: Run, headline: str, end: float) -> RunPanel:
    samples = [sample for sample in run.samples if sample.at <= end]
    bins = math.ceil(end / BIN)
    return RunPanel(
        name=run.strategy,
        headline=headline,
        learned=[(sample.at, sample.learned) for sample in samples if sample.learned is not None],
        admitted=[(number * BIN, count / BIN) for number, count in enumerate(run.admitted_per_bin[:bins])],
        refused_at=[(number + 0.5) * BIN for number, count in enumerate(run.refused_per_bin[:bins]) if count],
        waiting=[(sample.at, float(sample.waiting)) for sample in samples],
        in_flight=[(sample.at, float(sample.in_flight)) for sample in samples],
    )


def quota_of(run: Run, end: float) -> Points:
    """What the quota allowed, as the points at which it changed."""
    points: list[tuple[float, float]] = []
    for number, allowed in enumerate(run.allowed_per_bin[: math.ceil(end / BIN)]):
        rate = round(allowed / BIN, 6)
        if not points or points[-1][1] != rate:
            points.append((number * BIN, rate))
    return points


def outages_of(scenario: Scenario) -> Spans:
    return [(outage.at, outage.until) for outage in (*scenario.outages, *scenario.hangs)]
