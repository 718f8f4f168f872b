"""Whatever happens, in whatever order, the counts agree with the addresses and nothing is forgotten."""

import asyncio
import json
import random
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from headgate.crawl.frontier import FoundUrl, Reason
from headgate.crawl.frontier.frontier import Frontier, read_counts
from headgate.crawl.frontier.schema import STATES
from headgate.crawl.output import JsonlOutput, Page, Result
from headgate.lab.virtual_time import VirtualClock

HOSTS, PER_HOST = 7, 3


class CrawlRun:
    """Random deeds, and beside them a memory of what must be true."""

    def __init__(self, folder, seed):
        self.path, self.output = folder / "pages.jsonl.headgate", folder / "pages.jsonl"
        self.draw = random.Random(seed)
        self.clock = VirtualClock(1000.0)
        self.known, self.ended, self.out = set(), {}, []
        self.frontier = None

    async def run(self, deeds):
        await self.open()
        for _ in range(deeds):
            await self.draw.choice(
                (self.add, self.take, self.take, self.end, self.end, self.end, self.rest, self.wait)
            )()
            if self.draw.random() < 0.02:
                await self.frontier.close()
                await self.open()
        await self.finish_all()
        await self.frontier.close()

    async def open(self):
        self.out = []
        self.frontier = Frontier(
            self.path, identity={}, outputs=[JsonlOutput(self.output)], per_host=PER_HOST, clock=self.clock
        )
        await self.frontier.begin()

    def some(self):
        return [
            FoundUrl(
                f"https://h{self.draw.randrange(HOSTS)}.example/{self.draw.randrange(300)}", self.draw.randrange(4)
            )
            for _ in range(self.draw.randrange(3))
        ]

    async def add(self):
        found = self.some()
        assert await self.frontier.add(found) == len({one.url for one in found} - self.known)
        self.known |= {one.url for one in found}

    async def take(self):
        before = Counter(visit.host for visit in self.out)
        for visit in await self.frontier.take(self.draw.randrange(1, 8)):
            assert visit.url in self.known
            assert visit.url not in self.ended
            assert visit.url not in {one.url for one in self.out}
            self.out.append(visit)
            before[visit.host] += 1
        assert max(before.values(), default=0) <= PER_HOST

    async def end(self):
        ending = [self.out.pop(self.draw.randrange(len(self.out))) for _ in range(self.draw.randrange(4)) if self.out]
        await asyncio.gather(*(self.end_one(visit) for visit in ending))

    async def end_one(self, visit):
        how = self.draw.choice(("finish", "finish", "send on", "fail", "refuse", "put off", "give back"))
        if how == "put off":
            await self.frontier.put_off(visit, self.frontier.now() + self.draw.uniform(0, 9), "later", attempts=1)
        elif how == "give back":
            await self.frontier.give_back([visit])
        else:
            self.ended[visit.url] = how
            if how == "fail":
                await self.frontier.fail(visit, Reason("broken", "it is"))
            elif how == "refuse":
                await self.frontier.refuse(visit, Reason("robots", "say no"))
            else:
                found = self.some()
                self.known |= {one.url for one in found}
                page = Page(url=visit.url, final_url=visit.url, status=200, fetched_at=0.0, depth=visit.depth)
                await self.frontier.finish(visit, Result(page) if how == "finish" else None, found)

    async def rest(self):
        host = f"h{self.draw.randrange(HOSTS)}.example"
        await self.frontier.rest(host, self.frontier.now() + self.draw.uniform(0, 5), "tired")

    async def wait(self):
        self.clock.advance(self.draw.uniform(0, 3))

    async def finish_all(self):
        while self.out or await self.frontier.next_at() is not None:
            await self.wait()
            await self.take()
            await self.end()


def check(crawl):
    counts = read_counts(str(crawl.path))
    with closing(sqlite3.connect(crawl.path)) as file:
        by_state = Counter(STATES[state].value for (state,) in file.execute("SELECT state FROM urls"))
        rows = file.execute("SELECT waiting, taken, put_off, done, lost, next_at FROM hosts").fetchall()
        (shapes,) = file.execute("SELECT sum(urls) FROM shapes").fetchone()
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert {name: getattr(counts, name) for name in by_state} == by_state
    assert [sum(row[column] for row in rows) for column in range(3)] == [0, 0, 0]
    assert sum(row[3] + row[4] for row in rows) == counts.known == shapes == len(crawl.known)
    assert all(row[5] is None for row in rows)
    assert set(crawl.ended) == crawl.known
    pages = [json.loads(line)["url"] for line in crawl.output.read_text().splitlines()]
    assert sorted(pages) == sorted(url for url, how in crawl.ended.items() if how == "finish")


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(3))
def test_the_counts_agree_with_the_addresses(tmp_path, seed):
    crawl = CrawlRun(tmp_path, seed)
    try:
        asyncio.run(crawl.run(150))
        check(crawl)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
