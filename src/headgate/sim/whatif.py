"""How long would it have taken? A recorded run, simulated again with another quota, more keys or more workers.

    trace ──look_back──> Hindsight ──> RecordedWorld  <── the real limiter, in virtual time
                            │             quota over time as seen, times a factor or replaced
                            │             outages at the instants they were met
                            │             service times, failures and Retry-After drawn from what was seen
                            └──> the run as it was, beside the run simulated as it was, beside the run as asked

The run *as recorded* is simulated as well, not only the one that is asked for: how far it is from what
really happened says how far the other can be trusted. Where the quota is known only from below (see
``quota_seen``), a run takes at most as long as simulated.

Several keys are taken for one pool: a call goes to whichever is free. Keys that were not there are given what
the recorded ones had on average, at each instant; ``--rate`` changes the recorded keys first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from ..config import RateLimitConfig
from .experiment import run
from .hindsight import Hindsight
from .measures import Run
from .notation import LONGEST_DURATION, MOST_PER_WINDOW, Rate
from .questions import AS_RECORDED, Asked, Times
from .quota_seen import KeySeen, Stretch
from .recorded_world import Allowance, RecordedWorld, Replay
from .scenario import Budget, Limit, Stream

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
    asked: Asked = AS_RECORDED
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


def as_it_was(seen: Hindsight) -> Outlook:
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
    seen: Hindsight,
    asked: Asked = AS_RECORDED,
    strategy: str = RECORDED_WITH,
    seed: int = 0,
    *,
    watch: bool = False,
) -> Outlook:
    """Get the recorded items done once more, under what was seen and what is asked."""
    keys = quotas(seen, asked)
    scenario = replay_of(seen, keys, asked.workers or seen.workers)
    world = RecordedWorld(scenario, seen, keys, seed)
    config = RateLimitConfig(open_state_duration=seen.open_for)
    book = run(scenario, strategy, seed, watch=watch, config=config, world=world)
    seconds = world.last_done_at if book.ok >= seen.items else math.inf
    return Outlook(
        seconds=seconds,
        done=book.ok,
        sent=book.sent,
        refused=book.refused,
        failed=book.errors,
        strategy=strategy,
        keys=len(keys),
        workers=scenario.workers,
        asked=asked,
        run=book,
    )


def quotas(seen: Hindsight, asked: Asked) -> tuple[KeySeen, ...]:
    """The quota of each key, as seen or as asked for."""
    recorded = with_rate(seen, asked.rate)
    number = len(recorded) if asked.keys is None else asked.keys.number(len(recorded))
    if number < len(recorded):
        return (average(recorded),) * number
    return recorded + (average(recorded),) * (number - len(recorded))


def with_rate(seen: Hindsight, asked: Times | Rate | None) -> tuple[KeySeen, ...]:
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


def replay_of(seen: Hindsight, keys: Sequence[KeySeen], workers: int) -> Replay:
    """The recorded work as a scenario for the clients; of its budgets the recorded world takes only the number."""
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
