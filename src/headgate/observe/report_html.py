"""A report as one HTML file: nothing is fetched, no script runs, light or dark as whoever reads it likes."""

from __future__ import annotations

from html import escape

from .report import RunReport
from .report_charts import key_chart, latency_chart, progress_chart
from .report_tables import Sheet, facts, heading, sheets

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
    ('<polyline class="said" points="1,6 21,6"/>', "what the server says"),
    ('<rect class="done" width="22" height="12"/>', "done"),
    ('<line class="refused" x1="11" x2="11" y1="0" y2="12"/>', "429s"),
    ('<rect class="held" width="22" height="12"/>', "held after a refusal"),
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
        _pictures(report),
        *map(_sheet, sheets(report)),
        "<footer>Written by headgate. No credential is in it.</footer></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _pictures(report: RunReport) -> str:
    began, ended = report.snapshot.started_at, report.snapshot.at
    parts = []
    if len(report.notes) > 1:
        chart = progress_chart(report.notes, report.snapshot.progress.total, began, ended)
        about = "Green: done; red: given up; dashed: all there are, where that is known."
        parts.append(f'<section><h2>Progress</h2><p class="about">{about}</p>{chart}</section>')
    drawn = [line for line in report.timelines if len(line.at) > 1]
    if drawn:
        signs = "".join(f'<span><svg viewBox="0 0 22 12">{sign}</svg>{name}</span>' for sign, name in _LEGEND)
        parts.append(f'<section><h2>What was learned</h2><div class="legend">{signs}</div>')
        for line in drawn:
            parts.append(f"<h3>{escape(line.key)}</h3>{key_chart(line, began, ended)}")
            parts.append(f'<p class="about">latency</p>{latency_chart(line, began, ended)}')
        more = len(report.keys) + report.snapshot.more_keys - len(drawn)
        parts.append(f'<p class="about">{more:,} more keys are not drawn.</p></section>' if more > 0 else "</section>")
    return "\n".join(parts)


def _sheet(sheet: Sheet) -> str:
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
