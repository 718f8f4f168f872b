"""``python -m bench``: measure, print, and (for a whole run) write ``bench/RESULTS.md``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from bench.behaviours import BEHAVIOURS, MEMORY, Behaviour, NoFiguresError, run_in_process
from bench.costs import COSTS
from bench.measure import CostRow, interleave, label, results_of
from bench.report import BehaviourResult, Report, markdown, show

RESULTS = Path(__file__).with_name("RESULTS.md")
ROUNDS, SAMPLE = 15, 0.1
QUICK_ROUNDS, QUICK_SAMPLE = 5, 0.02

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


if __name__ == "__main__":
    main()
