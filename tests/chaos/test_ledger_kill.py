"""kill -9 at any moment: no result is lost, none is there twice, and no more calls are repeated than were in flight."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from headgate.batch.ledger import RowState
from headgate.batch.sqlite_reading import look
from headgate.batch.steps import STEPS, VARIABLE

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kills processes as POSIX does")

WORKER = Path(__file__).with_name("ledger_worker.py")
ROWS, WORKERS, BLOCK = 300, 8, 20
PATIENCE = 60.0


def start(folder, rows=ROWS, kill_at=None):
    environment = {**os.environ, VARIABLE: kill_at} if kill_at else os.environ
    command = [sys.executable, str(WORKER), str(folder), str(rows), str(WORKERS)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


def end_of(process):
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, -9), said.decode()
    return process.returncode


def numbers_in(path):
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def check(folder, kills, note, rows=ROWS):
    """All that must hold once the run has come to its end."""
    standing = look(str(folder / "run.ledger"))
    assert standing.counts.states == {RowState.DONE: rows}, note
    assert sorted(numbers_in(folder / "output")) == list(range(rows)), note
    assert (standing.written, standing.offset) == (rows, (folder / "output").stat().st_size), note
    assert max(Counter(numbers_in(folder / "acknowledged")).values()) == 1, note
    calls = Counter(numbers_in(folder / "calls"))
    assert set(calls) == set(range(rows)), note
    assert calls.total() - rows <= kills * WORKERS, note


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_labelled_step(tmp_path, step, times):
    killed = end_of(start(tmp_path, kill_at=f"{step}:{times}")) == -9
    assert killed
    assert end_of(start(tmp_path)) == 0
    check(tmp_path, 1, f"killed at {step}:{times}")


def kill_at_random(folder, kills, rows, draw):
    """Start, kill, start again; then let it finish."""
    done = 0
    while done < kills:
        process = start(folder, rows)
        deadline = time.monotonic() + PATIENCE
        while not (folder / "calls").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        before = (folder / "calls").stat().st_size
        while (folder / "calls").stat().st_size == before and process.poll() is None:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.1))
        process.kill()
        if end_of(process) == 0:
            break
        done += 1
    assert end_of(start(folder, rows)) == 0
    return done


def test_killed_at_random_moments(tmp_path):
    seed = 11
    kills = kill_at_random(tmp_path, 6, 2000, random.Random(seed))
    assert kills == 6
    check(tmp_path, kills, f"seed {seed}", 2000)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10))
def test_killed_at_many_random_moments(tmp_path, seed):
    kills = kill_at_random(tmp_path, 100, 60_000, random.Random(seed))
    assert kills >= 50, f"seed {seed}"
    check(tmp_path, kills, f"seed {seed}", 60_000)


@pytest.mark.parametrize("seed", [1, 2])
def test_four_processes_on_one_ledger_of_which_two_are_killed(tmp_path, seed):
    draw, rows = random.Random(seed), 3000
    four = [start(tmp_path, rows) for _ in range(4)]
    while len(numbers_in(tmp_path / "calls")) < 300:
        assert any(process.poll() is None for process in four)
        time.sleep(0.005)
    for process in four[:2]:
        time.sleep(draw.uniform(0, 0.1))
        process.kill()
    assert [end_of(process) for process in four] == [-9, -9, 0, 0], f"seed {seed}"
    check(tmp_path, 2, f"seed {seed}", rows)


def test_what_record_returned_from_is_there_after_a_kill(tmp_path):
    for kill_after in range(1, 60, 20):
        process = start(tmp_path)
        while len(numbers_in(tmp_path / "acknowledged")) < kill_after and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        end_of(process)
        acknowledged = numbers_in(tmp_path / "acknowledged")
        done = look(str(tmp_path / "run.ledger")).counts.states.get(RowState.DONE, 0)
        assert len(acknowledged) <= done <= len(acknowledged) + WORKERS
    assert end_of(start(tmp_path)) == 0
    check(tmp_path, 3, "killed after an acknowledgement")
