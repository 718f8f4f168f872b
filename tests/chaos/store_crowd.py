"""Members in processes of their own, and the course of one trial: fault upon fault, and all that is seen meanwhile."""

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.chaos.store_history import BACK_WITHIN, Fault, History

MEMBERS = 4
LIMIT = 200
PATIENCE = 20.0
WARM_UP = 1.2
"""Seconds in which members get to know of each other: before, none of their calls leaves on credit."""
STEADY = 0.7
HELD = 0.3
RESTS = 3600
SETTLED = 0.1
"""Seconds after which what members say of themselves is newer than the fault."""


class Crowd:
    def __init__(self, processes, history, folder):
        self.history, self.folder = history, folder
        self.processes, self.readers = [], {}
        self.wanted = processes
        self.environment = {**os.environ, "HEADGATE_STATE": str(folder / "state")}

    def start(self, where):
        self.where = where
        for _ in range(self.wanted):
            self.join()

    def join(self):
        words = [self.where, str(MEMBERS // self.wanted), str(LIMIT)]
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("store_member.py")), *words],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.readers[process] = [
            threading.Thread(target=read, args=(process,), daemon=True) for read in (self._hear, self._complain)
        ]
        for reader in self.readers[process]:
            reader.start()
        self.processes.append(process)

    def _hear(self, process):
        for line in process.stdout:
            if line.endswith("\n"):
                self.history.hear(line)

    def _complain(self, process):
        for line in process.stderr:
            self.history.crashes.append(line)

    def tell(self, *words):
        """To the first of them."""
        self.processes[0].stdin.write(" ".join(map(str, words)) + "\n")

    def replace(self):
        process = self.processes.pop(0)
        process.kill()
        self._see_off(process)
        for member in list(self.history.states):
            if member.startswith(f"{process.pid}."):
                self.history.gone[member] = time.monotonic()
        self.join()

    def stop(self):
        for process in self.processes:
            process.stdin.write("stop\n")
        for process in self.processes:
            self._see_off(process)
            if process.returncode != 0:
                self.history.crashes.append(f"exit code {process.returncode}")
        self.processes.clear()

    def end(self):
        for process in self.processes:
            process.kill()
            self._see_off(process)

    def _see_off(self, process):
        process.wait(PATIENCE)
        for reader in self.readers.pop(process):
            reader.join(PATIENCE)
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def trial(fault, times, seed, folder, processes=1):
    """Let a fault happen so many times; returns the history."""
    rng = random.Random(seed)
    history = History(LIMIT, MEMBERS)
    crowd = Crowd(MEMBERS if fault.replaces else processes, history, folder)
    ground = fault(folder, crowd)
    try:
        crowd.start(ground.where)
        assert _until_in_step(history, time.monotonic(), PATIENCE) is not None, (history.crashes, history.states)
        time.sleep(WARM_UP)  # real servers and real processes need real time
        for number in range(times):
            ground.ready()
            seconds = rng.uniform(*fault.seconds)
            begun_at = time.monotonic()
            ground.begin()
            time.sleep(seconds / 2)
            crowd.tell("rest", f"key-{number + 1}", RESTS)
            time.sleep(seconds / 2)
            ground.end()
            ended_at = time.monotonic()
            time.sleep(SETTLED)
            since = _until_in_step(history, ended_at, BACK_WITHIN)
            history.faults.append(Fault(begun_at, ended_at))
            history.in_step_after.append(BACK_WITHIN + 1 if since is None else since - ended_at)
            if number == times - 1 and ground.is_shared:
                crowd.join()  # a member that comes now must know what was known before
            time.sleep(STEADY)
            crowd.tell("refused", HELD)
            time.sleep(HELD + 0.15)
        crowd.stop()
    finally:
        crowd.end()
        ground.clear()
    return history


def _until_in_step(history, after, patience):
    until = time.monotonic() + patience
    while time.monotonic() < until:
        since = history.in_step_since(after)
        if since is not None:
            return since
        time.sleep(0.01)
    return None
