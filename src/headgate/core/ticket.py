"""The admission of one call: what a gate hands out and takes back.

A ticket says when the call was sent, as which call of its gate and beside how many
others. The answer brings it back, so an answer can be judged by what was
true when the call was *sent*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Ticket:
    """Most calls cost one request and do not wait; those that do carry a ``LongTicket``."""

    __slots__ = ("depth", "gate", "sent_at", "seq")

    cost: float | Mapping[str, float] = 1
    waited: float = 0.0
    """Seconds between asking and being let through."""

    def __init__(self, gate: Any, seq: int, sent_at: float, depth: int) -> None:
        self.gate = gate
        self.seq = seq
        """Ordinal among the gate's calls, from 1."""
        self.sent_at = sent_at
        self.depth = depth
        """Calls that were in flight when this one left; set where the controller watches sends."""


class LongTicket(Ticket):
    """The ticket of a call that waited, or that costs something else than one request."""

    __slots__ = ("cost", "waited")

    def __init__(
        self, gate: Any, seq: int, sent_at: float, depth: int, cost: float | Mapping[str, float], waited: float
    ) -> None:
        super().__init__(gate, seq, sent_at, depth)
        self.cost = cost
        self.waited = waited
