"""The report as a page of Markdown, and as tables in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from .report import BETWEEN, Page

WIDTH_WITHOUT_TERMINAL = 150


def markdown(report: Page) -> str:
    parts = [f"# {report.title}", *report.circumstances()]
    for section in report.sections():
        lines = [section.head, ["---"] * len(section.head), *section.rows]
        parts.append(f"## {section.title}")
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
        if section.notes:
            parts.append("\n".join(f"- {note}" for note in section.notes))
    return "\n\n".join([*parts, report.summary()]) + "\n"


def show(report: Page) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    for line in report.circumstances():
        console.print(line, markup=False)
    for section in report.sections():
        table = Table(*section.head, title=section.title, show_lines=True)
        for row in section.rows:
            table.add_row(*(cell.replace(BETWEEN, "\n") for cell in row))
        console.print(table)
        for note in section.notes:
            console.print(f"- {note}", markup=False)
    console.print(report.summary(), markup=False)
