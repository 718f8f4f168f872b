"""Cooldowns after a 429, and the slow ramp behind them: one for each scope, however many refusals announce it.

    cooldown_scope   a 429 seen with key-1 of "api" holds back
    credential       the lane api/key-1; rows go on through the others (without credentials: the key's only lane)
    key              all lanes of "api"
    provider         all lanes

A cooldown pauses the gates of its lanes, so nothing starts in it, and everything comes back by the gate's ramp. The
slow ramp of the settings, if there is one, begins where a cooldown ends.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from ..core.cooldown import SPEND_REST, UNTOLD_RESET, Cooldown, SpendRests, above
from ..core.decision import NEVER, UNKNOWN
from ..core.signal import Signal
from .config import RunContext
from .ledger import Ledger

log = logging.getLogger("headgate")
row_log = logging.getLogger("headgate.batch")

MOST_SCOPES = 10_000
"""Scopes whose cooldowns are remembered; beyond, those that are over are forgotten."""
NOTE = "runner"
NOTE_EVERY = 1.0
"""Seconds between two notes for the next run."""


class Cooldowns:
    def __init__(self, context: RunContext, on_change: Callable[[], None]) -> None:
        """``on_change`` is called when there is something new to remember for the next run."""
        self._config, self._clock, self._rng = context.config, context.clock, context.rng
        self._report, self._events, self._limiter = context.report, context.events, context.limiter
        self._on_change = on_change
        self._by_scope: dict[str, Cooldown] = {}
        self._gates: dict[Cooldown, set[str]] = {}
        """The gate keys of the lanes that each cooldown holds back."""
        self.ramp = context.config.ramp
        self._ramp_from = NEVER
        """When the ramp is to begin: the end of the last cooldown. NEVER if it has begun."""
        self.has_changed = False
        """Whether there is something new to remember."""
        self._started: set[Cooldown] = set()
        """Cooldowns after which no row has left yet."""
        self.spend = SpendRests()
        """Accounts that may not spend, of those without credentials of ours."""

    def join(self, key: str, gate_key: str) -> Cooldown:
        """The cooldown that holds for a lane, from now until ``leave``."""
        scope = {"credential": gate_key, "key": key}.get(self._config.cooldown_scope, "")
        now = self._clock.now()
        cooldown = self._by_scope.get(scope)
        if cooldown is None:
            if len(self._by_scope) >= MOST_SCOPES:
                self._by_scope = {name: one for name, one in self._by_scope.items() if one.holds(now)}
                self._started.intersection_update(self._by_scope.values())
            cooldown = self._by_scope[scope] = Cooldown(self._config.cooldown)  # type: ignore[arg-type]
        self._gates.setdefault(cooldown, set()).add(gate_key)
        if cooldown.until > now:
            self._limiter.pause(gate_key, cooldown.until - now)
        return cooldown

    def leave(self, gate_key: str, cooldown: Cooldown) -> None:
        """The lane is closed."""
        gates = self._gates[cooldown]
        gates.discard(gate_key)
        if not gates:
            del self._gates[cooldown]

    # ------------------------------------------------------------------ what starts a cooldown

    def rate_limited(self, gate_key: str, cooldown: Cooldown, sent_at: float, signal: Signal) -> None:
        """A call was refused: start a cooldown, or join the one it belongs to."""
        now, floor = self._clock.now(), signal.retry_after or 0.0
        draw, before = self._rng.random(), cooldown.until
        try:
            started = cooldown.report(sent_at, now, floor, draw)
        except Exception:
            log.exception("the cooldown policy raised an exception; pausing for as long as the server asked")
            started = True
            cooldown.until = max(cooldown.until, now + above(floor, draw))
        self._report.rate_limit_participants += 1
        self._report.rate_limit_generations += started
        self._apply(gate_key, cooldown, before, "cooldown_started" if started else "cooldown_extended", started, now)

    def quota_exhausted(self, gate_key: str, cooldown: Cooldown, signal: Signal) -> None:
        """There is no other credential to turn to: nothing can start before the quota's reset."""
        now, before = self._clock.now(), cooldown.until
        until_reset = UNTOLD_RESET if signal.retry_after is None else signal.retry_after
        cooldown.until = max(before, now + until_reset)
        self._apply(gate_key, cooldown, before, "cooldown_started", True, now)

    def spend_stopped(self, gate_key: str, account: str, sent_at: float) -> None:
        """The account behind these lanes may not spend. When its rest is over, one row leaves to find out."""
        if self.spend.stopped(account, sent_at, self._clock.now()):
            self._events.dispatch("cooldown_started", gate_key, seconds=SPEND_REST, counters=self._report.rate_limits())

    def _apply(self, gate_key: str, cooldown: Cooldown, before: float, kind: str, is_new: bool, now: float) -> None:
        is_longer = cooldown.until > max(before, now)
        if is_longer:
            for paused in self._gates.get(cooldown, ()):
                self._limiter.pause(paused, cooldown.until - now)
            if self.ramp is not None:
                self._ramp_from = cooldown.until
            self._change()
        if is_longer or is_new:
            self._started.add(cooldown)
            seconds = max(0.0, cooldown.until - now)
            self._events.dispatch(kind, gate_key, seconds=seconds, counters=self._report.rate_limits())

    def on_send(self, gate_key: str, cooldown: Cooldown, now: float, account: str = "") -> None:
        """A row leaves. If it is the first after a cooldown, the rows that this held are on their way."""
        self.spend.on_send(account, now)
        if cooldown in self._started and not cooldown.holds(now):
            self._started.discard(cooldown)
            report = self._report
            rows = report.rate_limited_items_stored - report.rate_limited_items_redistributed
            row_log.info("%s: the pause is over, %d rows queued again", gate_key, rows, extra={"event": "rows_back"})
            self._events.dispatch("cooldown_ended", gate_key, counters=report.rate_limits())

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

    def on_circuit_closed(self) -> None:
        """The target is back after an outage."""
        if self.ramp is not None:
            self._begin_ramp(self._clock.wall())

    def on_ended(self, success: bool) -> None:
        """A call has ended, which the ramp takes into account."""
        if self.ramp is not None:
            self.ramp.record_result(success, self._clock.wall())
            self._change()

    def _begin_ramp(self, wall: float) -> None:
        assert self.ramp is not None
        self._ramp_from = NEVER
        self.ramp.start_recovery_period(wall)
        self._change()
        self._events.dispatch("ramp_started")

    def _change(self) -> None:
        self.has_changed = True
        self._on_change()

    # ------------------------------------------------------------------ over a restart

    def to_text(self) -> str:
        """What the next run must know: cooldowns that still hold, and how far the ramp has come."""
        now, wall = self._clock.now(), self._clock.wall()
        self.has_changed = False
        pauses = {scope: one.to_state(now, wall) for scope, one in self._by_scope.items() if one.holds(now)}
        ramp_from = None if self._ramp_from == NEVER else wall + self._ramp_from - now
        ramp = None if self.ramp is None else self.ramp.to_state()
        return json.dumps({"pauses": pauses, "ramp": ramp, "ramp_from": ramp_from})

    def load_text(self, text: str) -> None:
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
            log.warning("cannot read the cooldowns of the last run (%s); starting without them", type(error).__name__)


class CooldownNotes:
    """Keeps in the ledger what the next run must know of cooldowns."""

    def __init__(self, ledger: Ledger, cooldowns: Cooldowns) -> None:
        self._ledger, self._cooldowns = ledger, cooldowns
        self._next_at = NEVER

    async def read(self) -> None:
        if text := await self._ledger.noted(NOTE):
            self._cooldowns.load_text(text)

    async def write(self) -> None:
        await self._ledger.note(NOTE, self._cooldowns.to_text())

    async def write_if_due(self, now: float) -> None:
        if self._cooldowns.has_changed and now >= self._next_at:
            self._next_at = now + NOTE_EVERY
            await self.write()

    @property
    def due_at(self) -> float:
        return self._next_at if self._cooldowns.has_changed else UNKNOWN
