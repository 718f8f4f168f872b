"""Several processes on one quota: what the server itself wrote down proves that they were one.

The server logs every call: when it came in, and when it was let through. Every window of a second that begins after
all had joined is judged, whichever joined, left or was killed meanwhile; and the processes that were there all along
got equal shares. A busy machine delays and bunches calls on their way, so eight processes that others join and leave
are judged by when calls were let through, 64 that stay by when they came in.
"""

import os
import random
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from bench.redis_server import RedisServer
from tests.chaos.shared_worker import GO

HERE = Path(__file__).parent
LIMIT = 300
TASKS = 8
WINDOW = 1.0
OVER = 1.01
TRIES = 3
CAME_IN, LET_THROUGH = 0, 1
"""Columns of the server's log."""


@contextmanager
def counting(folder):
    command = [sys.executable, str(HERE / "counting_server.py"), str(folder / "log")]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.communicate(timeout=20)


@contextmanager
def store(kind, folder):
    if kind == "machine":
        yield "machine"
    else:
        with RedisServer() as server:
            yield server.url


class Crowd:
    """Processes that come and go."""

    def __init__(self, store, url, folder, limit, tasks):
        command = [sys.executable, str(HERE / "shared_worker.py"), store, url, f"{limit}/s", str(tasks)]
        environment = {**os.environ, "HEADGATE_STATE": str(folder / "state")}
        self.nursery = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.running, self.known = {}, 0

    def join(self):
        name = f"process-{self.known}"
        self.known += 1
        self.nursery.stdin.write(f"{name}\n")
        self.running[name] = int(self.nursery.stdout.readline())
        return name

    def go(self):
        """Those that have joined begin, all at the same time."""
        self.nursery.stdin.write(f"{GO}\n")

    def end(self, name, how):
        number, give_up_at = self.running.pop(name), time.monotonic() + 20
        os.kill(number, how)
        while is_there(number):
            assert time.monotonic() < give_up_at, name
            time.sleep(0.005)  # it is no child of this process: it can only be looked for

    def end_all(self):
        for name in list(self.running):
            self.end(name, signal.SIGKILL)
        self.nursery.communicate(timeout=20)


def is_there(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def calls_in(folder):
    """All calls that the server has written down: when each came in, when it was let through, and whose it was."""
    lines = [line.split() for line in (folder / "log").read_text().splitlines()]
    return [(float(came_in), float(let_through), name) for came_in, let_through, name in lines]


def all_joined_at(folder, names):
    """When the first call of the last of these came in; waits for it."""
    give_up_at = time.monotonic() + 60
    while True:
        firsts = {name: came_in for came_in, _, name in reversed(calls_in(folder))}
        if all(name in firsts for name in names):
            return max(firsts[name] for name in names)
        assert time.monotonic() < give_up_at, [name for name in names if name not in firsts]
        time.sleep(0.2)


class Judgement(NamedTuple):
    fullest_let_through: float
    fullest_came_in: float
    """The fullest window, as a share of the limit."""
    used: float
    """Share of the limit that was used."""
    fair: float
    """The smallest share of the largest, of the processes that stayed."""


def judge(calls, staying, began, ended, limit):
    def fullest(column):
        instants = sorted(call[column] for call in calls if call[column] >= began)
        return max(bisect_left(instants, at + WINDOW) - index for index, at in enumerate(instants)) / (limit * WINDOW)

    shares = Counter(name for came_in, _, name in calls if began <= came_in <= ended)
    least, most = min(shares[name] for name in staying), max(shares[name] for name in staying)
    used = shares.total() / (limit * (ended - began))
    return Judgement(fullest(LET_THROUGH), fullest(CAME_IN), used, least / most)


def run(kind, folder, processes, seconds, seed, limit=LIMIT, tasks=TASKS, guests=True):
    """Some processes stay; ``guests`` join, leave and are killed meanwhile."""
    rng = random.Random(seed)
    with store(kind, folder) as where, counting(folder) as url:
        crowd = Crowd(where, url, folder, limit, tasks)
        try:
            staying = [crowd.join() for _ in range(processes)]
            time.sleep(1.0)  # until all of them wait for the word: real processes need real time
            crowd.go()
            began = all_joined_at(folder, staying)
            while time.monotonic() < began + seconds:
                time.sleep(rng.uniform(0.3, 0.7) * seconds / 12)
                if not guests:
                    continue
                here = [name for name in crowd.running if name not in staying]
                if here and rng.random() < 0.5:
                    crowd.end(rng.choice(here), rng.choice([signal.SIGKILL, signal.SIGTERM]))
                else:
                    crowd.join()
            ended = time.monotonic()
        finally:
            crowd.end_all()
    found = judge(calls_in(folder), staying, began, ended, limit)
    print(f"{kind}: {found}; all within {began - calls_in(folder)[0][0]:.1f} s of the first")
    return found


@pytest.mark.chaos
@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["machine", "redis"])
def test_eight_processes_are_one(kind, tmp_path):
    """The limit holds in every try. Use and fairness get three: a busy machine holds processes up now and then."""
    figures = []
    for seed in range(TRIES):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = run(kind, folder, processes=8, seconds=45.0, seed=seed)
        assert found.fullest_let_through <= OVER, found
        if found.used >= 0.95 and found.fair >= 0.8:
            return
        figures.append(found)
    pytest.fail(f"use and fairness of each try: {figures}")


@pytest.mark.chaos
@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["machine", "redis"])
def test_64_processes_are_one(kind, tmp_path):
    """At the server, once all are there: the limit and 2 % more, shares within 10 %."""
    figures = []
    for seed in range(TRIES):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = run(kind, folder, 64, 30.0, seed, limit=200, tasks=2, guests=False)
        figures.append(found)
        if found.fullest_came_in <= 1.02 and found.used >= 0.95 and found.fair >= 0.9:
            return
    pytest.fail(f"each try: {figures}")
