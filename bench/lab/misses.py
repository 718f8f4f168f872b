"""What was asked for and not reached, and the notes that say why.

Notes are written by hand in ``notes.toml``, under the name of a scenario, ``unseen`` or ``rivals``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headgate.sim.scenario import Scenario

from .book import Book
from .marks import Verdict, verdicts
from .plan import ADAPTIVE
from .rivals import compare
from .unseen import headline

NOTES = Path(__file__).with_name("notes.toml")
RIVALS = "rivals"
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


def judged(book: Book, scenarios: Mapping[str, Scenario]) -> list[Verdict]:
    """Every mark, the headline's among them."""
    found = headline(book, ADAPTIVE)
    marks = [verdict for *_, several in verdicts(book, scenarios) for verdict in several]
    return marks + (found.verdicts() if found else [])


def misses(book: Book, scenarios: Mapping[str, Scenario]) -> list[Miss]:
    missed = [
        Miss(one.scenario, f"{one.what} {one.told}, asked {one.asked}")
        for one in judged(book, scenarios)
        if not one.met
    ]
    return missed + [
        Miss(RIVALS, f"{one.rival} in {one.scenario}: {one.theirs} beside {one.ours}") for one in compare(book).beaten
    ]


def summary(book: Book, scenarios: Mapping[str, Scenario], notes: Mapping[str, str]) -> str:
    marks, missed = judged(book, scenarios), misses(book, scenarios)
    unexplained = dict.fromkeys(one.name for one in missed if one.name not in notes)
    needless = [name for name in notes if name not in {one.name for one in missed}]
    beaten = sum(one.name == RIVALS for one in missed)
    return " ".join(
        [
            f"{sum(one.met for one in marks)} of {len(marks)} marks met.",
            f"The rule about rivals is {f'broken {beaten} times' if beaten else 'kept'}.",
            *([f"Not explained: {', '.join(unexplained)}."] if unexplained else []),
            *([f"Explained without need: {', '.join(needless)}."] if needless else []),
        ]
    )
