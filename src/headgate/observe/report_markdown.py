"""A report as Markdown: for a ticket or a pull request; its pictures are made of letters."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..core.words import printable
from .report import RunReport
from .report_charts import sparkline
from .report_tables import Sheet, facts, heading, sheets

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&])")


def as_markdown(report: RunReport) -> str:
    parts = [f"# {plainly(heading(report))}"]
    parts += [plainly(report.ending)] if report.ending else []
    parts.append(_table(("", ""), facts(report), ()))
    if pictures := _pictures(report):
        parts += ["## What was learned", f"```text\n{pictures}\n```"]
    parts += [_sheet(sheet) for sheet in sheets(report)]
    return "\n\n".join(parts) + "\n"


def _pictures(report: RunReport) -> str:
    blocks = []
    for line in report.timelines:
        if len(line.at) < 2:
            continue
        said = next((value for value in reversed(line.said) if value is not None), None)
        says = "" if said is None else f"; the server says {said:,.1f}/s"
        block = [_bare(line.key), f"learned  {sparkline(line.rate)}  {line.rate[-1]:,.1f}/s at the end{says}"]
        block.append(f"done     {sparkline(line.done)}  at most {max(line.done):,.1f}/s")
        if any(line.refused):
            block.append(f"429s     {sparkline(line.refused)}  at most {max(line.refused):,.1f}/s")
        block.append(f"latency  {sparkline(line.latency)}  at most {1000 * max(line.latency):,.0f} ms")
        blocks.append("\n".join(block))
    return "\n\n".join(blocks)


def _sheet(sheet: Sheet) -> str:
    parts = [f"## {sheet.title}", sheet.about, _table(sheet.columns, sheet.rows, sheet.numbers)]
    parts += [f"... and {sheet.more:,} more"] if sheet.more else []
    return "\n\n".join(part for part in parts if part)


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], numbers: tuple[str, ...]) -> str:
    lines = [columns, tuple("---:" if name in numbers else "---" for name in columns)]
    body = [tuple(plainly(cell) for cell in row) for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in (*lines, *body))


def plainly(text: str) -> str:
    """So that it is shown as it is, whatever a server has put into its words."""
    return _SPECIAL.sub(r"\\\1", _bare(text))


def _bare(text: str) -> str:
    return printable(" ".join(text.replace("```", "'''").split()))
