"""``RunMonitor``: a run in this process that pages, terminals, files and reports can read and act on.

    with RunMonitor(job=job) as monitor:       # or crawler=, or limiter= and credentials= of a program of your own
        await job.run()

It listens to every event, reads the run once a second to keep its history, and makes a snapshot on request; never so
often that this takes more than a hundredth of the time, however many readers there are.
"""

from __future__ import annotations

import logging
import os
import platform
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Self

from .. import fork_safety
from ..clock import Clock
from ..core.decision import LONGEST_WAIT
from ..errors import ConfigError
from ..formatting import for_display, format_seconds, redact
from ..limiter import AdaptiveRateLimiter
from ..limiter.key_lines import KeySource
from ..reason_text import store_text
from .event_buffer import EventBuffer
from .history import History
from .hub import EventEmitter, Hub, ListenerPair
from .snapshot import (
    MOST_DEAD,
    MOST_KEYS,
    Action,
    ActionRefusedError,
    DeadLine,
    EventLine,
    KeyLine,
    ProgressLine,
    RunSnapshot,
    Timeline,
)
from .sources import RunSource, Waits, in_order, pause_wait
from .sources.program import CredentialSource, ProgramSource

if TYPE_CHECKING:
    from ..batch.job import Job
    from ..batch.runner import BatchRunner
    from ..crawl.crawler import Crawler
    from ..credentials import CredentialCoordinator


log = logging.getLogger("headgate")

READ_EVERY = 0.25
"""Seconds between two steps of the monitor's thread."""
FRESH_FOR = 0.2
"""Seconds for which a snapshot is good enough for the next reader ..."""
SHARE = 100.0
"""... or so many times as long as it took to make."""
LONGEST_STALE = 5.0
MOST_COMPLAINTS = 20
MOST_RPS = 1e6
LONGEST_TARGET = 1_100
ACTIONS = ("pause", "resume", "stop", "park", "free", "retire", "limit")
"""What an operator may do to a run, to a credential and to a key."""


class RunMonitor:
    """A ``MonitoredRun``: safe for threads."""

    def __init__(
        self,
        *,
        job: Job | BatchRunner | None = None,
        crawler: Crawler | None = None,
        limiter: AdaptiveRateLimiter | None = None,
        credentials: CredentialCoordinator | Mapping[str, CredentialCoordinator] | None = None,
        emitters: Sequence[EventEmitter] = (),
        progress: Callable[[], ProgressLine] | None = None,
        rows: Callable[[], int | None] | None = None,
        kind: str = "",
        title: str = "",
        hub: Hub | None = None,
        clock: Clock | None = None,
    ) -> None:
        """A ``job`` and a ``crawler`` bring their limiter and credentials along; a program gives what it has,
        credentials by what they are for, and may report its ``progress``. ``emitters`` are other parts with an
        ``on_event``, such as a manager; ``rows`` returns how many rows a job has, where that is known; ``kind`` and
        ``title`` are for people.
        """
        source: RunSource
        if job is not None:
            from .sources.job import JobSource

            source = JobSource(job, rows)
        elif crawler is not None:
            from .sources.crawl import CrawlSource

            source = CrawlSource(crawler)
        else:
            given = {} if credentials is None else credentials
            coordinators = given if isinstance(given, Mapping) else {"": given}
            source = ProgramSource(limiter, coordinators, progress, clock, emitters)
        self._source = source
        self.clock = source.clock
        self.kind, self.title = kind or source.kind, title or source.title or kind or source.kind
        self.run = f"{self.kind}-{os.getpid()}-{secrets.token_hex(3)}"
        self.hub = Hub() if hub is None else hub
        self.buffer = EventBuffer(self.clock, source.on_event)
        self.history = History()
        self.keys = None if source.limiter is None else KeySource(source.limiter, MOST_KEYS)
        self.credentials = CredentialSource(source.coordinators)
        self.ending = ""
        """How it ended, where the caller knows better than can be seen here."""
        self._started_at = self.clock.wall()
        self._last: RunSnapshot | None = None
        self._fresh_until = float("-inf")
        self._lock = fork_safety.lock()
        self.is_started = False
        self._is_over = threading.Event()
        self._steps: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._complained: set[str] = set()
        self._listening: list[tuple[EventEmitter, Any, Any]] = []

    # ------------------------------------------------------------------ from beginning to end

    def start(self, *steps: Callable[[], None], alone: bool = True) -> Self:
        """Listen from now on, and read the run in a thread of its own (``alone``), which does these ``steps`` each time
        too.

        Starting it again adds steps, and nothing else; one that has been closed stays so.
        """
        self._steps += steps
        if self.is_started:
            return self
        self.is_started = True
        self.hub.add(self.buffer)
        source = self._source
        limiters = () if source.limiter is None else (source.limiter,)
        for emitter in (*limiters, *source.coordinators.values(), *source.emitters):
            before = emitter.on_event
            ours = self.hub if before is None or before is self.hub else ListenerPair(before, self.hub)
            emitter.on_event = ours
            self._listening.append((emitter, before, ours))
        if alone:
            self._thread = threading.Thread(target=self._loop, name="headgate-observe", daemon=True)
            self._thread.start()
        return self

    def close(self, error: BaseException | None = None) -> None:
        """Read the run a last time, and stop listening; the last snapshot stays. ``error`` is what ended the run."""
        if self._is_over.is_set():
            return
        if error is not None:
            self.ending = self.ending or ("failed" if isinstance(error, Exception) else "stopped")
        self._try(self.record)
        self._is_over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=LONGEST_STALE)
        for emitter, before, ours in self._listening:
            if emitter.on_event is ours:
                emitter.on_event = before
        self._listening.clear()
        self.hub.remove(self.buffer)
        self._try(self._make_last)

    def _make_last(self) -> None:
        with self._lock:
            self._last = self._make()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def _loop(self) -> None:
        while not self._is_over.wait(READ_EVERY):
            for step in (self.record, *self._steps):
                self._try(step)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:  # observing must never stop a run; it is tried again
            name = step.__qualname__ if hasattr(step, "__qualname__") else type(step).__qualname__
            if name not in self._complained and len(self._complained) < MOST_COMPLAINTS:
                self._complained.add(name)
                log.exception("%s: %s failed and will be retried; further failures are not logged", self.run, name)

    def record(self) -> None:
        """Add the state of the keys to the history, if a second has passed since the last time."""
        if self.history.is_due(self.clock.wall()):
            snapshot = self.snapshot()
            self.history.add(snapshot.at, snapshot.keys)

    # ------------------------------------------------------------------ reading

    def snapshot(self) -> RunSnapshot:
        with self._lock:
            began_at = self.clock.now()
            if self._last is None or (began_at >= self._fresh_until and not self._is_over.is_set()):
                self._last = self._make()
                ended_at = self.clock.now()
                self._fresh_until = ended_at + min(max(FRESH_FOR, SHARE * (ended_at - began_at)), LONGEST_STALE)
            return self._last

    def events(self, after: int, most: int = 200) -> Sequence[EventLine]:
        return self.buffer.after(after, most)

    def timelines(self, keys: Sequence[str], since: float) -> Sequence[Timeline]:
        """Keys that are asked for have a history from the next second on, however idle they are."""
        self.history.want(keys)
        return self.history.timelines(keys, since)

    def runs(self) -> Sequence[RunMonitor]:
        """As ``MonitoredRuns`` of one."""
        return (self,)

    # ------------------------------------------------------------------ what an operator may do

    def act(self, action: Action) -> str:
        if action.kind not in ACTIONS:
            raise ActionRefusedError(f"Unknown action; expected one of {', '.join(ACTIONS)}")
        if self._is_over.is_set():
            raise ActionRefusedError("This run has ended")
        if len(action.target) > LONGEST_TARGET:
            raise ActionRefusedError(f"target has {len(action.target):,} characters; the limit is {LONGEST_TARGET:,}")
        try:
            said = self._act(action)
        except ConfigError as error:
            raise ActionRefusedError(str(error)) from None
        self.buffer.add("operator", redact(action.target) if action.kind == "limit" else "", said)
        with self._lock:
            self._fresh_until = float("-inf")
        return said

    def _act(self, action: Action) -> str:
        source, state = self._source, self._source.state()
        match action.kind:
            case "pause" | "resume" if state == "stopping":
                raise ActionRefusedError("This run is stopping; it cannot be paused or resumed")
            case "pause" if state == "paused":
                return "already paused"
            case "pause":
                source.pause()
                return "paused: calls in flight finish, no new call starts"
            case "resume" if state != "paused":
                return "not paused"
            case "resume":
                source.resume()
                return "resumed"
            case "stop" if state == "stopping":
                return "already stopping"
            case "stop":
                source.stop()
                return "stopping: calls in flight finish, no new call starts"
            case "limit":
                return self._limit(action)
        return self._change_credential(action)

    def _change_credential(self, action: Action) -> str:
        coordinator, label = self.credentials.find(action.target)
        if action.kind == "free":
            coordinator.free(label)
            return f"{label} is enabled again"
        if action.kind == "retire":
            coordinator.retire(label)
            return f"{label} is disabled until it is enabled again"
        seconds = _number(action, "seconds to park for", LONGEST_WAIT)
        coordinator.park(label, seconds)
        return f"{label} rests for {format_seconds(seconds)}, or longer if it was resting already"

    def _limit(self, action: Action) -> str:
        keys, limiter = self.keys, self._source.limiter
        if keys is None or limiter is None:
            raise ActionRefusedError("This run has no limiter, so its keys cannot be limited")
        key = keys.key_of(action.target)
        if not key or limiter.key_status(key) is None:
            raise ActionRefusedError("This key is not in use in this run")
        if action.value is None:
            limiter.limit(key, None)
            return f"{keys.name_of(key)}: limit removed"
        rps = _number(action, "calls/s", MOST_RPS)
        limiter.limit(key, rps)
        return f"{keys.name_of(key)}: limited to {rps:g} calls/s"

    # ------------------------------------------------------------------ making a snapshot

    def _make(self) -> RunSnapshot:
        source, is_over = self._source, self._is_over.is_set()
        state = source.state()
        self.credentials.refresh()
        lines: list[KeyLine] = []
        if self.keys is not None:
            self.keys.refresh()
            lines = self.keys.lines
        totals = {} if source.limiter is None else source.limiter.totals()
        numbers = {"events": self.buffer.number, "events_left_out": self.buffer.left_out}
        progress = source.progress()
        if is_over:
            waits = Waits([], 0)
        elif state == "paused":
            waits = pause_wait(source.kind, progress, sum(line.waiting for line in lines))
        else:
            waits = self._waits()
        return RunSnapshot(
            run=self.run,
            title=self.title,
            kind=self.kind,
            pid=os.getpid(),
            host=platform.node(),
            started_at=self._started_at,
            at=self.clock.wall(),
            state="ended" if is_over else state,
            ending=(self.ending or ("stopped" if state == "stopping" else "done")) if is_over else "",
            progress=progress,
            waits=in_order(waits.lines),
            blocked=waits.behind,
            keys=tuple(lines[:MOST_KEYS]),
            more_keys=max(0, totals.get("keys", 0) - len(lines)),
            charted=tuple(self.history.keys()),
            credentials=tuple(self.credentials.lines),
            dead=self._dead(),
            counters={**totals, **source.counters(), **numbers},
            waited=source.waited(),
            store="" if source.limiter is None else _store_of(source.limiter),
        )

    def _waits(self) -> Waits:
        found = self._source.waits(self.credentials.states)
        callers = self.credentials.waits()
        if isinstance(self._source, ProgramSource) and self.keys is not None:
            callers += self.keys.waits
        return Waits([*found.lines, *callers], found.behind + sum(line.behind for line in callers))

    def _dead(self) -> tuple[DeadLine, ...]:
        """The most first; those that do not fit are counted in the last."""
        lines = sorted(self._source.dead(), key=lambda line: -line.count)
        if len(lines) <= MOST_DEAD:
            return tuple(lines)
        rest = lines[MOST_DEAD - 1 :]
        others = DeadLine(reason=f"{len(rest):,} other reasons", count=sum(line.count for line in rest))
        return (*lines[: MOST_DEAD - 1], others)


def _store_of(limiter: AdaptiveRateLimiter) -> str:
    sharing = limiter.look_at_sharing()
    return "" if sharing is None else store_text(for_display(sharing.where), sharing.members, sharing.is_lost)


def _number(action: Action, what: str, most: float) -> float:
    value = action.value
    is_fine = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and 0 < value <= most
    if not is_fine or value is None:
        raise ActionRefusedError(f"value: expected {what}, a number above 0 and at most {most:,.0f}")
    return float(value)
