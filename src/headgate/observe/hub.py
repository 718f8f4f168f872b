"""One stream for everything that happens: given to any part as its ``on_event``, passed on to any number of listeners.

    limiter ──┐
    batch  ───┤                 ┌──> log
    crawl  ───┼──> hub ─────────┼──> ring ──> page, terminal
    keys   ───┤                 └──> metrics
    calls  ───┘

Where nobody listens the parts make no events at all, so it costs nothing to have a hub. A listener is called by
whoever has something to tell, in its thread; it must be quick. One that raises is logged, and left out after a while.

What happens with every row is made only if somebody wants it (``wants``), and counted if not (``missed``).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from .. import fork_safety

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


class Teller(Protocol):
    """A part that makes events only while somebody wants them."""

    listener: Any

    def heard(self, is_heard: bool) -> None: ...


class _Ear:
    """A listener may have a method ``wants(kind)``: an event that nobody wants is not even made. How many of them there
    were is told to ``missed(kind, count)``, if there is one."""

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
        self._lock = fork_safety.rlock()  # garbage that is collected meanwhile may end a permit, and tell of it

    def __call__(self, event: AnyEvent) -> None:
        for ear in self._ears:
            try:
                ear.listener(event)
                ear.faults = 0
            except Exception as error:
                self._failed(ear, error)

    def wants(self, kind: str) -> bool:
        """Whether an event of this kind is worth making now. It may be asked at any moment, also in the middle of
        ``add``, when garbage that is collected ends a permit: so no lock is taken."""
        return any(ear.wants is None or self._ask(ear, ear.wants, kind) for ear in self._ears)

    def missed(self, kind: str, count: int) -> None:
        """So many were not made, because nobody wanted them."""
        for ear in self._ears:
            if ear.missed is not None:
                self._ask(ear, ear.missed, kind, count)

    def _ask(self, ear: _Ear, question: Callable[..., object], *about: object) -> bool:
        try:
            return bool(question(*about))
        except Exception as error:
            self._failed(ear, error)
            return False

    def add(self, listener: Listener) -> None:
        """From now on this one hears everything; adding it again changes nothing."""
        with self._lock:
            if any(ear.listener == listener for ear in self._ears):
                return
            if len(self._ears) >= MOST_LISTENERS:
                raise ValueError(f"listeners: there are {MOST_LISTENERS} already; remove one first")
            self._settle((*self._ears, _Ear(listener)))

    def remove(self, listener: Listener) -> None:
        with self._lock:
            self._settle(tuple(ear for ear in self._ears if ear.listener != listener))

    def when_heard(self, teller: Teller) -> None:
        """Tell this part whether anybody listens, now and whenever that changes while the hub is its listener."""
        with self._lock:
            self._tellers.add(teller)
            teller.heard(self.is_heard)

    def _settle(self, ears: tuple[_Ear, ...]) -> None:
        self._ears, self.is_heard = ears, bool(ears)
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
            self.remove(ear.listener)
