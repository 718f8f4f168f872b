"""What happened, told once the lock is free: a listener may call the limiter.

A listener that raises is logged and otherwise ignored; it costs no caller a permit. Circuits and pauses are
logged without any listener (``headgate.limiter``, at INFO; the record's ``event`` says which it is).
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable

from ..core.asking import Look
from ..core.decision import NEVER
from ..core.signal import Signal
from ..core.words import brief, span
from ..events import CallEvent, Event, is_wanted
from .key_gate import KeyGate
from .permit import Permit
from .watching import MOST_KEPT, CallWatcher, status_of

log = logging.getLogger("headgate")
state_log = logging.getLogger("headgate.limiter")

PACE = "rate_changed"
"""What may happen with every answer ..."""
QUIET = 0.1
"""... and is not told for so many seconds after somebody did not want to hear of it."""


class Telling:
    """Collects events under the lock and hands them over without it."""

    def __init__(self, listener: Callable[[Event], None] | None) -> None:
        self.is_watched = False
        """Whether anybody wants to know, of events or of calls; where nobody does, telling costs nothing."""
        self.is_heard = False
        """Whether anybody wants to know of events."""
        self.watchers: tuple[CallWatcher, ...] = ()
        """Who is told of every call ..."""
        self.around: tuple[CallWatcher, ...] = ()
        """... who of them wants to be around it ..."""
        self._inboxes: tuple[CallWatcher, ...] = ()
        """... and whose inbox it is put into."""
        self._told: tuple[CallWatcher, ...] = ()
        self.news: deque[Event] = deque()
        """What happened and has not been told yet."""
        self.states: deque[Event] = deque()
        """Changes of circuits and pauses that have not been logged yet."""
        self._on_circuit: list[weakref.WeakMethod[Callable[[Event], None]]] = []
        self._quiet_until = NEVER
        self.listen(listener)

    def listen(self, listener: Callable[[Event], None] | None) -> None:
        """From now on this one is told. One that may have nobody to pass it on to says so (``when_heard``)."""
        self.listener = listener
        when_heard: Callable[[Telling], None] | None = getattr(listener, "when_heard", None)
        if when_heard is not None:
            when_heard(self)
        else:
            self.heard(listener is not None)

    def heard(self, is_heard: bool) -> None:
        """Whether there is anybody to tell events to."""
        if is_heard is not self.is_heard:
            self.news.clear()  # nobody hears what was before he came
        self._quiet_until = NEVER
        self.is_heard = is_heard
        self.is_watched = is_heard or bool(self.watchers)

    def also_circuits(self, listener: Callable[[Event], None]) -> None:
        """Tell this bound method of every change of a circuit, beside the listener, for as long as its object lives."""
        self._on_circuit = [known for known in self._on_circuit if known() is not None]
        self._on_circuit.append(weakref.WeakMethod(listener))

    def watch(self, watchers: tuple[CallWatcher, ...]) -> None:
        """From now on these are told of every call."""
        self.watchers = watchers
        self.around = tuple(one for one in watchers if type(one).around is not CallWatcher.around)
        self._inboxes = tuple(one for one in watchers if one.inbox is not None)
        self._told = tuple(one for one in watchers if one.inbox is None)
        self.heard(self.is_heard)

    def note(self, kind: str, gate: KeyGate, now: float, reason: str) -> None:
        """Remember a fact, to be told once the lock is free."""
        if self.is_heard:
            state = gate.breaker.state_at(now).value
            self.news.append(Event(at=now, kind=kind, key=gate.key, reason=reason, rate=gate.learned_rate, state=state))

    def note_state(self, gate: KeyGate, now: float) -> None:
        """The circuit has changed, or a pause has begun or ended: each is noted once."""
        present, paused_until = gate.breaker.state, gate.paused_until
        if present is not gate.circuit_told:
            self._note_state("circuit_changed", gate, now, f"{gate.circuit_told.value} to {present.value}")
            gate.circuit_told = present
        if paused_until > max(gate.pause_told, now):
            if gate.pause_told == NEVER:
                self._note_state("cooldown_started", gate, now, f"{span(paused_until - now)}")
            gate.pause_told = paused_until
        elif NEVER < gate.pause_told <= now:
            self._note_state("cooldown_ended", gate, now, "")
            gate.pause_told = NEVER

    def _note_state(self, kind: str, gate: KeyGate, now: float, reason: str) -> None:
        is_circuit = kind == "circuit_changed"
        if is_circuit:
            self.note(kind, gate, now, reason)
        if (is_circuit and self._on_circuit) or state_log.isEnabledFor(logging.INFO):
            rate, state, _ = gate.look()
            self.states.append(Event(at=now, kind=kind, key=gate.key, reason=reason, rate=rate, state=state.value))
            self.is_watched = True  # until it is told

    def note_changes(self, gate: KeyGate, before: Look, after: Look, now: float) -> None:
        self.note_state(gate, now)
        if not self.is_heard:
            return
        (rate, _, shut_until), (learned, _, opens_at) = before, after
        if learned != rate and now >= self._quiet_until:
            self.note(PACE, gate, now, f"{brief(rate, 4)} to {brief(learned, 4)} calls/s, {gate.controller.why()}")
        if opens_at > max(shut_until, now):
            self.note("held", gate, now, gate.why(now))

    def flush(self) -> None:
        """Tell what happened, with no lock held."""
        if self.states:
            self._flush_states()
        while self.news and (listener := self.listener) is not None:
            try:
                event = self.news.popleft()
            except IndexError:  # another thread was faster
                return
            if event.kind == PACE and not is_wanted(listener, PACE):
                self._quiet_until = event.at + QUIET
                continue
            self._hand(listener, event)

    def _hand(self, listener: Callable[[Event], None], event: Event) -> None:
        try:
            listener(event)
        except Exception:
            log.exception("a listener failed on %s of %s", event.kind, event.key)

    def _flush_states(self) -> None:
        self.is_watched = self.is_heard or bool(self.watchers)
        while self.states:
            try:
                event = self.states.popleft()
            except IndexError:  # another thread was faster
                return
            what = f"{event.kind}: {event.reason}" if event.reason else event.kind
            state_log.info("%s %s", event.key, what, extra={"event": event.kind, "key": event.key})
            for reference in self._on_circuit if event.kind == "circuit_changed" else ():
                if (listener := reference()) is not None:
                    self._hand(listener, event)

    # ------------------------------------------------------------------ calls

    def called(
        self, permit: Permit, key: str, signal: Signal, latency: float, now: float, answer: object, draw: float
    ) -> None:
        """Tell those who watch calls, with no lock held, that one has ended."""
        for watcher in self._inboxes:
            inbox = watcher.inbox
            if inbox is not None:
                inbox.append((key, signal.outcome, latency, permit.waited))
                if len(inbox) >= MOST_KEPT:
                    watcher.take_inbox()
        if not self._told:
            return
        status = status_of(answer)
        call = CallEvent(now, key, permit.sent_at, permit.waited, latency, status, signal, permit.cost, draw)
        for watcher in self._told:
            try:
                watcher.ended(permit, call)
            except Exception:
                log.exception("a watcher failed on a call of %s", key)

    def dropped(self, permit: Permit, sent: bool) -> None:
        for watcher in self.watchers:
            try:
                watcher.dropped(permit, sent)
            except Exception:
                log.exception("a watcher failed on a call of %s", permit.gate.key)
