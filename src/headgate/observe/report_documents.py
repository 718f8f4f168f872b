"""A run's report as one file, HTML or Markdown, with its charts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby, pairwise

from ..formatting import format_seconds, printable
from .report import Note, RunReport, Sheet, facts, heading, sheets
from .snapshot import Timeline

# ---------------------------------------------------------------------- html
# A report as one HTML file: nothing is fetched, no script runs, light or dark as the reader prefers.


_STYLE = """
:root { color-scheme: light dark; --paper: #f5f6f8; --panel: #fff; --ink: #17202b; --pale: #5c6876; --rule: #e3e7ec;
  --learned: #1668c7; --said: #d07a00; --done: #1668c733; --refused: #d1242f; --latency: #6b7785;
  --circuit: #d1242f2b; --held: #e8a31f33; --ramp: #0b8a8026; --good: #0f827b; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #0e1319; --panel: #161c24; --ink: #e6ebf1; --pale: #96a3b1; --rule: #2a3442;
  --learned: #66adf8; --said: #f2a63c; --done: #5aa2f240; --refused: #ff6b6b; --latency: #93a0ae;
  --circuit: #ff6b6b38; --held: #f2b13c33; --ramp: #3fc4b62e; --good: #5cc9bf; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; overflow-wrap: anywhere; margin: 0 0 .3rem; }
h2 { font-size: 1.05rem; margin: 0 0 .4rem; } h3 { font-size: .95rem; margin: 1rem 0 .2rem; overflow-wrap: anywhere; }
section { background: var(--panel); border: 1px solid var(--rule); border-radius: 10px; padding: 1rem; margin: 1rem 0; }
p { margin: .2rem 0 .6rem; } .about, footer { color: var(--pale); font-size: .88rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .7rem 1rem; margin: 0; }
dt { color: var(--pale); font-size: .82rem; } dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td { overflow-wrap: anywhere; } td:not(.n) { min-width: 7.5rem; } th { color: var(--pale); font-weight: 500; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--pale); font: 11px system-ui, sans-serif; }
svg .rule { stroke: var(--rule); } polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
.learned { stroke: var(--learned); } .said { stroke: var(--said); stroke-dasharray: 7 4; } .done { fill: var(--done); }
.refused, .dead { stroke: var(--refused); stroke-width: 2; } .latency { stroke: var(--latency); }
.progress { stroke: var(--good); }
.circuit { fill: var(--circuit); } .held { fill: var(--held); } .ramp { fill: var(--ramp); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; color: var(--pale); font-size: .85rem; }
.legend svg { display: inline-block; width: 22px; height: 12px; vertical-align: -1px; margin-right: .3rem; }
@media (max-width: 36rem) { svg[role="img"] text { font-size: 18px; } }
@media print { :root { color-scheme: light; } body { background: none; } section { break-inside: avoid; } }
"""

_LEGEND = (
    ('<polyline class="learned" points="1,6 21,6"/>', "learned rate"),
    ('<polyline class="said" points="1,6 21,6"/>', "stated by the server"),
    ('<rect class="done" width="22" height="12"/>', "done"),
    ('<line class="refused" x1="11" x2="11" y1="0" y2="12"/>', "429s"),
    ('<rect class="held" width="22" height="12"/>', "held after a 429"),
    ('<rect class="ramp" width="22" height="12"/>', "ramp after a pause"),
    ('<rect class="circuit" width="22" height="12"/>', "circuit open"),
)


def as_html(report: RunReport) -> str:
    title = escape(heading(report))
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<header><h1>{title}</h1><p>{escape(report.ending)}</p></header>",
        "<section><h2>Numbers</h2><dl>",
        *(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts(report)),
        "</dl></section>",
        _html_charts(report),
        *map(_html_sheet, sheets(report)),
        "<footer>Written by headgate. No credential is in it.</footer></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _html_charts(report: RunReport) -> str:
    began, ended = report.snapshot.started_at, report.snapshot.at
    parts = []
    if len(report.notes) > 1:
        chart = progress_chart(report.notes, report.snapshot.progress.total, began, ended)
        about = "Green: done; red: failed; dashed: total, if known."
        parts.append(f'<section><h2>Progress</h2><p class="about">{about}</p>{chart}</section>')
    drawn = [line for line in report.timelines if len(line.at) > 1]
    if drawn:
        signs = "".join(f'<span><svg viewBox="0 0 22 12">{sign}</svg>{name}</span>' for sign, name in _LEGEND)
        parts.append(f'<section><h2>Learned rates</h2><div class="legend">{signs}</div>')
        for line in drawn:
            parts.append(f"<h3>{escape(line.key)}</h3>{key_chart(line, began, ended)}")
            parts.append(f'<p class="about">latency</p>{latency_chart(line, began, ended)}')
        more = len(report.keys) + report.snapshot.more_keys - len(drawn)
        parts.append(f'<p class="about">{more:,} more keys are not drawn.</p></section>' if more > 0 else "</section>")
    return "\n".join(parts)


def _html_sheet(sheet: Sheet) -> str:
    classes = [' class="n"' if name in sheet.numbers else "" for name in sheet.columns]
    head = "".join(f"<th{one}>{escape(name)}</th>" for name, one in zip(sheet.columns, classes, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{one}>{escape(cell)}</td>" for cell, one in zip(row, classes, strict=True)) + "</tr>"
        for row in sheet.rows
    )
    about = f'<p class="about">{escape(sheet.about)}</p>' if sheet.about else ""
    more = f'<p class="about">... and {sheet.more:,} more</p>' if sheet.more else ""
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    return f"<section><h2>{escape(sheet.title)}</h2>{about}{table}{more}</section>"


# ---------------------------------------------------------------------- charts
# The pictures of a report: SVG that takes its colours from the page it stands in, so that light and dark both work.


WIDTH, HEIGHT = 760.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 12.0, 24.0
LATENCY_HEIGHT = 90.0
REFUSED_SHARE = 0.3
"""How much of the height the ticks of 429s may take."""
MOST_OF_THE_TIME = 0.97
"""A guess far above that lasted a moment must not flatten the rest: the axis ends where the rate was for so long."""

Points = list[tuple[float, float]]


class Plot:
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
            words = format_seconds(share * self.length) if share else unit
            x = self.x(self.began + share * self.length)
            yield f'<text x="{x}" y="{self.height - 6}" text-anchor="{anchor}">{words}</text>'


def key_chart(line: Timeline, began: float, ended: float) -> str:
    """The learned rate against what the server says, what got done, 429s, and what the key was doing."""
    said = [(at, value) for at, value in zip(line.at, line.said, strict=True) if value is not None]
    calm = sorted(line.rate)[: max(1, math.ceil(MOST_OF_THE_TIME * len(line.rate)))]
    highest = max([*calm, *line.done, *(value for _, value in said)], default=0.0)
    field = Plot(began, ended, highest or 1.0, HEIGHT)
    done: Points = list(zip(line.at, line.done, strict=True))
    parts = [*_bands(field, line), *field.axes("calls/s")]
    if len(done) > 1:
        edge = " ".join(f"{field.x(at)},{field.y(value)}" for at, value in done)
        corners = f"{field.x(done[0][0])},{field.floor} {edge} {field.x(done[-1][0])},{field.floor}"
        parts.append(f'<polygon class="done" points="{corners}"/>')
    parts.append(field.line("said", said))
    parts.append(field.line("learned", list(zip(line.at, line.rate, strict=True))))
    parts += _refused(field, line)
    told = f"{line.key}: learned rate, {line.rate[-1]:,.1f} calls/s at the end" if line.rate else line.key
    return _svg(parts, HEIGHT, told)


def latency_chart(line: Timeline, began: float, ended: float) -> str:
    field = Plot(began, ended, max(line.latency, default=0.0) * 1000 or 1.0, LATENCY_HEIGHT)
    points = [(at, 1000 * value) for at, value in zip(line.at, line.latency, strict=True)]
    return _svg([*field.axes("ms"), field.line("latency", points)], LATENCY_HEIGHT, f"{line.key}: latency in ms")


def progress_chart(notes: Sequence[Note], total: int | None, began: float, ended: float) -> str:
    highest = max([note.done + note.dead for note in notes], default=0)
    field = Plot(began, ended, float(max(highest, total or 0, 1)), HEIGHT)
    parts = [*field.axes("done"), field.line("progress", [(note.at, note.done) for note in notes])]
    if any(note.dead for note in notes):
        parts.append(field.line("dead", [(note.at, note.dead) for note in notes]))
    if total:
        parts.append(field.line("said", [(began, total), (ended, total)]))
    return _svg(parts, HEIGHT, f"Progress: {highest:,} finished")


def _bands(field: Plot, line: Timeline) -> Iterator[str]:
    instants = [(began, ended, state) for (began, ended), state in zip(pairwise(line.at), line.state[1:], strict=True)]
    for state, group in groupby(instants, key=lambda one: one[2]):
        some = list(group)
        if state != "open":
            left, right = field.x(some[0][0]), field.x(some[-1][1])
            width, height = max(1.0, round(right - left, 1)), round(field.floor - TOP, 1)
            yield f'<rect class="{escape(state)}" x="{left}" y="{TOP}" width="{width}" height="{height}"/>'


def _refused(field: Plot, line: Timeline) -> Iterator[str]:
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


# ---------------------------------------------------------------------- markdown
# A report as Markdown: for a ticket or a pull request; its pictures are made of letters.


_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&])")


def as_markdown(report: RunReport) -> str:
    parts = [f"# {plainly(heading(report))}"]
    parts += [plainly(report.ending)] if report.ending else []
    parts.append(_table(("", ""), facts(report), ()))
    if pictures := _text_charts(report):
        parts += ["## Learned rates", f"```text\n{pictures}\n```"]
    parts += [_markdown_sheet(sheet) for sheet in sheets(report)]
    return "\n\n".join(parts) + "\n"


def _text_charts(report: RunReport) -> str:
    blocks = []
    for line in report.timelines:
        if len(line.at) < 2:
            continue
        said = next((value for value in reversed(line.said) if value is not None), None)
        says = "" if said is None else f"; the server states {said:,.1f}/s"
        block = [_bare(line.key), f"learned  {sparkline(line.rate)}  {line.rate[-1]:,.1f}/s at the end{says}"]
        block.append(f"done     {sparkline(line.done)}  at most {max(line.done):,.1f}/s")
        if any(line.refused):
            block.append(f"429s     {sparkline(line.refused)}  at most {max(line.refused):,.1f}/s")
        block.append(f"latency  {sparkline(line.latency)}  at most {1000 * max(line.latency):,.0f} ms")
        blocks.append("\n".join(block))
    return "\n\n".join(blocks)


def _markdown_sheet(sheet: Sheet) -> str:
    parts = [f"## {sheet.title}", sheet.about, _table(sheet.columns, sheet.rows, sheet.numbers)]
    parts += [f"... and {sheet.more:,} more"] if sheet.more else []
    return "\n\n".join(part for part in parts if part)


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], numbers: tuple[str, ...]) -> str:
    lines = [columns, tuple("---:" if name in numbers else "---" for name in columns)]
    body = [tuple(plainly(cell) for cell in row) for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in (*lines, *body))


def plainly(text: str) -> str:
    """The text with Markdown escaped: a server's message is shown as it is."""
    return _SPECIAL.sub(r"\\\1", _bare(text))


def _bare(text: str) -> str:
    return printable(" ".join(text.replace("```", "'''").split()))
