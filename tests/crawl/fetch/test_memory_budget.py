"""How many bytes of bodies are in memory is bounded for all of them together."""

import asyncio
import random

import pytest
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from tests.crawl.http_site import http_site

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler
from headgate.crawl.fetch.http import PAGES
from headgate.crawl.fetch.memory_budget import FREE, MemoryBudget, MemoryShare
from headgate.crawl.fetch.response import FetchLimits, ResponseReader
from headgate.crawl.run import CrawlRun
from headgate.lab.virtual_time import run

MB = 1_000_000


def test_a_reading_pauses_while_there_is_no_room_and_the_first_goes_on():
    async def main():
        room = MemoryBudget(2 * MB)
        with MemoryShare(room) as first, MemoryShare(room) as second:
            assert first.grow(MB)
            assert not second.grow(FREE + 1)
            assert first.grow(MB)  # else both could wait for one another
            waiting = asyncio.create_task(second.wait())
            await asyncio.sleep(0)
            assert not waiting.done()
        await asyncio.sleep(0)
        assert waiting.done()
        assert room.held == 0
        assert not room.paused

    asyncio.run(main())


def test_small_pages_never_pause():
    room = MemoryBudget(2 * MB)
    room.keep(5 * MB)
    with MemoryShare(room), MemoryShare(room) as page:
        assert page.grow(FREE)
        assert not page.grow(1)


def test_the_first_waits_for_pages_to_be_written_and_nothing_is_begun_meanwhile():
    async def main():
        room = MemoryBudget(2 * MB)
        room.keep(MB // 2)
        with MemoryShare(room) as first:
            assert not first.grow(MB)
            assert room.is_open
            waiting = asyncio.create_task(first.wait())
            await asyncio.sleep(0)
            assert not room.is_open
            room.release(MB // 2)
            assert room.is_open
            await waiting
            assert first.grow(MB)

    asyncio.run(main())


def test_who_began_second_is_the_first_once_the_first_has_ended():
    async def main():
        room = MemoryBudget(2 * MB)
        first = MemoryShare(room)
        with first, MemoryShare(room) as second:
            assert first.grow(MB)
            assert not second.grow(2 * MB)
            waiting = asyncio.create_task(second.wait())
            await asyncio.sleep(0)
            room.remove(first)
            first.size = 0
            await waiting
            assert second.grow(2 * MB)

    asyncio.run(main())


def test_what_is_written_makes_room():
    room = MemoryBudget(2 * MB)
    room.keep(MB)
    assert not room.is_open
    room.release(MB)
    assert (room.is_open, room.held, room.kept) == (True, 0, 0)


@pytest.mark.no_cover
@pytest.mark.parametrize("packed", [False, True])
def test_a_crawl_of_large_pages_holds_no_more_than_it_may(monkeypatch, packed):
    """16 pages of 1 MB, all of them under way at once, with room for 4: each arrives, none is asked for twice."""
    size, pages, most = MB, 16, 4 * MB
    asked, held, crawls = [], [], []
    body = (b"<title>Large</title><p>" + b"Some words to read. " * (size // 20))[:size]

    async def answer(request):
        asked.append(request.path)
        if request.path == "/robots.txt":
            return web.Response(status=404)
        response = web.Response(body=body, content_type="text/html")
        if packed:
            response.enable_compression(web.ContentCoding.gzip)
        return response

    original = MemoryShare.grow

    def grow(self, count):
        fits = original(self, count)
        held.append(self._budget.held)
        return fits

    monkeypatch.setattr(MemoryShare, "grow", grow)
    init = CrawlRun.__init__

    def noted(self, *arguments, **named):
        init(self, *arguments, **named)
        crawls.append(self)

    monkeypatch.setattr(CrawlRun, "__init__", noted)

    async def main():
        config = CrawlConfig(allow_private=True, rate=None, per_host=64, workers=1024, max_held=most)
        limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=5000.0, token_bucket_capacity=100.0))
        async with http_site(answer) as port:
            seeds = [f"http://127.0.0.1:{port}/{n}" for n in range(pages)]
            return await Crawler(seeds, config=config, limiter=limiter, rng=random.Random(1)).run()

    report = asyncio.run(main())
    assert (report.pages, report.failed) == (pages, 0)
    assert len(asked) == pages + 1
    assert max(held) <= most + pages * FREE + size
    assert max(held) >= most / 2 - size  # or there was nothing to bound
    (crawl,) = crawls
    assert (crawl.memory.held, crawl.memory.kept) == (0, 0)  # all of it was given back


class Pieces:
    """An answer that comes in pieces, each after so many seconds."""

    status, content_length, connection = 200, None, None
    headers = CIMultiDictProxy(CIMultiDict({"Content-Type": "text/html"}))

    def __init__(self, *pieces):
        self._pieces = iter(pieces)
        self.content = self

    async def readany(self):
        seconds, size = next(self._pieces, (0.0, 0))
        await asyncio.sleep(seconds)
        return b"x" * size


def test_a_pause_for_want_of_room_is_not_the_servers_fault():
    """The second is under way for longer than its timeout, since it pauses for the first."""
    limits = FetchLimits(total=6.0, first_byte=6.0, silence=6.0)

    async def main(clock):
        budget = MemoryBudget(1)

        async def read(name, response):
            with MemoryShare(budget) as share:
                reader = ResponseReader(f"http://a.test/{name}", limits, PAGES, share)
                async with asyncio.timeout_at(reader.first_byte_at) as reader.alarm:
                    return len((await reader.read(response)).body), clock.now()

        first = read("first", Pieces((0.0, 100_000), (5.0, 100_000)))
        second = read("second", Pieces((0.0, 100_000), (5.0, 100_000)))
        return await asyncio.gather(first, second)

    assert run(main) == [(200_000, 5.0), (200_000, 10.0)]
