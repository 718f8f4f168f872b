"""``python -m bench``: measure, print, and (for a whole run) write ``bench/RESULTS.md``."""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from bench.behaviours import (
    BEHAVIOUR_NOTES,
    BEHAVIOURS,
    MEMORY,
    MEMORY_NOTES,
    Behaviour,
    NoFiguresError,
    run_in_process,
)
from bench.costs import COSTS
from bench.measure import CostResult, CostRow, interleave, label, results_of
from bench.pacing import Figures
from bench.report import BETWEEN, Section, circumstances, markdown, marks_met, show, verdict

RESULTS = Path(__file__).with_name("RESULTS.md")
ROUNDS, SAMPLE = 15, 0.1
QUICK_ROUNDS, QUICK_SAMPLE = 5, 0.02

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

Row = TypeVar("Row", CostRow, Behaviour)


def main() -> None:
    arguments = _arguments()
    logging.getLogger("headgate").setLevel(logging.ERROR)  # it would warn of rows that acquire and never report
    started_at = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - started_at:5.1f} s] {line}", file=sys.stderr, flush=True)

    def try_out(behaviours: list[Behaviour]) -> list[BehaviourResult]:
        return [_tried(behaviour, arguments.quick, say) for behaviour in behaviours]

    def chosen(rows: Iterable[Row]) -> list[Row]:
        return [row for row in rows if arguments.only in (None, row.name)]

    rounds, sample = (QUICK_ROUNDS, QUICK_SAMPLE) if arguments.quick else (ROUNDS, SAMPLE)
    report = Report(command=" ".join(["python -m bench", *sys.argv[1:]]), rounds=rounds)
    costs = tuple(chosen(COSTS))
    if costs:
        contenders = {label(row, contender): contender for row in costs for contender in row.contenders}
        report.costs = results_of(costs, interleave(contenders, rounds, sample, say))
    report.memory = try_out(chosen(MEMORY))
    report.behaviours = try_out(chosen(BEHAVIOURS))

    show(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report.as_json(), indent=2, allow_nan=False) + "\n")
    if not arguments.quick and arguments.only is None:
        RESULTS.write_text(markdown(report))
        say(f"wrote {RESULTS}")
    sys.stdout.flush()
    os._exit(0)  # peers leave threads behind that need not be waited for


def _tried(behaviour: Behaviour, quick: bool, say: Callable[[str], None]) -> BehaviourResult:
    result = BehaviourResult(behaviour)
    for contender in behaviour.contenders:
        say(f"{behaviour.name}: {contender}")
        try:
            result.figures[contender] = run_in_process(behaviour, contender, quick=quick)
        except NoFiguresError as why:
            result.figures[contender] = str(why)
    return result


def _arguments() -> argparse.Namespace:
    names = [*(row.name for row in COSTS), *(row.name for row in MEMORY + BEHAVIOURS)]
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Headgate beside its peers.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and shorter tests; writes no RESULTS.md")
    parser.add_argument("--only", choices=names, metavar="NAME", help=f"one row: {', '.join(names)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser.parse_args()


# ---------------------------------------------------------------------- the report


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


if __name__ == "__main__":
    main()
