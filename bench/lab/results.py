"""All figures of a lab, as they are kept: a few numbers for each run, medians on demand, one JSON file.

The file is the committed table with full precision. Because runs repeat to the byte, it can be compared
with a new one seed by seed, and a part of the lab can be judged by the same part of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from headgate.lab.comparison import ORACLE, Figures

LARGEST_FILE = 16_000_000


class Outcome(NamedTuple):
    """What is kept of one run."""

    ok: int
    sent: int
    refused: int
    p99: float
    jain: float
    convergence: Mapping[str, float]
    first_sent: int = 0
    """Calls in the minute from the first refusal on."""
    first_refused: int = 0

    @classmethod
    def of(cls, figures: Figures) -> Outcome:
        refused = round(figures.refused_share * figures.sent)
        convergence = {mark: round(after, 4) for mark, after in figures.convergence.items()}
        p99, jain = round(figures.p99, 4), round(figures.jain, 5)
        return cls(figures.ok, figures.sent, refused, p99, jain, convergence, *figures.first_minute)

    @property
    def refused_share(self) -> float:
        return self.refused / self.sent if self.sent else 0.0

    @property
    def refused_first(self) -> float:
        """The share refused in the minute from the first refusal on."""
        return self.first_refused / self.first_sent if self.first_sent else 0.0

    @property
    def refused_later(self) -> float:
        """The share refused after that minute."""
        later = self.sent - self.first_sent
        return (self.refused - self.first_refused) / later if later > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One strategy in one scenario: medians over its seeds."""

    seeds: tuple[int, ...]
    goodput: float
    """As a share of the oracle's, like the next two."""
    goodput_least: float
    p99_against_oracle: float
    refused_share: float
    refused_share_most: float
    refused_first: float
    """In the minute from the first refusal on."""
    refused_later: float
    jain: float
    convergence: Mapping[str, float]

    def __str__(self) -> str:
        return f"{self.goodput:.1%} / {self.refused_share:.2%}"


@dataclass(slots=True)
class Results:
    circumstances: dict[str, Any] = field(default_factory=dict)
    scale: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, dict[str, dict[int, Outcome]]] = field(default_factory=dict)
    """By scenario, label and seed."""

    def enter(self, scenario: str, label: str, seed: int, figures: Figures) -> None:
        self.runs.setdefault(scenario, {}).setdefault(label, {})[seed] = Outcome.of(figures)

    def seeds(self, scenario: str, label: str) -> Collection[int]:
        return self.runs.get(scenario, {}).get(label, {}).keys()

    def cell(self, scenario: str, label: str, seeds: Collection[int] | None = None) -> Cell | None:
        """Over all its seeds, or over those of the given ones that it has; None if there are none."""
        found, oracles = self.runs.get(scenario, {}).get(label, {}), self.runs.get(scenario, {}).get(ORACLE, {})
        chosen = tuple(sorted(seed for seed in found if seed in oracles and (seeds is None or seed in seeds)))
        if not chosen:
            return None
        runs = [(found[seed], oracles[seed]) for seed in chosen]
        goodputs = [run.ok / max(1, oracle.ok) for run, oracle in runs]
        return Cell(
            seeds=chosen,
            goodput=median(goodputs),
            goodput_least=min(goodputs),
            p99_against_oracle=median(_ratio(run.p99, oracle.p99) for run, oracle in runs),
            refused_share=median(run.refused_share for run, _ in runs),
            refused_share_most=max(run.refused_share for run, _ in runs),
            refused_first=median(run.refused_first for run, _ in runs),
            refused_later=median(run.refused_later for run, _ in runs),
            jain=median(run.jain for run, _ in runs),
            convergence={mark: median(run.convergence[mark] for run, _ in runs) for mark in runs[0][0].convergence},
        )

    def write(self, path: Path) -> None:
        """One line for each cell, so that a change can be read."""
        cells = ",\n".join(
            f"  {json.dumps(scenario)}: {{\n"
            + ",\n".join(f"   {json.dumps(label)}: {_dump(runs)}" for label, runs in sorted(by_label.items()))
            + "\n  }"
            for scenario, by_label in sorted(self.runs.items(), key=lambda entry: _in_order(entry[0]))
        )
        head = f'{{\n "circumstances": {json.dumps(self.circumstances)},\n "scale": {json.dumps(self.scale)},\n'
        path.write_text(f'{head} "runs": {{\n{cells}\n }}\n}}\n')

    @classmethod
    def read(cls, path: Path) -> Results:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"{path} is larger than {LARGEST_FILE:,} bytes; no table is")
        content = json.loads(path.read_text())
        runs = {
            scenario: {
                label: {int(seed): _outcome(*kept) for seed, kept in runs.items()} for label, runs in labels.items()
            }
            for scenario, labels in content["runs"].items()
        }
        return cls(content["circumstances"], content["scale"], runs)


def _dump(runs: Mapping[int, Outcome]) -> str:
    plain = {
        seed: [_none_for_never(value) for value in one[:5]]
        + [{mark: _none_for_never(after) for mark, after in one.convergence.items()}, *one[6:]]
        for seed, one in sorted(runs.items())
    }
    return json.dumps(plain, allow_nan=False)


def _none_for_never(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _never_for_none(value: float | None) -> float:
    return math.inf if value is None else value


def _outcome(
    ok: int, sent: int, refused: int, p99: float | None, jain: float, convergence: dict[str, Any], *first: int
) -> Outcome:
    marks = {mark: _never_for_none(after) for mark, after in convergence.items()}
    return Outcome(ok, sent, refused, _never_for_none(p99), jain, marks, *first)


def _ratio(own: float, oracles: float) -> float:
    return own / oracles if math.isfinite(own) else math.inf


def _in_order(name: str) -> tuple[str, int]:
    """Numbers at the end of names count as numbers."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (name, 0)
