"""A run in this process that can be looked at and spoken to: by a page, a terminal, a file, a report.

    with Watched(job=job) as watched:          # or crawler=, or limiter= and credentials= of a program of your own
        await job.run()

It listens to everything that happens, looks at the run once a second to remember how its keys have been going, and
makes a snapshot when somebody asks; never so often that it takes more than a hundredth of the time, however many ask.
"""

from __future__ import annotations

import logging
import os
import platform
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from .. import fork_safety
from ..clock import Clock
from ..credentials import CredentialCoordinator
from ..limiter import AdaptiveRateLimiter
from ..wire.redaction import redact
from .acting import act
from .attaching import Both, Telling
from .history import History
from .hub import Hub
from .of_credentials import CredentialsSeen
from .of_limiter import KeysSeen, in_words
from .of_program import OfProgram
from .ring import Ring
from .snapshot import (
    MOST_DEAD,
    MOST_KEYS,
    Action,
    DeadLine,
    EventLine,
    KeyLine,
    ProgressLine,
    RunSnapshot,
    Timeline,
)
from .subject import MOST_EXAMPLES, Subject
from .waiting import Waits, in_order, of_keys, of_pause

if TYPE_CHECKING:
    from ..batch.job import Job
    from ..batch.runner import BatchRunner
    from ..crawl.crawler import Crawler
    from .hub import AnyEvent

log = logging.getLogger("headgate")

LOOK_EVERY = 0.25
"""Seconds between two looks of the thread that looks by itself."""
FRESH_FOR = 0.2
"""Seconds for which a snapshot is good enough for the next who asks ..."""
SHARE = 100.0
"""... or so many times as long as it took to make."""
LONGEST_STALE = 5.0
MOST_COMPLAINTS = 20

Given = CredentialCoordinator | Mapping[str, CredentialCoordinator]


class Watched:
    """A ``Source``: safe for threads."""

    def __init__(
        self,
        *,
        job: Job | BatchRunner | None = None,
        crawler: Crawler | None = None,
        limiter: AdaptiveRateLimiter | None = None,
        credentials: Given | None = None,
        tellers: Sequence[Telling] = (),
        progress: Callable[[], ProgressLine] | None = None,
        rows: Callable[[], int | None] | None = None,
        kind: str = "",
        title: str = "",
        hub: Hub | None = None,
        clock: Clock | None = None,
    ) -> None:
        """A ``job`` and a ``crawler`` bring their limiter and credentials along; a program gives what it has,
        credentials by what they are for, and may tell its ``progress``. ``tellers`` are others with an ``on_event``, as
        a manager is; ``rows`` says how many rows a job has, where that is known; ``kind`` and ``title`` are for people.
        """
        self._subject = _subject(job, crawler, limiter, credentials, tellers, progress, rows, clock)
        subject = self._subject
        self.clock = subject.clock
        self.kind, self.title = kind or subject.kind, title or subject.title or kind or subject.kind
        self.run = f"{self.kind}-{os.getpid()}-{secrets.token_hex(3)}"
        self.hub = Hub() if hub is None else hub
        self.ring = Ring(self.clock, self._hear)
        self.history = History()
        self.keys = None if subject.limiter is None else KeysSeen(subject.limiter)
        self.credentials = CredentialsSeen(subject.coordinators)
        self.ending = ""
        """How it ended, from whoever knows better than can be seen here."""
        self._examples: dict[str, str] = {}
        self._started_at = self.clock.wall()
        self._last: RunSnapshot | None = None
        self._fresh_until = float("-inf")
        self._lock = fork_safety.lock()
        self.is_started = False
        self._is_over = threading.Event()
        self._steps: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._complained: set[str] = set()
        self._listening: list[tuple[Telling, Any, Any]] = []

    # ------------------------------------------------------------------ from beginning to end

    def start(self, *steps: Callable[[], None], alone: bool = True) -> Self:
        """Listen from now on, and look by a thread of its own (``alone``), which does these ``steps`` each time too.

        Starting it again adds steps, and nothing else; one that has been closed stays so.
        """
        self._steps += steps
        if self.is_started:
            return self
        self.is_started = True
        self.hub.add(self.ring)
        subject = self._subject
        limiters = () if subject.limiter is None else (subject.limiter,)
        for teller in (*limiters, *subject.coordinators.values(), *subject.tellers):
            before = teller.on_event
            ours = self.hub if before is None or before is self.hub else Both(before, self.hub)
            teller.on_event = ours
            self._listening.append((teller, before, ours))
        if alone:
            self._thread = threading.Thread(target=self._go, name="headgate-observe", daemon=True)
            self._thread.start()
        return self

    def close(self, error: BaseException | None = None) -> None:
        """Look a last time, and listen no more; the last snapshot can still be asked for. ``error`` has ended it."""
        if self._is_over.is_set():
            return
        if error is not None:
            self.ending = self.ending or ("failed" if isinstance(error, Exception) else "stopped")
        self._try(self.look)
        self._is_over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=LONGEST_STALE)
        for teller, before, ours in self._listening:
            if teller.on_event is ours:
                teller.on_event = before
        self._listening.clear()
        self.hub.remove(self.ring)
        self._try(self._look_a_last_time)

    def _look_a_last_time(self) -> None:
        with self._lock:
            self._last = self._make()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def _go(self) -> None:
        while not self._is_over.wait(LOOK_EVERY):
            for step in (self.look, *self._steps):
                self._try(step)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:  # who looks must never be what stops a run, and looks again
            name = step.__qualname__ if hasattr(step, "__qualname__") else type(step).__qualname__
            if name not in self._complained and len(self._complained) < MOST_COMPLAINTS:
                self._complained.add(name)
                log.exception("a look at %s failed; it is tried again, and this is not told again", self.run)

    def look(self) -> None:
        """Remember how the keys stand, if a second has passed since the last time."""
        if self.history.is_due(self.clock.wall()):
            snapshot = self.snapshot()
            self.history.take(snapshot.at, snapshot.keys)

    def _hear(self, event: AnyEvent) -> None:
        found = self._subject.example(event)
        if found is not None and len(self._examples) < MOST_EXAMPLES:
            self._examples.setdefault(*found)

    # ------------------------------------------------------------------ looking

    def snapshot(self) -> RunSnapshot:
        with self._lock:
            began_at = self.clock.now()
            if self._last is None or (began_at >= self._fresh_until and not self._is_over.is_set()):
                self._last = self._make()
                ended_at = self.clock.now()
                self._fresh_until = ended_at + min(max(FRESH_FOR, SHARE * (ended_at - began_at)), LONGEST_STALE)
            return self._last

    def events(self, after: int, most: int = 200) -> Sequence[EventLine]:
        return self.ring.after(after, most)

    def timelines(self, keys: Sequence[str], since: float) -> Sequence[Timeline]:
        """Keys that are asked for have one from the next instant on, however little goes on there."""
        self.history.want(keys)
        return self.history.timelines(keys, since)

    def act(self, action: Action) -> str:
        said = act(action, self._subject, self.keys, self.credentials, is_over=self._is_over.is_set())
        self.ring.say("operator", redact(action.target) if action.kind == "limit" else "", said)
        with self._lock:
            self._fresh_until = float("-inf")
        return said

    def runs(self) -> Sequence[Watched]:
        """As a ``Sources`` of one."""
        return (self,)

    # ------------------------------------------------------------------ making one

    def _make(self) -> RunSnapshot:
        subject, is_over = self._subject, self._is_over.is_set()
        state = subject.state()
        self.credentials.look()
        lines = [] if self.keys is None else self.keys.look()
        totals = {} if subject.limiter is None else subject.limiter.totals()
        counters = {**totals, **subject.counters(), "events": self.ring.number, "events_left_out": self.ring.left_out}
        progress = subject.progress()
        if is_over:
            waits = Waits([], 0)
        elif state == "paused":
            waits = of_pause(subject.kind, progress, sum(line.waiting for line in lines))
        else:
            waits = self._waits(lines)
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
            counters=counters,
            waited=subject.waited(),
            store="" if subject.limiter is None else in_words(subject.limiter.look_at_sharing()),
        )

    def _waits(self, keys: Sequence[KeyLine]) -> Waits:
        found = self._subject.waits(self.credentials.states)
        callers = self.credentials.waits()
        if isinstance(self._subject, OfProgram):
            callers += of_keys(keys)
        return Waits([*found.lines, *callers], found.behind + sum(line.behind for line in callers))

    def _dead(self) -> tuple[DeadLine, ...]:
        """The most first; those that do not fit are counted in the last."""
        lines = [
            replace(line, example=line.example or self._examples.get(line.reason, ""))
            for line in sorted(self._subject.dead(), key=lambda line: -line.count)
        ]
        if len(lines) <= MOST_DEAD:
            return tuple(lines)
        rest = lines[MOST_DEAD - 1 :]
        others = DeadLine(reason=f"{len(rest):,} other reasons", count=sum(line.count for line in rest))
        return (*lines[: MOST_DEAD - 1], others)


def _subject(
    job: Job | BatchRunner | None,
    crawler: Crawler | None,
    limiter: AdaptiveRateLimiter | None,
    credentials: Given | None,
    tellers: Sequence[Telling],
    progress: Callable[[], ProgressLine] | None,
    rows: Callable[[], int | None] | None,
    clock: Clock | None,
) -> Subject:
    if job is not None:
        from .of_job import OfJob

        return OfJob(job, rows)
    if crawler is not None:
        from .of_crawl import OfCrawl

        return OfCrawl(crawler)
    given = {} if credentials is None else {"": credentials} if not isinstance(credentials, Mapping) else credentials
    return OfProgram(limiter, given, progress, clock, tellers)
