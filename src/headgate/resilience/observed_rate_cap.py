"""A rate cap for a provider whose credentials are paced one by one: a little above the rate observed before an outage.

As long as all goes well it lets everything through. After an outage, though, all credentials come
back in the same instant, each at its own full pace, and the ramp after an outage needs a rate to be a
share of. So it observes the rate of all calls together, and after a few failures in a row caps it a little above
that, until all has been well for a while. A failure now and then is no outage, and caps nothing.
"""

from __future__ import annotations

from typing import Any

from ..core.controller import Controller
from ..core.decision import UNKNOWN, ControllerNote, PaceReason
from ..core.gate_config import FASTEST
from ..core.signal import Signal
from ..core.ticket import Ticket

OBSERVED_FOR = 2.0
"""Seconds that one observation takes."""
LOWEST_CAP = 1.0
HEADROOM = 1.25
CALM = 10.0
"""Seconds without a failure after which the cap is lifted: longer than any ramp."""
FEW = 3
"""Failures in a row that may be the beginning of an outage."""


class ObservedRateCap(Controller):
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
