"""A fixed pace at half of the quota: what a careful person configures who has read the documentation.

It is told the quota, takes its even share of it by process and key, and halves that. Slots missed by
up to two intervals are made up for.

Falls short: half of what was paid for is never used; and when the quota falls below half, others share it or
one key is much smaller than the rest, it goes on at the same pace, refused.
"""

from __future__ import annotations

from .contract import Clients, Headers, Seat, shared_by_all
from .pacing import Slots

USED = 0.5
"""Share of the quota that is used."""
SLACK = 2.0
"""Intervals that are made up for."""


class FixedPace:
    def __init__(self, rate: float) -> None:
        self.interval = 1.0 / rate
        self.slots = Slots()

    def on_send(self, now: float) -> float:
        return self.slots.ask(now, interval=self.interval, slack=SLACK * self.interval)

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        """A fixed pace learns nothing."""


def clients(seat: Seat) -> Clients:
    return shared_by_all(seat, lambda key: FixedPace(USED * seat.share))
