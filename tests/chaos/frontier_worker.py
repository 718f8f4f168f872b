"""A small crawl to be killed: ``frontier_worker.py FOLDER PAGES WORKERS`` takes, "fetches" and ends visits until done.

The site is made up (``fate_of``): each page leads to others, some fail, some redirect, some work at the second try.
What others could see of it goes into files that survive it: each fetch at the server (``calls``), and each
page whose finish has returned (``acknowledged``).
"""

import asyncio
import os
import sys
from pathlib import Path

from tests.chaos.crash_points import on_step

from headgate.crawl.fetch.response import FetchResponse
from headgate.crawl.frontier import FoundUrl, Reason
from headgate.crawl.frontier.frontier import Frontier
from headgate.crawl.output import JsonlOutput, Page, Result, WarcOutput

HOSTS = 10
PER_HOST = 4


def address_of(number):
    return f"https://host{number % HOSTS}.example/page/{number}"


def fate_of(number):
    if number % 11 == 5:
        return "fails"
    if number % 13 == 6:
        return "redirects"
    return "works later" if number % 7 == 3 else "works"


class Run:
    def __init__(self, folder, pages, workers):
        outputs = [JsonlOutput(folder / "pages.jsonl"), WarcOutput(folder / "pages.warc.gz")]
        self.step = on_step()
        self.frontier = Frontier(
            folder / "pages.jsonl.headgate",
            identity={"seeds": "0"},
            outputs=outputs,
            per_host=PER_HOST,
            on_step=self.step,
        )
        self.pages, self.workers = pages, workers
        self.server = os.open(folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.seen = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.ready = asyncio.Queue()
        self.open = 0

    async def run(self):
        async with self.frontier:
            await self.frontier.add([FoundUrl(address_of(0), 0)])
            tasks = [asyncio.create_task(self.work()) for _ in range(self.workers)]
            while True:
                visits = await self.frontier.take(self.workers - self.open)
                self.open += len(visits)
                for visit in visits:
                    self.ready.put_nowait(visit)
                if not visits and not self.open and await self.frontier.next_at() is None:
                    break
                await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()

    async def work(self):
        while True:
            visit = await self.ready.get()
            number = int(visit.url.rpartition("/")[2])
            self.step("send")
            os.write(self.server, b"%d\n" % number)
            await asyncio.sleep(0.001)
            self.step("receive")
            await self.end(visit, number, fate_of(number))
            self.open -= 1

    async def end(self, visit, number, fate):
        leads_to = [n for n in range(3 * number + 1, 3 * number + 4) if n < self.pages]
        found = [FoundUrl(address_of(n), visit.depth + 1, visit.url) for n in (*leads_to, number // 2, 0)]
        if fate == "fails":
            await self.frontier.add(found)
            await self.frontier.fail(visit, Reason("server_error", f"page {number} is broken"))
        elif fate == "redirects":
            await self.frontier.finish(visit, None, found, "sent on")
        elif fate == "works later" and not visit.attempts:
            await self.frontier.put_off(visit, self.frontier.now() + 0.01, f"timeout: page {number}", attempts=1)
        else:
            page = Page(url=visit.url, final_url=visit.url, status=200, fetched_at=0.0, depth=visit.depth)
            response = FetchResponse(url=visit.url, status=200, body=b"%d" % number)
            await self.frontier.finish(visit, Result(page, response), found)
            os.write(self.seen, b"%d\n" % number)


if __name__ == "__main__":
    asyncio.run(Run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])).run())
