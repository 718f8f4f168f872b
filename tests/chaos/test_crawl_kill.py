"""kill -9 of a crawl at any moment, against a server that keeps a log: no page lost or twice, robots.txt never broken.

Pages that the server sees again are at most those that were under way at each kill: being fetched, or fetched and not
yet written down, of which there are as many again as workers at most.
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

from headgate.crawl.frontier.frontier import read_counts

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kills processes as POSIX does")

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("crawl_worker.py")
WORKERS = 8
UNDER_WAY = 2 * WORKERS
PATIENCE = 600.0
FEW = 150
CORNER = "write:5"
OTHERS = ("claim:2", "write:1", "committed:6", "commit:9")


@pytest.fixture
def site(request):
    """A site of so many pages, each of which links to one that is forbidden."""
    pages = getattr(request, "param", FEW)
    command = [sys.executable, "-m", "bench.crawl_site", "--pages", str(pages), "--latency", "0.005"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    port = json.loads(process.stdout.readline())["port"]

    def ask(what):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{what}", timeout=10) as answer:
            return json.load(answer)

    yield SimpleNamespace(url=f"http://127.0.0.1:{port}/", pages=pages, ask=ask)
    process.stdin.close()
    process.wait()
    process.stdout.close()


class Killed:
    """One crawl that is started again and again."""

    def __init__(self, folder, site):
        self.folder, self.site = folder, site
        self.output = folder / "pages.jsonl"

    def start(self, kill_at=None):
        command = [sys.executable, str(WORKER), self.site.url, str(self.output), str(WORKERS)]
        return subprocess.Popen(command, env=environment(kill_at), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def end_of(self, process):
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode in (0, -9), said.decode()
        return process.returncode

    def check(self, kills, note):
        """All that must hold once the crawl has come to its end."""
        pages = self.site.pages
        urls = Counter(json.loads(line)["url"] for line in self.output.read_text().splitlines())
        names = ["", *(f"p/{number}" for number in range(1, pages))]
        assert urls == Counter(f"{self.site.url}{name}" for name in names), note
        counts = read_counts(str(self.output) + ".headgate")
        assert (counts.pages, counts.done, counts.refused, counts.open) == (pages, pages, pages, 0), note
        asked = Counter(path for _, _, path, _ in self.site.ask("_log"))
        assert not [path for path in asked if path.startswith("/private")], note
        robots = asked.pop("/robots.txt")
        assert 1 <= robots <= 1 + kills, note
        assert asked.keys() == {f"/{name}" for name in names}, note
        assert asked.total() - pages <= kills * UNDER_WAY, note


@pytest.mark.parametrize("step", [CORNER, *(pytest.param(step, marks=pytest.mark.chaos) for step in OTHERS)])
def test_killed_at_a_labelled_step(tmp_path, site, step):
    crawl = Killed(tmp_path, site)
    assert crawl.end_of(crawl.start(step)) == -9
    assert crawl.end_of(crawl.start()) == 0
    crawl.check(1, f"killed at {step}")


def kill_at_random(crawl, kills, draw, longest):
    """Start, kill once it works, start again; then let it finish."""
    for number in range(kills):
        before, process = crawl.site.ask("_count"), crawl.start()
        give_up_at = time.monotonic() + PATIENCE
        while crawl.site.ask("_count") == before and process.poll() is None:
            assert time.monotonic() < give_up_at
            time.sleep(0.002)
        time.sleep(draw.uniform(0, longest))
        process.kill()
        if crawl.end_of(process) == 0:
            return number
    assert crawl.end_of(crawl.start()) == 0
    return kills


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("site", [5_000], indirect=True)
@pytest.mark.parametrize("seed", range(scaled(1)))
def test_killed_at_many_random_moments(tmp_path, site, seed):
    crawl = Killed(tmp_path, site)
    kills = kill_at_random(crawl, 50, random.Random(seed), 0.2)
    assert kills >= 25, f"seed {seed}"
    crawl.check(kills, f"seed {seed}")
