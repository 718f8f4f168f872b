"""Nobody may be better on goodput and no worse on refusals: the rule, and who breaks it.

A rival is compared over its own seeds: a window that begins at another moment is another scenario. Strategies that
are told the quota, as the oracle is told everything, are compared as well, and apart from those who have to find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .book import Book, Cell
from .plan import ADAPTIVE, RIVALS

TOLD_THE_QUOTA = ("fixed-half", "cookbook")
AHEAD = 0.01
"""Of the oracle's goodput: so much more is better."""
ROUNDING = 1e-9


class Beaten(NamedTuple):
    scenario: str
    rival: str
    theirs: Cell
    ours: Cell


class Comparison(NamedTuple):
    pairs: int
    """How many rivals were looked at, over all scenarios."""
    ahead: int
    """In how many of them the rival's goodput is better by more than ``AHEAD``, at whatever price."""
    beaten: list[Beaten]
    """... without sending more 429s."""


SEEKERS = tuple(name for name in RIVALS if name not in TOLD_THE_QUOTA)


def compare(book: Book, rivals: Sequence[str] = SEEKERS) -> Comparison:
    pairs = ahead = 0
    beaten = []
    for scenario in book.runs:
        for rival in rivals:
            theirs = book.cell(scenario, rival)
            ours = theirs and book.cell(scenario, ADAPTIVE, theirs.seeds)
            if theirs is None or ours is None:
                continue
            pairs += 1
            if theirs.goodput > ours.goodput + AHEAD + ROUNDING:
                ahead += 1
                if theirs.refused_share <= ours.refused_share + ROUNDING:
                    beaten.append(Beaten(scenario, rival, theirs, ours))
    return Comparison(pairs, ahead, beaten)
