"""The pictures of a report: SVG that takes its colours from the page it stands in, so that light and dark both work.

rate │   ╭──────╮  . . . what the server says          bands: held, ramp, circuit open
     │ ╭─╯      ╰────    learned                       ticks: 429s
     └──────────────────> time
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby, pairwise

from ..core.words import span
from .report import Note
from .snapshot import Timeline

WIDTH, HEIGHT = 760.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 12.0, 24.0
LATENCY_HEIGHT = 90.0
REFUSED_SHARE = 0.3
"""How much of the height the ticks of 429s may take."""
MOST_OF_THE_TIME = 0.97
"""A guess far above that lasted a moment must not flatten the rest: the axis ends where the rate was for so long."""

Points = list[tuple[float, float]]


class Field:
    """Where a value at an instant lies on the page."""

    def __init__(self, began: float, ended: float, highest: float, height: float) -> None:
        self.began, self.length = began, max(ended - began, 1e-3)
        self.step = _step(highest)
        self.highest = max(1, math.ceil(highest / self.step - 1e-9)) * self.step
        self.height, self.floor = height, height - BOTTOM

    def x(self, at: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * min(max((at - self.began) / self.length, 0.0), 1.0), 1)

    def y(self, value: float) -> float:
        return round(self.floor - (self.floor - TOP) * min(max(value / self.highest, 0.0), 1.0), 1)

    def line(self, name: str, points: Points) -> str:
        if len(points) < 2:
            return ""
        return f'<polyline class="{name}" points="{" ".join(f"{self.x(at)},{self.y(y)}" for at, y in points)}"/>'

    def axes(self, unit: str) -> Iterator[str]:
        for number in range(round(self.highest / self.step) + 1):
            value = number * self.step
            y = self.y(value)
            yield f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
            yield f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{value:,.4g}</text>'
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            anchor = "end" if share == 1.0 else "middle" if share else "start"
            words = span(share * self.length) if share else unit
            x = self.x(self.began + share * self.length)
            yield f'<text x="{x}" y="{self.height - 6}" text-anchor="{anchor}">{words}</text>'


def key_chart(line: Timeline, began: float, ended: float) -> str:
    """The learned rate against what the server says, what got done, 429s, and what the key was doing."""
    said = [(at, value) for at, value in zip(line.at, line.said, strict=True) if value is not None]
    calm = sorted(line.rate)[: max(1, math.ceil(MOST_OF_THE_TIME * len(line.rate)))]
    highest = max([*calm, *line.done, *(value for _, value in said)], default=0.0)
    field = Field(began, ended, highest or 1.0, HEIGHT)
    done: Points = list(zip(line.at, line.done, strict=True))
    parts = [*_bands(field, line), *field.axes("calls/s")]
    if len(done) > 1:
        edge = " ".join(f"{field.x(at)},{field.y(value)}" for at, value in done)
        corners = f"{field.x(done[0][0])},{field.floor} {edge} {field.x(done[-1][0])},{field.floor}"
        parts.append(f'<polygon class="done" points="{corners}"/>')
    parts.append(field.line("said", said))
    parts.append(field.line("learned", list(zip(line.at, line.rate, strict=True))))
    parts += _refused(field, line)
    told = f"{line.key}: learned rate, {line.rate[-1]:,.1f} calls a second at the end" if line.rate else line.key
    return _svg(parts, HEIGHT, told)


def latency_chart(line: Timeline, began: float, ended: float) -> str:
    field = Field(began, ended, max(line.latency, default=0.0) * 1000 or 1.0, LATENCY_HEIGHT)
    points = [(at, 1000 * value) for at, value in zip(line.at, line.latency, strict=True)]
    return _svg([*field.axes("ms"), field.line("latency", points)], LATENCY_HEIGHT, f"{line.key}: latency in ms")


def progress_chart(notes: Sequence[Note], total: int | None, began: float, ended: float) -> str:
    highest = max([note.done + note.dead for note in notes], default=0)
    field = Field(began, ended, float(max(highest, total or 0, 1)), HEIGHT)
    parts = [*field.axes("done"), field.line("progress", [(note.at, note.done) for note in notes])]
    if any(note.dead for note in notes):
        parts.append(field.line("dead", [(note.at, note.dead) for note in notes]))
    if total:
        parts.append(field.line("said", [(began, total), (ended, total)]))
    return _svg(parts, HEIGHT, f"Progress: {highest:,} finished")


def _bands(field: Field, line: Timeline) -> Iterator[str]:
    instants = [(began, ended, state) for (began, ended), state in zip(pairwise(line.at), line.state[1:], strict=True)]
    for state, group in groupby(instants, key=lambda one: one[2]):
        some = list(group)
        if state != "open":
            left, right = field.x(some[0][0]), field.x(some[-1][1])
            width, height = max(1.0, round(right - left, 1)), round(field.floor - TOP, 1)
            yield f'<rect class="{escape(state)}" x="{left}" y="{TOP}" width="{width}" height="{height}"/>'


def _refused(field: Field, line: Timeline) -> Iterator[str]:
    most = max(line.refused, default=0.0)
    for at, value in zip(line.at, line.refused, strict=True):
        if value > 0:
            top = round(field.floor - REFUSED_SHARE * (field.floor - TOP) * (0.3 + 0.7 * value / most), 1)
            yield f'<line class="refused" x1="{field.x(at)}" x2="{field.x(at)}" y1="{field.floor}" y2="{top}"/>'


def _svg(parts: Sequence[str], height: float, told: str) -> str:
    label = escape(told)
    head = f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{label}"><title>{label}</title>'
    return head + "".join(parts) + "</svg>"


def _step(highest: float) -> float:
    raw = max(highest, 1e-6) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * digit for digit in (1, 2, 5, 10) if raw <= power * digit * 1.0001)


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """A picture where there are only letters."""
    if not values:
        return ""
    per = max(1, -(-len(values) // width))
    means = [sum(values[n : n + per]) / len(values[n : n + per]) for n in range(0, len(values), per)]
    top = max(means) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * max(0.0, mean) / top))] for mean in means)
