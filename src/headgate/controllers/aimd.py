"""Additive increase, multiplicative decrease: a little faster on every good answer, half on a bad one.

    2xx, faster than the latency target        rate += increase
    429, 503, or degrade_factor x the target   rate *= decrease, once per era

The target is what answers have taken recently: a moving average that is anchored at ``latency_target``, where it starts
and which it never falls below. So a host that always takes three seconds is no slow one; and one that answers in
milliseconds is not cut for taking twice as many, as every second answer might.

An era begins with a cut. Answers to calls that left before the cut say what was true
before it, so a burst that is refused as one is punished once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.controller import Controller
from ..core.decision import ControllerNote, Outcome, PaceReason
from ..core.policy import Ticket
from ..core.signal import Signal
from . import ControllerFactory, ControllerOptions, rate_bounds

OK = Outcome.OK  # looked up once: in Python 3.11 a member of an enum takes longer to find than to compare
AVERAGED = 0.2
"""What each answer counts for in the moving average."""
ON_AVERAGE = 1.01
"""Up to so many times the average, an answer is not slow: of equal answers none is below their average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AimdSettings:
    initial: float = 2.0
    least: float = 0.01
    most: float = float("inf")
    increase: float = 0.25
    decrease: float = 0.5
    latency_target: float = 1.0
    degrade_factor: float = 2.0


class Aimd(Controller):
    __slots__ = ("cut_seq", "latency_target", "rate", "settings")

    def __init__(self, settings: AimdSettings) -> None:
        self.settings = settings
        self.rate = min(max(settings.initial, settings.least), settings.most)
        self.cut_seq = 0
        self.latency_target = settings.latency_target

    @property
    def is_guess(self) -> bool:
        return self.cut_seq == 0

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        settings, outcome, target = self.settings, signal.outcome, self.latency_target
        anchor = settings.latency_target
        if outcome is OK and (latency > anchor or target > anchor):
            self.latency_target = max(anchor, target + AVERAGED * (latency - target))
        if ticket.seq <= self.cut_seq:
            return 0.0
        if outcome is OK:
            if latency < (target if target == anchor else ON_AVERAGE * target):
                rate = self.rate + settings.increase
                self.rate = rate if rate < settings.most else settings.most
                return 0.0
            bad = latency >= settings.degrade_factor * target
        else:
            bad = outcome is Outcome.RATE_LIMITED or outcome is Outcome.OVERLOADED
        if bad:
            self.cut_seq = ticket.gate.seq
            self.rate = max(settings.least, self.rate * settings.decrease)
            return 1.0
        return 0.0

    def why(self) -> ControllerNote:
        return ControllerNote(PaceReason.AIMD)

    def to_state(self) -> tuple[Any, ...]:
        return (self.rate, self.cut_seq, self.latency_target)

    def load_state(self, state: tuple[Any, ...]) -> None:
        self.rate, self.cut_seq, self.latency_target = state


def factory(options: ControllerOptions) -> ControllerFactory:
    settings = AimdSettings(
        **rate_bounds(options),
        increase=options.aimd_increase,
        decrease=options.aimd_decrease,
        latency_target=options.latency_target,
        degrade_factor=options.latency_degrade_factor,
    )
    return lambda: Aimd(settings)
