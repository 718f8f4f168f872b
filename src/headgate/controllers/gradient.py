"""Follow the latency: as fast as answers come back no slower than they used to.

Two averages of the latency, one over the last few answers and one over many. Their quotient
is 1 while the server keeps up and falls below it when calls begin to queue:

    gradient = usual / recent            within [0.5, 1]
    rate     = rate * gradient + room    room = sqrt(rate): what may wait in its queue

A refusal cuts the rate once per era. Nothing is learned from a caller that does not use
the rate it has: without a wait for the pace since the last answer, the rate may fall but not rise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.controller import Controller
from ..core.decision import NEVER, ControllerNote, Outcome, PaceReason
from ..core.policy import Ticket
from ..core.signal import Signal
from . import ControllerFactory, ControllerOptions, rate_bounds

OK = Outcome.OK  # looked up once: in Python 3.11 a member of an enum takes longer to find than to compare
RECENT = 0.2
"""Weight of one answer in the recent average."""
USUAL = 0.01
"""... and in the usual one."""
TOLERANCE = 1.5
"""How much slower than usual is still no queue."""
STEP = 0.05
"""How far one answer may move the rate towards what the gradient asks for."""
STILL_PACED = 1.0
"""For how many seconds after a wait for the pace the rate may grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientSettings:
    initial: float = 2.0
    least: float = 0.01
    most: float = float("inf")
    decrease: float = 0.7


class Gradient(Controller):
    __slots__ = ("cut_seq", "paced_at", "rate", "recent", "settings", "usual")
    watches_sends = True

    def __init__(self, settings: GradientSettings) -> None:
        self.settings = settings
        self.rate = min(max(settings.initial, settings.least), settings.most)
        self.recent = self.usual = 0.0
        self.cut_seq = 0
        self.paced_at = NEVER

    @property
    def is_guess(self) -> bool:
        return self.cut_seq == 0

    def on_wait(self, now: float) -> None:
        self.paced_at = now

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        settings = self.settings
        if ticket.seq <= self.cut_seq:
            return 0.0
        if signal.outcome is Outcome.RATE_LIMITED:
            self.cut_seq = ticket.gate.seq
            self.rate = max(settings.least, self.rate * settings.decrease)
            return 1.0
        if signal.outcome is not OK or latency <= 0.0:
            return 0.0
        if self.usual == 0.0:
            self.recent = self.usual = latency
        self.recent += RECENT * (latency - self.recent)
        # A latency that has fallen is the new usual at once; one that has risen must last to be believed.
        self.usual = min(self.usual + USUAL * (latency - self.usual), max(self.recent, latency))
        gradient = max(0.5, min(1.0, TOLERANCE * self.usual / self.recent))
        wanted = self.rate * gradient + min(self.rate**0.5, 0.1 * self.rate)
        if wanted < self.rate or now - self.paced_at <= max(STILL_PACED, 3.0 / self.rate) + latency:
            self.rate = min(settings.most, max(settings.least, self.rate + STEP * (wanted - self.rate)))
        return 0.0

    def why(self) -> ControllerNote:
        return ControllerNote(PaceReason.GRADIENT)

    def to_state(self) -> tuple[Any, ...]:
        return (self.rate, self.recent, self.usual, self.cut_seq, self.paced_at)

    def load_state(self, state: tuple[Any, ...]) -> None:
        self.rate, self.recent, self.usual, self.cut_seq, self.paced_at = state


def factory(options: ControllerOptions) -> ControllerFactory:
    settings = GradientSettings(**rate_bounds(options))
    return lambda: Gradient(settings)
