"""Exponential backoff, alone (tenacity) and in front of a limiter that the workers share (botocore, Gradient2).

    failures in a row       1      2      3     ...    7 and more
    tenacity rests        1 s   1..2   1..4     ...    1..60 s      wait_random_exponential(min=1, max=60)
    full jitter rests   0..1    0..2   0..4     ...    0..20 s

Alone it is what most programs do, and what the OpenAI cookbook recommends. Each worker knows only of its
own refusals, so the load that is offered falls only as far as workers happen to be asleep.

Falls short: all the quota is used, but from a third to four fifths of all calls are refused for as long as the run
lasts; an unlucky item waits many times its turn; nothing is learned, and no Retry-After is heeded.
"""

from __future__ import annotations

import random
from typing import Protocol

from .contract import OK, Clients, ClientSetup, Headers, one_per_worker, wait_until

MOST_DOUBLINGS = 63
"""Failures in a row that are counted; the longest rest is reached long before."""


class Backoff:
    """One worker of tenacity's: rests by chance, within bounds that double with each failure in a row."""

    longest = 60.0
    shortest = 1.0

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.failures = 0
        self.ready_at = 0.0

    def on_send(self, now: float) -> float:
        return wait_until(self.ready_at, now)

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        if status == OK:
            self.failures = 0
        else:
            self.rest(now)

    def rest(self, now: float) -> None:
        self.failures = min(self.failures + 1, MOST_DOUBLINGS)
        self.ready_at = now + self.draw(min(self.longest, 2.0 ** (self.failures - 1)))

    def draw(self, ceiling: float) -> float:
        return self.rng.uniform(self.shortest, max(self.shortest, ceiling))


class Limiter(Protocol):
    """What the workers of a process share."""

    def acquire(self, now: float) -> float:
        """As ``on_send``."""

    def learn(self, now: float, status: int, latency: float) -> None: ...


class BackoffBefore(Backoff):
    """One worker with full jitter of at most 20 s, as in the AWS SDKs, that then asks the shared limiter."""

    longest = 20.0
    shortest = 0.0

    def __init__(self, rng: random.Random, limiter: Limiter) -> None:
        super().__init__(rng)
        self.limiter = limiter

    def on_send(self, now: float) -> float:
        return super().on_send(now) or self.limiter.acquire(now)

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        self.limiter.learn(now, status, latency)
        super().on_response(now, status, latency, headers)


def clients(setup: ClientSetup) -> Clients:
    return one_per_worker(setup, lambda key: Backoff(setup.rng))
