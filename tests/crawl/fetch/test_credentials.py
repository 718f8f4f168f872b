"""Credentials of a crawl: a lease for each fetch, to their own origin alone, resting and retired as everywhere else."""

import asyncio
import gzip
import json
import logging
import random
import sqlite3
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web
from tests.crawl.http_site import http_site

from headgate import AdaptiveRateLimiter, ConfigError, CredentialCoordinator, RateLimitConfig
from headgate.cli import execute as run
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler
from headgate.crawl.fetch.credentials import FetchPermit, keys_by_origin
from headgate.crawl.fetch.response import FetchResponse
from headgate.credentials import Credential

CANARY = "canary-5f2a9c71e0b84d36"
OTHER = "second-0d4be7719a3c4f58"
QUICK = CrawlConfig(allow_private=True, rate=None, base_delay=0.05, max_delay=0.1)


def html(*links, text="Some words to read."):
    anchors = "".join(f'<a href="{link}">there</a> ' for link in links)
    return web.Response(text=f"<title>A page</title><p>{text} {anchors}</p>", content_type="text/html")


@asynccontextmanager
async def serving(answer, robots=None, addresses=("127.0.0.1",)):
    """The log has every call as (time, host, path, Authorization)."""
    log = []

    async def handle(request):
        log.append((time.monotonic(), request.host, request.path, request.headers.get("Authorization", "")))
        if request.path == "/robots.txt":
            return web.Response(status=404) if robots is None else robots(request)
        return answer(request)

    async with http_site(handle, addresses) as port:
        yield f"http://127.0.0.1:{port}", log


def keys(*secrets, at_once=None, **options):
    named = [Credential(f"key-{number}", secret) for number, secret in enumerate(secrets, 1)]
    return CredentialCoordinator(named, at_once=at_once, **options)


def crawl(answer, check, credentials, *, seeds=("/",), config=QUICK, robots=None, form=None, **options):
    async def main():
        async with serving(answer, robots, ("127.0.0.1", "127.0.0.2")) as (url, log):
            limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=500.0, token_bucket_capacity=50.0))
            crawler = Crawler(
                [url + seed for seed in seeds],
                config=config,
                limiter=limiter,
                credentials={url: credentials if form is None else (credentials, form)},
                rng=random.Random(1),
                **options,
            )
            report = await crawler.run()
            check(crawler, report, log, url)

    asyncio.run(main())


def sent(log, path=None):
    return [authorization for _, _, asked, authorization in log if path is None or asked == path]


def test_every_fetch_of_the_origin_has_a_credential_robots_too():
    coordinator = keys(CANARY)

    def check(crawler, report, log, url):
        assert sent(log) == [f"Bearer {CANARY}"] * 3
        assert [path for _, _, path, _ in log] == ["/robots.txt", "/", "/a"]
        assert [state.state for state in coordinator.states()] == ["free"]  # each lease went back

    crawl(lambda request: html("/a"), check, coordinator)


def test_one_lease_is_one_fetch():
    """A credential that one caller may hold at a time: no two of its fetches are under way together."""
    under_way, most = 0, 0

    async def answer(request):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.02)
        under_way -= 1
        return html()

    async def main():
        limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=500.0, token_bucket_capacity=50.0))
        async with http_site(answer) as port:
            url = f"http://127.0.0.1:{port}"
            seeds, one = [f"{url}/{number}" for number in range(8)], {url: keys(CANARY, at_once=1)}
            return await Crawler(seeds, config=QUICK, limiter=limiter, credentials=one).run()

    assert asyncio.run(main()).pages == 8
    assert most == 1


def test_no_other_origin_sees_it_not_even_by_a_redirect():
    def answer(request):
        port = request.host.rpartition(":")[2]
        if request.host.startswith("127.0.0.1"):
            if request.path == "/away":
                return web.Response(status=302, headers={"Location": f"http://127.0.0.2:{port}/there"})
            return html("/away", f"http://127.0.0.2:{port}/linked")
        return html()

    def robots(request):
        port = request.host.rpartition(":")[2]
        if request.host.startswith("127.0.0.1"):
            return web.Response(status=301, headers={"Location": f"http://127.0.0.2:{port}/robots.txt"})
        return web.Response(status=404)

    def check(crawler, report, log, url):
        by_host = {host.partition(":")[0]: set() for _, host, _, _ in log}
        for _, host, _, authorization in log:
            by_host[host.partition(":")[0]].add(authorization)
        assert by_host == {"127.0.0.1": {f"Bearer {CANARY}"}, "127.0.0.2": {""}}
        assert {path for _, host, path, _ in log if host.startswith("127.0.0.2")} == {
            "/robots.txt",
            "/there",
            "/linked",
        }

    crawl(answer, check, keys(CANARY), config=replace(QUICK, hosts=("*",)), robots=robots)


def test_http_and_https_of_one_host_are_two_origins():
    seen = {}

    async def fetch(visit, headers=None):
        seen[visit.url] = dict(headers or {})
        status = 404 if visit.url.endswith("/robots.txt") else 200
        return FetchResponse(url=visit.url, status=status, body=b"<p>x", content_type="text/html")

    seeds = [f"{scheme}://a.test/{number}" for number in range(3) for scheme in ("http", "https")]
    limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=500.0, token_bucket_capacity=50.0))
    crawler = Crawler(seeds, limiter=limiter, fetch=fetch, credentials={"https://a.test": keys(CANARY)})
    assert asyncio.run(crawler.run()).pages == 6
    assert len(seen) == 8
    for url, headers in seen.items():
        assert headers == ({"Authorization": f"Bearer {CANARY}"} if url.startswith("https:") else {}), url


def test_leave_for_one_origin_is_of_no_use_for_another():
    async def main():
        limiter, origin = AdaptiveRateLimiter(), keys_by_origin({"https://a.test": keys(CANARY)})["https://a.test"]
        with FetchPermit(limiter.acquire("a.test"), await origin.acquire(1.0), origin) as leave:
            assert leave.headers_for("https://a.test/x") == {"Authorization": f"Bearer {CANARY}"}
            for other in ("http://a.test/x", "https://b.test/", "https://a.test:8443/", "https://a.test.b/"):
                assert leave.headers_for(other) == {}
            assert CANARY not in repr(leave) + repr(origin)

    asyncio.run(main())


def test_429_rests_the_credential_and_the_other_goes_on_at_once():
    def answer(request):
        if request.headers["Authorization"].endswith(CANARY):
            return web.Response(status=429, headers={"Retry-After": "600"})
        return html()

    coordinator = keys(CANARY, OTHER)

    def check(crawler, report, log, url):
        assert report.pages == 6
        credentials = [said for _, _, path, said in log if path != "/robots.txt"]
        first = next(place for place, said in enumerate(credentials) if said.endswith(CANARY))
        meanwhile = credentials[first + 1 :]
        assert len(meanwhile) >= 5
        assert not any(said.endswith(CANARY) for said in meanwhile)
        assert report.rate_limited == 1

    crawl(answer, check, coordinator, seeds=[f"/{number}" for number in range(6)], config=replace(QUICK, per_host=1))


def test_while_the_only_credential_rests_nothing_is_sent():
    calls = Counter()

    def answer(request):
        calls[request.path] += 1
        return web.Response(status=429, headers={"Retry-After": "1"}) if calls.total() == 1 else html()

    def check(crawler, report, log, url):
        pages = [at for at, _, path, _ in log if path != "/robots.txt"]
        assert pages[1] - pages[0] >= 1.0
        assert report.pages == 2

    crawl(answer, check, keys(CANARY), seeds=["/0", "/1"], config=replace(QUICK, per_host=1))


def test_401_retires_the_credential_and_no_page_is_lost():
    def answer(request):
        return web.Response(status=401) if request.headers["Authorization"].endswith(CANARY) else html()

    coordinator = keys(CANARY, OTHER)

    def check(crawler, report, log, url):
        assert (report.pages, report.failed) == (6, 0)
        assert [state.state for state in coordinator.states()] == ["retired", "free"]
        assert sum(said.endswith(CANARY) for said in sent(log)) <= 2

    crawl(answer, check, coordinator, seeds=[f"/{number}" for number in range(6)], config=replace(QUICK, per_host=1))


def test_without_a_credential_that_is_accepted_it_stops_and_the_addresses_stay():
    coordinator = keys(CANARY, OTHER)

    def check(crawler, report, log, url):
        assert report.stopped == f"credentials: every key for {url} is disabled"
        assert (report.pages, report.failed, report.open) == (0, 0, 3)
        assert [state.state for state in coordinator.states()] == ["retired", "retired"]

    config = replace(QUICK, per_host=1)
    crawl(lambda request: web.Response(status=401), check, coordinator, seeds=["/0", "/1", "/2"], config=config)


def test_a_page_that_is_not_for_us_says_nothing_of_the_credential():
    coordinator = keys(CANARY)

    def check(crawler, report, log, url):
        assert (report.pages, report.reasons) == (1, {"http_403": 1})
        assert [state.state for state in coordinator.states()] == ["free"]

    def answer(request):
        return web.Response(status=403) if request.path == "/no" else html("/no")

    crawl(answer, check, coordinator)


def test_it_goes_into_the_header_it_is_wanted_in():
    seen = []

    def answer(request):
        seen.append((request.headers.get("X-Api-Key"), request.headers.get("Authorization")))
        return html()

    crawl(answer, lambda *_: None, keys(CANARY), form="X-Api-Key: key={secret}")
    assert seen == [(f"key={CANARY}", None)]


def test_a_secret_that_no_header_can_hold_is_not_used():
    coordinator = keys("two\nlines", OTHER)

    def check(crawler, report, log, url):
        assert set(sent(log)) == {f"Bearer {OTHER}"}

    crawl(lambda request: html("/a"), check, coordinator)
    assert [state.state for state in coordinator.states()] == ["retired", "free"]


def test_the_ceiling_of_a_host_is_for_all_its_credentials_together():
    def check(crawler, report, log, url):
        times = [at for at, *_ in log]
        assert len(times) == 7
        assert times[-1] - times[0] >= 6 / 20 - 0.05

    config = replace(QUICK, rate=20.0)
    crawl(lambda request: html(), check, keys(CANARY, OTHER), seeds=[f"/{n}" for n in range(6)], config=config)


def test_each_pair_of_host_and_credential_has_a_pace_of_its_own():
    def check(crawler, report, log, url):
        host = url.removeprefix("http://")
        assert crawler.limiter.key_status(host) is None
        assert all(crawler.limiter.key_status(f"{host}/key-{number}") is not None for number in (1, 2))

    crawl(lambda request: html(), check, keys(CANARY, OTHER), seeds=[f"/{n}" for n in range(6)])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"https://a.test/path": keys(CANARY)}, "number 1 has a path"),
        ({"a.test": keys(CANARY)}, "number 1 has no scheme"),
        ({"https://a.test": CANARY}, "must be a CredentialCoordinator"),
        ({"https://a.test": (keys(CANARY), "Bearer")}, "needs a header such as"),
        ({"https://a.test": (keys(CANARY), f"X-Key: {CANARY}")}, "needs {secret} once"),
    ],
)
def test_what_cannot_be_used_is_named_without_the_secret(given, named):
    with pytest.raises(ConfigError) as error:
        Crawler("https://a.test/", credentials=given)
    assert named in str(error.value)
    assert CANARY not in str(error.value)


def test_a_header_that_the_credentials_set_cannot_be_set_beside():
    with pytest.raises(ConfigError, match="which its credentials set too"):
        Crawler(
            "https://a.test/",
            headers={"https://a.test": {"authorization": "x"}},
            credentials={"https://a.test": keys(CANARY)},
        )


# ---------------------------------------------------------------------- the canary


def telltale(request):
    """A server that sends back what it was sent, wherever it can."""
    said = request.headers.get("Authorization", "")
    if request.path == "/moved":
        return web.Response(status=302, headers={"Location": f"/after?was={said.rpartition(' ')[2]}"})
    if request.path == "/broken":
        return web.Response(status=500, reason="no", text=said)
    if request.path == "/limited" and not request.query:
        return web.Response(status=404, text=said, headers={"X-Said": said})
    page = html(f"/after?token={said.rpartition(' ')[2]}", "/moved", "/broken", "/limited", text=f"You sent {said}.")
    page.headers["X-Said"] = said
    return page


def test_a_secret_is_in_no_output_of_a_crawl(tmp_path, caplog, monkeypatch):
    """JSON lines, web archive, frontier, events, report, log: the server sends it back, and none of them has it."""
    caplog.set_level(logging.DEBUG)
    events, told = [], []

    async def main():
        async with serving(telltale, robots=lambda request: web.Response(text=f"# {request.headers}")) as (url, log):
            limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=500.0, token_bucket_capacity=50.0))
            crawler = Crawler(
                f"{url}/",
                output=tmp_path / "pages.jsonl",
                warc=tmp_path / "pages.warc.gz",
                config=QUICK,
                limiter=limiter,
                credentials={url: keys(CANARY, on_event=told.append)},
                on_event=events.append,
                extract=lambda page, fetched: {"kept": fetched.body.decode()},
            )
            pages = [page async for page in crawler]
            assert any(CANARY in said for said in sent(log))
            return [repr(pages), repr(crawler.report()), repr(crawler.hosts()), repr(crawler.lost()), repr(crawler)]

    shown = asyncio.run(main())
    shown += [repr(events), repr(told), caplog.text]
    assert "***" in shown[0]
    for text in shown:
        assert CANARY not in text
    for path in tmp_path.iterdir():
        raw = path.read_bytes()
        raw += gzip.decompress(raw) if path.suffix == ".gz" else b""
        assert CANARY.encode() not in raw, path.name
    with sqlite3.connect(tmp_path / "pages.jsonl.headgate") as frontier:
        assert CANARY not in "\n".join(frontier.iterdump())
    frontier.close()


def test_nor_of_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SITE_TOKEN", CANARY)

    async def main():
        async with serving(telltale) as (url, log):
            command = ["crawl", f"{url}/", "-o", "pages.jsonl", "--warc", "pages.warc", "--keys", "env:SITE_TOKEN"]
            command += ["--json", "--allow-private", "--rate", "500/s", "--trace", "trace.jsonl"]
            code = await asyncio.to_thread(run, [*command, "--failures", "failures.jsonl"])
            return code, set(sent(log))

    code, seen = asyncio.run(main())
    assert seen == {f"Bearer {CANARY}"}
    assert code == 3  # two addresses fail
    said = capsys.readouterr()
    assert CANARY not in said.out + said.err
    assert {path.name for path in tmp_path.iterdir()} >= {"pages.jsonl", "pages.warc", "trace.jsonl", "failures.jsonl"}
    for path in tmp_path.iterdir():
        assert CANARY.encode() not in path.read_bytes(), path.name
    calls = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert {call["credential"] for call in calls if "sent_at" in call} == {"SITE_TOKEN"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["https://a.test/", "https://b.test/", "--keys", "env:SITE_TOKEN"], "do not share one origin"),
        (["https://a.test/", "--keys", CANARY], "a source of credentials is env:NAME"),
        (["https://a.test/", "--keys", "https://a.test=env:NO_SUCH"], "--keys"),
        (["https://a.test/", "--keys", "env:SITE_TOKEN", "--key-header", "nothing"], "needs a header such as"),
    ],
)
def test_keys_that_cannot_be_used_are_a_usage_error(tmp_path, capsys, monkeypatch, arguments, named):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SITE_TOKEN", CANARY)
    assert run(["crawl", *arguments, "-o", "pages.jsonl"]) == 2
    said = capsys.readouterr()
    assert named in said.err
    assert CANARY not in said.err
