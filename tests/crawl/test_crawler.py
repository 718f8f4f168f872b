"""Whole crawls over loopback: what is visited, what is left alone, what is written, and how it goes on."""

import asyncio
import json
import random
import socket
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import trafilatura  # noqa: F401 - else the first page loads it, which takes so long that others overtake that page
from aiohttp import web
from aiohttp.abc import AbstractResolver
from tests.crawl.http_site import http_site

from headgate import AdaptiveRateLimiter, ConfigError, RateLimitConfig
from headgate.batch.ledger import LedgerError
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler
from headgate.crawl.frontier.frontier import Frontier
from headgate.errors import OutputError

SITE = Path(__file__).with_name("site")
TYPES = {".html": "text/html", ".xml": "application/xml", ".txt": "text/plain"}
QUICK = CrawlConfig(allow_private=True, rate=None, base_delay=0.05, max_delay=0.1)
EVERY_PAGE = {
    "/",
    "/guide/",
    "/guide/gates.html",
    "/guide/tides.html",
    "/notes/first.html",
    "/notes/second.html",
    "/notes/unlinked.html",
    "/private/open.html",
}


def from_files(request):
    """The small site that ships with the tests."""
    path = request.path + ("index.html" if request.path.endswith("/") else "")
    if path == "/old-guide":
        return web.Response(status=301, headers={"Location": "/guide/"})
    file = SITE / path.lstrip("/")
    if not file.is_file():
        return web.Response(status=404, text="gone")
    return web.Response(body=file.read_bytes(), content_type=TYPES[file.suffix])


def html(*links, title="A page"):
    anchors = "".join(f'<a href="{link}">there</a> ' for link in links)
    return web.Response(text=f"<title>{title}</title><p>Some words to read. {anchors}</p>", content_type="text/html")


class Here(AbstractResolver):
    """Every name is this machine."""

    async def resolve(self, host, port=0, family=socket.AF_INET):
        here = {"hostname": host, "host": "127.0.0.1", "port": port}
        return [here | {"family": socket.AF_INET, "proto": 0, "flags": 0}]

    async def close(self):
        pass


@asynccontextmanager
async def serving(answer):
    """``answer(request)`` makes a response, or waits for one; the log has every call as (time, host, path)."""
    log = []

    async def handle(request):
        log.append((time.monotonic(), request.host, request.path_qs))
        if request.path == "/robots.txt" and answer is not from_files and not getattr(answer, "has_robots", False):
            return web.Response(status=404)
        said = answer(request)
        return await said if asyncio.iscoroutine(said) else said

    async with http_site(handle) as port:
        yield f"http://127.0.0.1:{port}", log


def fast(**settings):
    return AdaptiveRateLimiter(RateLimitConfig(initial_rps=500.0, token_bucket_capacity=50.0, **settings))


def paths(output):
    return Counter("/" + json.loads(line)["url"].split("/", 3)[3] for line in output.read_text().splitlines())


def crawl(answer, check, *, tmp_path=None, config=QUICK, limiter=None, seeds=("/",), **options):
    """Crawl a server of this kind to the end, and look at what came of it while it is still there."""

    async def main():
        async with serving(answer) as (url, log):
            output = None if tmp_path is None else tmp_path / "pages.jsonl"
            crawler = Crawler(
                [seed if "//" in seed else url + seed for seed in seeds],
                output=output,
                config=config,
                limiter=limiter or fast(),
                rng=random.Random(1),
                **options,
            )
            report = await crawler.run()
            said = check(crawler, report, log, url)
            if asyncio.iscoroutine(said):
                await said

    asyncio.run(main())


# ---------------------------------------------------------------------- the site of files


def test_every_page_that_may_be_visited_is_written_once(tmp_path):
    def check(crawler, report, log, url):
        assert paths(tmp_path / "pages.jsonl") == Counter(EVERY_PAGE)
        assert (report.pages, report.failed, report.refused, report.sent_on, report.sitemaps) == (8, 1, 2, 1, 1)
        assert report.complete
        asked = Counter(path for _, _, path in log)
        assert set(asked) == EVERY_PAGE | {"/robots.txt", "/sitemap.xml", "/missing.html", "/old-guide"}
        assert set(asked.values()) == {1}
        assert log[0][2] == "/robots.txt"
        reasons = {one.url.removeprefix(url): one.reason for one in crawler.lost()}
        assert reasons == {
            "/private/ledger.html": "robots: robots.txt forbids it",
            "/guide/?print=1": "robots: robots.txt forbids it",
            "/missing.html": "http_404: answered 404",
        }

    crawl(from_files, check, tmp_path=tmp_path)


def test_a_line_has_text_title_links_and_how_it_was_come_by(tmp_path):
    def check(crawler, report, log, url):
        lines = {
            json.loads(line)["url"]: json.loads(line) for line in (tmp_path / "pages.jsonl").read_text().splitlines()
        }
        page = lines[f"{url}/guide/gates.html"]
        assert page["title"] == "Gates"
        assert "Pushing harder does not help; waiting does." in page["text"]
        assert "founded 1871" not in page["text"]  # the footer is no text
        assert f"{url}/notes/first.html" in page["links"]
        assert (page["status"], page["depth"], page["attempts"]) == (200, 2, 1)
        assert page["found_on"] == f"{url}/guide/"
        assert page["metadata"]["language"] == "en"
        assert lines[f"{url}/notes/unlinked.html"]["found_on"] == f"{url}/sitemap.xml"

    crawl(from_files, check, tmp_path=tmp_path)


def test_the_same_crawl_again_asks_for_nothing(tmp_path):
    async def check(crawler, report, log, url):
        before, lines = len(log), (tmp_path / "pages.jsonl").read_bytes()
        again = await Crawler(f"{url}/", output=tmp_path / "pages.jsonl", config=QUICK).run()
        assert (again.pages, again.before, again.failed_before, len(log)) == (0, 8, 1, before)
        assert (tmp_path / "pages.jsonl").read_bytes() == lines

    crawl(from_files, check, tmp_path=tmp_path)


def test_another_crawl_on_the_same_output_is_refused(tmp_path):
    async def check(crawler, report, log, url):
        with pytest.raises(LedgerError, match="belongs to another crawl"):
            await Crawler(f"{url}/guide/", output=tmp_path / "pages.jsonl", config=QUICK).run()

    crawl(from_files, check, tmp_path=tmp_path)


def test_iterating_gives_each_page_once_and_leaving_early_loses_none(tmp_path):
    async def main():
        async with serving(from_files) as (url, _):
            output = tmp_path / "pages.jsonl"
            seen = []
            iterating = aiter(Crawler(f"{url}/", output=output, config=QUICK, limiter=fast()))
            async for page in iterating:
                seen.append(page.url)
                if len(seen) == 3:
                    await iterating.aclose()
            seen += [page.url async for page in Crawler(f"{url}/", output=output, config=QUICK, limiter=fast())]
            assert paths(output) == Counter(EVERY_PAGE)
            assert set(seen) <= {url + path for path in EVERY_PAGE}
            assert len(seen) == len(set(seen))

    asyncio.run(main())


def test_without_an_output_pages_go_to_whoever_iterates():
    async def main():
        async with serving(from_files) as (url, _):
            crawler = Crawler(f"{url}/", config=QUICK, limiter=fast())
            titles = {page.title async for page in crawler}
            assert {"Gates", "Tides", "A note nobody links to"} <= titles
            assert crawler.report().pages == len(EVERY_PAGE)

    asyncio.run(main())


def test_hooks_say_what_to_follow_and_what_to_keep(tmp_path):
    asked = []

    def check(crawler, report, log, url):
        assert all(link.startswith(url) for link in asked)  # of what is out of scope nobody is asked
        assert paths(tmp_path / "pages.jsonl") == Counter(["/", "/guide/", "/guide/gates.html", "/guide/tides.html"])
        lines = [json.loads(line) for line in (tmp_path / "pages.jsonl").read_text().splitlines()]
        assert all(line["metadata"]["bytes"] > 100 for line in lines)

    crawl(
        from_files,
        check,
        tmp_path=tmp_path,
        config=replace(QUICK, sitemaps=False),
        follow=lambda page, link: asked.append(link.url) or ("/guide/" in link.url and "?" not in link.url),
        extract=lambda page, fetched: {"bytes": len(fetched.body)},
    )


@pytest.mark.parametrize("wrong", [{"a": object()}, {"a": float("nan")}, 7])
def test_what_a_hook_says_that_cannot_be_written_costs_no_page(tmp_path, wrong, caplog):
    def check(crawler, report, log, url):
        assert paths(tmp_path / "pages.jsonl") == Counter(EVERY_PAGE)

    crawl(from_files, check, tmp_path=tmp_path, extract=lambda page, fetched: wrong)
    assert "Ignoring hook" in caplog.text


def test_a_hook_that_raises_costs_no_page(tmp_path, caplog):
    def broken(page, fetched):
        raise KeyError("a secret")

    def check(crawler, report, log, url):
        assert paths(tmp_path / "pages.jsonl") == Counter(EVERY_PAGE)

    crawl(from_files, check, tmp_path=tmp_path, extract=broken)
    assert "KeyError" in caplog.text
    assert "a secret" not in caplog.text


def test_a_web_archive_beside_the_text(tmp_path):
    warcio = pytest.importorskip("warcio.archiveiterator")

    def check(crawler, report, log, url):
        with (tmp_path / "pages.warc.gz").open("rb") as file:
            kinds = Counter(record.rec_type for record in warcio.ArchiveIterator(file))
        assert kinds == {"warcinfo": 1, "request": 8, "response": 8}

    crawl(from_files, check, tmp_path=tmp_path, warc=tmp_path / "pages.warc.gz")


# ---------------------------------------------------------------------- bounds


def test_no_more_pages_than_wanted_and_the_rest_with_a_larger_bound(tmp_path):
    async def check(crawler, report, log, url):
        assert report.pages == 3
        assert report.stopped.startswith("max_pages")
        assert sum(paths(tmp_path / "pages.jsonl").values()) == 3
        again = await Crawler(f"{url}/", output=tmp_path / "pages.jsonl", config=QUICK, limiter=fast()).run()
        assert again.before == 3
        assert paths(tmp_path / "pages.jsonl") == Counter(EVERY_PAGE)

    crawl(from_files, check, tmp_path=tmp_path, config=replace(QUICK, max_pages=3))


def test_depth_counts_links_from_a_seed(tmp_path):
    def chain(request):
        number = int(request.path.lstrip("/") or 0)
        return html(f"/{number + 1}")

    def check(crawler, report, log, url):
        assert paths(tmp_path / "pages.jsonl") == Counter(["/", "/1", "/2"])

    crawl(chain, check, tmp_path=tmp_path, config=replace(QUICK, max_depth=2))


def test_a_calendar_that_never_ends_is_bounded(tmp_path):
    def calendar(request):
        day = int(request.query.get("day", 0))
        return html(f"/?day={day + 1}", f"/?day={day + 2}", "/about")

    def check(crawler, report, log, url):
        assert report.pages <= 2 + 20
        assert paths(tmp_path / "pages.jsonl")["/about"] == 1
        assert report.complete

    crawl(calendar, check, tmp_path=tmp_path, config=replace(QUICK, max_per_shape=20))


def test_only_the_seeds_host_and_patterns_are_followed(tmp_path):
    def check(crawler, report, log, url):
        assert set(paths(tmp_path / "pages.jsonl")) == {"/", "/notes/first.html", "/notes/unlinked.html"}

    config = replace(QUICK, include=("/notes/*",), exclude=("re:second",))
    crawl(from_files, check, tmp_path=tmp_path, config=config)


def test_a_private_address_is_not_asked_unless_it_is_allowed(tmp_path):
    def check(crawler, report, log, url):
        assert log == []
        assert (report.pages, report.refused) == (0, 1)
        (one,) = crawler.lost()
        assert one.reason.startswith("refused_address: ")
        assert "loopback" in one.reason

    crawl(from_files, check, tmp_path=tmp_path, config=replace(QUICK, allow_private=False))


def test_what_was_refused_as_private_is_visited_once_it_is_allowed(tmp_path):
    async def check(crawler, report, log, url):
        again = await Crawler(f"{url}/", output=tmp_path / "pages.jsonl", config=QUICK, limiter=fast()).run()
        assert again.pages == 8

    crawl(from_files, check, tmp_path=tmp_path, config=replace(QUICK, allow_private=False))


# ---------------------------------------------------------------------- redirects


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://169.254.169.254/latest/meta-data/", "scope: redirects to 169.254.169.254: the URL is on"),
        ("http://10.0.0.1/", "scope: redirects to 10.0.0.1: the URL is on another host"),
        ("file:///etc/passwd", "redirect: redirects to an invalid URL"),
        ("http://user:secret@127.0.0.1/", "redirect: redirects to an invalid URL"),
    ],
)
def test_a_redirect_out_of_the_crawl_is_named_and_not_followed(tmp_path, location, reason):
    def check(crawler, report, log, url):
        (one,) = crawler.lost()
        assert one.reason.startswith(reason)
        assert "secret" not in one.reason
        assert report.complete

    crawl(lambda _: web.Response(status=302, headers={"Location": location}), check, tmp_path=tmp_path)


def test_even_everywhere_does_not_mean_the_metadata_service(tmp_path):
    def check(crawler, report, log, url):
        (one,) = crawler.lost()
        assert one.url == "http://169.254.169.254/latest/"
        assert "metadata" in one.reason

    answer = web.Response(status=302, headers={"Location": "http://169.254.169.254/latest/"})
    crawl(lambda _: answer, check, tmp_path=tmp_path, config=replace(QUICK, hosts=("*",)))


def test_redirects_in_circles_and_without_end_come_to_one(tmp_path):
    def answer(request):
        if request.path == "/":
            return html("/circle", "/endless0")
        if request.path == "/circle":
            return web.Response(status=302, headers={"Location": "/elcric"})
        if request.path == "/elcric":
            return web.Response(status=302, headers={"Location": "/circle"})
        return web.Response(status=302, headers={"Location": f"/endless{int(request.path[8:]) + 1}"})

    def check(crawler, report, log, url):
        asked = Counter(path for _, _, path in log)
        assert asked["/circle"] == asked["/elcric"] == 1
        assert sum(1 for path in asked if path.startswith("/endless")) == 4
        assert [one.reason for one in crawler.lost()] == ["redirect: 4 redirects in a row"]

    crawl(answer, check, tmp_path=tmp_path, config=replace(QUICK, max_redirects=3))


# ---------------------------------------------------------------------- failures that pass, and those that do not


def test_a_failure_that_passes_is_tried_again(tmp_path):
    calls = Counter()

    def answer(request):
        calls[request.path] += 1
        return web.Response(status=502) if calls[request.path] < 3 else html()

    def check(crawler, report, log, url):
        (line,) = (tmp_path / "pages.jsonl").read_text().splitlines()
        assert json.loads(line)["attempts"] == 3
        assert (report.retries, report.put_off, report.failed) == (2, 2, 0)

    crawl(answer, check, tmp_path=tmp_path)


def test_a_failure_that_stays_is_given_up_with_its_reason(tmp_path):
    def check(crawler, report, log, url):
        assert [path for _, _, path in log] == ["/robots.txt", "/", "/", "/"]
        assert crawler.lost()[0].reason == "transient: answered 500 (3 attempts)"
        assert report.reasons == {"transient": 1}

    crawl(lambda _: web.Response(status=500), check, tmp_path=tmp_path)


def test_retries_stay_within_a_share_of_the_calls(tmp_path):
    """Every call fails, and eight may be under way at once: of retries three, or a fifth of the first calls."""
    seen, under_way, most = Counter(), Counter(), 0

    async def answer(request):
        nonlocal most
        seen[request.path] += 1
        again = seen[request.path] > 1
        under_way[again] += 1
        most = max(most, under_way[True])
        await asyncio.sleep(0.05)
        under_way[again] -= 1
        return web.Response(status=500)

    def check(crawler, report, log, url):
        assert report.failed == 20
        assert set(seen.values()) == {3}
        assert 1 <= most <= 4

    crawl(
        answer,
        check,
        tmp_path=tmp_path,
        seeds=[f"/{number}" for number in range(20)],
        limiter=fast(consecutive_fail_threshold=1000, error_rate_threshold=1.0, min_samples_to_trip=1000),
    )


def test_retry_after_is_waited_for_and_uses_up_no_attempt(tmp_path):
    calls = Counter()

    def answer(request):
        calls[request.path] += 1
        return web.Response(status=429, headers={"Retry-After": "1"}) if calls[request.path] == 1 else html()

    def check(crawler, report, log, url):
        (_, first, second) = log
        assert 1.0 <= second[0] - first[0] < 30.0  # generous: the machine may stall, a default pause is far longer
        assert json.loads((tmp_path / "pages.jsonl").read_text())["attempts"] == 1
        assert report.rate_limited == 1

    crawl(answer, check, tmp_path=tmp_path)


def test_an_open_circuit_puts_addresses_off_and_none_is_dropped(tmp_path):
    """Eight seeds, the first six calls fail: the circuit opens after three, and all are visited in the end."""
    calls = Counter()

    def answer(request):
        calls["all"] += 1
        return web.Response(status=503) if calls["all"] <= 6 else html()

    events = []

    def check(crawler, report, log, url):
        assert paths(tmp_path / "pages.jsonl") == Counter(f"/{number}" for number in range(8))
        shut = [event for event in events if event.kind == "host_shut"]
        assert shut
        assert all(event.seconds <= 0.4 for event in shut)
        for event in shut:  # nothing was sent while it was open
            until = event.at + event.seconds
            assert not [at for at, *_ in log if event.at + 0.01 < at < until - 0.01]

    crawl(
        answer,
        check,
        tmp_path=tmp_path,
        seeds=[f"/{number}" for number in range(8)],
        config=replace(QUICK, max_attempts=10, per_host=1),
        limiter=fast(consecutive_fail_threshold=3, open_state_duration=0.4),
        on_event=events.append,
    )


def test_a_scripted_server_is_followed_in_pace_and_circuit(tmp_path):
    """200, slow 200, 429 with Retry-After, 200: the rate goes up, is halved, halved and held, and goes up again."""
    steps = iter([(200, 0.0), (200, 0.25), (429, 0.0), (200, 0.0), (200, 0.0)])
    rates, limiter = [], None

    async def answer(request):
        status, latency = next(steps, (200, 0.0))
        await asyncio.sleep(latency)
        return web.Response(status=429, headers={"Retry-After": "1"}) if status == 429 else html()

    def hear(event):
        if event.kind == "call" and not event.url.endswith("/robots.txt"):
            rates.append(limiter.key_status(event.host).rate)

    def check(crawler, report, log, url):
        assert rates[:4] == [10.0, 5.0, 2.5, 3.5]
        times = [at for at, *_ in log]
        assert times[4] - times[3] >= 1.0  # Retry-After
        assert report.pages == 4

    settings = {"strategy": "aimd", "aimd_increase": 1.0, "latency_target": 0.1, "latency_degrade_factor": 2.0}
    limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=9.0, token_bucket_capacity=1.0, **settings))
    config = replace(QUICK, per_host=1)
    seeds = [f"/{number}" for number in range(4)]
    crawl(answer, check, tmp_path=tmp_path, config=config, limiter=limiter, seeds=seeds, on_event=hear)


# ---------------------------------------------------------------------- robots.txt


def with_robots(robots, page=lambda request: html()):
    def answer(request):
        return robots(request) if request.path == "/robots.txt" else page(request)

    answer.has_robots = True
    return answer


def test_crawl_delay_is_kept_between_all_calls(tmp_path):
    answer = with_robots(lambda _: web.Response(text="User-agent: *\nCrawl-delay: 0.3"))

    def check(crawler, report, log, url):
        times = [at for at, *_ in log]
        assert len(times) == 5
        assert min(later - earlier for earlier, later in pairwise(times)) >= 0.15  # a call may be late on its way

    crawl(answer, check, tmp_path=tmp_path, seeds=[f"/{number}" for number in range(4)])


def test_crawl_delay_is_kept_over_a_restart(tmp_path):
    answer = with_robots(lambda _: web.Response(text="User-agent: *\nCrawl-delay: 0.5"))

    async def check(crawler, report, log, url):
        seeds = [f"{url}/{number}" for number in range(3)]
        await Crawler(seeds, output=tmp_path / "pages.jsonl", config=QUICK).run()
        times = [at for at, *_ in log]
        assert min(later - earlier for earlier, later in pairwise(times)) >= 0.25  # a call may be late on its way
        assert Counter(path for *_, path in log)["/robots.txt"] == 1  # it is remembered

    config = replace(QUICK, max_pages=1)
    crawl(answer, check, tmp_path=tmp_path, config=config, seeds=[f"/{number}" for number in range(3)])


def test_pages_wait_while_robots_cannot_be_had(tmp_path):
    tries = Counter()

    def robots(request):
        tries["robots"] += 1
        return web.Response(status=503) if tries["robots"] < 3 else web.Response(text="User-agent: *\nDisallow: /1")

    def check(crawler, report, log, url):
        assert [path for *_, path in log] == ["/robots.txt"] * 3 + ["/0"]
        assert paths(tmp_path / "pages.jsonl") == Counter(["/0"])
        assert report.refused == 1

    crawl(with_robots(robots), check, tmp_path=tmp_path, seeds=["/0", "/1"])


def test_a_host_without_robots_to_be_had_is_given_up_and_none_of_its_pages_asked_for(tmp_path):
    def check(crawler, report, log, url):
        assert {path for *_, path in log} == {"/robots.txt"}
        assert len(log) == 3
        assert [one.reason for one in crawler.lost()] == [
            "robots: answered 500 (3 attempts), so robots.txt could not be read"
        ] * 2
        assert [one.attempts for one in crawler.lost()] == [0, 0]  # none of them was asked for

    crawl(with_robots(lambda _: web.Response(status=500)), check, tmp_path=tmp_path, seeds=["/0", "/1"])


def test_a_small_bound_for_pages_is_none_for_robots_and_sitemaps(tmp_path):
    def check(crawler, report, log, url):
        assert paths(tmp_path / "pages.jsonl") == Counter(["/", "/listed"])

    def answer(request):
        if request.path == "/robots.txt":
            rules = "".join(f"Disallow: /closed/{number}\n" for number in range(200))
            return web.Response(text=f"User-agent: *\n{rules}Sitemap: http://{request.host}/map.txt\n")
        if request.path == "/map.txt":
            return web.Response(text=f"http://{request.host}/listed\n" * 200)
        return html("/closed/1")

    answer.has_robots = True
    crawl(answer, check, tmp_path=tmp_path, config=replace(QUICK, max_size=1_000))


def test_robots_may_be_redirected_but_not_for_ever(tmp_path):
    def endless(request):
        return web.Response(status=302, headers={"Location": "/robots.txt?again"})

    def check(crawler, report, log, url):
        assert sum("robots" in path for *_, path in log) == 6
        assert report.pages == 1

    crawl(with_robots(endless), check, tmp_path=tmp_path)


# ---------------------------------------------------------------------- stopping, waiting, watching


def test_a_crawl_that_is_stopped_goes_on_where_it_was(tmp_path):
    async def main():
        async def slowly(request):
            await asyncio.sleep(0.02)
            number = int(request.path.lstrip("/") or 0)
            return html(*(f"/{next_}" for next_ in (2 * number + 1, 2 * number + 2) if next_ < 60))

        async with serving(slowly) as (url, _):
            output = tmp_path / "pages.jsonl"
            stopped = 0
            for now in (False, True, False, True):
                crawler = Crawler(f"{url}/", output=output, config=QUICK, limiter=fast())
                running = asyncio.create_task(crawler.run())
                await asyncio.sleep(0.15)
                crawler.stop(now=now)
                report = await running
                stopped += report.stopped == "stopped"
            assert stopped >= 2
            report = await Crawler(f"{url}/", output=output, config=QUICK, limiter=fast()).run()
            assert report.complete
            assert paths(output) == Counter(["/", *(f"/{number}" for number in range(1, 60))])

    asyncio.run(main())


def test_a_slowed_down_limiter_shows_in_the_wait_for_permits_and_not_in_the_fetch(tmp_path):
    worked = []

    def check(crawler, report, log, url):
        extraction = report.stages["extraction"]
        assert extraction.passed == 11
        assert extraction.waited / extraction.passed > 0.05
        worked.append(extraction.worked / extraction.passed)
        assert report.stages["processing"].passed == report.stages["output"].passed == 10

    for number in range(5):  # the quickest of some, for the machine may stand still
        (tmp_path / str(number)).mkdir()
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="leaky", initial_rps=10.0))
        seeds = [f"/{n}" for n in range(10)]
        crawl(lambda _: html(), check, tmp_path=tmp_path / str(number), limiter=limiter, seeds=seeds)
        if min(worked) < 0.05:
            break
    assert min(worked) < 0.05


def test_hosts_that_hang_leave_workers_to_the_others(tmp_path):
    """Two workers in all, and as many hanging hosts: no host may have more than one while the others want some."""

    async def main():
        async def answer(request):
            if request.host.startswith("hang"):
                await asyncio.sleep(30)
            return html()

        def visited(log):
            return sum(host.startswith("well") and path != "/robots.txt" for _, host, path in log)

        async with serving(answer) as (url, log):
            port = url.rpartition(":")[2]
            names = ["hang-1.test", "hang-2.test", "well.test"]
            seeds = [f"http://{name}:{port}/{number}" for name in names for number in range(10)]
            config = replace(QUICK, workers=3, deadline=20.0)
            crawler = Crawler(seeds, output=tmp_path / "p.jsonl", config=config, limiter=fast(), resolver=Here())
            running = asyncio.create_task(crawler.run())
            while visited(log) < 10 and not running.done():
                await asyncio.sleep(0.01)
            crawler.stop(now=True)
            await running
            assert visited(log) == 10

    asyncio.run(main())


def test_what_hosts_wait_for_can_be_seen_meanwhile(tmp_path):
    async def main():
        async with serving(lambda _: html()) as (url, _):
            seeds = [f"{url}/{number}" for number in range(20)]
            limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="leaky", initial_rps=4.0))
            crawler = Crawler(seeds, output=tmp_path / "pages.jsonl", config=QUICK, limiter=limiter)
            running = asyncio.create_task(crawler.run())
            async with asyncio.timeout(20.0):
                while True:
                    waits, hosts, pages = crawler.waits(), crawler.hosts(), crawler.report().pages
                    if waits == {"pace": 1} and pages and hosts[0].reason:  # not in the moment in which one may go
                        break
                    await asyncio.sleep(0.01)
            (host,) = hosts
            assert host.rate == 4.0
            assert host.reason.startswith("paced at 4 calls/s")
            assert 0 < crawler.report().open < 20
            crawler.stop()
            await running
            assert crawler.hosts() == []

    asyncio.run(main())


def test_nothing_to_do_for_long_is_a_standstill_with_a_time_to_come_back(tmp_path):
    def check(crawler, report, log, url):
        assert report.stopped.startswith("standstill")
        assert 500.0 < report.come_back_in <= 660.0
        assert report.open == 2

    def answer(request):
        return web.Response(status=429, headers={"Retry-After": "600"})

    crawl(answer, check, tmp_path=tmp_path, seeds=["/0", "/1"], config=replace(QUICK, standstill=60.0, per_host=1))


def test_a_crawler_is_for_one_crawl_at_a_time(tmp_path):
    async def main():
        async with serving(lambda _: html()) as (url, _):
            crawler = Crawler(f"{url}/", output=tmp_path / "pages.jsonl", config=QUICK, limiter=fast())
            running = asyncio.create_task(crawler.run())
            await asyncio.sleep(0)
            with pytest.raises(ConfigError, match="already running"):
                await crawler.run()
            await running

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"rate": 0}, "rate=0 must be"),
        ({"workers": 0}, "workers=0 must be a whole number from 1 to 10,000"),
        ({"max_depth": -1}, "max_depth=-1 must be None or a whole number, 0 or more"),
        ({"hosts": "example.org"}, "hosts=str must be a list of non-empty strings"),
        ({"agent": "two\nlines"}, "agent="),
        ({"base_delay": 100.0, "max_delay": 60.0}, "base_delay=100.0 must be in (0, max_delay=60]"),
        ({"timeout": float("nan")}, "timeout=nan must be"),
        ({"standstill": 0}, "standstill=0 must be"),
    ],
)
def test_a_setting_out_of_range_is_named(settings, named):
    with pytest.raises(ConfigError) as error:
        CrawlConfig(**settings)
    assert named in str(error.value)


@pytest.mark.parametrize(
    ("seeds", "named"),
    [([], "at least one URL"), (["ftp://example.org/"], "URL 1"), (["http://a/", "http://jo:pw@b/"], "URL 2")],
)
def test_a_seed_that_cannot_be_visited_is_named_by_its_number(seeds, named):
    with pytest.raises(ConfigError) as error:
        Crawler(seeds)
    assert named in str(error.value)
    assert "pw" not in str(error.value)


def test_idle_hosts_are_dropped_from_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("headgate.crawl.scheduler.IDLE_LANES", 4)
    seen = []

    async def main():
        async with serving(lambda _: html()) as (url, _):
            port = url.rpartition(":")[2]
            seeds = [f"http://host-{number}.test:{port}/" for number in range(40)]
            monkeypatch.setattr("headgate.crawl.scheduler.MOST_HELD", 4)
            crawler = Crawler(
                seeds,
                output=tmp_path / "pages.jsonl",
                config=QUICK,
                limiter=fast(),
                resolver=Here(),
                on_event=lambda event: seen.append(len(crawler._run.scheduler.lanes)),
            )
            report = await crawler.run()
            assert report.pages == 40

    asyncio.run(main())
    assert max(seen) <= 2 * (4 + 4)


def test_a_disk_that_gives_way_ends_the_crawl_and_the_next_goes_on(tmp_path, monkeypatch):
    async def main():
        async with serving(from_files) as (url, _):
            output, finish, times = tmp_path / "pages.jsonl", Frontier.finish, Counter()

            async def full(self, *arguments):
                times["finish"] += 1
                if times["finish"] > 2:
                    raise OutputError("no space left")
                return await finish(self, *arguments)

            monkeypatch.setattr(Frontier, "finish", full)
            with pytest.raises(OutputError, match="no space left"):
                await Crawler(f"{url}/", output=output, config=QUICK, limiter=fast()).run()
            monkeypatch.setattr(Frontier, "finish", finish)
            await Crawler(f"{url}/", output=output, config=QUICK, limiter=fast()).run()
            assert paths(output) == Counter(EVERY_PAGE)

    asyncio.run(main())


def test_a_listener_that_raises_costs_no_page(tmp_path, caplog):
    def check(crawler, report, log, url):
        assert paths(tmp_path / "pages.jsonl") == Counter(EVERY_PAGE)

    crawl(from_files, check, tmp_path=tmp_path, on_event=lambda event: 1 / 0)
    assert "a listener failed on call" in caplog.text


def test_of_very_many_hosts_none_stays_connected(tmp_path, monkeypatch):
    monkeypatch.setattr("headgate.crawl.fetch.http.STAY_CONNECTED", 0)
    asked = []

    def answer(request):
        asked.append((request.headers.get("Connection"), request.headers.get("X-Key")))
        return html()

    async def main():
        async with serving(answer) as (url, _):
            headers = {url: {"X-Key": "mine"}}
            await Crawler(f"{url}/", config=QUICK, limiter=fast(), headers=headers).run()

    asyncio.run(main())
    assert asked == [("close", "mine")]


def test_leaving_robots_out_of_reach_for_long_wears_nobody_out(tmp_path):
    """A robots.txt that is rate limited for an hour: nothing is asked for, nothing is lost, and it says when."""

    def check(crawler, report, log, url):
        assert [path for *_, path in log] == ["/robots.txt"]
        assert report.stopped.startswith("standstill")
        assert report.open == 2

    robots = with_robots(lambda _: web.Response(status=429, headers={"Retry-After": "3600"}))
    crawl(robots, check, tmp_path=tmp_path, seeds=["/0", "/1"], config=replace(QUICK, standstill=60.0))


def test_what_is_not_installed_is_said_with_what_to_do(monkeypatch):
    monkeypatch.setattr("headgate.crawl.crawler.REQUIRED_PACKAGES", ("protego", "no_such_package"))
    with pytest.raises(ConfigError, match=r"a crawl needs no_such_package: pip install 'headgate\[crawl\]'"):
        Crawler("http://example.org/")
