"""Which runs a table is made from, and in which order.

|                        | lab | full | quick |
|------------------------|-----|------|-------|
| adaptive, the oracle   | 20  | 20   | 2     |
| published strategies   | 3   | 20   | 1     |
| ... in ``HERDS``       | 1   | 20   | none  |
| the lesser known, ours | 1   | 20   | none  |
| the default circuit    | 5   | 20   | 1     |
| unseen scenarios       | 200 | 200  | 12    | one seed each

A pool is done soonest when the longest runs start first, so the order goes by what runs are likely to cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headgate.config import RateLimitConfig
from headgate.lab.adapters import LAB_CONFIG
from headgate.lab.comparison import ORACLE, Task
from headgate.lab.scenario import Scenario

from .random_scenarios import RANDOM_SCENARIOS, random_scenario, source_seed

ADAPTIVE = "adaptive"
PUBLISHED = (
    "backoff",
    "pause-60",
    "aimd-per-response",
    "aimd-429",
    "cubic",
    "autothrottle",
    "gradient2",
    "sre",
    "fixed-half",
)
LESSER = ("pause-5", "aimd-10s", "failsafe", "cookbook", "header-pace", "aimd", "gradient")
"""Variants of the published ones, ways that need to be told something, and our own older strategies."""
RIVALS = (*PUBLISHED, *LESSER)
OURS = ("adaptive", "aimd", "gradient")
RIVAL_OF_UNSEEN = "cubic"
BOUND = "informed"
"""What a client could reach that is told how the server counts, and has to find the quota all the same."""

DEFAULT_CIRCUIT = "adaptive with the default circuit"
WITH_DEFAULT_CIRCUIT = ("flap5xx", "outage", "outage-hang")
"""Scenarios in which a circuit opens: there the lab's shorter one makes a difference."""

HERDS = frozenset(
    {
        *(("cubic", scenario) for scenario in ("tb500", "keys3", "day", "ra-long")),
        *(("gradient2", scenario) for scenario in ("tb500", "queue80")),
    }
)
"""Crowds of workers that ask again and again while they wait: four to twenty seconds for one run."""

TOGETHER = "-together"
COST = {
    "adaptive": 90.0,
    "aimd": 70.0,
    "gradient": 60.0,
    "cubic": 90.0,
    "sre": 45.0,
    "failsafe": 45.0,
    "gradient2": 30.0,
    "autothrottle": 25.0,
}
"""Microseconds for each call the quota allows, with 64 workers; about what was measured."""
USUAL_COST = 12.0


class Job(NamedTuple):
    """One run, and which cell of the table it belongs to."""

    label: str
    task: Task

    @property
    def cost(self) -> float:
        """Seconds it will take, roughly."""
        scenario, strategy = self.task.scenario, self.task.strategy
        crowd = scenario.workers * scenario.processes / 64 if strategy == "cubic" else 1.0
        calls = scenario.allowed_between(0.0, scenario.horizon)
        return COST.get(strategy, USUAL_COST) * calls * crowd * 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    ours: int
    published: int
    lesser: int
    circuit: int
    unseen: int
    herds: int
    """Seeds of each, and how many unseen scenarios there are."""

    def seeds(self, strategy: str, scenario: str) -> int:
        if strategy == ADAPTIVE:
            return self.ours
        if strategy in OURS or not scenario.endswith(TOGETHER):
            if (strategy, scenario) in HERDS:
                return self.herds
            return self.published if strategy in PUBLISHED else self.lesser
        return 0  # it knows no togetherness: the scenario without it says all there is to say

    def jobs(self, scenarios: Sequence[Scenario], *, with_unseen: bool) -> list[Job]:
        """Every run to make, the longest first."""
        jobs = [job for scenario in scenarios for job in self._of(scenario)]
        if with_unseen:
            seed = source_seed()
            jobs += [
                Job(strategy, Task(scenario=random_scenario(number, seed), strategy=strategy, seed=0))
                for number in range(self.unseen)
                for strategy in (ORACLE, ADAPTIVE, BOUND, RIVAL_OF_UNSEEN)
            ]
        return sorted(jobs, key=lambda job: job.cost, reverse=True)

    def _of(self, scenario: Scenario) -> Iterator[Job]:
        counts = {strategy: self.seeds(strategy, scenario.name) for strategy in (ADAPTIVE, *RIVALS)}
        counts[ORACLE] = max(counts.values())
        for strategy, count in counts.items():
            for seed in range(count):
                yield Job(strategy, Task(scenario=scenario, strategy=strategy, seed=seed, config=LAB_CONFIG))
        if scenario.name in WITH_DEFAULT_CIRCUIT:
            for seed in range(self.circuit):
                task = Task(scenario=scenario, strategy=ADAPTIVE, seed=seed, config=RateLimitConfig())
                yield Job(DEFAULT_CIRCUIT, task)


LAB = Plan(ours=20, published=3, lesser=1, circuit=5, unseen=RANDOM_SCENARIOS, herds=1)
FULL = Plan(ours=20, published=20, lesser=20, circuit=20, unseen=RANDOM_SCENARIOS, herds=20)
QUICK = Plan(ours=2, published=1, lesser=0, circuit=1, unseen=12, herds=0)
