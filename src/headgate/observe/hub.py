"""One stream for everything that happens: the ``on_event`` of any part, passed on to any number of listeners.

    limiter ─────┐
    batch  ──────┤               ┌──> log
    crawl  ──────┼──> Hub ───────┼──> EventBuffer ──> page, terminal
    credentials ─┤               └──> metrics
    calls  ──────┘

A part makes no events while its hub has no listeners, so a hub costs nothing until one is added. A listener is called
in the thread of the part that emits, and must be quick. One that raises is logged, and removed once it has raised
several times in a row.

What happens with every row is made only if a listener wants it (``wants``), and counted if not (``missed``).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from .. import fork_safety
from ..events import EventRecord, Listener, PublicEvent, deliver, name_of, note_missed
from ..limiter import AdaptiveRateLimiter

log = logging.getLogger("headgate")

MOST_LISTENERS = 64
MOST_FAULTS = 10
"""Times in a row that a listener may raise before it is removed, and times in all that this is logged."""


class EventEmitter(Protocol):
    """A limiter, a manager, a runner, a crawler: any part with an ``on_event``."""

    on_event: Any


class Silenceable(Protocol):
    """A part that makes events only while there is a listener."""

    listener: Any

    def set_heard(self, is_heard: bool) -> None: ...


class _Subscription:
    __slots__ = ("faults", "listener", "logged", "missed", "takes_records", "wants")

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.faults = self.logged = 0
        self.takes_records: bool = getattr(listener, "takes_records", False)
        self.wants: Callable[[str], bool] | None = getattr(listener, "wants", None)
        self.missed: Callable[[str, int], None] | None = getattr(listener, "missed", None)


class Hub:
    """A listener that passes events on. Safe for threads."""

    takes_records = True

    def __init__(self) -> None:
        self.is_heard = False
        """Whether there is a listener."""
        self._subscriptions: tuple[_Subscription, ...] = ()
        self._emitters: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = fork_safety.rlock()  # garbage that is collected meanwhile may end a permit, and say so

    def __call__(self, event: EventRecord | PublicEvent) -> None:
        public: PublicEvent | None = None
        for one in self._subscriptions:
            try:
                if one.takes_records or not isinstance(event, EventRecord):
                    one.listener(event)
                else:
                    public = event.public() if public is None else public
                    one.listener(public)
                one.faults = 0
            except Exception as error:
                self._failed(one, error)

    def wants(self, kind: str) -> bool:
        """Whether an event of this kind is worth making now. It may be asked at any moment, also in the middle of
        ``add``, when garbage that is collected ends a permit: so no lock is taken."""
        for one in self._subscriptions:
            try:
                if one.wants is None or one.wants(kind):
                    return True
            except Exception as error:
                self._failed(one, error)
        return False

    def missed(self, kind: str, count: int) -> None:
        """So many were not made, because no listener wanted them."""
        for one in self._subscriptions:
            try:
                if one.missed is not None:
                    one.missed(kind, count)
            except Exception as error:
                self._failed(one, error)

    def add(self, listener: Listener) -> None:
        """Pass everything on to this one too; adding it again changes nothing."""
        with self._lock:
            if any(one.listener == listener for one in self._subscriptions):
                return
            if len(self._subscriptions) >= MOST_LISTENERS:
                raise ValueError(f"too many listeners (limit {MOST_LISTENERS}); remove one first")
            self._settle((*self._subscriptions, _Subscription(listener)))

    def remove(self, listener: Listener) -> None:
        with self._lock:
            self._settle(tuple(one for one in self._subscriptions if one.listener != listener))

    def when_heard(self, emitter: Silenceable) -> None:
        """Tell this part whether there is a listener, now and whenever that changes while the hub is its own."""
        with self._lock:
            self._emitters.add(emitter)
            emitter.set_heard(self.is_heard)

    def _settle(self, subscriptions: tuple[_Subscription, ...]) -> None:
        self._subscriptions, self.is_heard = subscriptions, bool(subscriptions)
        for emitter in self._emitters:
            if emitter.listener is self:
                emitter.set_heard(self.is_heard)

    def _failed(self, one: _Subscription, error: Exception) -> None:
        """What it raised may quote anything, so only its type is logged."""
        one.faults += 1
        one.logged += 1
        name = name_of(one.listener)
        if one.logged <= MOST_FAULTS:  # one that fails now and then would fill the log
            log.warning("listener %s raised %s", name, type(error).__name__)
        if one.faults >= MOST_FAULTS:
            log.error("removing listener %s: it raised %d times in a row", name, one.faults)
            self.remove(one.listener)


# ---------------------------------------------------------------------- beside a listener that is there already


class ListenerPair:
    """Two listeners as one; if the first raises, the second is called all the same."""

    takes_records = True

    def __init__(self, first: Listener, second: Listener) -> None:
        self._both = first, second

    def has(self, listener: Listener) -> bool:
        return listener in self._both or any(isinstance(one, ListenerPair) and one.has(listener) for one in self._both)

    def wants(self, kind: str) -> bool:
        """Whether one of them does."""
        return any(getattr(one, "wants", _wants_all)(kind) for one in self._both)

    def missed(self, kind: str, count: int) -> None:
        """So many were not made, because neither wanted them."""
        for one in self._both:
            note_missed(one, kind, count)

    def __call__(self, event: EventRecord | PublicEvent) -> None:
        for one in self._both:
            deliver(one, event)


def _wants_all(kind: str) -> bool:
    return True


def add_listener(emitter: EventEmitter, listener: Listener) -> None:
    """Add a listener; the one that is there stays."""
    present = emitter.on_event
    if present is listener or (isinstance(present, ListenerPair) and present.has(listener)):
        return
    if present is None:
        emitter.on_event = listener
    elif isinstance(present, Hub):
        present.add(listener)
    else:
        emitter.on_event = ListenerPair(present, listener)


def limiter_of(owner: object) -> AdaptiveRateLimiter:
    """The limiter behind a runner, a crawler or a manager, or the limiter itself."""
    limiter = owner if isinstance(owner, AdaptiveRateLimiter) else getattr(owner, "limiter", None)
    if not isinstance(limiter, AdaptiveRateLimiter):
        raise TypeError(f"{type(owner).__name__} has no limiter; give a limiter, a runner, a crawler or a manager")
    return limiter
