"""A pace that does not move: for limits that are known, and for measuring others by."""

from __future__ import annotations

from typing import Any

from ..signal import Signal
from ..ticket import Ticket
from .protocol import Controller


class Fixed(Controller):
    __slots__ = ("rate",)
    learns = False

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        return 0.0

    def why(self) -> str:
        return "at a fixed rate"

    def to_state(self) -> tuple[Any, ...]:
        return ()
