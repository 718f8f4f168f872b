"""What the page shows now, read once for all clients.

A client asks for the view. One that is fresh enough is shared; otherwise the first client has a new one read and the
others join. So a run is read twice a second at most, for one client or a hundred, and not at all without a client. A
view that is expensive to read (a thousand keys) or to send (many clients) is read less often, so that all of it stays
within a small share of one core.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

from ..observe.event_buffer import chosen, is_routine
from ..observe.snapshot import SCHEMA, MonitoredRun, MonitoredRuns, RunSnapshot, to_json

SHORTEST_INTERVAL = 0.5
"""Seconds from one view to the next, at least."""
LONGEST_INTERVAL = 5.0
SHARE = 0.005
"""Of one core, for reading views and sending them. A busy run loses more than that: it waits for Python's lock."""
MOST_RUNS = 20
EVENTS_PER_VIEW = 100
EVENTS_KEPT = 200
"""The newest, for clients that connect."""
SHOWN_AFTER_END = 60.0
"""Seconds for which a run that has ended is shown, where it can still be asked how it ended."""
TIMELINES_EVERY = 1.0
MOST_TIMELINES_SHARED = 64
MOST_AT_ONCE = 8
"""Questions under way; those that hang count for as long as they do."""
TIMEOUT = 2.0
"""Seconds after which a run counts as one that does not answer."""
HEAD = ("run", "title", "kind", "pid", "host", "started_at", "state", "silent", "ending", "progress")

T = TypeVar("T")
log = logging.getLogger("headgate.web")


class NoAnswerError(Exception):
    """The run has not answered in time, or too many questions are under way already."""


class EventView(NamedTuple):
    number: int
    json: bytes
    is_routine: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    source: MonitoredRun
    json: bytes
    head: bytes
    """Of the snapshot only what tells it from others, and its progress."""
    snapshot: RunSnapshot
    events: tuple[EventView, ...]
    """The newest, the oldest of them first."""
    ended_at: float = float("inf")
    """When it was first found to be gone, on the monotonic clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    at: float
    """Unix time."""
    next_at: float
    """When the next one may be read, on the monotonic clock."""
    runs: Mapping[str, RunView]
    """Those that have ended last."""
    more_runs: int
    unreadable: int
    """Runs that exist and could not be read."""
    _encoded: dict[tuple[str | None, bool], tuple[bytes, bytes]] = field(default_factory=dict)

    @property
    def all_answer(self) -> bool:
        return not self.unreadable and not any(one.snapshot.silent for one in self.runs.values())

    def json(self, *, whole: str | None, read_only: bool) -> tuple[bytes, bytes]:
        """The view as it is sent, and its runs alone, by which a change is noticed. The named run is whole, of the
        others only the heads are there; without a name all are whole. Equal requests share the same bytes."""
        found = self._encoded.get((whole, read_only))
        if found is None:
            about = {"schema": SCHEMA, "at": self.at, "read_only": read_only, "more_runs": self.more_runs}
            around = to_json({**about, "unreadable": self.unreadable})
            runs = b",".join(one.json if whole in (None, name) else one.head for name, one in self.runs.items())
            found = self._encoded[whole, read_only] = (b'%b,"runs":[%b]}' % (around[:-1], runs), runs)
        return found


@dataclass(frozen=True, slots=True)
class Lines:
    """Some keys' timelines as they are sent."""

    json: bytes
    newest_at: float


class ViewCache:
    """Reads runs off the event loop, as seldom as the clients allow."""

    def __init__(self, runs: MonitoredRuns) -> None:
        self._runs = runs
        self._pending = 0
        """Questions under way."""
        self._view: View | None = None
        self._reading: asyncio.Task[View] | None = None
        self._last_reading: asyncio.Task[View] | None = None
        self._refused_until = 0.0
        self._spent = 0.0
        self._has_complained = False
        self._timelines: dict[tuple[str, tuple[str, ...], float], tuple[float, asyncio.Task[Lines]]] = {}

    async def view(self) -> View:
        """The newest; raises ``NoAnswerError``, and for a moment after that without asking again."""
        now = time.monotonic()
        if self._view is not None and now < self._view.next_at:
            return self._view
        if self._reading is None or self._reading.done():
            if now < self._refused_until:
                raise NoAnswerError
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._reading)

    async def last(self) -> View:
        """The state at this instant and not a moment ago, for clients whose page ends; they share it."""
        if self._last_reading is None or self._last_reading.done():
            self._last_reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._last_reading)

    async def _read(self) -> View:
        try:
            spent, self._spent = self._spent, 0.0
            self._view = await self.ask(partial(read_view, self._runs, self._view, spent))
        except Exception as error:
            self._refused_until = time.monotonic() + SHORTEST_INTERVAL
            if not self._has_complained:
                log.warning("cannot read the runs: %s", type(error).__name__)
            self._has_complained = True
            raise NoAnswerError from None
        self._has_complained = False
        return self._view

    def add_cost(self, seconds: float) -> None:
        """Count the seconds of this thread that sending took: views come less often the more it takes."""
        self._spent += seconds

    async def timelines(self, run: str, source: MonitoredRun, keys: tuple[str, ...], since: float) -> Lines:
        """Equal requests within a second share the answer."""
        now = time.monotonic()
        wanted = (run, keys, since)
        kept = self._timelines.get(wanted)
        if kept is None or now >= kept[0] or (kept[1].done() and kept[1].exception() is not None):
            if len(self._timelines) >= MOST_TIMELINES_SHARED:
                self._timelines.clear()
            question = partial(read_timelines, source, keys, since)
            kept = (now + TIMELINES_EVERY, asyncio.create_task(self.ask(question)))
            self._timelines[wanted] = kept
        return await asyncio.shield(kept[1])

    async def ask(self, question: Callable[[], T], within: float | None = None) -> T:
        """What the question returns or raises, asked in a thread of its own: a run that hangs must not take the page
        with it. ``NoAnswerError`` if that takes longer than ``within``, or ``TIMEOUT``."""
        if self._pending >= MOST_AT_ONCE:
            raise NoAnswerError
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            self._pending -= 1
            if answer.done():
                return
            if error is None:
                answer.set_result(result)  # type: ignore[arg-type]
            else:
                answer.set_exception(error)

        def work() -> None:
            result: T | None = None
            failed: BaseException | None = None
            try:
                result = question()
            except Exception as error:
                failed = error
            with suppress(RuntimeError):  # the loop has ended, and no task waits
                loop.call_soon_threadsafe(settle, result, failed)

        self._pending += 1
        threading.Thread(target=work, name="headgate-web-question", daemon=True).start()
        try:
            async with asyncio.timeout(TIMEOUT if within is None else within):
                return await answer
        except TimeoutError:
            if answer.done() and not answer.cancelled():  # the question itself ended so
                raise
            raise NoAnswerError from None


def read_view(sources: MonitoredRuns, before: View | None, spent: float = 0.0) -> View:
    """Read every run once. Runs that cannot be read are counted and hide no other. ``spent`` is what sending has cost
    since the view before, and counts with the cost of this one."""
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
            log.debug("cannot read a run: %s", type(error).__name__)
    for name in [name for name in known if name not in runs][: MOST_RUNS - len(runs)]:
        last = _ended_view(known[name], began_at)
        if last is not None:
            runs[name] = last
    cost = time.thread_time() - began + spent
    return View(
        at=time.time(),
        next_at=began_at + min(max(cost / SHARE, SHORTEST_INTERVAL), LONGEST_INTERVAL),
        runs=runs,
        more_runs=max(len(all_runs) - MOST_RUNS, 0),
        unreadable=unreadable,
    )


def _ended_view(before: RunView, now: float) -> RunView | None:
    """How a run ended that is no longer there; None if it does not say, or has been shown for long enough."""
    ended_at = min(before.ended_at, now)
    if now - ended_at > SHOWN_AFTER_END:
        return None
    try:
        snapshot = before.source.snapshot()
        return replace(_run_view(before.source, snapshot, before), ended_at=ended_at) if snapshot.ending else None
    except Exception as error:
        log.debug("cannot read a run that is gone: %s", type(error).__name__)
        return None


def _run_view(source: MonitoredRun, snapshot: RunSnapshot, before: RunView | None) -> RunView:
    old = before.events if before is not None else ()
    last = old[-1].number if old else 0
    found = source.events(last, EVENTS_PER_VIEW if old else EVENTS_KEPT)
    new = [EventView(one.number, to_json(one), is_routine(one)) for one in found]
    return RunView(
        source=source,
        json=to_json(snapshot),
        head=to_json({name: getattr(snapshot, name) for name in HEAD}),
        snapshot=snapshot,
        events=tuple(chosen((*old, *new), EVENTS_KEPT, lambda one: one.is_routine)),
    )


def read_timelines(source: MonitoredRun, keys: Sequence[str], since: float) -> Lines:
    """What came after that instant, not at it; empty JSON if nothing did."""
    found = [one.after(since) for one in islice(source.timelines(keys, since), len(keys))]
    found = [one for one in found if one.at]
    return Lines(to_json(found) if found else b"", max((one.at[-1] for one in found), default=since))
