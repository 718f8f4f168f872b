"""kill -9 of ``headgate run`` at any moment, against a server that counts: nothing lost, nothing twice in the output.

Calls that the server sees again are at most those that were in flight at each kill: under way, or answered and not yet
written down, of which there are four for each worker at most.
"""

import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.chaos.crash_points import environment
from tests.chaos.scale import scaled

from headgate.batch.ledger import LedgerError, RowState
from headgate.batch.ledger.queries import read_status
from headgate.batch.run import UNRECORDED_PER_WORKER

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kills processes as POSIX does")

WORKER = Path(__file__).with_name("run_worker.py")
WORKERS = 8
IN_FLIGHT = WORKERS + UNRECORDED_PER_WORKER * WORKERS
PATIENCE = 400.0
FEW = 300


@pytest.fixture
def mock(tmp_path, monkeypatch):
    monkeypatch.setenv("MOCK_KEY", "any-key")
    command = [sys.executable, "-m", "headgate", "mock", "--provider", "openai", "--json", "--stop-with-stdin"]
    command += ["--rate", "1000000/min", "--latency", "10ms"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    told = json.loads(process.stdout.readline())

    def truth():
        with urllib.request.urlopen(f"{told['url']}/_truth", timeout=10) as answer:
            return json.load(answer)["providers"]["openai"]

    yield SimpleNamespace(url=told["providers"]["openai"], truth=truth)
    process.kill()
    process.communicate()


class Batch:
    """One batch that is started again and again."""

    def __init__(self, folder, mock, rows):
        self.folder, self.mock, self.rows = folder, mock, rows
        self.output = folder / "out.jsonl"
        body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hello"}]}
        with (folder / "rows.jsonl").open("w") as file:
            for number in range(rows):
                file.write(json.dumps({"custom_id": f"r{number}", "body": body}) + "\n")

    def start(self, kill_at=None):
        command = [sys.executable, str(WORKER), "rows.jsonl", "-o", "out.jsonl", "--to", self.mock.url]
        command += ["--keys", "env:MOCK_KEY", "--workers", str(WORKERS), "--quiet"]
        return subprocess.Popen(
            command, cwd=self.folder, env=environment(kill_at), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def end_of(self, process):
        try:
            _, said = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
        assert process.returncode in (0, -9), said.decode()
        return process.returncode

    def done(self):
        path = self.folder / "out.jsonl.ledger"
        try:
            return read_status(str(path)).counts.states.get(RowState.DONE, 0)
        except LedgerError:  # not there yet, or still empty
            return 0

    def check(self, kills, note):
        """All that must hold once the run has come to its end."""
        standing = read_status(str(self.folder / "out.jsonl.ledger"))
        assert standing.counts.states == {RowState.DONE: self.rows}, note
        names = Counter(json.loads(line)["custom_id"] for line in self.output.read_text().splitlines())
        assert names == Counter(f"r{number}" for number in range(self.rows)), note
        assert (standing.written, standing.offset) == (self.rows, self.output.stat().st_size), note
        truth = self.mock.truth()
        assert truth["ids_done"] == self.rows, note
        assert truth["asked"] - self.rows <= kills * IN_FLIGHT, note


CORNERS = ("receive:1", "write:1")
"""What the ledger's own suite cannot show: an answer without a record, a line without a checkpoint."""
OTHERS = ("claim:1", "send:1", "send:3", "receive:3", "commit:1", "commit:3", "committed:1", "committed:3")
"""So few rows are claimed in one go, and written in one."""


@pytest.mark.parametrize("kill_at", [*CORNERS, *(pytest.param(one, marks=pytest.mark.chaos) for one in OTHERS)])
def test_killed_at_each_labelled_step(tmp_path, mock, kill_at):
    batch = Batch(tmp_path, mock, FEW)
    assert batch.end_of(batch.start(kill_at)) == -9
    assert batch.end_of(batch.start()) == 0
    batch.check(1, f"killed at {kill_at}")


def kill_at_random(batch, kills, draw):
    """Start, kill once it works, start again; then let it finish."""
    for number in range(kills):
        before, process = batch.mock.truth()["asked"], batch.start()
        give_up_at = time.monotonic() + PATIENCE
        while batch.mock.truth()["asked"] == before and process.poll() is None:
            assert time.monotonic() < give_up_at
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.3))
        process.kill()
        if batch.end_of(process) == 0:
            return number
    in_vain = batch.mock.truth()["asked"] - batch.done()
    assert batch.end_of(batch.start()) == 0
    assert batch.mock.truth()["asked"] - batch.rows == in_vain, "a row that was written down was sent again"
    return kills


def four_processes(batch, draw):
    four = [batch.start() for _ in range(4)]
    give_up_at = time.monotonic() + PATIENCE
    while batch.done() < batch.rows // 20:
        ended = [process.communicate()[1].decode() for process in four if process.poll() is not None]
        assert not ended, ended
        assert time.monotonic() < give_up_at, batch.done()
        time.sleep(0.01)
    for process in draw.sample(four, 2):
        time.sleep(draw.uniform(0, 0.1))
        process.kill()
    return sorted(batch.end_of(process) for process in four)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(scaled(2)))
def test_killed_at_many_random_moments(tmp_path, mock, seed):
    batch = Batch(tmp_path, mock, 20_000)
    kills = kill_at_random(batch, 50, random.Random(seed))
    assert kills >= 25, f"seed {seed}"
    batch.check(kills, f"seed {seed}")


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(scaled(3)))
def test_four_processes_on_one_ledger_of_which_two_are_killed(tmp_path, mock, seed):
    batch = Batch(tmp_path, mock, 3000)
    assert four_processes(batch, random.Random(seed)) == [-9, -9, 0, 0], f"seed {seed}"
    batch.check(2, f"seed {seed}")
