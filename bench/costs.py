"""The cost table: what a row holds, how it is judged, and how a run's minima become rows.

A mark is a ratio to the best peer in the same run. It comes from a reference measurement, which
it carries along: 900 ns beside botocore's 942 makes a mark of 0.955 times the best peer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.measure import Contender


@dataclass(frozen=True, slots=True)
class Mark:
    """At most this many nanoseconds on a machine where the best peer takes ``beside``."""

    at_most: float
    beside: float

    @property
    def ratio(self) -> float:
        return self.at_most / self.beside


@dataclass(frozen=True, slots=True)
class CostRow:
    """Contenders for one operation.

    ``asides`` are measured and shown but are no rivals: a peer used as its documentation does not
    show, or made to do more than the row asks. ``added_to`` names the floor whose own cost is
    taken off everyone's.
    """

    name: str
    title: str
    floors: tuple[Contender, ...]
    peers: tuple[Contender, ...]
    ours: tuple[tuple[Contender, Mark], ...]
    note: str
    asides: tuple[Contender, ...] = ()
    added_to: str | None = None

    @property
    def contenders(self) -> tuple[Contender, ...]:
        return (*self.floors, *self.peers, *self.asides, *(contender for contender, _ in self.ours))


@dataclass(slots=True)
class CostResult:
    """A row's minima in nanoseconds, by contender."""

    row: CostRow
    lowest: dict[str, float] = field(default_factory=dict)

    @property
    def best_peer(self) -> str:
        return min((peer.name for peer in self.row.peers), key=self.lowest.__getitem__)

    def ratio(self, contender: Contender) -> float:
        return self.lowest[contender.name] / self.lowest[self.best_peer]


def results_of(rows: tuple[CostRow, ...], lowest: dict[str, float]) -> list[CostResult]:
    """Sort the minima of one interleaved run back into rows, taking off what the bare call costs."""
    results = []
    for row in rows:
        measured = {contender.name: lowest[label(row, contender)] for contender in row.contenders}
        if row.added_to is not None:
            bare = measured.pop(row.added_to)
            measured = {name: cost - bare for name, cost in measured.items()}
        results.append(CostResult(row, measured))
    return results


def label(row: CostRow, contender: Contender) -> str:
    return f"{row.name}: {contender.name}"
