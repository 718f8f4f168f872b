"""Scenarios that nothing was tuned for: each is drawn from a number and a seed, and from nothing else.

The seed is a hash of the controller's sources, so a change to it is judged by scenarios that were not looked at before.

| drawn                   | from                                                                                |
|-------------------------|-------------------------------------------------------------------------------------|
| algorithm               | bucket, GCRA, window, log, strict log, concurrency                                  |
| quota                   | 0.5/s to 200/s, evenly over the orders of magnitude, as are all sizes and durations |
| burst                   | a twentieth of a second to a tenth of the run, and at least 1                       |
| window                  | 1 s to 2 min, at least five of them in the run                                      |
| service time            | 50 ms to 3 s, varying by 0.2 to 1 of it                                             |
| round trip              | 10 ms to 150 ms                                                                     |
| step                    | in 40 %: to 0.25 to 0.8 times the quota, or to 1.25 to 2.5 times                    |
| what the server says    | bare 429s, Retry-After, or headers                                                  |

A run is long enough for some thousand calls, and there are always workers enough to use the
quota up, so that what is missing is the strategy's fault.
"""

from __future__ import annotations

import math
from hashlib import sha256
from pathlib import Path
from random import Random

from headgate.controllers import adaptive
from headgate.lab.scenario import Budget, Limit, Mark, Scenario
from headgate.mock.quota import ALGORITHMS
from headgate.units import Rate, Step

RANDOM_SCENARIOS = 200
"""How many of them make a verdict."""

PREFIX = "unseen-"

SLOWEST, FASTEST = 0.5, 200.0
WINDOWS = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0)
SHORTEST_RUN, LONGEST_RUN = 300.0, 1800.0
ENOUGH_CALLS, MOST_CALLS = 3_000, 15_000
STEPS = 0.4
SAYS = (("bare 429s", "none", "none"), ("Retry-After", "exact", "none"), ("RateLimit headers", "exact", "ratelimit"))
"""In words, and as the fields ``retry_after`` and ``headers``."""


def source_seed() -> str:
    """Eight digits of the hash of the adaptive controller's sources."""
    found = sha256()
    for path in sorted(Path(adaptive.__file__).parent.glob("*.py")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:8]


def random_scenario(number: int, seed: int | str) -> Scenario:
    """The scenario of that number."""
    draw = Random(f"unseen/{seed}/{number}")
    algorithm = draw.choice(ALGORITHMS)
    service_time = _magnitude(draw, 0.05, 3.0)
    per_second = _magnitude(draw, SLOWEST, FASTEST)
    at_once = max(2, round(per_second * service_time))
    if algorithm == "concurrency":
        per_second = at_once / service_time
    factor = _step(draw)
    peak = per_second * max(1.0, factor)
    horizon = min(max(SHORTEST_RUN, min(LONGEST_RUN, ENOUGH_CALLS / per_second)), MOST_CALLS / peak)
    limit = _limit(draw, algorithm, per_second, at_once, horizon)
    factor = _in_whole_calls(factor, limit)
    peak = (limit.rate.per_second if limit.rate else per_second) * max(1.0, factor)
    round_trip = _magnitude(draw, 0.01, 0.15)
    step = Step(factor, round(horizon * draw.uniform(0.3, 0.6)))
    says, retry_after, headers = draw.choice(SAYS)
    return Scenario(
        name=f"{PREFIX}{seed}-{number}",
        note=f"{limit.algorithm} of {limit.rate or at_once}{f', {step}' if factor != 1 else ''}; {says}",
        horizon=round(horizon),
        budgets=(Budget(limits=(limit,)),),
        steps=(step,) if factor != 1 else (),
        service_time=service_time,
        service_variation=draw.uniform(0.2, 1.0),
        retry_after=retry_after,
        headers=headers,
        round_trip=round_trip,
        workers=math.ceil(1.5 * peak * (service_time + round_trip)) + 8,
        marks=(Mark("start", 0.0), *([Mark("step", step.at)] if factor != 1 else [])),
    )


def scenario_of(name: str) -> Scenario:
    """The scenario that has this name."""
    _, seed, number = name.split("-")
    return random_scenario(int(number), seed)


def _magnitude(draw: Random, low: float, high: float) -> float:
    return float(f"{low * (high / low) ** draw.random():.3g}")


def _step(draw: Random) -> float:
    if draw.random() >= STEPS:
        return 1.0
    return _magnitude(draw, 0.25, 0.8) if draw.random() < 0.5 else _magnitude(draw, 1.25, 2.5)


def _in_whole_calls(factor: float, limit: Limit) -> float:
    """A quota of calls counts whole ones, after a step too; and a step is at least by one."""
    if limit.refills or factor == 1:
        return factor
    count = max(1.0, float(round(limit.count * factor)))
    if count == limit.count:
        count += 1 if factor > 1 or count == 1 else -1
    return count / limit.count


def _limit(draw: Random, algorithm: str, per_second: float, at_once: int, horizon: float) -> Limit:
    if algorithm == "concurrency":
        return Limit(algorithm=algorithm, at_once=at_once)
    if algorithm in ("bucket", "gcra"):
        burst = max(1, round(per_second * _magnitude(draw, 0.05, horizon / 10)))
        return Limit(algorithm=algorithm, rate=Rate(per_second), burst=burst)
    fitting = [window for window in WINDOWS if window <= horizon / 5 and per_second * window >= 3]
    window = draw.choice(fitting)
    return Limit(algorithm=algorithm, rate=Rate(float(round(per_second * window)), window))
