"""Netflix's Gradient2 (concurrency-limits): as many calls in flight as come back no slower than usual.

    usual      average latency over about 600 answers, after a plain mean of the first 10;
               reduced by 5 % when an answer is more than twice as fast as usual
    gradient   1.5 * usual / latency, within 0.5 and 1
    limit      moves by 0.2 towards limit * gradient + 4, within 1 and 200, from 20; not while less than half is used

The library's default floor is 20 in flight; 1 is kinder to small quotas. Workers also rest after a failure,
with full jitter up to 20 s, or a refused call would be sent again at once.

Falls short: made for servers that queue, where it is the best of the published ones. A server that refuses answers
fast, and fast answers look like room: against a plain quota the limit climbs to its ceiling, and about half of
all calls are refused.
"""

from __future__ import annotations

from .backoff import BackoffBefore
from .contract import Clients, ClientSetup, one_per_worker

INITIAL, LEAST, MOST = 20.0, 1.0, 200.0
WARM_UP = 10
USUAL_WEIGHT = 2.0 / (600 + 1)
TOLERANCE = 1.5
LEAST_GRADIENT = 0.5
QUEUE = 4.0
"""Calls that may wait at the server."""
SMOOTHING = 0.2
DRIFT = 0.95
LOOK_AGAIN = 0.02
"""How soon to ask again when the limit is reached."""


class Gradient2:
    def __init__(self) -> None:
        self.limit = INITIAL
        self.out = 0
        self.usual = 0.0
        self.seen = 0

    def acquire(self, now: float) -> float:
        if self.out >= int(self.limit):
            return LOOK_AGAIN
        self.out += 1
        return 0.0

    def learn(self, now: float, status: int, latency: float) -> None:
        out = self.out
        self.out -= 1
        self.seen = min(self.seen + 1, WARM_UP + 1)
        self.usual += (latency - self.usual) * (1.0 / self.seen if self.seen <= WARM_UP else USUAL_WEIGHT)
        if self.usual > 2.0 * latency:
            self.usual *= DRIFT
        if out < self.limit / 2.0:
            return
        gradient = max(LEAST_GRADIENT, min(1.0, TOLERANCE * self.usual / latency))
        wanted = self.limit * gradient + QUEUE
        self.limit = max(LEAST, min(MOST, self.limit + SMOOTHING * (wanted - self.limit)))


def clients(setup: ClientSetup) -> Clients:
    limiters = [Gradient2() for _ in range(setup.keys)]
    return one_per_worker(setup, lambda key: BackoffBefore(setup.rng, limiters[key]))
