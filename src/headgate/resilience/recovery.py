"""After an outage: drain a backlog into a server that has just come back, without knocking it over again.

    limiter = RecoveryRateLimiter()              # 5 calls/s, 20 after five minutes
    limiter.start_recovery_period()              # when the server answers again
    while jobs:
        if wait := limiter.should_wait():
            time.sleep(wait)
            continue
        limiter.record_result(run(jobs.pop()))   # errors slow it down

The ramp itself is pure and lives in the core. This class adds a clock for callers that do not pass ``now``, a lock,
a state that outlives the process, and a line in the log
(``headgate.resilience.recovery``, at INFO) when the ramp begins, is cut, recovers or ends.
``ObservedRateCap`` does the same for a provider whose credentials are paced one by one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from math import isfinite
from typing import Any

from .. import fork_safety
from ..core.controller import Controller
from ..core.decision import UNKNOWN, ControllerNote, PaceReason
from ..core.gate_config import FASTEST
from ..core.policy import Ticket
from ..core.recovery_ramp import BACKOFF, CAPACITY, SMALLEST_MULTIPLIER, RecoveryRamp
from ..core.signal import Signal

log = logging.getLogger("headgate.resilience.recovery")

_CONFIG = ("initial_rate", "target_rate", "ramp_duration", "error_threshold", "error_window")
_PROGRESS = ("recovery_started_at", "tokens", "refilled_at", "rate_multiplier", "backoff_until")


class RecoveryRateLimiter(RecoveryRamp):
    """The graduated ramp, on a clock and safe for threads.

    ``now`` is wall time (seconds since 1970), because ``recovery_started_at`` must mean
    the same after a restart. If it is not given, the limiter counts on from the wall time
    at which it was made: a wall clock that is set while it runs changes nothing.

    ``should_wait`` returns 0.0 for "go" or the seconds after which to ask again.
    ``recovery_started_at``, ``tokens``, ``rate_multiplier``, ``backoff_until`` and
    ``results`` are plain attributes.
    """

    __slots__ = ("_is_ramping", "_lock", "_monotonic_to_wall")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._is_ramping = False
        """Whether the log says that the ramp limits."""
        self._lock = fork_safety.rlock()  # re-entrant, since the ramp's methods call one another
        self._monotonic_to_wall = time.time() - time.monotonic()

    def start_recovery_period(self, now: float | None = None) -> None:
        with self._lock:
            super().start_recovery_period(self._instant(now))
            self._is_ramping = True
        self._log("ramp_started", self.initial_rate)

    def end_recovery_period(self) -> None:
        with self._lock:
            super().end_recovery_period()
            has_ended, self._is_ramping = self._is_ramping, False
        if has_ended:
            self._log("ramp_ended", self.target_rate)

    def is_in_recovery_period(self, now: float | None = None) -> bool:
        with self._lock:
            return super().is_in_recovery_period(self._instant(now))

    def current_rate(self, now: float | None = None) -> float:
        with self._lock:
            return super().current_rate(self._instant(now))

    def should_wait(self, now: float | None = None) -> float:
        with self._lock:
            now = self._instant(now)
            wait = super().should_wait(now)
            has_ended = self._has_ended(now)
        if has_ended:
            self._log("ramp_ended", self.target_rate)
        return wait

    def record_result(self, success: bool, now: float | None = None) -> None:
        with self._lock:
            now = self._instant(now)
            before = self.rate_multiplier
            super().record_result(success, now)
            after, rate, has_ended = self.rate_multiplier, super().current_rate(now), self._has_ended(now)
        if after != before:
            self._log("ramp_cut" if after < before else "ramp_recovered", rate)
        if has_ended:
            self._log("ramp_ended", self.target_rate)

    def error_rate(self, now: float | None = None) -> float:
        with self._lock:
            return super().error_rate(self._instant(now))

    def to_state(self) -> dict[str, float]:
        """What must outlive the process, ready for JSON: the settings, the ramp and the backoff, not the results."""
        with self._lock:
            return {name: float(getattr(self, name)) for name in _CONFIG + _PROGRESS}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], now: float | None = None) -> RecoveryRateLimiter:
        """Go on where ``to_state`` was taken.

        Instants are clamped to what is possible at ``now``: a ramp that would begin in the
        future begins now, and no backoff lasts longer than a full one, so a clock that was
        set in between neither frees nor freezes anything.
        """
        for name in _CONFIG + _PROGRESS:
            value = state.get(name)
            if not isinstance(value, (int, float)) or not isfinite(value):
                raise ValueError(f"stored {name}={value!r} must be a finite number")
        limiter = cls(**{name: state[name] for name in _CONFIG})
        now = limiter._instant(now)
        if state["recovery_started_at"]:
            RecoveryRamp.start_recovery_period(limiter, min(state["recovery_started_at"], now))
            limiter._is_ramping = True
        limiter.refilled_at = min(state["refilled_at"], now)
        limiter.backoff_until = min(state["backoff_until"], now + BACKOFF)
        limiter.tokens = min(max(state["tokens"], 0.0), CAPACITY)
        limiter.rate_multiplier = min(max(state["rate_multiplier"], SMALLEST_MULTIPLIER), 1.0)
        return limiter

    def go_on(self, state: Mapping[str, Any], now: float | None = None) -> None:
        """Take up the progress of ``to_state`` under this limiter's own settings.

        How far the ramp has come is a share of its duration, so that one of another duration goes on at the same point.
        """
        now = self._instant(now)
        before = RecoveryRateLimiter.from_state(state, now)
        with self._lock:
            RecoveryRamp.end_recovery_period(self)
            if before.recovery_started_at:
                done = (now - before.recovery_started_at) / before.ramp_duration
                RecoveryRamp.start_recovery_period(self, now - done * self.ramp_duration)
            for name in ("tokens", "refilled_at", "rate_multiplier", "backoff_until"):
                setattr(self, name, getattr(before, name))
            self._is_ramping = before._is_ramping

    def _has_ended(self, now: float) -> bool:
        """Whether the ramp has ended since it was last looked at."""
        if not self._is_ramping or super().is_in_recovery_period(now):
            return False
        self._is_ramping = False
        return True

    def _log(self, event: str, rate: float) -> None:
        log.info("%s: %.3g calls/s", event.replace("_", " "), rate, extra={"event": event})

    def _instant(self, now: float | None) -> float:
        return self._monotonic_to_wall + time.monotonic() if now is None else now


# ---------------------------------------------------------------------- credentials that are paced one by one

OBSERVED_FOR = 2.0
"""Seconds that one observation takes."""
LOWEST_CAP = 1.0
HEADROOM = 1.25
CALM = 10.0
"""Seconds without a failure after which the cap is lifted: longer than any ramp."""
FEW = 3
"""Failures in a row that may be the beginning of an outage."""


class ObservedRateCap(Controller):
    """A rate cap for a provider whose credentials are paced one by one: a little above the rate before an outage.

    As long as all goes well it lets everything through. After an outage, though, all credentials come back in the same
    instant, each at its own full pace, and the ramp after an outage needs a rate to be a share of. So it observes the
    rate of all calls together, and after a few failures in a row caps it a little above that, until all has been well
    for a while. A failure now and then is no outage, and caps nothing.
    """

    __slots__ = ("_calls", "_calm_since", "_few", "_in_a_row", "_observed", "_observes_until", "rate")
    watches_sends = True

    def __init__(self, threshold: int = FEW) -> None:
        """``threshold``: failures in a row after which the circuit opens."""
        self.rate = FASTEST
        self._few, self._in_a_row = min(FEW, threshold), 0
        self._calls = 0
        self._observes_until = 0.0
        self._observed = LOWEST_CAP
        """The rate at the last observation, in calls a second."""
        self._calm_since = UNKNOWN

    def on_send(self, ticket: Ticket, now: float) -> None:
        if now >= self._observes_until:
            if now < self._observes_until + OBSERVED_FOR:
                self._observed = self._calls / OBSERVED_FOR
            elif self.rate < FASTEST:  # an open circuit: neither calm nor the usual rate
                self._calm_since = UNKNOWN
            else:
                self._observed = LOWEST_CAP
            self._calls, self._observes_until = 0, now + OBSERVED_FOR
        self._calls += 1

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        if signal.outcome.counts_against_target:
            self._in_a_row += 1
            if self._in_a_row >= self._few:
                self.rate = HEADROOM * max(LOWEST_CAP, self._observed, self._calls / OBSERVED_FOR)
            self._calm_since = UNKNOWN
            return 0.0
        self._in_a_row = 0
        if self.rate < FASTEST:
            self._calm_since = min(self._calm_since, now)
            if now - self._calm_since >= CALM:
                self.rate = FASTEST
        return 0.0

    def why(self) -> ControllerNote:
        return ControllerNote(PaceReason.OBSERVED_RATE)

    def to_state(self) -> tuple[Any, ...]:
        return (self.rate,)

    def load_state(self, state: tuple[Any, ...]) -> None:
        (self.rate,) = state
