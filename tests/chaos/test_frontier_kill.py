"""kill -9 at any moment of a crawl: each output has every page exactly once; only fetches in flight are repeated."""

import importlib.util
import json
import os
import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from tests.chaos.crash_points import STEPS
from tests.chaos.scale import scaled
from warcio.archiveiterator import ArchiveIterator

from headgate.crawl.frontier.frontier import read_counts, read_lost

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kills processes as POSIX does")

CORNER = ("write", 4)
"""Lines are written, the checkpoint does not know it yet; the other steps are for the long run."""
PAGES, WORKERS = 150, 8

_spec = importlib.util.spec_from_file_location("frontier_worker", Path(__file__).with_name("frontier_worker.py"))
worker = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(worker)


@pytest.fixture
def crawl_of(killable):
    """``crawl_of(pages)``"""
    return partial(killable, "frontier_worker.py", workers=WORKERS)


def number_of(url):
    return int(url.rpartition("/")[2])


def archived(path):
    with path.open("rb") as file:
        return [
            number_of(record.rec_headers.get_header("WARC-Target-URI"))
            for record in ArchiveIterator(file)
            if record.rec_type == "response" and int(record.content_stream().read()) >= 0
        ]


def check(crawl, kills, note):
    """All that must hold once the crawl has come to its end."""
    pages, folder = crawl.amount, crawl.folder
    fates = {number: worker.fate_of(number) for number in range(pages)}
    works = [number for number, fate in fates.items() if fate.startswith("works")]
    lines = [json.loads(line) for line in (folder / "pages.jsonl").read_text().splitlines()]
    assert sorted(number_of(line["url"]) for line in lines) == works, note
    assert sorted(archived(folder / "pages.warc.gz")) == works, note
    acknowledged = Counter(crawl.numbers_in("acknowledged"))
    assert set(acknowledged) <= set(works), note
    assert max(acknowledged.values()) == 1, note
    path = str(folder / "pages.jsonl.headgate")
    counts = read_counts(path)
    fails = [number for number, fate in fates.items() if fate == "fails"]
    assert (counts.open, counts.pages, counts.failed) == (0, len(works), len(fails)), note
    lost = read_lost(path, 0, pages)
    assert {one.reason for one in lost} == {f"server_error: page {number} is broken" for number in fails}, note
    calls = Counter(crawl.numbers_in("calls"))
    assert set(calls) == set(range(pages)), note
    needed = pages + sum(fate == "works later" for fate in fates.values())
    assert needed <= calls.total() <= needed + kills * WORKERS, note


@pytest.mark.parametrize(
    ("step", "times"),
    [
        pytest.param(step, times, marks=[] if (step, times) == CORNER else [pytest.mark.chaos])
        for step in STEPS
        for times in (1, 4)
    ],
)
def test_killed_at_each_labelled_step(crawl_of, step, times):
    crawl = crawl_of(PAGES)
    crawl.die_at(f"{step}:{times}")
    check(crawl, 1, f"killed at {step}:{times}")


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(scaled(2)))
def test_killed_at_many_random_moments(crawl_of, seed):
    crawl = crawl_of(8_000)
    kills = crawl.kill_at_random(50, random.Random(seed))
    assert kills >= 25, f"seed {seed}"
    check(crawl, kills, f"seed {seed}")


def test_what_finish_returned_from_is_there_after_a_kill(crawl_of):
    crawl = crawl_of(PAGES)
    acknowledged = crawl.kill_once_acknowledged(41)
    pages = read_counts(str(crawl.folder / "pages.jsonl.headgate")).pages
    assert acknowledged <= pages <= acknowledged + 3 * WORKERS
    crawl.finish()
    check(crawl, 1, "killed after an acknowledgement")
