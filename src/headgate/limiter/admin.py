"""Operator actions while a limiter runs: pause everything or one key, cap a key, split a key in two.

They hold for this limiter alone, until they are taken back or the program ends; nothing that was learned is lost by
them.
"""

from __future__ import annotations

from math import inf

from ..checks import number
from ..config import RateLimitConfig
from ..core.decision import LONGEST_WAIT
from ..errors import ConfigError
from ..formatting import format_rate
from .admission import Admission
from .events import LimiterEvents
from .permit import check_wait
from .registry import KeyRegistry


class Admin:
    """What an operator may do to the keys of a registry and the calls that wait for them."""

    def __init__(self, registry: KeyRegistry, admission: Admission, events: LimiterEvents) -> None:
        self._lock, self._now = admission.lock, admission.now
        self._registry = registry
        self._admission = admission
        self._events = events

    def pause(self, key: str, seconds: float) -> None:
        check_wait("seconds", seconds)
        with self._lock:
            now = self._now()
            entry = self._registry.open(key, now)
            entry.gate.pause(min(seconds, LONGEST_WAIT), now)
            self._events.note_changes(entry, now)
            self._admission.serve(entry, now)
        self._events.flush()

    def pause_all(self) -> None:
        with self._lock:
            self._admission.is_paused = True
            self._registry.allow_fast_path(False)

    def resume_all(self) -> None:
        with self._lock:
            self._admission.is_paused = False
            self._registry.allow_fast_path(True)
            self._serve_all()
        self._events.flush()

    def _serve_all(self) -> None:
        now = self._now()
        for entry in [entry for entry in self._registry.entries.values() if entry.queue is not None]:
            self._admission.serve(entry, now)

    def limit(self, key: str, rps: float | None) -> None:
        if rps is not None and not 0 < number(rps) < inf:
            raise ConfigError(f"rps={rps!r} must be a number of calls a second above 0, or None for no limit")
        with self._lock:
            now = self._now()
            entry = self._registry.set_ceiling(key, None if rps is None else float(rps), now)
            what = "limit removed" if rps is None else f"limited to {format_rate(rps)}"
            self._events.note("limited", entry, now, what)
            self._admission.serve(entry, now)
        self._events.flush()

    def split_pace(self, key: str, pace_key: str, config: RateLimitConfig) -> None:
        with self._lock:
            self._registry.split_pace(key, pace_key, config, self._now())
