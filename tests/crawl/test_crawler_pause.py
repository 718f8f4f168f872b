"""An operator pauses a crawl: no fetch starts, and it ends as if nothing had been."""

import asyncio

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.clock import SystemClock
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler
from headgate.crawl.fetch.response import FetchResponse

PAGES = 30
LINKS = "".join(f'<a href="/{number}">page</a>' for number in range(PAGES))


def answer(url, status=200):
    body = f"<title>A page</title><p>Words to read.</p>{LINKS}".encode()
    return FetchResponse(url=url, status=status, body=body, content_type="text/html", charset="utf-8")


def test_no_fetch_starts_while_it_is_paused_and_every_page_comes_in_the_end():
    """The frontier's thread lives in real time; nothing here waits for longer than it takes to look."""

    async def main():
        fetched, clock = [], SystemClock()
        paused = asyncio.Event()

        async def fetch(visit, headers=None):
            fetched.append(visit.url)
            if len(fetched) == 5:
                crawler.pause()
                paused.set()
            return answer(visit.url, 404 if visit.url.endswith("robots.txt") else 200)

        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6), clock=clock)
        crawler = Crawler("https://a.test/", config=CrawlConfig(rate=None, workers=2), limiter=limiter, fetch=fetch)
        going = asyncio.ensure_future(crawler.run())
        await paused.wait()
        while not (waits := crawler.waits()).get("paused"):
            await asyncio.sleep(0.01)
        before = len(fetched)
        assert before <= 5 + 2
        (host,) = crawler.hosts()
        assert (host.waits_for, host.reason) == ("paused", "paused by an operator")
        assert host.waiting > 0
        await asyncio.sleep(0.05)
        assert len(fetched) == before
        crawler.resume()
        report = await going
        assert waits == {"paused": 1}
        assert (report.pages, report.open, report.stopped) == (PAGES + 1, 0, "")

    asyncio.run(main())
