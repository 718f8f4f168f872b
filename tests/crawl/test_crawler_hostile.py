"""Whole crawls of what wants to hurt: redirects inwards, bombs, broken pages. Nothing leaks or hangs, all is named."""

import asyncio
import gzip
import json
import random
import socket
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver
from tests.crawl.http_site import http_site

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler

WORLD = json.loads(Path(__file__).with_name("redirect_cases.json").read_text(encoding="utf-8"))
CASES = WORLD["cases"]
CORNERS = [case for some in (CASES, CASES[::-1]) for case in {case["expect"]: case for case in some}.values()]
"""Two of each kind; ``fetch/test_http_redirects.py`` follows every one of them hop by hop."""
INSIDE, OUTSIDE = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
FORGED = CrawlConfig(
    hosts=("*",), allowed_hosts=OUTSIDE, rate=None, base_delay=0.02, max_delay=0.05, timeout=20.0, first_byte=10.0
)
"""Nothing here waits; the time is what a busy machine may need."""


class Names(AbstractResolver):
    """The names of the world, and what they become when they are asked for again."""

    def __init__(self):
        self._asked = {}

    async def resolve(self, host, port=0, family=socket.AF_INET):
        answers = WORLD["names"].get(host.rstrip("."))
        if answers is None:
            raise OSError("no such name")
        self._asked[host] = times = self._asked.get(host, 0) + 1
        return [
            {"hostname": host, "host": at, "port": port, "family": family, "proto": 0, "flags": 0}
            for at in answers[min(times, len(answers)) - 1]
        ]

    async def close(self):
        pass


@asynccontextmanager
async def serving(answer, addresses=OUTSIDE):
    log = []

    async def handle(request):
        log.append((request.transport.get_extra_info("sockname")[0], request.path_qs))
        if request.path == "/robots.txt":
            return web.Response(status=404)
        return await answer(request)

    async with http_site(handle, addresses) as port:
        yield port, log


async def crawled(port, seeds, **settings):
    limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=1000.0, token_bucket_capacity=100.0))
    crawler = Crawler(
        [f"http://127.0.0.2:{port}{seed}" for seed in seeds], limiter=limiter, rng=random.Random(1), **settings
    )
    lost = []
    crawler.on_event = lambda event: lost.append(event) if event.kind in ("failed", "refused") else None
    pages = [page async for page in crawler]
    return pages, lost, crawler.report()


@pytest.mark.no_cover
@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs more than one loopback address")
@pytest.mark.parametrize("cases", [CORNERS, pytest.param(CASES, marks=pytest.mark.chaos)], ids=["corners", "all"])
def test_every_redirect_ends_as_it_should_and_nobody_inside_is_asked(cases):
    case, hops = {}, 0

    async def answer(request):
        nonlocal hops
        if hops >= len(case["locations"]) and not case.get("repeat"):
            return web.Response(text="<title>there</title>", content_type="text/html")
        location = case["locations"][hops % len(case["locations"])]
        hops += 1
        location = location.replace("{port}", str(port)).replace("{n}", str(hops))
        return web.Response(status=302, headers={"Location": location})

    def check(pages, lost, report):
        assert report.complete, case["name"]
        reasons = [event.reason for event in lost]
        if case["expect"] == "arrives":
            assert [page.url for page in pages] == [case["says"].replace("{port}", str(port))], case["name"]
        elif case["expect"] == "unfit":
            assert reasons == ["redirect: redirects to an invalid URL"], case["name"]
        elif case["expect"] == "refused_address":
            assert len(reasons) == 1, case["name"]
            assert reasons[0].startswith("refused_address: "), case["name"]
            assert case["says"] in reasons[0], case["name"]
        else:
            assert not pages, case["name"]
            assert report.sent_on <= FORGED.max_redirects + 1, case["name"]

    port = 0

    async def main():
        nonlocal case, hops, port
        async with serving(answer, (*OUTSIDE, INSIDE)) as (port, log):
            for case in cases:
                hops = 0
                check(*await crawled(port, ["/case"], config=FORGED, resolver=Names()))
                assert INSIDE not in {address for address, _ in log}, case["name"]

    asyncio.run(main())


OK = {"Content-Type": "text/html"}
PACKED = {**OK, "Content-Encoding": "gzip"}
BOMB = gzip.compress(bytes(30_000_000))


async def hostile(request):
    """A page for each way to hurt."""
    match request.path:
        case "/bomb":
            return web.Response(body=BOMB, headers=PACKED)
        case "/large":
            return web.Response(body=b"x" * 3_000_000, headers=OK)
        case "/packed-badly":
            return web.Response(body=b"not gzip at all", headers=PACKED)
        case "/picture":
            return web.Response(body=b"\x89PNG\r\n", headers={"Content-Type": "image/png"})
        case "/silent":
            await asyncio.sleep(60.0)  # nobody waits for it
        case "/cut":
            response = web.StreamResponse(headers={**OK, "Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b"<html>")
            request.transport.close()
            return response
        case "/garbage":
            return web.Response(body=b"\x00\x00\x00\x00<html<<<a href=//[::1/><b>" * 50, headers=OK)
        case "/deep":
            return web.Response(body=b"<div>" * 50_000 + b"deep", headers=OK)
        case "/links":
            return web.Response(body=b"".join(b'<a href="http://[%d">x</a>' % n for n in range(500)), headers=OK)
    return web.Response(body=b"<title>fine</title><p>A page like any other.</p>", headers=OK)


@pytest.mark.no_cover
def test_every_bomb_and_broken_page_has_its_name_and_the_crawl_its_end():
    names = ["bomb", "large", "packed-badly", "picture", "silent", "cut", "garbage", "deep", "links", "fine"]

    async def main():
        async with serving(hostile) as (port, _):
            config = CrawlConfig(
                allow_private=True, rate=None, max_size=2_000_000, base_delay=0.02, max_delay=0.05, max_attempts=2,
                timeout=20.0, first_byte=1.0,
            )  # fmt: skip
            return await crawled(port, [f"/{name}" for name in names], config=config)

    pages, lost, report = asyncio.run(main())
    reasons = {event.url.rpartition("/")[2]: event.reason.partition(":")[0] for event in lost}
    assert reasons == {
        "bomb": "bomb",
        "large": "too_large",
        "packed-badly": "bad_encoding",
        "picture": "not_wanted",
        "silent": "timeout",
        "cut": "hung_up",
    }
    told = {page.url.rpartition("/")[2]: page.metadata.get("problem", "") for page in pages}
    assert set(told) == {"garbage", "deep", "links", "fine"}
    assert told["garbage"]
    assert told["fine"] == ""
    assert report.complete
