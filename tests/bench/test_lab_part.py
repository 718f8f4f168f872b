"""A small part of the lab: the real limiter is no worse than the committed table says."""

from pathlib import Path

import pytest
from bench.lab.misses import worse
from bench.lab.plan import ADAPTIVE
from bench.lab.results import Results

from headgate.lab.comparison import ORACLE, Task, measure
from headgate.lab.scenario_file import named

COMMITTED = Path(__file__).parents[2] / "bench" / "controllers.json"
CORNER = "tb-slow"
SCENARIOS = (CORNER, "hdr-fw60", "tb-rpm", "gcra20", "tokens")
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def committed():
    return Results.read(COMMITTED)


def assert_no_worse(committed, names, seeds):
    tasks = [
        Task(scenario=named(name), strategy=strategy, seed=seed)
        for name in names
        for strategy in (ADAPTIVE, ORACLE)
        for seed in seeds
    ]
    results = Results()
    for task, figures in zip(tasks, measure(tasks, jobs=2), strict=True):  # elsewhere: coverage would slow it down
        results.enter(task.scenario.name, task.strategy, task.seed, figures)
    for name in names:
        assert committed.cell(name, ADAPTIVE, seeds) is not None
    assert list(worse(committed, results)) == []


def test_no_cell_has_become_worse(committed):
    assert_no_worse(committed, (CORNER,), SEEDS[:1])


@pytest.mark.chaos
def test_no_cell_of_five_scenarios_has_become_worse(committed):
    assert_no_worse(committed, SCENARIOS, SEEDS)
