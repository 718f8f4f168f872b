"""How long would it have taken? A recorded run, simulated again with another quota, more keys or more workers.

    trace ──analyze_trace──> TraceAnalysis ──> RecordedServer  <── the real limiter, in virtual time
                                   │             quota over time as seen, times a factor or replaced
                                   │             outages at the instants they were met
                                   │             service times, failures and Retry-After drawn from what was seen
                                   └──> the run as it was, beside the run simulated as it was, beside the run as asked

The run *as recorded* is simulated as well, not only the one that is asked for: how far it is from what
really happened says how far the other can be trusted. Where the quota is known only from below (see
``analysis``), a run takes at most as long as simulated.

Several keys are taken for one pool: a call goes to whichever is free. Keys that were not there are given what
the recorded ones had on average, at each instant; ``--rate`` changes the recorded keys first.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, repeat
from statistics import fmean
from typing import Any

from ...config import RateLimitConfig
from ...units import LARGEST_FACTOR, LONGEST_DURATION, MOST_PER_WINDOW, Rate, read_rate
from ..experiment import run
from ..measures import Run
from ..scenario import Budget, Limit, Scenario, Stream
from ..simulated_server import FAILED, OK, TOO_MANY, UNAVAILABLE, Answer, SimulatedServer
from .analysis import KeySeen, Stretch, TraceAnalysis, outage_at
from .trace import MOST_KEYS

# -- the question: another quota (x2, 0.5/s), other keys (+2, 5), other workers (50)


@dataclass(frozen=True, slots=True)
class Times:
    """So many times the quota that was seen."""

    factor: float

    def __str__(self) -> str:
        return f"x{self.factor:g}"


@dataclass(frozen=True, slots=True)
class Keys:
    """So many keys, or so many more than there were."""

    count: int
    is_more: bool = False

    def number(self, recorded: int) -> int:
        return self.count + recorded if self.is_more else self.count

    def __str__(self) -> str:
        return f"{self.count:,} {'more ' if self.is_more else ''}key{'' if self.count == 1 else 's'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What is to be different; ``None`` leaves it as it was recorded."""

    rate: Times | Rate | None = None
    """A ``Rate`` takes the place of the quota that was seen, over all recorded keys and from beginning to end."""
    keys: Keys | None = None
    workers: int | None = None

    def __str__(self) -> str:
        rate = "" if self.rate is None else f"quota {self.rate}"
        keys = "" if self.keys is None else str(self.keys)
        workers = "" if self.workers is None else f"{self.workers:,} worker{'' if self.workers == 1 else 's'}"
        return ", ".join(filter(None, (rate, keys, workers))) or "as recorded"


AS_RECORDED = WhatIf()


def read_whatif_rate(text: str) -> Times | Rate:
    """``x2`` is twice the quota that was seen, ``100/s`` another one."""
    written = text.strip().lower()
    if not written.startswith("x"):
        try:
            return read_rate(written)
        except ValueError:
            raise ValueError(f"{text!r} is not a rate; write x2 for twice the quota, or 100/s") from None
    try:
        factor = float(written[1:])
    except ValueError:
        factor = math.nan
    if not 1 / LARGEST_FACTOR <= factor <= LARGEST_FACTOR:
        raise ValueError(f"{text!r}: a factor is within {1 / LARGEST_FACTOR:g} and {LARGEST_FACTOR}, as in x2 or x0.5")
    return Times(factor)


def read_whatif_keys(text: str) -> Keys:
    """``+2`` is two more keys than there were, ``5`` is five."""
    written = text.strip()
    number = written.removeprefix("+")
    if not (number.isascii() and number.isdigit() and 1 <= int(number[:9]) <= MOST_KEYS):
        raise ValueError(f"{text!r} is not a number of keys from 1 to {MOST_KEYS:,}; write +2 for two more, or 5")
    return Keys(int(number), is_more=written.startswith("+"))


# -- the server of a recording: its quota over time, its outages, its service times and its Retry-After
# Each key is a bucket whose refill follows what was seen; after the end of the recording its last
# pace goes on. The outcome of a call is drawn from those of the recorded ones: a service time, a
# failure, a Retry-After or none. Network and server are one here, because a recording cannot tell them apart.

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


class RecordedServer(SimulatedServer):
    def __init__(self, scenario: Replay, seen: TraceAnalysis, keys: Sequence[KeySeen], seed: int) -> None:
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


# -- the answer

RECORDED_WITH = "adaptive"
"""The strategy that recordings are made with."""
PATIENCE = 3.0
"""A run that takes so many times as long as its quota allows is given up ..."""
AT_LEAST = 120.0
"""... but not before so many seconds."""
SLOWEST = 1e-6
"""Calls a second; a quota below this is this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """How a run went, or would have gone."""

    seconds: float
    """Until the last item was done; infinity if that did not come."""
    done: int
    sent: int
    refused: int
    failed: int
    strategy: str
    keys: int
    workers: int
    asked: WhatIf = AS_RECORDED
    run: Run | None = None
    """The simulated run; None for what really happened."""

    @property
    def per_second(self) -> float:
        return self.done / self.seconds if self.seconds else 0.0

    @property
    def refused_share(self) -> float:
        return self.refused / self.sent if self.sent else 0.0

    def facts(self) -> dict[str, Any]:
        """All of it for a program; ``rate`` and ``rate_factor`` are what was asked for, and one of them is None."""
        rate = self.asked.rate
        return {
            "strategy": self.strategy,
            "rate": rate.per_second if isinstance(rate, Rate) else None,
            "rate_factor": rate.factor if isinstance(rate, Times) else 1.0 if rate is None else None,
            "keys": self.keys,
            "workers": self.workers,
            "seconds": self.seconds,
            "calls_per_second": self.per_second,
            "done": self.done,
            "sent": self.sent,
            "refused": self.refused,
            "failed": self.failed,
            "refused_share": self.refused_share,
        }


def as_it_was(seen: TraceAnalysis) -> Outlook:
    return Outlook(
        seconds=seen.seconds,
        done=seen.items,
        sent=seen.sent,
        refused=seen.refused,
        failed=seen.failed,
        strategy=RECORDED_WITH,
        keys=len(seen.keys),
        workers=seen.workers,
    )


def simulate(
    seen: TraceAnalysis,
    asked: WhatIf = AS_RECORDED,
    strategy: str = RECORDED_WITH,
    seed: int = 0,
    *,
    watch: bool = False,
) -> Outlook:
    """Get the recorded items done once more, under what was seen and what is asked."""
    keys = quotas(seen, asked)
    scenario = replay_of(seen, keys, asked.workers or seen.workers)
    server = RecordedServer(scenario, seen, keys, seed)
    config = RateLimitConfig(open_state_duration=seen.open_for)
    made = run(scenario, strategy, seed, watch=watch, config=config, server=server)
    seconds = server.last_done_at if made.ok >= seen.items else math.inf
    return Outlook(
        seconds=seconds,
        done=made.ok,
        sent=made.sent,
        refused=made.refused,
        failed=made.errors,
        strategy=strategy,
        keys=len(keys),
        workers=scenario.workers,
        asked=asked,
        run=made,
    )


def quotas(seen: TraceAnalysis, asked: WhatIf) -> tuple[KeySeen, ...]:
    """The quota of each key, as seen or as asked for."""
    recorded = with_rate(seen, asked.rate)
    number = len(recorded) if asked.keys is None else asked.keys.number(len(recorded))
    if number < len(recorded):
        return (average(recorded),) * number
    return recorded + (average(recorded),) * (number - len(recorded))


def with_rate(seen: TraceAnalysis, asked: Times | Rate | None) -> tuple[KeySeen, ...]:
    match asked:
        case None:
            return seen.keys
        case Times(factor):
            return tuple(
                KeySeen(
                    stretches=tuple(replace(stretch, rate=stretch.rate * factor) for stretch in key.stretches),
                    burst=max(1.0, key.burst * factor),
                )
                for key in seen.keys
            )
        case Rate():
            whole = sum(key.mean_rate for key in seen.keys)
            rates = [asked.per_second * key.mean_rate / whole for key in seen.keys]
            return tuple(
                KeySeen(stretches=(Stretch(0.0, seen.seconds, max(rate, SLOWEST), is_measured=True),), burst=key.burst)
                for key, rate in zip(seen.keys, rates, strict=True)
            )


def average(keys: Sequence[KeySeen]) -> KeySeen:
    """A key with the mean quota of these at each instant, and their mean burst."""
    edges = sorted({stretch.since for key in keys for stretch in key.stretches})
    end = max(key.stretches[-1].until for key in keys)
    stretches = tuple(
        Stretch(since, until, fmean(key.rate_at(since) for key in keys), is_measured=False)
        for since, until in pairwise([*edges, max(end, edges[-1])])
    )
    return KeySeen(stretches=stretches, burst=fmean(key.burst for key in keys))


def replay_of(seen: TraceAnalysis, keys: Sequence[KeySeen], workers: int) -> Replay:
    """The recorded work as a scenario for the clients; of its budgets the recorded server takes only the number."""
    serving = seen.items * sum(seen.served_in) / len(seen.served_in) / workers
    refilling = max(Allowance(key).after(0.0, seen.items / len(keys)) for key in keys)
    failing = sum(outage.duration for outage in seen.outages)
    return Replay(
        name="recording",
        note="a recorded run",
        horizon=min(max(AT_LEAST, PATIENCE * (serving + refilling + failing)), LONGEST_DURATION),
        budgets=tuple(Budget(limits=(_first_limit(key),)) for key in keys),
        round_trip=0.0,
        jitter=0.0,
        workers=workers,
        arrivals=(Stream(Rate(1.0), 0.0),),
        items=seen.items,
    )


def _first_limit(key: KeySeen) -> Limit:
    rate = min(max(key.stretches[0].rate, SLOWEST), MOST_PER_WINDOW)
    return Limit(algorithm="bucket", rate=Rate(rate), burst=min(key.burst, MOST_PER_WINDOW))
