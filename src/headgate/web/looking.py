"""What is shown now, taken once for all who look.

Whoever looks asks for the view. One that is fresh enough is shared; else the first who asks has a new one taken
and the others join. So a run is looked at twice a second at most, whether one or a hundred look, and not at
all when nobody does. A view that is dear to take (a thousand keys) or to send (many who look) is taken less often, so
that all of it stays within a small share of one core.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

from headgate.observe.ring import chosen
from headgate.observe.snapshot import SCHEMA, RunSnapshot, Timeline
from headgate.observe.source import Source, Sources
from headgate.observe.wording import is_routine

from .apart import PATIENCE, Apart, NotAnsweringError
from .encoding import encoded

QUICKEST = 0.5
"""Seconds from one view to the next, at least."""
SLOWEST = 5.0
SHARE = 0.005
"""Of one core, for taking views and sending them. A busy run loses more than that: it waits for Python's lock."""
MOST_RUNS = 20
EVENTS_A_VIEW = 100
EVENTS_KEPT = 200
"""Of the newest, for whoever comes."""
SHOWN_AFTER = 60.0
"""Seconds for which a run that has ended is shown, where it can still be asked how it ended."""
TIMELINES_EVERY = 1.0
MOST_TIMELINES_SHARED = 64
HEAD = ("run", "title", "kind", "pid", "host", "started_at", "state", "silent", "ending", "progress")

T = TypeVar("T")
log = logging.getLogger("headgate.web")


class EventView(NamedTuple):
    number: int
    json: bytes
    is_routine: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    source: Source
    json: bytes
    head: bytes
    """Of the snapshot only what tells it from others, and its progress."""
    snapshot: RunSnapshot
    events: tuple[EventView, ...]
    """The newest, the oldest of them first."""
    ended_at: float = float("inf")
    """When it was first found to be gone, by the clock of whoever looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    at: float
    """Unix time."""
    next_at: float
    """When the next one may be taken, by the clock of whoever looks."""
    runs: Mapping[str, RunView]
    """Those that have ended last."""
    more_runs: int
    unreadable: int
    """Runs that are there and did not say how they are."""
    _said: dict[tuple[str | None, bool], tuple[bytes, bytes]] = field(default_factory=dict)

    @property
    def all_answer(self) -> bool:
        return not self.unreadable and not any(one.snapshot.silent for one in self.runs.values())

    def json(self, *, whole: str | None, read_only: bool) -> tuple[bytes, bytes]:
        """The view as it is sent, and its runs alone, by which one sees whether anything changed. The run that is named
        is whole, of the others only the heads are there; without a name all are whole. Whoever asks the same is given
        the same bytes."""
        said = self._said.get((whole, read_only))
        if said is None:
            about = {"schema": SCHEMA, "at": self.at, "read_only": read_only, "more_runs": self.more_runs}
            around = encoded({**about, "unreadable": self.unreadable})
            runs = b",".join(one.json if whole in (None, name) else one.head for name, one in self.runs.items())
            said = self._said[whole, read_only] = (b'%b,"runs":[%b]}' % (around[:-1], runs), runs)
        return said


@dataclass(frozen=True, slots=True)
class Lines:
    """Some keys' timelines as they are sent."""

    json: bytes
    newest_at: float


class Looking:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._apart = Apart()
        self._view: View | None = None
        self._taking: asyncio.Task[View] | None = None
        self._ending: asyncio.Task[View] | None = None
        self._refused_until = 0.0
        self._spent = 0.0
        self._complained = False
        self._timelines: dict[tuple[str, tuple[str, ...], float], tuple[float, asyncio.Task[Lines]]] = {}

    async def view(self) -> View:
        """The newest; raises ``NotAnsweringError``, and for a moment after that without asking again."""
        now = time.monotonic()
        if self._view is not None and now < self._view.next_at:
            return self._view
        if self._taking is None or self._taking.done():
            if now < self._refused_until:
                raise NotAnsweringError
            self._taking = asyncio.create_task(self._take())
        return await asyncio.shield(self._taking)

    async def last(self) -> View:
        """What is so now and not a moment ago, for those whose page ends; they share it."""
        if self._ending is None or self._ending.done():
            self._ending = asyncio.create_task(self._take())
        return await asyncio.shield(self._ending)

    async def _take(self) -> View:
        try:
            spent, self._spent = self._spent, 0.0
            self._view = await self._apart.ask(partial(take, self._sources, self._view, spent))
        except Exception as error:
            self._refused_until = time.monotonic() + QUICKEST
            if not self._complained:
                log.warning("the runs cannot be read: %s", type(error).__name__)
            self._complained = True
            raise NotAnsweringError from None
        self._complained = False
        return self._view

    def spent(self, seconds: float) -> None:
        """Sending has cost so much of this thread's time: the next view but one comes later for it."""
        self._spent += seconds

    async def timelines(self, run: str, source: Source, keys: tuple[str, ...], since: float) -> Lines:
        """Who wants the same within a second gets the same."""
        now = time.monotonic()
        wanted = (run, keys, since)
        kept = self._timelines.get(wanted)
        if kept is None or now >= kept[0] or (kept[1].done() and kept[1].exception() is not None):
            if len(self._timelines) >= MOST_TIMELINES_SHARED:
                self._timelines.clear()
            question = partial(lines, source, keys, since)
            kept = (now + TIMELINES_EVERY, asyncio.create_task(self._apart.ask(question)))
            self._timelines[wanted] = kept
        return await asyncio.shield(kept[1])

    async def events(self, source: Source, after: int, most: int) -> bytes:
        return await self.ask(lambda: encoded(list(source.events(after, most))))

    async def ask(self, question: Callable[[], T], patience: float = PATIENCE) -> T:
        """Anything else, in a thread of its own; as ``Apart.ask``."""
        return await self._apart.ask(question, patience)


def take(sources: Sources, before: View | None, spent: float = 0.0) -> View:
    """Look at every run once. Runs that cannot be read are counted and hide no other. What was spent before on sending
    counts with the cost."""
    began, began_at = time.thread_time(), time.monotonic()
    known = before.runs if before is not None else {}
    all_runs = list(sources.runs())
    runs: dict[str, RunView] = {}
    unreadable = 0
    for source in all_runs[:MOST_RUNS]:
        try:
            snapshot = source.snapshot()
            runs[snapshot.run] = _run_view(source, snapshot, known.get(snapshot.run))
        except Exception as error:
            unreadable += 1
            log.debug("a run cannot be read: %s", type(error).__name__)
    for name in [name for name in known if name not in runs][: MOST_RUNS - len(runs)]:
        last = _last_word(known[name], began_at)
        if last is not None:
            runs[name] = last
    cost = time.thread_time() - began + spent
    return View(
        at=time.time(),
        next_at=began_at + min(max(cost / SHARE, QUICKEST), SLOWEST),
        runs=runs,
        more_runs=max(len(all_runs) - MOST_RUNS, 0),
        unreadable=unreadable,
    )


def _last_word(before: RunView, now: float) -> RunView | None:
    """How a run ended that is no longer there; None if it does not say, or has been shown for long enough."""
    ended_at = min(before.ended_at, now)
    if now - ended_at > SHOWN_AFTER:
        return None
    try:
        snapshot = before.source.snapshot()
        return replace(_run_view(before.source, snapshot, before), ended_at=ended_at) if snapshot.ending else None
    except Exception as error:
        log.debug("a run that is gone cannot be read: %s", type(error).__name__)
        return None


def _run_view(source: Source, snapshot: RunSnapshot, before: RunView | None) -> RunView:
    old = before.events if before is not None else ()
    last = old[-1].number if old else 0
    found = source.events(last, EVENTS_A_VIEW if old else EVENTS_KEPT)
    new = [EventView(one.number, encoded(one), is_routine(one)) for one in found]
    return RunView(
        source=source,
        json=encoded(snapshot),
        head=encoded({name: getattr(snapshot, name) for name in HEAD}),
        snapshot=snapshot,
        events=tuple(chosen((*old, *new), EVENTS_KEPT, lambda one: one.is_routine)),
    )


def lines(source: Source, keys: Sequence[str], since: float) -> Lines:
    """What came after that instant, not at it; an empty text if nothing did."""
    found = [_after(one, since) for one in islice(source.timelines(keys, since), len(keys))]
    found = [one for one in found if one.at]
    return Lines(encoded(found) if found else b"", max((one.at[-1] for one in found), default=since))


def _after(timeline: Timeline, since: float) -> Timeline:
    first = bisect_right(timeline.at, since)
    if first == 0:
        return timeline
    rest = {one.name: getattr(timeline, one.name)[first:] for one in fields(timeline) if one.name != "key"}
    return Timeline(key=timeline.key, **rest)
