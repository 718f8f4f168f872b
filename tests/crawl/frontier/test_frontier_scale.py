"""A million addresses of a hundred thousand hosts: measured as what the process really holds and how long it takes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

CROWD = """
import asyncio, json, sys, time
from headgate.crawl.frontier.frontier import Frontier
from headgate.crawl.frontier import FoundUrl
from headgate.crawl.output import JsonlOutput, Page, Result

ADDRESSES, HOSTS, DONE, AT_ONCE = 1_000_000, 100_000, 50_000, 1_000
folder = sys.argv[1]
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
def some(first, count):
    for n in range(first, first + count):
        yield FoundUrl(f"https://host{n % HOSTS}.example.com/articles/{n}/a-title-of-some-length.html", 1, "https://a.example/")

async def main():
    marks, takes = [], []
    frontier = Frontier(folder + "/f", identity={}, outputs=[JsonlOutput(folder + "/pages.jsonl")])
    async with frontier:
        began_at = time.perf_counter()
        for first in range(0, ADDRESSES, ADDRESSES // 10):
            await frontier.add(some(first, ADDRESSES // 10))
            marks.append(resident())
        adding = time.perf_counter() - began_at
        for _ in range(50):
            asked_at = time.perf_counter()
            visits = await frontier.take(100)
            takes.append(time.perf_counter() - asked_at)
            assert len({visit.host for visit in visits}) == 100
            await frontier.give_back(visits)
        began_at = time.perf_counter()
        async def finish(visit):
            page = Page(url=visit.url, final_url=visit.url, status=200, fetched_at=0.0, depth=1, text="words " * 300)
            await frontier.finish(visit, Result(page), [FoundUrl(visit.url + "?next", 2, visit.url)])
        for _ in range(DONE // AT_ONCE):
            await asyncio.gather(*map(finish, await frontier.take(AT_ONCE)))
        finishing = time.perf_counter() - began_at
        marks.append(resident())
        assert (await frontier.counts()).pages == DONE
    began_at = time.perf_counter()
    async with frontier:
        opening = time.perf_counter() - began_at
    print(json.dumps({"MB": marks, "added/s": ADDRESSES / adding, "finished/s": DONE / finishing,
                      "take": sorted(takes)[25], "opening": opening}))

asyncio.run(main())
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident size from /proc")
def test_memory_stays_flat_and_taking_stays_quick(tmp_path):
    done = subprocess.run([sys.executable, "-c", CROWD, tmp_path], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    print(measured)
    assert max(measured["MB"][2:]) < 1.2 * measured["MB"][1]
    assert max(measured["MB"]) < 150
    assert measured["take"] < 0.1
    assert measured["opening"] < 5.0
    assert measured["added/s"] > 5_000
    assert measured["finished/s"] > 1_000
