"""Scrapy's AutoThrottle: a delay between calls that keeps so many answers under way on average.

    each answer      wanted = latency / 8;  delay = the mean of delay and wanted, at least wanted, at most 60 s
    not a 200        may lengthen the delay, never shorten it

It starts with a delay of 5 s and sends after half to one and a half of it, by chance, with at most 64 calls
out. Scrapy's own default aims at 1 call under way; 8 is what its manual suggests for sites that bear it.

Falls short: it follows the latency, and a quota does not show in the latency. Refusals come back fast, which
would speed it up; the rule that they may not only leaves it where it was. So it settles wherever
8 / latency happens to be: far below a generous quota, or at three quarters refused under a tight one.
"""

from __future__ import annotations

import random

from .contract import OK, Clients, ClientSetup, Headers, shared_by_all, wait_until

TARGET = 8.0
"""Answers under way to aim at."""
FIRST_DELAY, LONGEST_DELAY = 5.0, 60.0
MOST_OUT = 64
LOOK_AGAIN = 0.05
"""How soon to ask again when so many are out."""


class AutoThrottle:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.delay = FIRST_DELAY
        self.next_at = 0.0
        self.out = 0

    def on_send(self, now: float) -> float:
        if self.out >= MOST_OUT:
            return LOOK_AGAIN
        wait = wait_until(self.next_at, now)
        if not wait:
            self.next_at = now + self.delay * self.rng.uniform(0.5, 1.5)
            self.out += 1
        return wait

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        self.out -= 1
        wanted = latency / TARGET
        delay = min(LONGEST_DELAY, max(wanted, (self.delay + wanted) / 2.0))
        if status == OK or delay > self.delay:
            self.delay = delay
            self.next_at = min(self.next_at, now + delay)


def clients(setup: ClientSetup) -> Clients:
    return shared_by_all(setup, lambda key: AutoThrottle(setup.rng))
