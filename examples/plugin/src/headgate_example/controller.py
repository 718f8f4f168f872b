"""A controller: half the rate after a refusal, a little more after every success."""

from __future__ import annotations

from headgate import Outcome, RateLimitConfig
from headgate.core.controller import Controller
from headgate.core.policy import Ticket
from headgate.core.signal import Signal

STEP = 0.1
"""Calls a second."""


class HalvingController(Controller):
    """Headgate makes one for each key, with the configuration as its only argument."""

    def __init__(self, config: RateLimitConfig) -> None:
        self.rate = config.starting_rate()
        self._least = config.min_rps
        self._cut_at = 0
        """The ordinal of the last call before the last cut: refusals of earlier calls are old news."""

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        if signal.outcome is Outcome.RATE_LIMITED and ticket.seq > self._cut_at:
            self.rate = max(self.rate / 2, self._least)
            self._cut_at = ticket.gate.seq
        elif signal.outcome is Outcome.OK:
            self.rate += STEP
        return 0.0

    def why(self) -> str:
        return "halved after the last refusal"
