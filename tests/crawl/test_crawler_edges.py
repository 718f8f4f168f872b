"""Whole crawls of made-up hosts, http and https: what a hostile reader would try. Nothing is sent anywhere."""

import asyncio
import json
import time
from collections import Counter
from itertools import pairwise

import pytest

from headgate import AdaptiveRateLimiter, ConfigError, RateLimitConfig
from headgate.crawl import robots_cache
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler, headers_by_origin
from headgate.crawl.fetch.response import FetchError, FetchResponse
from headgate.crawl.pipeline import Pipeline
from headgate.engine.supervisor import StopReason

QUICK = CrawlConfig(rate=None, base_delay=0.01, max_delay=0.02)
PAGE = "<title>A page</title><p>Some words to read. {}</p>"


def fast(**settings):
    return AdaptiveRateLimiter(RateLimitConfig(initial_rps=500.0, token_bucket_capacity=50.0, **settings))


def answer(url, text="", status=200, content_type="text/html", **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return FetchResponse(url=url, status=status, headers=headers, body=text.encode(), content_type=content_type,
                   charset="utf-8", location=headers.get("Location"), latency=0.001, took=0.001)  # fmt: skip


def page(url, *links, **headers):
    return answer(url, PAGE.format("".join(f'<a href="{link}">there</a> ' for link in links)), **headers)


class Web:
    """``site(url)`` makes an answer or raises; whatever has no robots.txt of its own has none."""

    def __init__(self, site):
        self.site, self.asked = site, []

    async def __call__(self, visit):
        self.asked.append(visit.url)
        said = self.site(visit.url)
        if asyncio.iscoroutine(said):
            said = await said
        if said is None:
            return answer(visit.url, status=404)
        return said


def urls(output):
    return Counter(json.loads(line)["url"] for line in output.read_text().splitlines())


def robots(url, *lines):
    return answer(url, "\n".join(("User-agent: *", *lines)), content_type="text/plain")


def test_http_and_https_of_one_host_each_have_their_own_robots(tmp_path):
    def site(url):
        if url == "https://a.test/robots.txt":
            return robots(url, "Disallow: /closed")
        return None if url.endswith("/robots.txt") else page(url)

    web, output = Web(site), tmp_path / "pages.jsonl"
    seeds = ["http://a.test/closed", "https://a.test/closed", "https://a.test/open"]
    report = asyncio.run(Crawler(seeds, output=output, config=QUICK, limiter=fast(), fetch=web).run())
    assert set(urls(output)) == {"http://a.test/closed", "https://a.test/open"}
    assert "https://a.test/closed" not in web.asked
    assert report.refused == 1


def test_https_out_of_reach_costs_http_no_page(tmp_path):
    def site(url):
        if url.startswith("https:"):
            raise FetchError("connect", "refused the connection")
        return None if url.endswith("/robots.txt") else page(url)

    web, output = Web(site), tmp_path / "pages.jsonl"
    crawler = Crawler(["https://a.test/x", "http://a.test/y"], output=output, config=QUICK, limiter=fast(), fetch=web)
    report = asyncio.run(crawler.run())
    assert set(urls(output)) == {"http://a.test/y"}
    assert report.failed == 1


def test_rules_of_each_scheme_are_remembered_over_a_restart(tmp_path):
    def site(url):
        if url == "https://a.test/robots.txt":
            return robots(url, "Disallow: /closed")
        return None if url.endswith("/robots.txt") else page(url, "http://a.test/closed", "https://a.test/closed")

    web, output = Web(site), tmp_path / "pages.jsonl"
    seeds = ["http://a.test/", "https://a.test/"]
    for most in (2, None):
        config = CrawlConfig(rate=None, max_pages=most)
        asyncio.run(Crawler(seeds, output=output, config=config, limiter=fast(), fetch=web).run())
    assert set(urls(output)) == {"http://a.test/", "https://a.test/", "http://a.test/closed"}
    assert Counter(url for url in web.asked if url.endswith("robots.txt")) == Counter(
        ["http://a.test/robots.txt", "https://a.test/robots.txt"]
    )


def test_what_a_page_named_robots_txt_links_to_is_no_sitemap(tmp_path):
    def site(url):
        links = {"https://a.test/": ["/wiki/robots.txt"], "https://a.test/wiki/robots.txt": ["/wiki/a"]}
        return None if url == "https://a.test/robots.txt" else page(url, *links.get(url, ()))

    output = tmp_path / "pages.jsonl"
    asyncio.run(Crawler("https://a.test/", output=output, config=QUICK, limiter=fast(), fetch=Web(site)).run())
    assert set(urls(output)) == {"https://a.test/", "https://a.test/wiki/robots.txt", "https://a.test/wiki/a"}


@pytest.mark.parametrize(
    ("said", "followed"),
    [
        ("none", False),
        ("noindex, NoFollow", False),
        ("headgate: nofollow", False),
        ("max-snippet: 20, nofollow", False),
        ("otherbot: nofollow", True),
        ("noindex", True),
    ],
)
def test_x_robots_tag_is_heeded_where_it_is_meant_for_us(tmp_path, said, followed):
    def site(url):
        return None if url.endswith("/robots.txt") else page(url, "/next", X_Robots_Tag=said)

    output = tmp_path / "pages.jsonl"
    asyncio.run(Crawler("https://a.test/", output=output, config=QUICK, limiter=fast(), fetch=Web(site)).run())
    assert ("https://a.test/next" in urls(output)) is followed


def test_a_large_robots_txt_is_read_beside_the_event_loop(tmp_path, monkeypatch):
    aside = []
    to_thread = asyncio.to_thread

    async def noted(work, *arguments):
        aside.append(work)
        return await to_thread(work, *arguments)

    def site(url):
        if url.endswith("/robots.txt"):
            return robots(url, *(f"Disallow: /x{number}/" for number in range(8_000)))
        return page(url, "/x17/no", "/yes")

    monkeypatch.setattr(robots_cache.asyncio, "to_thread", noted)
    output = tmp_path / "pages.jsonl"
    asyncio.run(Crawler("https://a.test/", output=output, config=QUICK, limiter=fast(), fetch=Web(site)).run())
    assert set(urls(output)) == {"https://a.test/", "https://a.test/yes"}
    assert aside.count(robots_cache.rules_for) == 1


def test_robots_that_are_kept_at_a_slow_host_hold_no_worker_meanwhile(tmp_path):
    """Every one of these hosts sends us to one central robots.txt, whose pace is a call in a second."""

    def site(url):
        if url == "https://central.test/robots.txt":
            return robots(url)
        if url.endswith("/robots.txt"):
            return None if "well" in url else answer(url, status=301, Location="https://central.test/robots.txt")
        return page(url)

    limiter = fast()
    with limiter.acquire("central.test") as permit:
        permit.report(status_code=429, retry_after=60.0)
    seeds = [f"https://host-{number}.test/" for number in range(8)] + [f"https://well.test/{n}" for n in range(20)]
    web = Web(site)

    async def main():
        crawler = Crawler(seeds, config=CrawlConfig(rate=None, workers=4), limiter=limiter, fetch=web)
        running = asyncio.create_task(crawler.run())
        async with asyncio.timeout(30.0):
            while sum("well.test/" in url for url in web.asked) < 21:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(main())
    assert "https://central.test/robots.txt" not in web.asked


def test_the_delay_is_kept_between_the_hops_to_robots_too():
    """In real time: the delay is between calls as the host sees them."""
    asked_at = []

    def site(url):
        asked_at.append(time.monotonic())
        if url == "http://a.test/robots.txt":
            return answer(url, status=301, Location="https://a.test/robots.txt")
        return robots(url) if url.endswith("/robots.txt") else page(url)

    config = CrawlConfig(rate=None, delay=0.1)
    asyncio.run(Crawler("http://a.test/", config=config, limiter=fast(), fetch=Web(site)).run())
    assert len(asked_at) == 3
    assert min(later - earlier for earlier, later in pairwise(asked_at)) >= 0.05  # the earlier may be late


def test_a_fetch_that_is_stopped_before_its_first_step_gives_its_permit_back(tmp_path):
    limiter = fast()

    async def main():
        crawler = Crawler("https://a.test/", output=tmp_path / "p.jsonl", config=QUICK, limiter=limiter,
                          fetch=Web(lambda url: None if url.endswith("robots.txt") else page(url)))  # fmt: skip
        start = Pipeline.start_fetch

        def stopped_at_once(self, *arguments):
            start(self, *arguments)
            self._supervisor.stop(StopReason.STOPPED, now=True)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Pipeline, "start_fetch", stopped_at_once)
            await crawler.run()
        return limiter.key_status("a.test")

    assert asyncio.run(main()).in_flight == 0


def test_leaving_after_a_stop_leaves_no_task_behind(tmp_path, monkeypatch):
    """More pages are written than are taken, so the last ones cannot be handed over."""
    monkeypatch.setattr("headgate.crawl.crawler.NOT_TAKEN", 8)
    links = [f"/{first}{second}" for first in "abcdefg" for second in "abcdefg"]

    def site(url):
        return None if url.endswith("robots.txt") else page(url, *links)

    async def main():
        config = CrawlConfig(rate=None, per_host=200)
        crawler = Crawler(
            "https://a.test/", output=tmp_path / "p.jsonl", config=config, limiter=fast(), fetch=Web(site)
        )
        pages = crawler.__aiter__()
        await anext(pages)
        async with asyncio.timeout(20.0):
            while crawler.report().pages < 10:
                await asyncio.sleep(0.01)
            crawler.stop()
            await asyncio.sleep(0)
            await pages.aclose()
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)

    asyncio.run(main())


@pytest.mark.parametrize("origin", ["https://A.test/", "HTTPS://a.test:443"])
def test_headers_find_their_origin_however_it_is_written(origin):
    assert headers_by_origin({origin: {"X-Key": "mine"}}, {}) == {"https://a.test": {"X-Key": "mine"}}


@pytest.mark.parametrize("origin", ["a.test", "https://a.test/path", "https://jo:pw@a.test", "*"])
def test_headers_for_no_origin_are_named_instead_of_never_sent(origin):
    with pytest.raises(ConfigError, match="headers: ") as error:
        Crawler("https://a.test/", headers={origin: {"X-Key": "mine"}})
    assert "pw" not in str(error.value)
    assert "mine" not in str(error.value)


def test_a_web_archive_needs_a_file_of_its_own(tmp_path):
    with pytest.raises(ConfigError, match="warc and output are the same file"):
        Crawler("https://a.test/", output=tmp_path / "pages", warc=tmp_path / "pages")
