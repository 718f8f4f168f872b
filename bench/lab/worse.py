"""Has a cell of ``adaptive`` become worse than in the committed table?

Medians are taken over the seeds that both have, so a part of the lab can be judged by the same part of the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from .book import Book
from .plan import ADAPTIVE, DEFAULT_CIRCUIT
from .unseen import NAMES, headline

GOODPUT_LOST = 0.005
REFUSALS_WON = 0.001
"""By so much a figure may move."""
ROUNDING = 1e-9


def worse(committed: Book, new: Book) -> Iterator[str]:
    """A sentence for each figure that became worse."""
    for scenario in new.runs:
        if scenario in NAMES:
            continue
        for label in (ADAPTIVE, DEFAULT_CIRCUIT):
            before = committed.cell(scenario, label, new.seeds(scenario, label))
            after = before and new.cell(scenario, label, before.seeds)
            if before and after:
                named = scenario if label == ADAPTIVE else f"{scenario}, {label}"
                yield from _lost(f"{named}: goodput", before.goodput, after.goodput)
                yield from _won(f"{named}: 429s", before.refused_share, after.refused_share)
    both = [name for name in NAMES if committed.seeds(name, ADAPTIVE) and new.seeds(name, ADAPTIVE)]
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
