"""Record all that a limiter decides, so that it can be decided once more: a trace with nothing left out.

    recording = Recording(Path("run.jsonl"), Heading(calls=1000, workers=8), limiter)
    ...                                       # the run
    recording.end()

What is written is every call (when it asked, when it was let through, what came back and when), every pace that was
learned and every change of a circuit. ``replay.py`` says what is the same when it is replayed.
"""

from __future__ import annotations

import threading
from pathlib import Path

from ...core.decision import Outcome
from ...events import CallEvent, Event
from ...limiter import AdaptiveRateLimiter, Permit
from ...limiter.call_hooks import CallObserver
from .trace import EXACTLY, RELEASED, Heading, Told, TraceWriter


class Recording(CallObserver):
    def __init__(self, path: Path, heading: Heading, limiter: AdaptiveRateLimiter) -> None:
        """Records from now on. Raises ``OSError`` if the file cannot be opened."""
        self._writer = TraceWriter(path, heading)
        self._lock = threading.Lock()
        self._limiter = limiter
        self._began_at = limiter.clock.now()
        self._listener = limiter.on_event
        limiter.watch(self)
        limiter.on_event = self.hear

    @property
    def trouble(self) -> OSError | None:
        """Why it is not whole, if it is not."""
        return self._writer.trouble

    def end(self) -> None:
        """Record no more."""
        self._limiter.unwatch(self)
        self._limiter.on_event = self._listener
        with self._lock:
            self._writer.end(self._limiter.clock.now() - self._began_at)

    # ------------------------------------------------------------------ what happens

    def ended(self, permit: Permit, call: CallEvent) -> None:
        signal = call.signal
        status = call.status or (200 if signal.outcome is Outcome.OK else 0)
        told = Told(
            outcome=signal.outcome.value,
            at=call.at - self._began_at,
            number=permit.seq,
            draw=call.draw,
            limits=signal.limits,
            scope=signal.scope,
            cost=call.cost,
        )
        self._write(call.key, call.sent_at, call.latency, status, call.waited, signal.retry_after, told)

    def dropped(self, permit: Permit, sent: bool) -> None:
        """Of what was not sent after all nothing is left: it has taken nothing."""
        if sent:
            now = self._limiter.clock.now()
            told = Told(outcome=RELEASED, at=now - self._began_at, number=permit.seq, cost=permit.cost)
            self._write(permit.key, permit.sent_at, now - permit.sent_at, 0, permit.waited, None, told)

    def hear(self, event: Event) -> None:
        at = event.at - self._began_at
        with self._lock:
            if event.kind == "rate_changed":
                self._writer.learned(event.key, at, event.rate, EXACTLY)
            elif event.kind == "circuit_changed":
                self._writer.circuit(event.key, at, event.state)
        if self._listener is not None:
            self._listener(event)

    def _write(
        self,
        key: str,
        sent_at: float,
        latency: float,
        status: int,
        waited: float,
        retry_after: float | None,
        told: Told,
    ) -> None:
        with self._lock:
            self._writer.call(key, sent_at - self._began_at, latency, status, waited, retry_after, None, told)
