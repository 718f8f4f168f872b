"""Completion: how permits end, and what follows for their keys.

    report ──> the gate learns ──> the queue is served ──> observers of calls
    release, abandon ──> nothing is learned; what was not sent is refunded ──> the queue is served

It also does the housekeeping that has no thread of its own: packing idle keys, dropping permits that never end, and the
warnings that something cannot work.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Mapping

from ..clock import Clock
from ..core.concurrency import record_unmatched
from ..core.decision import LONGEST_WAIT, Outcome
from ..core.gate import FIRST_CHECK
from ..core.signal import SILENT, Signal
from ..wire import signal_of
from .admission import Admission
from .events import LimiterEvents
from .key_entry import KeyEntry
from .permit import Cost, Feedback, Permit, real_cost
from .registry import TIDY_STEPS, KeyRegistry

log = logging.getLogger("headgate")

RETRIED = (Outcome.RATE_LIMITED, Outcome.CAPACITY, Outcome.OVERLOADED, Outcome.TRANSIENT)
"""Answers after which callers send again."""
REFUSED = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED)
OK = Outcome.OK
_OK = SILENT[OK]
_KEY_PARTS = re.compile(r"[/:|\s]")


class Completion:
    """Takes permits back. Keys that the registry opens from now on send their permits here."""

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        registry: KeyRegistry,
        admission: Admission,
        events: LimiterEvents,
    ) -> None:
        self.clock = clock
        self.retries = 0
        """Answers that ask to be sent again."""
        self.warn_unreported = True
        """Whether to warn, once, that nothing can be learned because nothing is reported."""
        self._warns_apart = True
        self._lock = admission.lock
        self._now = clock.now
        self._rng = rng
        self._registry = registry
        self._entries = registry.entries
        self._serve = admission.serve
        self._admission = admission
        self._events = events
        self._spent = {"requests"}
        """Dimensions of known limits that some call has spent, or that were warned of."""
        registry.sink = self

    def end(
        self,
        permit: Permit,
        signal: Signal,
        latency: float | None,
        cost: Cost | None,
        answer: object,
        is_call: bool = True,
        draw: float | None = None,
    ) -> float:
        """Take an answer. Called by ``permit.report`` and ``permit.report_signal``; returns what was drawn for it."""
        real = None if cost is None else real_cost(cost)
        if draw is None:
            draw = 0.0 if signal.retry_after is None else self._rng.random()
        events = self._events
        with self._lock:
            now = self._now()  # read under the lock, so that no two decisions see time go back
            if latency is None or not 0.0 <= latency <= LONGEST_WAIT:
                latency = now - permit.sent_at
            asked, ended = permit, False
            if permit.others:
                permit = self._named_by(signal, permit, real, now)
            entry = permit.entry
            gate = entry.gate
            if gate.record(permit, signal, latency, now, draw):
                entry.used_at = now
                self._entries.move_to_end(entry.key)
                if signal is not _OK:
                    self._count(entry, signal)
                if real is not None:
                    self._spent.update(gate.config.dimensions & real.keys())
                    gate.settle(permit, real)
                ended = is_call
                if events.is_heard:
                    events.note_changes(entry, now)
                elif signal.outcome is not OK:
                    events.note_state(entry, now)
            if gate.has_waiters:
                self._serve(entry, now)
            if now >= self._registry.tidy_at:
                self.tidy(now)
        if events.has_work:
            if ended and events.observers:
                events.notify_ended(asked, entry.key, signal, latency, now, answer, draw)
            events.flush()
        return draw

    def end_unmatched(self, key: str, feedback: Feedback) -> None:
        """Take an answer without a permit: it is the oldest open one's if that fits, else of a call we did not see."""
        wall = self.clock.wall()
        signal = signal_of(feedback.err, feedback.status_code, feedback.headers, None, feedback.retry_after, wall)
        latency = min(feedback.latency, LONGEST_WAIT) if feedback.latency >= 0 else 0.0
        draw = 0.0 if signal.retry_after is None else self._rng.random()
        with self._lock:
            now = self._now()
            entry = self._registry.open(key, now)
            record_unmatched(entry.gate, signal, latency, now, draw)
            self._count(entry, signal)
            self._events.note_changes(entry, now)
            self._serve(entry, now)
        self._events.flush()

    def _count(self, entry: KeyEntry, signal: Signal) -> None:
        """Count an answer that said more than that the call succeeded; nothing is decided by these counts."""
        outcome = signal.outcome
        if signal.limits:
            entry.announced = signal.limits
        if outcome in REFUSED:
            entry.refused += 1
        elif outcome is not OK:
            entry.failed += 1
        self.retries += outcome in RETRIED

    def drop(self, permit: Permit, *, sent: bool) -> None:
        """Take a permit back without an outcome. Called by ``permit.release`` and ``permit.abandon``."""
        is_observed = self._events.observers and not permit.has_ended
        self._admission.when_free(lambda: self.give_back(permit, self._now(), sent=sent))
        if is_observed:
            self._events.notify_dropped(permit, sent)

    def give_back(self, permit: Permit, now: float, *, sent: bool = False) -> None:
        """Release a permit that was sent, or cancel one that was not, under all of its keys. Under the lock."""
        for one in (permit, *permit.others):
            entry = one.entry
            if entry.gate.release(one, now) if sent else entry.gate.cancel(one, now):
                entry.released += sent
                self._registry.touch(entry, now)
            self._serve(entry, now)

    def _named_by(self, signal: Signal, permit: Permit, real: Mapping[str, float] | None, now: float) -> Permit:
        """The permit of the key that the answer is about, else the first; the others are released."""
        permits = (permit, *permit.others)
        named = next((one for one in permits if signal.scope in _KEY_PARTS.split(one.entry.key)), permit)
        for one in permits:
            entry = one.entry
            if one is not named and entry.gate.release(one, now):
                if real is not None:
                    entry.gate.settle(one, real)
                self._registry.touch(entry, now)
                self._serve(entry, now)
        return named

    # ------------------------------------------------------------------ housekeeping

    def tidy(self, now: float, steps: int = TIDY_STEPS) -> None:
        """Do what was deferred and put idle keys away, a few at a time. Under the lock."""
        self._admission.catch_up()
        self._registry.tidy(now, steps)

    def note_spent(self, entries: list[KeyEntry], cost: Mapping[str, float]) -> None:
        """A call of this cost is asked for. Under the lock."""
        if not cost.keys() <= self._spent:
            self._spent.update(*(entry.gate.config.dimensions & cost.keys() for entry in entries))

    def look_after(self, entry: KeyEntry) -> None:
        """Every so many calls: stop counting permits that never end, and warn of what cannot work."""
        gate = entry.gate
        with self._lock:
            now = self._now()
            gate.drop_lost(now)
            unspent = gate.config.dimensions - self._spent if entry.learns else frozenset()
            self._spent.update(unspent)
            silent = entry.learns and gate.answers == 0 and self.warn_unreported
            if silent and entry.unreported(now) < FIRST_CHECK - 1:  # the last was given just now
                silent = False  # too early to say; each check is off the fast path, so they become fewer
                gate.check_at_seq = min(gate.check_at_seq, gate.seq + max(FIRST_CHECK, gate.seq // 4))
            if silent:
                self.warn_unreported = False
                self._events.note("cannot_learn", entry, now, f"{gate.seq} permits and no report")
        for dimension in sorted(unspent):
            log.warning(
                "%s: the limit on %r has no effect: none of %d calls had a cost with that name; "
                "write acquire(key, cost={%r: ...}), or correct the name in limits",
                entry.key,
                dimension,
                gate.seq,
                dimension,
                extra={"event": "limit_unspent"},
            )
        if silent:
            log.warning(
                "%s: %d permits were given and none was reported, so nothing can be learned; "
                "call permit.report(response) after each call",
                entry.key,
                gate.seq,
            )
            self._events.flush()

    def warn_counted_apart(self, key: str, owner: str) -> None:
        """Once: a store keeps the known limits of a key that should spend of another's."""
        if self._warns_apart:
            self._warns_apart = False
            log.warning(
                "%s: has the known limits for itself, as a store keeps them; without a store (--store none) it "
                "shares those of %s",
                key,
                owner,
            )
