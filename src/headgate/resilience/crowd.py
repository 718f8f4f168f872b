"""A pace for what has none: a provider whose credentials are paced one by one.

As long as all goes well it lets everything through. After an outage, though, all credentials come
back in the same instant, each at its own full pace, and the ramp after an outage needs something to be a
share of. So it watches how fast the crowd goes, and after a few failures in a row lets it go little faster than
that, until all has been well for a while. A failure now and then is no outage, and slows nobody down.
"""

from __future__ import annotations

from typing import Any

from ..core.control.protocol import Controller
from ..core.decision import UNKNOWN
from ..core.gate_policy import FASTEST
from ..core.signal import Signal
from ..core.ticket import Ticket

WATCHED = 2.0
"""Seconds that one look at the crowd takes."""
SLOWEST = 1.0
HEADROOM = 1.25
CALM = 10.0
"""Seconds without a failure after which everybody may go again: longer than any ramp."""
FEW = 3
"""Failures in a row that may be the beginning of an outage."""


class Crowd(Controller):
    __slots__ = ("_calls", "_calm_since", "_few", "_in_a_row", "_looks_until", "_seen", "rate")
    watches_sends = True

    def __init__(self, threshold: int = FEW) -> None:
        """``threshold``: failures in a row after which the circuit opens."""
        self.rate = FASTEST
        self._few, self._in_a_row = min(FEW, threshold), 0
        self._calls = 0
        self._looks_until = 0.0
        self._seen = SLOWEST
        """How fast the crowd went at the last look, in calls a second."""
        self._calm_since = UNKNOWN

    def on_send(self, ticket: Ticket, now: float) -> None:
        if now >= self._looks_until:
            if now < self._looks_until + WATCHED:
                self._seen = self._calls / WATCHED
            elif self.rate < FASTEST:  # an open circuit: no calm, nor the crowd's own pace
                self._calm_since = UNKNOWN
            else:
                self._seen = SLOWEST
            self._calls, self._looks_until = 0, now + WATCHED
        self._calls += 1

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        if signal.outcome.counts_against_target:
            self._in_a_row += 1
            if self._in_a_row >= self._few:
                self.rate = HEADROOM * max(SLOWEST, self._seen, self._calls / WATCHED)
            self._calm_since = UNKNOWN
            return 0.0
        self._in_a_row = 0
        if self.rate < FASTEST:
            self._calm_since = min(self._calm_since, now)
            if now - self._calm_since >= CALM:
                self.rate = FASTEST
        return 0.0

    def why(self) -> str:
        return "about as fast as before the failures"

    def to_state(self) -> tuple[Any, ...]:
        return (self.rate,)

    def load_state(self, state: tuple[Any, ...]) -> None:
        (self.rate,) = state
