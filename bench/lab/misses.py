"""What was asked for and not reached, what has become worse, and the notes that say why.

Scenarios that nothing was tuned for are judged by how many of them go well: that is the headline. A run is compared
with the committed table over the seeds that both have, so a part of the lab can be judged by that part of the table.
Notes are written by hand in ``notes.toml``, under the name of a scenario, ``unseen`` or ``rivals``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from bench.lab.marks import ROUNDING, Verdict, compare, verdicts
from bench.lab.plan import ADAPTIVE, DEFAULT_CIRCUIT
from bench.lab.random_scenarios import PREFIX, scenario_of
from bench.lab.results import Cell, Results
from headgate.lab.scenario import Scenario

# ---------------------------------------------------------------------- scenarios that nothing was tuned for

LISTED = 20
"""How many of the worst are shown."""
GOODPUT_P50, GOODPUT_P10, REFUSED_P90, REFUSED_MOST = 0.97, 0.88, 0.01, 0.03
MANY_CALLS, FEW_REFUSALS = 2_000, 60
"""The share of calls refused is judged in runs of at least the first; of shorter ones, the number of refusals."""


@dataclass(frozen=True, slots=True)
class Headline:
    scenarios: int
    goodput_p50: float
    goodput_p10: float
    goodput_least: float
    refused_p50: float
    refused_p90: float
    refused_most: float
    """In runs of ``MANY_CALLS``."""
    few_refused: int
    """The most refusals in a shorter run."""

    def verdicts(self) -> list[Verdict]:
        return [
            Verdict("unseen", "p50 of goodput", self.goodput_p50, GOODPUT_P50, "%", at_least=True),
            Verdict("unseen", "p10 of goodput", self.goodput_p10, GOODPUT_P10, "%", at_least=True),
            Verdict("unseen", "p90 of 429s", self.refused_p90, REFUSED_P90, "%"),
            Verdict("unseen", f"most 429s from {MANY_CALLS:,} calls on", self.refused_most, REFUSED_MOST, "%"),
            Verdict("unseen", "most refusals in fewer calls", self.few_refused, FEW_REFUSALS, ""),
        ]


def unseen_names(results: Results) -> list[str]:
    return [name for name in results.runs if name.startswith(PREFIX)]


def headline(results: Results, label: str, names: Sequence[str] | None = None) -> Headline | None:
    """Over the named scenarios, or over all that nothing was tuned for."""
    names = unseen_names(results) if names is None else names
    cells = [cell for name in names if (cell := results.cell(name, label)) is not None]
    if not cells:
        return None
    runs = [run for name in names for run in results.runs[name].get(label, {}).values()]
    goodputs, refused = sorted(cell.goodput for cell in cells), sorted(cell.refused_share for cell in cells)
    return Headline(
        scenarios=len(cells),
        goodput_p50=_quantile(goodputs, 0.50),
        goodput_p10=_quantile(goodputs, 0.10),
        goodput_least=goodputs[0],
        refused_p50=_quantile(refused, 0.50),
        refused_p90=_quantile(refused, 0.90),
        refused_most=max((run.refused_share for run in runs if run.sent >= MANY_CALLS), default=0.0),
        few_refused=max((run.refused for run in runs if run.sent < MANY_CALLS), default=0),
    )


def worst(results: Results, label: str) -> list[tuple[str, Cell, str]]:
    """Those in which most is missing or most is refused: name, figures, what it is."""
    cells = [(name, cell) for name in unseen_names(results) if (cell := results.cell(name, label)) is not None]

    def badness(cell: Cell) -> float:
        return max((1 - cell.goodput) / (1 - GOODPUT_P10), cell.refused_share / REFUSED_P90)

    cells.sort(key=lambda entry: badness(entry[1]), reverse=True)
    return [(name, cell, scenario_of(name).note) for name, cell in cells[:LISTED]]


def by_algorithm(results: Results, label: str) -> dict[str, float]:
    """The average goodput for each way of counting, of those that were drawn."""
    found: dict[str, list[float]] = {}
    for name in unseen_names(results):
        cell = results.cell(name, label)
        if cell is not None:
            found.setdefault(scenario_of(name).budgets[0].limits[0].algorithm, []).append(cell.goodput)
    return {algorithm: mean(shares) for algorithm, shares in sorted(found.items())}


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# ---------------------------------------------------------------------- misses

NOTES = Path(__file__).with_name("notes.toml")
RIVALS_NOTE = "rivals"
"""Where the note on the rule about rivals is filed; the other names come with the verdicts."""


class Miss(NamedTuple):
    name: str
    what: str


def read_notes(path: Path = NOTES) -> dict[str, str]:
    notes = tomllib.loads(path.read_text())
    for name, note in notes.items():
        if not isinstance(note, str) or not note.strip():
            raise ValueError(f"{path.name}: {name}={note!r} must be a text that explains something")
    return notes


def judged(results: Results, scenarios: Mapping[str, Scenario]) -> list[Verdict]:
    """Every mark, the headline's among them."""
    found = headline(results, ADAPTIVE)
    marks = [verdict for *_, several in verdicts(results, scenarios) for verdict in several]
    return marks + (found.verdicts() if found else [])


def misses(results: Results, scenarios: Mapping[str, Scenario]) -> list[Miss]:
    missed = [
        Miss(one.scenario, f"{one.what} {one.told}, asked {one.asked}")
        for one in judged(results, scenarios)
        if not one.met
    ]
    return missed + [
        Miss(RIVALS_NOTE, f"{one.rival} in {one.scenario}: {one.theirs} beside {one.ours}")
        for one in compare(results).beaten
    ]


def summary(results: Results, scenarios: Mapping[str, Scenario], notes: Mapping[str, str]) -> str:
    marks, missed = judged(results, scenarios), misses(results, scenarios)
    unexplained = dict.fromkeys(one.name for one in missed if one.name not in notes)
    needless = [name for name in notes if name not in {one.name for one in missed}]
    beaten = sum(one.name == RIVALS_NOTE for one in missed)
    return " ".join(
        [
            f"{sum(one.met for one in marks)} of {len(marks)} marks met.",
            f"The rule about rivals is {f'broken {beaten} times' if beaten else 'kept'}.",
            *([f"Not explained: {', '.join(unexplained)}."] if unexplained else []),
            *([f"Explained without need: {', '.join(needless)}."] if needless else []),
        ]
    )


# ---------------------------------------------------------------------- beside the committed table

GOODPUT_LOST = 0.005
REFUSALS_WON = 0.001
"""By so much a figure may move."""


def worse(committed: Results, new: Results) -> Iterator[str]:
    """A sentence for each figure that became worse."""
    for scenario in new.runs:
        if scenario.startswith(PREFIX):
            continue
        for label in (ADAPTIVE, DEFAULT_CIRCUIT):
            before = committed.cell(scenario, label, new.seeds(scenario, label))
            after = before and new.cell(scenario, label, before.seeds)
            if before and after:
                named = scenario if label == ADAPTIVE else f"{scenario}, {label}"
                yield from _lost(f"{named}: goodput", before.goodput, after.goodput)
                yield from _won(f"{named}: 429s", before.refused_share, after.refused_share)
    both = [name for name in unseen_names(new) if committed.seeds(name, ADAPTIVE) and new.seeds(name, ADAPTIVE)]
    old, now = headline(committed, ADAPTIVE, both), headline(new, ADAPTIVE, both)
    if old and now:
        unseen = f"unseen ({len(both)} scenarios)"
        yield from _lost(f"{unseen}: p50 of goodput", old.goodput_p50, now.goodput_p50)
        yield from _lost(f"{unseen}: p10 of goodput", old.goodput_p10, now.goodput_p10)
        yield from _won(f"{unseen}: p50 of 429s", old.refused_p50, now.refused_p50)
        yield from _won(f"{unseen}: p90 of 429s", old.refused_p90, now.refused_p90)


def _lost(what: str, before: float, after: float) -> Iterator[str]:
    if after < before - GOODPUT_LOST - ROUNDING:
        yield f"{what} fell from {before:.2%} to {after:.2%}"


def _won(what: str, before: float, after: float) -> Iterator[str]:
    if after > before + REFUSALS_WON + ROUNDING:
        yield f"{what} rose from {before:.3%} to {after:.3%}"
