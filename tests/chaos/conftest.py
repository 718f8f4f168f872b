"""What the suites share that kill processes: work that is started, killed at any moment and started again.

A worker is a script beside this file, called ``WORKER FOLDER AMOUNT WORKERS``. What others could see of it goes into
files that survive it: each call at the server (``calls``), and each result that was acknowledged (``acknowledged``).
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.chaos.crash_points import environment

PATIENCE = 180.0
"""Seconds for one run to end by itself; a busy machine needs more than a quiet one."""


class Killable:
    """One worker's work in one folder."""

    def __init__(self, script, folder, amount, workers):
        self.script, self.folder, self.amount, self.workers = script, folder, amount, workers

    def start(self, kill_at=None):
        command = [sys.executable, str(self.script), str(self.folder), str(self.amount), str(self.workers)]
        return subprocess.Popen(command, env=environment(kill_at), stderr=subprocess.PIPE)

    def end_of(self, process):
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode in (0, -9), said.decode()
        return process.returncode

    def numbers_in(self, name):
        path = self.folder / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def die_at(self, step):
        """Die at a labelled step, then go on to the end."""
        assert self.end_of(self.start(kill_at=step)) == -9
        self.finish()

    def finish(self):
        assert self.end_of(self.start()) == 0

    def kill_at_random(self, kills, draw):
        """Start, kill once it works, start again; then let it finish. Returns how often it was killed."""
        calls, done = self.folder / "calls", 0
        while done < kills:
            process = self.start()
            deadline = time.monotonic() + PATIENCE
            while not calls.exists() and time.monotonic() < deadline:
                time.sleep(0.005)
            before = calls.stat().st_size
            while calls.stat().st_size == before and process.poll() is None:
                time.sleep(0.001)
            time.sleep(draw.uniform(0, 0.1))
            process.kill()
            if self.end_of(process) == 0:
                break
            done += 1
        self.finish()
        return done

    def kill_once_acknowledged(self, count):
        """Kill it as soon as so many results are acknowledged; returns how many were."""
        process = self.start()
        while len(self.numbers_in("acknowledged")) < count and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        self.end_of(process)
        return len(self.numbers_in("acknowledged"))


@pytest.fixture
def killable(tmp_path):
    """``killable("ledger_worker.py", 300, 8)``: a worker's work in a folder of this test."""

    def make(script, amount, workers):
        return Killable(Path(__file__).with_name(script), tmp_path, amount, workers)

    return make
