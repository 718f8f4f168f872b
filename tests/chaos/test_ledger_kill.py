"""kill -9 at any moment: no result is lost, none is there twice, and no more calls are repeated than were in flight."""

import os
import random
import time
from collections import Counter
from functools import partial

import pytest
from tests.chaos.crash_points import STEPS
from tests.chaos.scale import scaled

from headgate.batch.ledger import RowState
from headgate.batch.ledger.queries import read_status

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kills processes as POSIX does")

ROWS, WORKERS = 300, 8
CORNER = ("committed", 1)
"""On disk, and not yet acknowledged; the other steps are for the long run."""


@pytest.fixture
def batch_of(killable):
    """``batch_of(rows)``"""
    return partial(killable, "ledger_worker.py", workers=WORKERS)


def check(batch, kills, note):
    """All that must hold once the run has come to its end."""
    rows, folder = batch.amount, batch.folder
    standing = read_status(str(folder / "run.ledger"))
    assert standing.counts.states == {RowState.DONE: rows}, note
    assert sorted(batch.numbers_in("output")) == list(range(rows)), note
    assert (standing.written, standing.offset) == (rows, (folder / "output").stat().st_size), note
    assert max(Counter(batch.numbers_in("acknowledged")).values()) == 1, note
    calls = Counter(batch.numbers_in("calls"))
    assert set(calls) == set(range(rows)), note
    assert calls.total() - rows <= kills * WORKERS, note


@pytest.mark.parametrize(
    ("step", "times"),
    [
        pytest.param(step, times, marks=[] if (step, times) == CORNER else [pytest.mark.chaos])
        for step in STEPS
        for times in (1, 4)
    ],
)
def test_killed_at_each_labelled_step(batch_of, step, times):
    batch = batch_of(ROWS)
    batch.die_at(f"{step}:{times}")
    check(batch, 1, f"killed at {step}:{times}")


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(scaled(2)))
def test_killed_at_many_random_moments(batch_of, seed):
    batch = batch_of(20_000)
    kills = batch.kill_at_random(50, random.Random(seed))
    assert kills >= 25, f"seed {seed}"
    check(batch, kills, f"seed {seed}")


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.chaos)])
def test_four_processes_on_one_ledger_of_which_two_are_killed(batch_of, seed):
    draw, batch = random.Random(seed), batch_of(1500)
    four = [batch.start() for _ in range(4)]
    while len(batch.numbers_in("calls")) < 300:
        assert any(process.poll() is None for process in four)
        time.sleep(0.005)
    for process in four[:2]:
        time.sleep(draw.uniform(0, 0.1))
        process.kill()
    assert [batch.end_of(process) for process in four] == [-9, -9, 0, 0], f"seed {seed}"
    check(batch, 2, f"seed {seed}")


def test_what_record_returned_from_is_there_after_a_kill(batch_of):
    batch = batch_of(ROWS)
    for kills, kill_after in enumerate((1, 41), start=1):
        acknowledged = batch.kill_once_acknowledged(kill_after)
        done = read_status(str(batch.folder / "run.ledger")).counts.states.get(RowState.DONE, 0)
        assert acknowledged <= done <= acknowledged + kills * WORKERS  # a kill cuts off what each worker has to say
    batch.finish()
    check(batch, 2, "killed after an acknowledgement")
