"""The events and the observers of a limiter: noted under its lock, called without it, so they may call the limiter.

    note(...) ──> news ──flush()──> the listener
              ──> state changes ────> the log (``headgate.limiter``, at INFO), and listeners for circuits

Events say what changes. An observer sees every single call (metrics, spans, recordings), and only where there is one
does a call cost anything for it:

    permit ──around──> the call ──ended──> what came back
                          └─────dropped──> the outcome is unknown, or nothing was sent

``around`` is entered by the parts that make the call themselves: ``limiter.permit(...)``, resilience, batch, crawl. A
caller that acquires and reports by hand has an end without it.

A listener or an observer that raises is logged and otherwise ignored; it costs no caller a permit. Circuits and pauses
are logged without any listener; the record's ``event`` says which it is.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from ..clock import Clock
from ..core.decision import NEVER, Outcome, blocked_by
from ..core.signal import Signal
from ..events import CallEvent, Event, EventRecord, deliver, is_wanted
from ..reason_text import CircuitChange, PauseStart, RateChange
from ..wire import response_behind
from .key_entry import KeyEntry

if TYPE_CHECKING:
    from .permit import Permit

log = logging.getLogger("headgate")
state_log = logging.getLogger("headgate.limiter")
_LOGGED_AS = {"circuit_changed": "circuit", "cooldown_started": "paused for", "cooldown_ended": "the pause is over"}
"""How the log begins to say it; the event's reason follows."""

_NOTHING: AbstractContextManager[object] = nullcontext()


class CallInfo(NamedTuple):
    """What is known of a call before it is made."""

    attempt: int = 1
    method: str = ""
    url: str = ""
    credential: str = ""
    """Its label."""


EndedCall = tuple[str, Outcome, float, float]
"""A call's key, how it ended, its latency, and how long it waited for its permit."""
MOST_KEPT = 1_000
"""Calls that wait in an inbox."""


class CallObserver:
    """Base of observers. Its methods run in the caller's thread and must not wait; what they raise is logged."""

    inbox: deque[EndedCall] | None = None
    """An observer that only counts has one: calls are put there instead of calling ``ended`` for each, which costs a
    fraction, and ``take_inbox`` is called before there are too many."""

    def take_inbox(self) -> None:
        """Empty the inbox. May be called by several threads at once."""

    def around(self, permit: Permit, about: CallInfo) -> AbstractContextManager[object]:
        """Entered right before the call is made, left when it is over; ``ended`` or ``dropped`` comes after that."""
        return _NOTHING

    def ended(self, permit: Permit, call: CallEvent) -> None:
        """An answer came, or an error that says as much."""

    def dropped(self, permit: Permit, sent: bool) -> None:
        """It ended without an outcome."""


def around(observers: tuple[CallObserver, ...], permit: Permit, about: CallInfo) -> AbstractContextManager[object]:
    """Enter all observers, the first outermost."""
    stack = ExitStack()
    for observer in observers:
        try:
            stack.enter_context(observer.around(permit, about))
        except Exception:  # an observer must not fail a call
            log.exception("an observer failed on a call of %s", permit.key)
    return stack


def status_of(answer: object) -> int | None:
    """The HTTP status of an answer: a response, an exception, the number itself."""
    if answer is None or isinstance(answer, int):
        return answer
    if isinstance(answer, BaseException):
        answer = response_behind(answer)
    status = getattr(answer, "status_code", None)
    if not isinstance(status, int):
        status = getattr(answer, "status", None)
    return status if isinstance(status, int) else None


PACE = "rate_changed"
"""What may happen with every answer ..."""
QUIET = 0.1
"""... and is not noted for so many seconds after the listener did not want one."""


class LimiterEvents:
    """Collects events under the lock and hands them over without it."""

    def __init__(self, listener: Callable[[Event], None] | None, clock: Clock) -> None:
        self._clock = clock
        self.is_heard = False
        """Whether events have a listener; else they are not made."""
        self.has_work = False
        """Whether something is to be done after a decision: call observers, or ``flush`` what was noted."""
        self.observers: tuple[CallObserver, ...] = ()
        """The observers of every call ..."""
        self.around: tuple[CallObserver, ...] = ()
        """... those of them that wrap it ..."""
        self._inboxes: tuple[CallObserver, ...] = ()
        """... those that have an inbox ..."""
        self._direct: tuple[CallObserver, ...] = ()
        """... and those that are called."""
        self._news: deque[EventRecord] = deque()
        """What happened and has not been handed over yet."""
        self._states: deque[EventRecord] = deque()
        """Changes of circuits and pauses that have not been logged yet."""
        self._on_circuit: list[weakref.WeakMethod[Callable[[Event], None]]] = []
        self._quiet_until = NEVER
        self.listenings = 0
        """How often a listener came or went."""
        self.listen(listener)

    def listen(self, listener: Callable[[Event], None] | None) -> None:
        """Replace the listener. One that passes events on tells by ``when_heard`` whether it has listeners itself."""
        self.listener = listener
        when_heard: Callable[[LimiterEvents], None] | None = getattr(listener, "when_heard", None)
        if when_heard is not None:
            when_heard(self)
        else:
            self.set_heard(listener is not None)

    def set_heard(self, is_heard: bool) -> None:
        """Say whether events have a listener; where they have none, none are made."""
        if is_heard is not self.is_heard:  # a new listener does not get what was before
            self._news.clear()
            self.listenings += 1
        self._quiet_until = NEVER
        self.is_heard = is_heard

    def also_circuits(self, listener: Callable[[Event], None]) -> None:
        """Call this bound method at every change of a circuit, beside the listener, for as long as its object lives."""
        self._on_circuit = [known for known in self._on_circuit if known() is not None]
        self._on_circuit.append(weakref.WeakMethod(listener))

    def observe(self, observers: tuple[CallObserver, ...]) -> None:
        """Replace the observers of calls."""
        self.observers = observers
        self.around = tuple(one for one in observers if type(one).around is not CallObserver.around)
        self._inboxes = tuple(one for one in observers if one.inbox is not None)
        self._direct = tuple(one for one in observers if one.inbox is None)
        self.has_work = True  # ``flush`` knows better

    def clear(self) -> None:
        """Drop what has not been handed over: in a forked child it is the parent's."""
        self._news.clear()

    # ------------------------------------------------------------------ events, noted under the lock

    def note(self, kind: str, entry: KeyEntry, now: float, detail: object, code: str = "") -> None:
        """Note an event, to be handed over once the lock is free."""
        if self.is_heard:
            self._news.append(self._record(kind, entry, now, detail, code, entry.gate.breaker.state_at(now).value))
            self.has_work = True

    def note_change(self, entry: KeyEntry, now: float) -> None:
        """A circuit has changed, or a hold has ended."""
        if entry.pause_noted != NEVER or entry.gate.breaker.state is not entry.circuit_noted:
            self.note_state(entry, now)

    def note_changes(self, entry: KeyEntry, now: float) -> None:
        """Note what has changed since it was last noted: circuit and pause, and for a listener the pace and a hold.

        Mostly nothing has, and it is called for every answer: so what is known by comparing two fields comes first.
        """
        gate = entry.gate
        opens_at = gate.hold.opens_at  # not before the end of a pause
        if gate.breaker.state is not entry.circuit_noted or entry.pause_noted != NEVER or opens_at > now:
            self.note_state(entry, now)
        if not self.is_heard:
            return
        if now >= self._quiet_until and (rate := gate.pacer.learned_rate) != entry.rate_noted:
            if entry.noted_in == self.listenings:  # else it may have changed before
                self.note(PACE, entry, now, RateChange(entry.rate_noted, rate, gate.controller.why()))
            entry.rate_noted = rate
        if opens_at > entry.hold_noted and opens_at > now:
            found = blocked_by(gate, now)
            self.note("held", entry, now, found or "", "" if found is None else found.reason.value)
        entry.hold_noted, entry.noted_in = opens_at, self.listenings

    def note_state(self, entry: KeyEntry, now: float) -> None:
        """Note that the circuit has changed, or that a pause has begun or ended: each once."""
        present, paused_until = entry.gate.breaker.state, entry.gate.hold.asked_until
        if present is not entry.circuit_noted:
            self._note_state("circuit_changed", entry, now, CircuitChange(entry.circuit_noted, present))
            entry.circuit_noted = present
        if paused_until > max(entry.pause_noted, now):
            if entry.pause_noted == NEVER:
                self._note_state("cooldown_started", entry, now, PauseStart(paused_until - now))
            entry.pause_noted = paused_until
        elif NEVER < entry.pause_noted <= now:
            self._note_state("cooldown_ended", entry, now, "")
            entry.pause_noted = NEVER

    def _note_state(self, kind: str, entry: KeyEntry, now: float, detail: object) -> None:
        is_circuit = kind == "circuit_changed"
        if is_circuit:
            self.note(kind, entry, now, detail)
        if (is_circuit and self._on_circuit) or state_log.isEnabledFor(logging.INFO):
            self._states.append(self._record(kind, entry, now, detail, "", entry.gate.breaker.state.value))
            self.has_work = True

    def _record(self, kind: str, entry: KeyEntry, now: float, detail: object, code: str, state: str) -> EventRecord:
        fields = {"rate": entry.gate.pacer.learned_rate, "state": state}
        return EventRecord(Event, kind, now, self._clock.wall(), entry.key, code, detail, fields)

    # ------------------------------------------------------------------ handing over, with no lock held

    def flush(self) -> None:
        """Hand over what was noted."""
        self.has_work = bool(self.observers)  # first: what is noted from here on is more work
        if self._states:
            self._flush_states()
        while self._news and (listener := self.listener) is not None:
            try:
                event = self._news.popleft()
            except IndexError:  # another thread was faster
                return
            if event.kind == PACE and not is_wanted(listener, PACE):
                self._quiet_until = event.at + QUIET
                continue
            deliver(listener, event)

    def _flush_states(self) -> None:
        while self._states:
            try:
                event = self._states.popleft()
            except IndexError:  # another thread was faster
                return
            what = f"{_LOGGED_AS[event.kind]} {event.text}".rstrip()
            state_log.info("%s: %s", event.scope, what, extra={"event": event.kind, "key": event.scope})
            for reference in self._on_circuit if event.kind == "circuit_changed" else ():
                if (listener := reference()) is not None:
                    deliver(listener, event)

    def notify_ended(
        self, permit: Permit, key: str, signal: Signal, latency: float, now: float, answer: object, draw: float
    ) -> None:
        """A call has ended with an answer."""
        for observer in self._inboxes:
            inbox = observer.inbox
            if inbox is not None:
                inbox.append((key, signal.outcome, latency, permit.waited))
                if len(inbox) >= MOST_KEPT:
                    observer.take_inbox()
        if not self._direct:
            return
        status = status_of(answer)
        call = CallEvent(now, key, permit.sent_at, permit.waited, latency, status, signal, permit.cost, draw)
        for observer in self._direct:
            try:
                observer.ended(permit, call)
            except Exception:
                log.exception("an observer failed on a call of %s", key)

    def notify_dropped(self, permit: Permit, sent: bool) -> None:
        """A call has ended without an outcome."""
        for observer in self.observers:
            try:
                observer.dropped(permit, sent)
            except Exception:
                log.exception("an observer failed on a call of %s", permit.key)
