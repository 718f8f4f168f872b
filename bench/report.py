"""Pages of measurements: sections with tables, in Markdown and in a terminal, and when and where they were taken."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table

BETWEEN = " · "


@dataclass(frozen=True, slots=True)
class Section:
    """A table and its notes, for any medium to render."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: list[str]


class Page(Protocol):
    """What one run found out, as it is shown."""

    @property
    def title(self) -> str: ...
    def circumstances(self) -> list[str]: ...
    def sections(self) -> list[Section]: ...
    def summary(self) -> str: ...


def circumstances(command: str) -> str:
    """When and where it was."""
    return (
        f"`{command}` on {datetime.now().astimezone():%Y-%m-%d %H:%M %Z}; "
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} cores; headgate {version('headgate')}."
    )


def marks_met(verdicts: Sequence[tuple[str, bool]]) -> str:
    """How many marks are met, and which are not."""
    missed = [name for name, met in verdicts if not met]
    met = f"{len(verdicts) - len(missed)} of {len(verdicts)} marks met."
    return f"{met} Missed: {', '.join(missed)}." if missed else met


def verdict(met: bool) -> str:
    return "yes" if met else "NO"


# ---------------------------------------------------------------------- as Markdown and in a terminal

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


def between(page: Path, mark: str) -> str:
    return page.read_text().split(f"<!-- {mark} -->")[1].split(f"<!-- /{mark} -->")[0].strip()


def put_between(page: Path, mark: str, text: str) -> None:
    """Replace what is between ``<!-- mark -->`` and ``<!-- /mark -->``."""
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    head, rest = page.read_text().split(begin)
    page.write_text(f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}")
