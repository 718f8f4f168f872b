"""The AWS SDKs' adaptive retry mode, as botocore has it: TCP CUBIC over a token bucket, behind full jitter.

    until the first 429     no limit at all
    429                     w = the rate now; rate = 0.7 w, and k = (0.3 w / 0.4)^(1/3)
    any other answer        rate = 0.4 (t - k)^3 + w        t: seconds since the last 429
    always                  at most twice the rate that was measured, and at least 0.5 calls a second

The measured rate is counted over half seconds and moves by 0.8 towards each. Workers also rest by
themselves after a failure: up to 1, 2, 4 ... 20 s.

Falls short: w is the sending rate at the moment of the refusal, not what was admitted, and each 429 of one
burst cuts again. The bucket may fill up to one second's worth, which a strict server refuses. Cubic growth
soon overshoots a small quota and is slow to leave a large plateau; Retry-After is not heeded.
"""

from __future__ import annotations

import math

from .backoff import BackoffBefore
from .contract import TOO_MANY, Clients, ClientSetup, Tokens, one_per_worker

SCALE, BETA = 0.4, 0.7
LEAST_RATE, LEAST_CAPACITY = 0.5, 1.0
HEADROOM = 2.0
"""Times the measured rate that may be allowed."""
MEASURED_OVER = 0.5
SMOOTHING = 0.8


class MeasuredRate:
    """Answers a second, smoothed over half-second intervals."""

    def __init__(self) -> None:
        self.value = 0.0
        self.count = 0
        self.counted_from = 0.0

    def count_one(self, now: float) -> float:
        self.count += 1
        interval_at = math.floor(now / MEASURED_OVER) * MEASURED_OVER
        if interval_at > self.counted_from:
            fresh = self.count / (interval_at - self.counted_from)
            self.value = SMOOTHING * fresh + (1.0 - SMOOTHING) * self.value
            self.count, self.counted_from = 0, interval_at
        return self.value


class CubicLimiter:
    def __init__(self) -> None:
        self.enabled = False
        self.tokens = Tokens(LEAST_RATE, LEAST_CAPACITY, held=0.0)
        self.measured = MeasuredRate()
        self.refused_rate = 0.0
        self.refused_at = 0.0
        self.plateau = 0.0
        """Seconds after a 429 until the old rate is reached again."""

    def acquire(self, now: float) -> float:
        return self.tokens.take(now) if self.enabled else 0.0

    def learn(self, now: float, status: int, latency: float) -> None:
        measured = self.measured.count_one(now)
        if status == TOO_MANY:
            refused = min(measured, self.tokens.rate) if self.enabled else measured
            self.refused_rate, self.refused_at, self.enabled = refused, now, True
            self.plateau = (refused * (1.0 - BETA) / SCALE) ** (1 / 3)
            rate = refused * BETA
        else:
            rate = SCALE * (now - self.refused_at - self.plateau) ** 3 + self.refused_rate
        self.set_rate(min(rate, HEADROOM * measured), now)

    def set_rate(self, rate: float, now: float) -> None:
        tokens = self.tokens
        tokens.fill(now)
        tokens.rate, tokens.capacity = max(rate, LEAST_RATE), max(rate, LEAST_CAPACITY)
        tokens.held = min(tokens.held, tokens.capacity)


def clients(setup: ClientSetup) -> Clients:
    limiters = [CubicLimiter() for _ in range(setup.keys)]
    return one_per_worker(setup, lambda key: BackoffBefore(setup.rng, limiters[key]))
