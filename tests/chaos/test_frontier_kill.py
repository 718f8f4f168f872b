"""kill -9 at any moment of a crawl: each output has every page exactly once; only fetches in flight are repeated."""

import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from headgate.batch.steps import STEPS, VARIABLE
from headgate.crawl.frontier_reading import look, read_counts, read_lost

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kills processes as POSIX does")

WORKER = Path(__file__).with_name("frontier_worker.py")
PAGES, WORKERS = 150, 8
PATIENCE = 60.0

_spec = importlib.util.spec_from_file_location("frontier_worker", WORKER)
worker = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(worker)


def start(folder, pages=PAGES, kill_at=None):
    environment = {**os.environ, VARIABLE: kill_at} if kill_at else os.environ
    command = [sys.executable, str(WORKER), str(folder), str(pages), str(WORKERS)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


def end_of(process):
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, -9), said.decode()
    return process.returncode


def numbers_in(path):
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def number_of(url):
    return int(url.rpartition("/")[2])


def archived(path):
    with path.open("rb") as file:
        return [
            number_of(record.rec_headers.get_header("WARC-Target-URI"))
            for record in ArchiveIterator(file)
            if record.rec_type == "response" and int(record.content_stream().read()) >= 0
        ]


def check(folder, kills, note, pages=PAGES):
    """All that must hold once the crawl has come to its end."""
    fates = {number: worker.fate_of(number) for number in range(pages)}
    works = [number for number, fate in fates.items() if fate.startswith("works")]
    lines = [json.loads(line) for line in (folder / "pages.jsonl").read_text().splitlines()]
    assert sorted(number_of(line["url"]) for line in lines) == works, note
    assert sorted(archived(folder / "pages.warc.gz")) == works, note
    acknowledged = Counter(numbers_in(folder / "acknowledged"))
    assert set(acknowledged) <= set(works), note
    assert max(acknowledged.values()) == 1, note
    path = str(folder / "pages.jsonl.headgate")
    counts = look(path, read_counts)
    fails = [number for number, fate in fates.items() if fate == "fails"]
    assert (counts.open, counts.pages, counts.failed) == (0, len(works), len(fails)), note
    lost = look(path, lambda connection: read_lost(connection, 0, pages))
    assert {one.reason for one in lost} == {f"server_error: page {number} is broken" for number in fails}, note
    calls = Counter(numbers_in(folder / "calls"))
    assert set(calls) == set(range(pages)), note
    needed = pages + sum(fate == "works later" for fate in fates.values())
    assert needed <= calls.total() <= needed + kills * WORKERS, note


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_labelled_step(tmp_path, step, times):
    killed = end_of(start(tmp_path, kill_at=f"{step}:{times}")) == -9
    assert killed
    assert end_of(start(tmp_path)) == 0
    check(tmp_path, 1, f"killed at {step}:{times}")


def kill_at_random(folder, kills, pages, draw):
    """Start, kill, start again; then let it finish."""
    done = 0
    while done < kills:
        process = start(folder, pages)
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
    assert end_of(start(folder, pages)) == 0
    return done


def test_killed_at_random_moments(tmp_path):
    seed = 11
    kills = kill_at_random(tmp_path, 5, 1200, random.Random(seed))
    assert kills == 5
    check(tmp_path, kills, f"seed {seed}", 1200)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_killed_at_many_random_moments(tmp_path, seed):
    kills = kill_at_random(tmp_path, 100, 20_000, random.Random(seed))
    assert kills >= 50, f"seed {seed}"
    check(tmp_path, kills, f"seed {seed}", 20_000)


def test_what_finish_returned_from_is_there_after_a_kill(tmp_path):
    for kill_after in range(1, 60, 20):
        process = start(tmp_path)
        while len(numbers_in(tmp_path / "acknowledged")) < kill_after and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        end_of(process)
        pages = look(str(tmp_path / "pages.jsonl.headgate"), read_counts).pages
        acknowledged = numbers_in(tmp_path / "acknowledged")
        assert len(acknowledged) <= pages <= len(acknowledged) + 3 * WORKERS
    assert end_of(start(tmp_path)) == 0
    check(tmp_path, 3, "killed after an acknowledgement")
