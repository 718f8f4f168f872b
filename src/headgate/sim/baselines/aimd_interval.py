"""AIMD by the clock: one cut for a burst, and one step up in ten seconds.

    429, or 503 with Retry-After   rate *= 0.7, unless the call was sent before the last change
    200                            rate += 2, if nothing changed for 10 s and somebody had to wait
    Retry-After                    nothing before it is over

It starts at 10 calls a second, never goes below 0.1, and makes up for slots missed by up to 0.1 s.
The rule of TCP as textbooks give it, with the constants of client-side limiters for slow APIs.

Falls short: a step of 2 in 10 s takes 40 minutes to reach 500/s and is a leap of 20 % at 10/s; each cut gives
away 30 % of what had just been found.
"""

from __future__ import annotations

from .contract import OK, TOO_MANY, Clients, Headers, Seat, shared_by_all
from .pacing import Slots, told_to_wait

INITIAL, LEAST = 10.0, 0.1
INCREASE, DECREASE = 2.0, 0.7
INTERVAL = 10.0
"""Seconds without a change before the rate may rise."""
SLACK = 0.1
UNAVAILABLE = 503


class AimdInterval:
    def __init__(self) -> None:
        self.rate = INITIAL
        self.slots = Slots()
        self.hold_until = 0.0
        self.changed_at = 0.0
        self.waited = False

    def on_send(self, now: float) -> float:
        wait = self.slots.ask(now, interval=1.0 / self.rate, slack=SLACK, not_before=self.hold_until)
        self.waited = self.waited or wait > 0.0
        return wait

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        told = told_to_wait(headers)
        if status == TOO_MANY or (status == UNAVAILABLE and told):
            self.hold_until = max(self.hold_until, now + told)
            if now - latency > self.changed_at:
                self.rate, self.changed_at = max(LEAST, self.rate * DECREASE), now
        elif status == OK and self.waited and now - self.changed_at >= INTERVAL:
            self.rate, self.changed_at, self.waited = self.rate + INCREASE, now, False


def clients(seat: Seat) -> Clients:
    return shared_by_all(seat, lambda key: AimdInterval())
