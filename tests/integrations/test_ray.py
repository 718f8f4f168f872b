"""Ray's own actors behind one gate, by the recipe in examples/: a local cluster, four actors, a site with a log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from bench.redis_server import RedisServer
from tests.integrations.logged_site import Site, needs

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def installed():
    needs("ray")


@pytest.fixture(params=["machine", "redis"])
def store(request, tmp_path):
    if request.param == "machine":
        yield {"STORE": "machine", "HEADGATE_STATE": str(tmp_path)}
    else:
        with RedisServer() as redis:
            yield {"STORE": redis.url}


def test_actors_keep_one_quota_between_them(store):
    def answer(site, host, path, headers):
        return (200,) if site.lets_in(host, 40.0) else (429,)

    with Site(answer, latency=0.02) as server:
        environment = {**os.environ, **store, "API": server.url()[:-1], "LIMIT": "40/s"}
        environment |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": "local"}  # a cluster of its own
        words = [sys.executable, "ray_tasks.py", "300"]
        told = subprocess.run(words, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=200)
        log = server.log
    assert told.returncode == 0, told.stderr[-3000:]
    answers = json.loads(told.stdout.splitlines()[-1])
    at = [one.at for one in log]
    assert [status for status, _ in answers] == [200] * 300
    assert len({process for _, process in answers}) == 4
    assert Counter(one.path for one in log if one.status == 200) == {f"/question-{n}": 1 for n in range(300)}
    assert len(log) - 300 <= 3, "1 % turned away"
    assert max(sum(one <= other < one + 1.0 for other in at) for one in at) <= 40 * 1.15
    assert 300 / (at[-1] - at[0]) > 0.8 * 40.0
