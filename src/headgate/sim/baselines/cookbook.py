"""The OpenAI cookbook's parallel request processor: told the quota, it spends it, and rests 15 s after a 429.

Capacity fills evenly at the quota's rate up to a minute's worth. Its loop sleeps a millisecond between looks.

Falls short: it must be told, and is told once; after a step down it lives in rests of 15 s, after a step up it
stays where it was. What it saved up in a rest leaves at once, and is refused if the server's burst is smaller.
"""

from __future__ import annotations

from .contract import TOO_MANY, Clients, Headers, Seat, shared_by_all
from .pacing import Tokens, wait_until

REST = 15.0
SAVED_UP = 60.0
"""Seconds' worth of capacity that can be saved up."""
LOOK_AGAIN = 0.001


class Cookbook:
    def __init__(self, rate: float) -> None:
        self.tokens = Tokens(rate, rate * SAVED_UP)
        self.rest_until = 0.0

    def on_send(self, now: float) -> float:
        wait = wait_until(self.rest_until, now) or self.tokens.take(now)
        return max(LOOK_AGAIN, wait) if wait else 0.0

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        if status == TOO_MANY:
            self.rest_until = now + REST


def clients(seat: Seat) -> Clients:
    return shared_by_all(seat, lambda key: Cookbook(seat.share))
