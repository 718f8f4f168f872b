"""What happened, told once the lock is free: a listener may call the limiter.

A listener that raises is logged and otherwise ignored; it must not cost anybody a permit.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from ..core.decision import CircuitState
from ..events import Event
from .keys import KeyGate

log = logging.getLogger("headgate")

Look = tuple[float, CircuitState, float]
"""What can change with an answer: the pace, the circuit, and until when the gate is shut."""


class Telling:
    """Collects events under the lock and hands them over without it."""

    def __init__(self, listener: Callable[[Event], None] | None) -> None:
        self._listener = listener
        self.is_watched = listener is not None
        self._events: deque[Event] = deque()

    def note(self, kind: str, gate: KeyGate, now: float, reason: str) -> None:
        """Remember a fact, to be told once the lock is free."""
        if self._listener is not None:
            state = gate.breaker.state_at(now).value
            self._events.append(
                Event(at=now, kind=kind, key=gate.key, reason=reason, rate=gate.learned_rate, state=state)
            )

    def look(self, gate: KeyGate) -> Look | None:
        """What is to be compared with later, if anybody listens."""
        return None if self._listener is None else (gate.learned_rate, gate.breaker.state, gate.opens_at)

    def note_changes(self, gate: KeyGate, before: Look | None, now: float) -> None:
        if before is None:
            return
        rate, state, shut_until = before
        if gate.breaker.state is not state:
            self.note("circuit_changed", gate, now, f"{state.value} to {gate.breaker.state.value}")
        learned = gate.learned_rate
        if learned != rate:
            self.note("rate_changed", gate, now, f"{rate:.4g} to {learned:.4g} calls/s, {gate.controller.why()}")
        if gate.opens_at > max(shut_until, now):
            self.note("held", gate, now, gate.why(now))

    def flush(self) -> None:
        """Tell what happened, with no lock held."""
        while self._events and self._listener is not None:
            try:
                event = self._events.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                self._listener(event)
            except Exception:
                log.exception("a listener failed on %s of %s", event.kind, event.key)
