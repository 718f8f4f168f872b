"""The figures of one run of `python -m bench`, and its tables in Markdown and in a terminal."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table

from bench.behaviours import BEHAVIOUR_NOTES, MEMORY_NOTES, Behaviour
from bench.measure import CostResult
from bench.pacing import Figures

PEERS = (
    "aiobreaker",
    "aiolimiter",
    "backoff",
    "botocore",
    "hyx",
    "limits",
    "purgatory",
    "pybreaker",
    "pyrate-limiter",
    "stamina",
    "steindamm",
    "tenacity",
    "throttled-py",
)


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


@dataclass(slots=True)
class BehaviourResult:
    """A row's figures by contender, or the sentence that says why there are none."""

    behaviour: Behaviour
    figures: dict[str, Figures | str] = field(default_factory=dict)

    def told(self, contender: str) -> str:
        figures = self.figures[contender]
        return figures if isinstance(figures, str) else self.behaviour.describe(figures)

    @property
    def met(self) -> bool:
        figures = self.figures[self.behaviour.contender]
        return not isinstance(figures, str) and self.behaviour.holds(figures)


@dataclass(slots=True)
class Report:
    """Everything one run found out."""

    command: str
    rounds: int
    costs: list[CostResult] = field(default_factory=list)
    memory: list[BehaviourResult] = field(default_factory=list)
    behaviours: list[BehaviourResult] = field(default_factory=list)

    @property
    def title(self) -> str:
        return "Headgate beside its peers"

    def verdicts(self) -> list[tuple[str, bool]]:
        """Each mark by its row's name, and whether it is met."""
        costs = [
            (contender.name if len(result.row.ours) > 1 else result.row.name, result.ratio(contender) <= mark.ratio)
            for result in self.costs
            for contender, mark in result.row.ours
        ]
        return costs + [(result.behaviour.name, result.met) for result in self.memory + self.behaviours]

    def sections(self) -> list[Section]:
        found = []
        if self.costs:
            found.append(self._cost_section())
        if self.memory:
            found.append(_behaviour_section("Memory per key", self.memory, MEMORY_NOTES))
        if self.behaviours:
            found.append(_behaviour_section("Behaviour", self.behaviours, BEHAVIOUR_NOTES))
        return found

    def circumstances(self) -> list[str]:
        return [
            circumstances(self.command),
            f"Peers: {', '.join(f'{name} {version(name)}' for name in PEERS)}.",
            f"Costs are processor time, minima over {self.rounds} interleaved rounds, judged as ratios to the best "
            "peer of the same run; the nanoseconds themselves do not carry over to other machines.",
        ]

    def summary(self) -> str:
        return marks_met(self.verdicts())

    def as_json(self) -> dict[str, object]:
        return {
            "command": self.command,
            "rounds": self.rounds,
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("headgate", *PEERS)},
            "costs": {result.row.name: result.lowest for result in self.costs},
            "behaviours": {
                result.behaviour.name: {name: _finite(figures) for name, figures in result.figures.items()}
                for result in self.memory + self.behaviours
            },
            "marks": dict(self.verdicts()),
        }

    def _cost_section(self) -> Section:
        rows = []
        for result in self.costs:
            row, lowest, best = result.row, result.lowest, result.best_peer
            floors = [f"{lowest[one.name]:,.0f} {one.name}" for one in row.floors if one.name in lowest]
            others = [f"{one.name} {lowest[one.name]:,.0f}" for one in row.peers if one.name != best]
            others += [f"({one.name} {lowest[one.name]:,.0f})" for one in row.asides]
            rows += [
                (
                    row.title if len(row.ours) == 1 else f"{row.title}, {contender.name.split()[-1]}",
                    BETWEEN.join(floors),
                    f"{best} {lowest[best]:,.0f}",
                    BETWEEN.join(others),
                    f"{lowest[contender.name]:,.0f}",
                    f"{result.ratio(contender):.3f}",
                    f"<= {mark.ratio:.3f} ({mark.at_most:,.0f} beside {mark.beside:,.0f})",
                    verdict(result.ratio(contender) <= mark.ratio),
                )
                for contender, mark in row.ours
            ]
        notes = [f"{result.row.title}: {result.row.note}." for result in self.costs]
        if any(result.row.asides for result in self.costs):
            notes.append("In brackets: measured, but no rival for the mark.")
        head = ("ns, minimum", "floor", "best peer", "others", "headgate", "ratio", "mark", "met")
        return Section("Cost per operation", head, rows, notes)


def _behaviour_section(title: str, results: Sequence[BehaviourResult], notes: Sequence[str]) -> Section:
    rows = [
        (
            result.behaviour.title,
            BETWEEN.join(f"{peer}: {result.told(peer)}" for peer in result.behaviour.peers),
            result.told(result.behaviour.contender),
            result.behaviour.mark,
            verdict(result.met),
        )
        for result in results
    ]
    return Section(title, ("test", "peers", "headgate", "mark", "met"), rows, list(notes))


def _finite(figures: Figures | str) -> dict[str, float | None] | str:
    """JSON knows no infinity: what never happened is null."""
    if isinstance(figures, str):
        return figures
    return {name: figure if math.isfinite(figure) else None for name, figure in figures.items()}


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
