"""A run's report: one file with charts and numbers, to be read anywhere.

    notes = Notes(monitor)                       # while it runs: how far it was, once a second at most
    with announced(monitor, notes.take): ...
    write_report(report_of(monitor, notes), "run.html")      # or run.md

It has what a snapshot has, so no secret is in it, and it loads nothing from any host: it can be sent anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple

from ..event_buffer import MOST_KEPT, chosen
from ..event_text import ALARMING, is_routine
from ..history import STATES
from ..monitor import RunMonitor
from ..snapshot import EventLine, KeyLine, RunSnapshot, Timeline

MOST_NOTES = 600
MOST_PICTURES = 8
"""Keys that are drawn: the busiest."""
MOST_ROWS = 30
"""Of any table; what does not fit is counted."""
MOST_EVENTS = 40
FORMS = (".html", ".md")
_RESERVED = ALARMING - {"item_dead", "failed"}
"""What has a place among the last events however much else there is; the dead have a table of their own."""


class Note(NamedTuple):
    at: float
    """Unix time."""
    done: int
    dead: int


class Notes:
    """How far a run was, again and again: close together in a short run, further apart the longer it goes."""

    def __init__(self, monitor: RunMonitor) -> None:
        self._monitor = monitor
        self._every = 0.25
        self.kept: list[Note] = []
        self.has_begun = False
        """Whether a call has been asked for."""

    def take(self) -> None:
        now = self._monitor.clock.wall()
        if self.kept and self.kept[-1].at <= now < self.kept[-1].at + self._every:
            return
        seen = self._monitor.snapshot()
        progress = seen.progress
        self.has_begun = self.has_begun or bool(seen.keys)
        self.kept.append(Note(now, progress.done, progress.dead))
        if len(self.kept) >= MOST_NOTES:
            self._every *= 2
            self.kept = self.kept[::2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    snapshot: RunSnapshot
    notes: Sequence[Note] = ()
    timelines: Sequence[Timeline] = ()
    events: Sequence[EventLine] = ()
    """Those worth a line, the last of them; half of the places are for what an operator should look at."""
    ending: str = ""
    """What the run itself said at its end."""

    @property
    def took(self) -> float:
        return max(0.0, self.snapshot.at - self.snapshot.started_at)

    @property
    def pace(self) -> float:
        """Finished a second, in this run."""
        if len(self.notes) < 2 or self.notes[-1].at <= self.notes[0].at:
            return 0.0
        first, last = self.notes[0], self.notes[-1]
        return max(0, last.done + last.dead - first.done - first.dead) / (last.at - first.at)

    @property
    def keys(self) -> list[KeyLine]:
        """The busiest first."""
        return sorted(self.snapshot.keys, key=lambda line: -line.sent)

    def calls(self) -> tuple[int, int, int]:
        """Those whose end is known, refused and failed ones, of all keys that are known."""
        keys = self.snapshot.keys
        return sum(map(ended, keys)), sum(one.refused for one in keys), sum(one.failed for one in keys)

    def waited(self) -> list[tuple[str, float]]:
        """Seconds by what for, the longest first; without rows, what callers in queues waited for."""
        told = self.snapshot.waited or queue_waits(self.timelines)
        return sorted(((why, seconds) for why, seconds in told.items() if seconds > 0), key=lambda one: -one[1])


def report_of(monitor: RunMonitor, notes: Notes, ending: str = "") -> RunReport:
    """To be called when the run is over and ``monitor`` is closed."""
    keys = monitor.history.keys()[:MOST_PICTURES]
    worth = [line for line in monitor.buffer.after(0, most=2 * MOST_KEPT) if not is_routine(line)]
    snapshot, kept = monitor.snapshot(), list(notes.kept)
    if kept:
        kept.append(Note(snapshot.at, snapshot.progress.done, snapshot.progress.dead))
    return RunReport(
        snapshot=snapshot,
        notes=kept,
        timelines=monitor.history.timelines(keys, -inf),
        events=chosen(worth, MOST_EVENTS, lambda line: line.kind not in _RESERVED),
        ending=ending,
    )


def ended(line: KeyLine) -> int:
    """Calls whose end is known; of those that were let through, some were never sent."""
    return line.done + line.refused + line.failed


_STATE_TEXT = {
    "open": "the pace",
    "ramp": "the ramp after a pause",
    "held": "a pause after a refusal",
    "circuit": "an open circuit",
}


def queue_waits(timelines: Sequence[Timeline]) -> dict[str, float]:
    sums = dict.fromkeys(_STATE_TEXT.values(), 0.0)
    for line in timelines:
        for (began, ended), waiting, state in zip(pairwise(line.at), line.waiting[1:], line.state[1:], strict=True):
            sums[_STATE_TEXT[state]] += max(0.0, ended - began) * waiting
    return sums


def times_in_states(line: Timeline) -> Mapping[str, float]:
    """Seconds that a key was open, ramping, held or shut by its circuit."""
    sums = dict.fromkeys(STATES, 0.0)
    for (began, ended), state in zip(pairwise(line.at), line.state[1:], strict=True):
        sums[state] += max(0.0, ended - began)
    return sums


def form_of(path: str) -> str:
    """How this file is to be written; ``ValueError`` says what there is."""
    form = Path(path).suffix.lower()
    if form not in FORMS:
        raise ValueError(f"{path!r} is neither .html nor .md; the name says how it is to be written")
    return form


def write_report(report: RunReport, path: str) -> None:
    """Raises ``OSError`` where it cannot be written; a file that was there is replaced by a whole one."""
    from .documents import as_html, as_markdown

    text = as_html(report) if form_of(path) == ".html" else as_markdown(report)
    target = Path(path)
    draft = target.with_name(f".{target.name}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
