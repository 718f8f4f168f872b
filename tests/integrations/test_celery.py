"""Celery's own workers behind one gate, by the recipe in examples/: a real broker, four processes, a logged site."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from bench.redis_server import RedisServer
from tests.integrations.logged_site import Site, needs

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]

EXAMPLES = Path(__file__).parents[2] / "examples"
WORKERS = 4
PING = "import celery_tasks as c; import time; a = time.time(); c.ping.delay().get(timeout=60); print(time.time() - a)"


class Celery:
    """``with Celery(API=..., LIMIT=...) as celery: celery.run("celery_tasks.py", "200")``"""

    def __init__(self, **environment):
        self.redis = RedisServer()
        self.environment = {**os.environ, **environment}

    def __enter__(self):
        url = self.redis.__enter__().url
        self.environment |= {"BROKER": url, "STORE": f"{url}?timeout=1"}  # a busy machine is no fault of the store's
        words = ["-A", "celery_tasks", "worker", "--concurrency", str(WORKERS), "--loglevel", "WARNING"]
        words = [sys.executable, "-m", "celery", *words, "--without-mingle", "--without-gossip"]
        self.worker = subprocess.Popen(words, cwd=EXAMPLES, env=self.environment, stderr=subprocess.DEVNULL)
        self.run("-c", PING)
        return self

    def run(self, *words):
        told = subprocess.run(
            [sys.executable, *words], cwd=EXAMPLES, env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert told.returncode == 0, told.stderr
        return told.stdout

    def __exit__(self, *_):
        self.worker.send_signal(signal.SIGTERM)
        self.worker.wait(30.0)
        self.redis.__exit__()


@pytest.fixture(autouse=True)
def installed():
    needs("celery")


def fullest_second(log):
    at = [one.at for one in log]
    return max(sum(one <= other < one + 1.0 for other in at) for one in at)


def test_workers_keep_one_quota_between_them():
    def answer(site, host, path, headers):
        return (200,) if site.lets_in(host, 40.0) else (429,)

    with Site(answer, latency=0.02) as server, Celery(API=server.url()[:-1], LIMIT="40/s") as celery:
        told = json.loads(celery.run("celery_tasks.py", "300"))
        log = server.log
        took = log[-1].at - log[0].at
    assert told == [200] * 300
    assert Counter(one.path for one in log if one.status == 200) == {f"/question-{n}": 1 for n in range(300)}
    assert len(log) - 300 <= 3, "1 % turned away"
    assert fullest_second(log) <= 40 * 1.15
    assert 300 / took > 0.8 * 40.0, f"{300 / took:.1f}/s"


def test_unknown_quota_is_learned_by_all():
    def answer(site, host, path, headers):
        return (200,) if site.lets_in(host, 30.0) else (429,)

    with Site(answer, latency=0.02) as server, Celery(API=server.url()[:-1]) as celery:
        told = json.loads(celery.run("celery_tasks.py", "300"))
        log = server.log
    assert told == [200] * 300
    assert Counter(one.status for one in log)[429] <= 15, "5 % with the start in it"


def test_long_pause_puts_tasks_off_and_holds_no_worker():
    def answer(site, host, path, headers):
        return (429, {"Retry-After": "5"}) if len(site.log) == 20 else (200,)

    with Site(answer) as server, Celery(API=server.url()[:-1], LIMIT="50/s") as celery:
        words = [sys.executable, "celery_tasks.py", "60"]
        asking = subprocess.Popen(words, cwd=EXAMPLES, env=celery.environment, stdout=subprocess.PIPE, text=True)
        while len(server.log) < 21:
            time.sleep(0.02)
        time.sleep(1.0)
        pinged = float(celery.run("-c", PING))
        told = json.loads(asking.communicate(timeout=100)[0])
        at = [one.at for one in server.log]
    refused_at = at[20]
    assert pinged < 1.0, "the workers were free"
    assert told == [200] * 60
    assert Counter(one.path for one in server.log if one.status == 200) == {f"/question-{n}": 1 for n in range(60)}
    early = [one - refused_at for one in at if 0.0 < one - refused_at < 4.9]
    assert all(one < 1.0 for one in early), early
    assert len(early) <= 2 * WORKERS, "under way, or let through before the word got round"


def test_outage_loses_no_task_and_stores_no_error():
    def answer(site, host, path, headers):
        down = bool(site.log) and 1.0 < time.monotonic() - site.log[0].at < 6.0
        return (503,) if down else (200,)

    with Site(answer) as server, Celery(API=server.url()[:-1], LIMIT="20/s") as celery:
        told = json.loads(celery.run("celery_tasks.py", "60"))
        log = server.log
    assert told == [200] * 60
    assert Counter(one.path for one in log if one.status == 200) == {f"/question-{n}": 1 for n in range(60)}
