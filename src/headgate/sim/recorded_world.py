"""The server of a recording, alive again: its quota over time, its outages, its service times and its manners.

Each key is a bucket whose refill follows what was seen; after the end of the recording its last
pace goes on. What befalls a call is drawn from what befell the recorded ones: a service time, a
failure, a Retry-After or none. Network and server are one here, because a recording cannot tell them apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat

from .hindsight import Hindsight
from .quota_seen import KeySeen, outage_at
from .scenario import Scenario
from .world import FAILED, OK, TOO_MANY, UNAVAILABLE, Answer, World

ALMOST_A_CALL = 1 - 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(Scenario):
    """A scenario with so much work and no more."""

    items: int = 1

    def arrival_times(self) -> Iterator[float]:
        return repeat(0.0, self.items)


class Allowance:
    """What a quota that changes has refilled since the start, added up so that any instant is found quickly."""

    def __init__(self, seen: KeySeen) -> None:
        self._since = [stretch.since for stretch in seen.stretches]
        self._rates = [stretch.rate for stretch in seen.stretches]
        self._sums = [0.0]
        for (start, end), rate in zip(pairwise(self._since), self._rates, strict=False):
            self._sums.append(self._sums[-1] + rate * (end - start))

    def until(self, at: float) -> float:
        number = max(0, bisect_right(self._since, at) - 1)
        return self._sums[number] + self._rates[number] * (at - self._since[number])

    def after(self, at: float, amount: float) -> float:
        """The instant at which so much more will have been refilled."""
        total = self.until(at) + amount
        number = bisect_right(self._sums, total) - 1
        return self._since[number] + (total - self._sums[number]) / self._rates[number]


class _Bucket:
    def __init__(self, seen: KeySeen) -> None:
        self.allowance = Allowance(seen)
        self.burst = self.level = max(1.0, seen.burst)
        self.filled_at = 0.0

    def fill(self, now: float) -> None:
        if now > self.filled_at:
            refilled = self.allowance.until(now) - self.allowance.until(self.filled_at)
            self.level = min(self.burst, self.level + refilled)
            self.filled_at = now


class RecordedWorld(World):
    def __init__(self, scenario: Replay, seen: Hindsight, keys: Sequence[KeySeen], seed: int) -> None:
        super().__init__(scenario, seed)
        self.last_done_at = 0.0
        """When the last call that was served was answered."""
        self._seen = seen
        self._buckets = [_Bucket(key) for key in keys]
        self._draw = self._rng.random
        self._down = Answer(UNAVAILABLE, seen.turned_away_in, None, False)
        self.allowed_between = self._allowed_between

    def answer(self, now: float, key: int, tokens: float = 0.0) -> Answer:
        seen, bucket = self._seen, self._buckets[key]
        if outage_at(now, seen.outages):
            return self._down
        bucket.fill(now)
        if bucket.level < ALMOST_A_CALL:
            told = _one_of(seen.retry_after, self._draw())
            return Answer(TOO_MANY, seen.turned_away_in, None if told is None else {"retry-after": f"{told:g}"}, True)
        bucket.level -= 1.0
        if seen.flaky and self._draw() < seen.flaky:
            return Answer(FAILED, seen.turned_away_in, None, False)
        service = seen.served_in[int(self._draw() * len(seen.served_in))]
        self.last_done_at = max(self.last_done_at, now + service)
        return Answer(OK, service, None, False)

    def free_in(self, now: float, key: int) -> float:
        """For oracles alone: 0 if a call that arrives now would be admitted, else seconds to wait."""
        if (outage := outage_at(now, self._seen.outages)) is not None:
            return outage.until - now
        bucket = self._buckets[key]
        bucket.fill(now)
        return 0.0 if bucket.level >= ALMOST_A_CALL else bucket.allowance.after(now, 1.0 - bucket.level) - now

    def _allowed_between(self, start: float, end: float) -> float:
        lost = sum(
            self._refilled(max(start, outage.at), min(end, outage.until))
            for outage in self._seen.outages
            if outage.at < end and outage.until > start
        )
        return self._refilled(start, end) - lost

    def _refilled(self, start: float, end: float) -> float:
        return sum(bucket.allowance.until(end) - bucket.allowance.until(start) for bucket in self._buckets)


def _one_of(values: Sequence[float | None], draw: float) -> float | None:
    return values[int(draw * len(values))] if values else None
