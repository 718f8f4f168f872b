"""The gate of one key, with its name and its line; what an operator allows it; and what its answers were.

What is counted here is for people: nothing is decided by it. It costs nothing for a call that just succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.decision import NEVER, UNKNOWN, CircuitState, Outcome, Refuse, Wait
from ..core.flight import Flight
from ..core.gate import Gate
from ..core.gate_policy import GatePolicy
from ..core.signal import Limit, Signal
from ..core.ticket import Ticket
from ..core.words import span
from .permit import LongPermit, Permit

if TYPE_CHECKING:
    from .line import Line
    from .serving import Serving

PAUSED = "paused by an operator"
SILENT_AFTER = 60.0
"""Seconds after which a call whose permit has not ended is taken for one that will never be reported."""
_REFUSED = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED)


class KeyGate(Gate):
    """The gate of one key, with its name, its limiter and the line in front of it."""

    __slots__ = (
        "_own_policy",
        "ceiling",
        "circuit_told",
        "failed",
        "heard",
        "key",
        "limiter",
        "line",
        "pause_told",
        "refused",
        "released",
        "used_at",
    )
    learns = True
    members = 0
    """Who shares its quota; nobody, unless it lies in a store."""

    def __init__(self, key: str, limiter: Serving, policy: GatePolicy, now: float) -> None:
        self.ceiling: float | None = None
        """Calls a second that an operator allows at most."""
        self.circuit_told, self.pause_told = CircuitState.CLOSED, NEVER
        """The circuit, and the end of the pause that holds, as the log has them."""
        super().__init__(policy, Permit, LongPermit)
        self.key = key
        self.used_at = now
        """When it was opened, or a call of it last ended."""
        self.limiter = limiter
        self.line: Line | None = None
        self._own_policy = policy
        self.refused = self.failed = 0
        """Answers that were 429 or alike, and all others that were no success."""
        self.released = 0
        """Calls that were sent and never reported."""
        self.heard: tuple[Limit, ...] = ()
        """The limits that the last answer with any spoke of."""

    def note(self, signal: Signal) -> None:
        """Count an answer that said more than that the call succeeded."""
        if signal.limits:
            self.heard = signal.limits
        outcome = signal.outcome
        if outcome in _REFUSED:
            self.refused += 1
        elif outcome is not Outcome.OK:
            self.failed += 1

    def circuit_changed(self, now: float) -> None:
        super().circuit_changed(now)
        self.limiter.tell.note_state(self, now)

    def reopen(self, now: float) -> None:
        super().reopen(now)
        if self.pause_told != NEVER:
            self.limiter.tell.note_state(self, now)

    @property
    def paused_until(self) -> float:
        """The end of the last pause that was asked for, by the server or by an operator."""
        return NEVER if self.cooldown is None else self.cooldown.until

    def ailment(self, now: float) -> tuple[int, float]:
        """Failures in a row, and the error rate: those of now, or those that opened the circuit."""
        return self.breaker.ailment(now)

    def unreported(self, now: float) -> int:
        """How many calls are over, or out for long, of which no report came."""
        return self.released + self.flight.out_since(now - SILENT_AFTER)

    def start_over(self, now: float) -> None:
        """In the child of a process that was forked no caller is in line, and no call in flight."""
        self.flight = Flight()
        if self.line is not None:
            self.line = None
            self.end_of_line(now)

    def limit(self, ceiling: float | None, now: float) -> None:
        """An operator's word: no more than this; None lifts it."""
        self.ceiling = ceiling
        own = self._own_policy
        self.policy = own if ceiling is None else replace(own, most=min(own.most, ceiling))
        self.follow(now)

    def note_wait(self, objection: Wait | Refuse, now: float) -> None:
        if self.ceiling is None or self.controller.rate < self.ceiling:  # else it is no pace of the controller's
            super().note_wait(objection, now)

    def reason(self, objection: Wait | Refuse, now: float) -> str:
        if isinstance(objection, Wait):
            if objection.code == "paused":
                return PAUSED
            if self.ceiling is not None and (objection.code == "ceiling" or self._is_under(objection)):
                left = span(objection.until - now)
                return f"held under the operator's limit of {self.ceiling:g} calls/s, {left} to go"
        return super().reason(objection, now)

    def _is_under(self, objection: Wait) -> bool:
        return objection.code == "pace" and self.rate == self.ceiling

    if TYPE_CHECKING:  # its tickets are permits

        def ask_plainly(self, now: float) -> Permit | None: ...
        def admit(self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None) -> Permit: ...


class OpenGate(KeyGate):
    """The gate of a key whose limiting is switched off: it opens for everybody and learns nothing."""

    __slots__ = ()
    learns = False

    def __init__(self, key: str, limiter: Serving, policy: GatePolicy, now: float) -> None:
        super().__init__(key, limiter, policy, now)
        self.buckets = None

    def objection(self, *_: object) -> None:
        return None

    def follow(self, now: float) -> None:
        """Whatever was taken, the next call may start too."""
        self.tokens, self.rate, self.easy_from = self.burst, self.controller.rate, UNKNOWN

    def _learn(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        self.answers += 1
