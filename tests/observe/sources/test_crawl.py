"""A crawl that is looked at: pages, hosts that wait and how many addresses stand behind them, dead ones, pausing."""

import asyncio

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler
from headgate.crawl.fetch.response import FetchResponse
from headgate.observe.monitor import RunMonitor
from headgate.observe.snapshot import Action

PAGES = 20
LINKS = "".join(f'<a href="/{number}">page</a>' for number in range(PAGES))


def answer(url, status=200, retry_after=None):
    return FetchResponse(
        url=url,
        status=status,
        body=f"<title>A page</title><p>Words to read.</p>{LINKS}".encode(),
        content_type="text/html",
        charset="utf-8",
        retry_after=retry_after,
    )


def crawler_over(site):
    async def fetch(visit, headers=None):
        if visit.url.endswith("robots.txt"):
            return answer(visit.url, 404)
        return site(visit.url)

    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=100.0))
    seeds = ["https://a.test/", "https://b.test/?token=sk-abcdefghijklmnop"]
    return Crawler(seeds, config=CrawlConfig(rate=None, workers=4), limiter=limiter, fetch=fetch)


async def until(condition):
    async with asyncio.timeout(20):
        while not (found := condition()):
            await asyncio.sleep(0.01)
    return found


def test_a_host_that_is_shut_is_told_with_the_addresses_that_wait_on_disk():
    """The frontier's thread lives in real time; nothing here waits for longer than it takes to look."""

    def site(url):
        return answer(url, 429, 3600.0) if "a.test" in url and not url.endswith("a.test/") else answer(url)

    async def main():
        crawler = crawler_over(site)
        watched = RunMonitor(crawler=crawler).start(alone=False)
        going = asyncio.ensure_future(crawler.run())

        def shut():
            watched._fresh_until = float("-inf")
            snapshot = watched.snapshot()
            lines = (one for one in snapshot.waits if one.scope == "a.test" and one.behind >= PAGES - 1)
            return next((one for one in lines if one.seconds is not None and one.seconds > 3000), None)

        line = await until(shut)
        assert line.sentence.startswith("a.test: ")
        assert line.sentence.endswith(" to go")
        await until(lambda: crawler.report().pages == PAGES + 2)
        watched._fresh_until = float("-inf")
        snapshot = watched.snapshot()
        assert (snapshot.kind, snapshot.state, snapshot.progress.done) == ("crawl", "running", PAGES + 2)
        assert snapshot.progress.eta is None
        assert "sk-abcdefghijklmnop" not in repr((snapshot, watched.events(0)))
        crawler.stop(now=True)
        await going
        watched.close()
        assert watched.snapshot().state == "ended"

    asyncio.run(main())


def test_dead_addresses_have_an_example_and_an_operator_may_pause():
    def site(url):
        return answer(url, 410) if url.endswith("/3") else answer(url)

    async def main():
        crawler = crawler_over(site)
        watched = RunMonitor(crawler=crawler).start(alone=False)
        watched.act(Action(kind="pause"))
        going = asyncio.ensure_future(crawler.run())
        await until(lambda: crawler.waits().get("paused"))
        watched._fresh_until = float("-inf")
        paused = watched.snapshot()
        assert paused.state == "paused"
        (line,) = paused.waits
        assert (line.scope, line.sentence) == ("run", "the crawl is paused by an operator")
        assert line.behind == paused.progress.open > 0
        watched.act(Action(kind="resume"))
        report = await going
        watched.close()
        (dead,) = watched.snapshot().dead
        assert (dead.reason, dead.count) == ("http_410", report.failed)
        assert dead.example.endswith("/3")

    asyncio.run(main())
