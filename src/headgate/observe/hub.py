"""One stream for everything that happens: given to any part as its ``on_event``, passed on to any number of listeners.

    limiter ──┐
    batch  ───┤                 ┌──> log
    crawl  ───┼──> hub ─────────┼──> ring ──> page, terminal
    keys   ───┤                 └──> metrics
    calls  ───┘

Where nobody listens the parts make no events at all, so it costs nothing to have a hub. A listener is called by
whoever has something to tell, in its thread; it must be quick. One that raises is logged, and left out after a while.

What happens with every row is asked about with every row (``wants``). A no of all holds until the next second begins,
and what was not made is put on a heap (``missed``), to be counted when somebody looks.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from ..clock import Clock, SystemClock

if TYPE_CHECKING:
    from ..batch.report import BatchEvent
    from ..crawl.report import CrawlEvent
    from ..events import Event, ResilienceEvent

    AnyEvent = Event | BatchEvent | CrawlEvent | ResilienceEvent

log = logging.getLogger("headgate")

Listener = Callable[[Any], None]
"""Called with each event; it takes those that it knows."""

MOST_LISTENERS = 64
MOST_FAULTS = 10
"""Times in a row that a listener may raise before it is left out, and times in all that this is told."""
MOST_REFUSED = 100
"""Kinds of events whose refusal is remembered."""
MOST_MISSED = 1_000
"""Times that events were not made, which wait to be counted."""
_NOT_REFUSED = float("-inf")


class Teller(Protocol):
    """A part that makes events only while somebody wants them."""

    listener: Any

    def heard(self, is_heard: bool) -> None: ...


class _Ear:
    """A listener may have a method ``wants(kind)``: an event that nobody wants is not even made. How many of them there
    were is told to ``missed(kind, count)``, if there is one. By its ``clock``, if it has one, seconds pass."""

    __slots__ = ("faults", "listener", "missed", "told", "wants")

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.faults = self.told = 0
        self.wants: Callable[[str], bool] | None = getattr(listener, "wants", None)
        self.missed: Callable[[str, int], None] | None = getattr(listener, "missed", None)


class Hub:
    def __init__(self) -> None:
        self.is_heard = False
        """Whether anybody listens."""
        self._ears: tuple[_Ear, ...] = ()
        self._tellers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.RLock()  # garbage that is collected meanwhile may end a permit, and tell of it
        self._now: Callable[[], float] = SystemClock.now
        self._refused_until: dict[str, float] = {}
        self._missed: deque[tuple[str, int]] = deque()

    def __call__(self, event: AnyEvent) -> None:
        if self._missed:  # they came first
            self.count_missed()
        for ear in self._ears:
            try:
                ear.listener(event)
                ear.faults = 0
            except Exception as error:
                self._failed(ear, error)

    def wants(self, kind: str) -> bool:
        """Whether an event of this kind is worth making now. Asked under the locks of others: it takes none."""
        now, refused_until = self._now(), self._refused_until
        if now < refused_until.get(kind, _NOT_REFUSED):
            return False
        for ear in self._ears:
            try:
                if ear.wants is None or ear.wants(kind):
                    return True
            except Exception as error:
                self._failed(ear, error)
        if kind in refused_until or len(refused_until) < MOST_REFUSED:
            refused_until[kind] = float(int(now) + 1)
        return False

    def missed(self, kind: str, count: int) -> None:
        """So many were not made, because nobody wanted them."""
        self._missed.append((kind, count))
        if len(self._missed) >= MOST_MISSED:
            self.count_missed()

    def count_missed(self) -> None:
        """Tell those who count how many events were not made, and what they would have been."""
        ears = self._ears  # before anything is taken: who comes or goes meanwhile changes nothing
        counts: Counter[str] = Counter()
        with suppress(IndexError):  # another thread may be faster
            for _ in range(len(self._missed)):
                kind, count = self._missed.popleft()
                counts[kind] += count
        for kind, count in counts.items():
            for ear in ears:
                try:
                    if ear.missed is not None:
                        ear.missed(kind, count)
                except Exception as error:
                    self._failed(ear, error)

    def add(self, listener: Listener) -> None:
        """From now on this one hears everything; adding it again changes nothing."""
        self.count_missed()  # what was before is not for this one
        with self._lock:
            if any(ear.listener == listener for ear in self._ears):
                return
            if len(self._ears) >= MOST_LISTENERS:
                raise ValueError(f"listeners: there are {MOST_LISTENERS} already; remove one first")
            clock: Clock | None = getattr(listener, "clock", None)
            if clock is not None:
                self._now = clock.now
            self._settle((*self._ears, _Ear(listener)))

    def remove(self, listener: Listener) -> None:
        self.count_missed()
        self._leave_out(listener)

    def _leave_out(self, listener: Listener) -> None:
        with self._lock:
            self._settle(tuple(ear for ear in self._ears if ear.listener != listener))

    def when_heard(self, teller: Teller) -> None:
        """Tell this part whether anybody listens, now and whenever that changes while the hub is its listener."""
        with self._lock:
            self._tellers.add(teller)
            teller.heard(self.is_heard)

    def _settle(self, ears: tuple[_Ear, ...]) -> None:
        self._ears, self.is_heard = ears, bool(ears)
        self._refused_until = {}  # another one: a no that is being written down now is of those before
        for teller in self._tellers:
            if teller.listener is self:
                teller.heard(self.is_heard)

    def _failed(self, ear: _Ear, error: Exception) -> None:
        """What it raised may quote anything, so only its kind is logged."""
        ear.faults += 1
        ear.told += 1
        name = getattr(ear.listener, "__qualname__", type(ear.listener).__qualname__)
        if ear.told <= MOST_FAULTS:  # one that fails now and then would fill the log
            log.warning("a listener (%s) raised %s", name, type(error).__name__)
        if ear.faults >= MOST_FAULTS:
            log.error("a listener (%s) raised %d times in a row and hears no more", name, ear.faults)
            self._leave_out(ear.listener)
