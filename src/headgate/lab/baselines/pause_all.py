"""Pause all workers on a 429, then start slowly: the cooldown that batch tools like to build.

    429            all workers pause: 60 s, twice as long for each further limit without a success between, 600 s
                   at most; Retry-After is a floor. A 429 to a call sent before the pause ended changes nothing
    resume         the next 50 items are each held back, by 2 s at first and 0.1 s at last
    5xx, timeout   the worker alone rests, half to all of 1, 2, 4 ... 60 s

Falls short: the pause has nothing to do with how long the quota needs (a bucket of 50/s is back within
20 ms), so that almost all throughput is lost; and a pause of 5 s instead loses less, not little.
"""

from __future__ import annotations

import random

from .backoff import MOST_DOUBLINGS, Backoff
from .contract import OK, TOO_MANY, Clients, ClientSetup, Headers, one_per_worker, told_to_wait, wait_until

LONGEST_PAUSE = 600.0
SLOW_ITEMS = 50
"""Items held back after a pause."""
FIRST_HOLD, LAST_HOLD = 2.0, 0.1


class Cooldown:
    """The pause that the workers of a process share."""

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self.until = 0.0
        self.limits_in_a_row = 0
        self.slow_left = 0

    def limited(self, now: float, sent_at: float, told: float) -> None:
        if now < self.until or sent_at < self.until:
            return
        doubled = self.pause * 2.0 ** min(self.limits_in_a_row, MOST_DOUBLINGS)
        self.limits_in_a_row += 1
        self.until = now + max(min(LONGEST_PAUSE, doubled), told)
        self.slow_left = SLOW_ITEMS

    def hold(self) -> float:
        """How long the next item is held back; 0 once the slow start is over."""
        if not self.slow_left:
            return 0.0
        started = SLOW_ITEMS - self.slow_left
        self.slow_left -= 1
        return FIRST_HOLD - (FIRST_HOLD - LAST_HOLD) * started / SLOW_ITEMS


class PausedWorker(Backoff):
    def __init__(self, rng: random.Random, cooldown: Cooldown) -> None:
        super().__init__(rng)
        self.cooldown = cooldown
        self.was_held = False

    def on_send(self, now: float) -> float:
        wait = wait_until(max(self.ready_at, self.cooldown.until), now)
        if wait:
            return wait
        hold = 0.0 if self.was_held else self.cooldown.hold()
        self.was_held = hold > 0.0
        if hold:
            self.ready_at = now + hold
        return hold

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        if status == OK:
            self.failures = self.cooldown.limits_in_a_row = 0
        elif status == TOO_MANY:
            self.cooldown.limited(now, now - latency, told_to_wait(headers))
        else:
            self.rest(now)

    def draw(self, ceiling: float) -> float:
        return self.rng.uniform(0.5, 1.0) * ceiling


def clients(setup: ClientSetup, pause: float = 60.0) -> Clients:
    cooldowns = [Cooldown(pause) for _ in range(setup.keys)]
    return one_per_worker(setup, lambda key: PausedWorker(setup.rng, cooldowns[key]))
