"""A pace that does not move: for limits that are known, and for measuring others by."""

from __future__ import annotations

from typing import Any

from ..core.controller import Controller
from ..core.decision import ControllerNote, PaceReason
from ..core.policy import Ticket
from ..core.signal import Signal
from . import ControllerFactory, ControllerOptions


class Fixed(Controller):
    __slots__ = ("rate",)
    learns = False

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        return 0.0

    def why(self) -> ControllerNote:
        return ControllerNote(PaceReason.FIXED)

    def to_state(self) -> tuple[Any, ...]:
        return ()


def factory(options: ControllerOptions) -> ControllerFactory:
    rate = options.starting_rate()
    return lambda: Fixed(rate)
