"""Batches on a real Ray cluster of three nodes and a real Spark: quotas, kills, the manual's page and the examples.

The scenarios are those of ``bench/clusters.py``, each in a process of its own; FLEET_ROWS makes them smaller.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench.redis_server import RedisServer
from tests.test_examples import served

from headgate.errors import ConfigError
from headgate.fleet.answers import Taken
from headgate.fleet.folder_answers import FolderAnswers
from headgate.units import Rate

pytestmark = [pytest.mark.chaos, pytest.mark.alone, pytest.mark.timeout(1_800)]

ROOT = Path(__file__).parents[2]
ROWS = int(os.environ.get("FLEET_ROWS", "20000"))
KILLED_ROWS = min(ROWS, 4_000)
"""Where workers are killed every 5 s: enough for several kills on each engine."""
OWN_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": "local"}
"""A cluster of its own, also where another one runs on this machine."""
IN_FLIGHT, FLUSH = 12, 15
"""What one worker may lose at most, where it has the whole rate because all others are yet to start: 150 calls a second
that take up to 75 ms, and 100 ms of answers that are not written yet."""


def scenario(*words, rows=ROWS):
    command = [sys.executable, "-m", "bench.clusters", *words, "--rows", str(rows)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    assert (found["missing"], found["surplus"], found["undone"]) == (0, 0, 0)
    return found


@pytest.mark.parametrize("words", ["ray ours", "ray ours --store ray --answers folder", "spark ours"])
def test_a_changing_quota_is_used_and_kept(words):
    found = scenario(*words.split())
    assert found["repeated"] == 0
    assert found["rate_limited"] <= 0.01
    assert found["quota_used"] >= 0.95


@pytest.mark.parametrize(
    "words",
    [
        "ray ours --faults kill,node",
        "spark ours --faults kill",
        "ray ours --faults kill,store --answers folder",
        "spark ours --faults kill,store --answers folder",
    ],
)
def test_killed_workers_lose_no_row_and_repeat_little(words):
    found = scenario(*words.split(), rows=KILLED_ROWS)
    assert found["kills"] > 0
    lost = found["kills"] + (3 if "node" in words else 0)
    assert found["repeated"] <= lost * (IN_FLIGHT + FLUSH)


def test_a_store_in_ray_is_started_again_and_keeps_the_quota():
    """Without a Redis: the actors that hold the quota and the run end once, and workers every 5 s."""
    found = scenario("ray", "ours", "--faults", "kill,store", "--store", "ray", "--answers", "folder", rows=KILLED_ROWS)
    assert found["kills"] > 0
    assert found["rate_limited"] <= 0.01
    assert found["repeated"] <= found["kills"] * (IN_FLIGHT + FLUSH)


@pytest.mark.parametrize("name", ["ray_batch.py", "spark_batch.py"])
def test_an_example_runs_and_its_second_run_calls_nothing(name, tmp_path):
    with served(rate=Rate(100, 1.0)) as server:
        environment = {**os.environ, "API": server.base_url("openai"), "HEADGATE_STATE": str(tmp_path / "state")}
        environment |= {"ANSWERS": str(tmp_path / "answers"), **OWN_RAY}
        for _ in range(2):
            command = [sys.executable, str(ROOT / "examples" / name), "60"]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-3000:]
            assert done.stdout.splitlines()[-1] == "60 rows in, 60 out: 60 done, 0 failed, 0 stopped"
        assert server.truth()["providers"]["openai"]["answered"] == 60


def test_the_page_of_the_manual_runs(tmp_path):
    page = (ROOT / "docs" / "clusters.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    with served(rate=Rate(100, 1.0)) as server, RedisServer() as store:
        environment = {**os.environ, "OPENAI_API_KEY": "practice", "PYSPARK_PYTHON": sys.executable}
        environment |= {"HEADGATE_STATE": str(tmp_path / "state"), **OWN_RAY}
        for block in blocks:
            code = block.replace("https://api.example.com/v1", server.base_url("openai"))
            code = code.replace("redis://cache:6379", store.url).replace('"answers"', repr(str(tmp_path / "answers")))
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr[-3000:]
            assert done.stdout.splitlines()[-1] == "100 rows in, 100 out: 100 done, 0 failed, 0 stopped"


@pytest.mark.parametrize("url", ["memory://answers", "file://{folder}/answers"])
def test_answers_are_kept_under_any_fsspec_url(url, tmp_path):
    def opened(job):
        answers = FolderAnswers(url.format(folder=tmp_path), "r", job)
        answers.open("target")
        return answers

    keys = [bytes([number]) * 16 for number in range(4)]
    first = opened("one")
    assert first.take(keys) == [Taken.MINE] * 4
    first.put([(keys[0], b"a"), (keys[1], b"b")])
    assert opened("one").take(keys) == [b"a", b"b", Taken.MINE, Taken.MINE]
    assert opened("two").take(keys[1:3]) == [b"b", Taken.MINE]
    with pytest.raises(ConfigError, match="started with another target"):
        FolderAnswers(url.format(folder=tmp_path), "r", "three").open("elsewhere")
