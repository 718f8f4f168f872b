"""A small part of the lab: the real limiter in five scenarios is no worse than the committed table says."""

from pathlib import Path

import pytest
from bench.lab.book import Book
from bench.lab.plan import ADAPTIVE
from bench.lab.worse import worse

from headgate.sim.comparison import ORACLE, Task, measure
from headgate.sim.scenario_file import named

COMMITTED = Path(__file__).parents[2] / "bench" / "controllers.json"
SCENARIOS = ("hdr-fw60", "tb-rpm", "gcra20", "tokens", "tb-slow")
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def committed():
    return Book.read(COMMITTED)


@pytest.fixture(scope="module")
def part(committed):
    tasks = [
        Task(scenario=named(name), strategy=strategy, seed=seed)
        for name in SCENARIOS
        for strategy in (ADAPTIVE, ORACLE)
        for seed in SEEDS
    ]
    book = Book()
    for task, figures in zip(tasks, measure(tasks, jobs=2), strict=True):  # elsewhere: coverage would slow it down
        book.enter(task.scenario.name, task.strategy, task.seed, figures)
    return book


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_cell_has_become_worse(committed, part, name):
    assert committed.cell(name, ADAPTIVE, SEEDS) is not None
    assert list(worse(committed, Book(runs={name: part.runs[name]}))) == []
