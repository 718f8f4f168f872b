"""The headline: scenarios nobody tuned for, one run each, judged by how many of them go well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.sim.unseen import UNSEEN, unseen

from .book import Book, Cell
from .marks import Verdict

NAMES = tuple(f"unseen-0-{number}" for number in range(UNSEEN))
LISTED = 12
"""How many of the worst are shown."""
GOODPUT_P50, GOODPUT_P10, REFUSED_P90, REFUSED_MOST = 0.98, 0.92, 0.008, 0.03


@dataclass(frozen=True, slots=True)
class Headline:
    scenarios: int
    goodput_p50: float
    goodput_p10: float
    goodput_least: float
    refused_p50: float
    refused_p90: float
    refused_most: float

    def verdicts(self) -> list[Verdict]:
        return [
            Verdict("unseen", "p50 of goodput", self.goodput_p50, GOODPUT_P50, "%", at_least=True),
            Verdict("unseen", "p10 of goodput", self.goodput_p10, GOODPUT_P10, "%", at_least=True),
            Verdict("unseen", "p90 of 429s", self.refused_p90, REFUSED_P90, "%"),
            Verdict("unseen", "most 429s", self.refused_most, REFUSED_MOST, "%"),
        ]


def headline(book: Book, label: str, names: Sequence[str] = NAMES) -> Headline | None:
    cells = [cell for name in names if (cell := book.cell(name, label)) is not None]
    if not cells:
        return None
    goodputs, refused = sorted(cell.goodput for cell in cells), sorted(cell.refused_share for cell in cells)
    return Headline(
        scenarios=len(cells),
        goodput_p50=_quantile(goodputs, 0.50),
        goodput_p10=_quantile(goodputs, 0.10),
        goodput_least=goodputs[0],
        refused_p50=_quantile(refused, 0.50),
        refused_p90=_quantile(refused, 0.90),
        refused_most=refused[-1],
    )


def worst(book: Book, label: str) -> list[tuple[str, Cell, str]]:
    """Those in which most is missing or most is refused: name, figures, what it is."""
    cells = [(name, cell) for name in NAMES if (cell := book.cell(name, label)) is not None]

    def badness(cell: Cell) -> float:
        return max((1 - cell.goodput) / (1 - GOODPUT_P10), cell.refused_share / REFUSED_P90)

    cells.sort(key=lambda entry: badness(entry[1]), reverse=True)
    return [(name, cell, unseen(int(name.rpartition("-")[2])).note) for name, cell in cells[:LISTED]]


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
