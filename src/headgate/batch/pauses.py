"""Who pauses after a 429, and for how long: one cooldown for each scope, however many refusals announce it.

    cooldown_scope   a 429 seen with key-1 of "api" holds back
    credential       the lane api/key-1; rows go on through the others (without credentials: the key's only lane)
    key              all lanes of "api"
    provider         all lanes

A pause is laid on the gates of its lanes, so nothing starts in it, whoever asks, and everybody comes
back by the gate's ramp. The slow ramp of the settings, if there is one, begins where a pause ends.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..clock import Clock
from ..core.backoff import above
from ..core.cooldown import Cooldown
from ..core.decision import NEVER
from ..core.quarantine import UNTOLD_RESET
from ..core.signal import Signal
from ..limiter import AdaptiveRateLimiter
from ..recovery import RecoveryRateLimiter
from .config import BatchConfig
from .report import BatchReport

if TYPE_CHECKING:
    from .lanes import Lane

log = logging.getLogger("headgate")
row_log = logging.getLogger("headgate.batch")

MOST_SCOPES = 10_000
"""Scopes whose pauses are remembered; beyond, those that pause no longer are forgotten."""


class Pauses:
    def __init__(
        self,
        config: BatchConfig,
        limiter: AdaptiveRateLimiter,
        clock: Clock,
        rng: random.Random,
        report: BatchReport,
        lanes: Callable[[], Iterable[Lane]],
        tell: Callable[..., object],
    ) -> None:
        self._config, self._limiter, self._clock, self._rng = config, limiter, clock, rng
        self._report, self._lanes, self._tell = report, lanes, tell
        self._by_scope: dict[str, Cooldown] = {}
        self.ramp: RecoveryRateLimiter | None = config.ramp
        self._ramp_from = NEVER
        """When the ramp is to begin: the end of the last pause. NEVER if it has begun."""
        self.changed = False
        """Whether there is something new to remember."""
        self._begun: set[Cooldown] = set()
        """Pauses of which no row has gone back yet."""

    def of(self, key: str, gate_key: str) -> Cooldown:
        """The cooldown that holds for a lane."""
        scope = {"credential": gate_key, "key": key}.get(self._config.cooldown_scope, "")
        cooldown = self._by_scope.get(scope)
        if cooldown is None:
            if len(self._by_scope) >= MOST_SCOPES:
                now = self._clock.now()
                self._by_scope = {name: one for name, one in self._by_scope.items() if one.holds(now)}
                self._begun.intersection_update(self._by_scope.values())
            cooldown = self._by_scope[scope] = Cooldown(self._config.cooldown)  # type: ignore[arg-type]
        return cooldown

    # ------------------------------------------------------------------ hearing

    def limited(self, lane: Lane, sent_at: float, signal: Signal) -> None:
        """A call was refused: start a pause, or join the one it belongs to."""
        now, cooldown, floor = self._clock.now(), lane.pause, signal.retry_after or 0.0
        draw, before = self._rng.random(), cooldown.until
        try:
            started = cooldown.report(sent_at, now, floor, draw)
        except Exception:
            log.exception("the cooldown policy failed; the pause is what the server asked for")
            started = True
            cooldown.until = max(cooldown.until, now + above(floor, draw))
        self._report.rate_limit_participants += 1
        self._report.rate_limit_generations += started
        self._lay(lane, before, "cooldown_started" if started else "cooldown_extended", started, now)

    def exhausted(self, lane: Lane, signal: Signal) -> None:
        """A quota without credentials to turn to: nothing can be done before its reset."""
        now, before = self._clock.now(), lane.pause.until
        told = UNTOLD_RESET if signal.retry_after is None else signal.retry_after
        lane.pause.until = max(before, now + told)
        self._lay(lane, before, "cooldown_started", True, now)

    def _lay(self, lane: Lane, before: float, kind: str, always: bool, now: float) -> None:
        cooldown = lane.pause
        longer = cooldown.until > max(before, now)
        if longer:
            for other in self._lanes():
                if other.pause is cooldown:
                    self._limiter.pause(other.gate_key, cooldown.until - now)
            self.changed = True
            if self.ramp is not None:
                self._ramp_from = cooldown.until
        if longer or always:
            self._begun.add(cooldown)
            seconds = max(0.0, cooldown.until - now)
            self._tell(kind, lane.gate_key, seconds=seconds, counters=self._report.rate_limits())

    def resumed(self, lane: Lane, now: float) -> None:
        """A row leaves by this lane. If it is the first after a pause, the rows that it held are on their way."""
        if lane.pause in self._begun and not lane.pause.holds(now):
            self._begun.discard(lane.pause)
            report = self._report
            rows = report.rate_limited_items_stored - report.rate_limited_items_redistributed
            row_log.info("%s cooldown_ended: %d rows go back", lane.gate_key, rows, extra={"event": "rows_back"})
            self._tell("cooldown_ended", lane.gate_key, counters=report.rate_limits())

    # ------------------------------------------------------------------ the slow ramp

    def ramp_wait(self) -> float:
        """Seconds before the ramp lets the next call start; 0 takes its turn."""
        ramp = self.ramp
        if ramp is None:
            return 0.0
        now, wall = self._clock.now(), self._clock.wall()
        if self._ramp_from != NEVER and now >= self._ramp_from:
            self._begin_ramp(wall - (now - self._ramp_from))
        return ramp.should_wait(wall)

    def circuit_closed(self) -> None:
        """The other side is back after an outage."""
        if self.ramp is not None:
            self._begin_ramp(self._clock.wall())

    def ended(self, success: bool) -> None:
        """A call has ended, while the ramp may be watching."""
        if self.ramp is not None:
            self.ramp.record_result(success, self._clock.wall())
            self.changed = True

    def _begin_ramp(self, wall: float) -> None:
        assert self.ramp is not None
        self._ramp_from = NEVER
        self.ramp.start_recovery_period(wall)
        self.changed = True
        self._tell("ramp_started")

    # ------------------------------------------------------------------ over a restart

    def to_text(self) -> str:
        """What the next run must know: pauses that still hold, and how far the ramp has come."""
        now, wall = self._clock.now(), self._clock.wall()
        self.changed = False
        pauses = {scope: one.to_state(now, wall) for scope, one in self._by_scope.items() if one.holds(now)}
        ramp_in = None if self._ramp_from == NEVER else wall + self._ramp_from - now
        ramp = None if self.ramp is None else self.ramp.to_state()
        return json.dumps({"pauses": pauses, "ramp": ramp, "ramp_from": ramp_in})

    def take_up(self, text: str) -> None:
        """Go on from ``to_text``. What cannot be read is left out: it is learned again from the next refusal."""
        now, wall = self._clock.now(), self._clock.wall()
        try:
            stored: dict[str, Any] = json.loads(text)
            policy: Any = self._config.cooldown
            for scope, state in list(stored["pauses"].items())[:MOST_SCOPES]:
                self._by_scope[scope] = Cooldown.from_state(tuple(state), now, wall, policy)
            if self.ramp is not None and stored["ramp"] is not None:
                self.ramp.go_on(stored["ramp"], wall)
                if stored["ramp_from"] is not None:
                    self._ramp_from = now + max(0.0, float(stored["ramp_from"]) - wall)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("what the last run left about its pauses cannot be read (%s)", type(error).__name__)
