"""What a crawl does not follow, and what it says about that: caps, chains of sitemaps, redirects, other rules."""

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from aiohttp import web
from tests.crawl.http_site import http_site

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.ledger import LedgerError
from headgate.cli.commands.crawl_display import counts_text
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler
from headgate.crawl.fetch.response import FetchResponse
from headgate.crawl.frontier.bounds import Bounds
from headgate.crawl.frontier.frontier import reading
from headgate.crawl.report import MOST_NAMED, CrawlReport
from headgate.crawl.url import DEEPEST_SITEMAP

QUICK = CrawlConfig(rate=None, base_delay=0.01, max_delay=0.02)
HOST = "https://a.test"


def fast():
    return AdaptiveRateLimiter(RateLimitConfig(initial_rps=500.0, token_bucket_capacity=50.0))


def answer(url, text="", status=200, content_type="text/html", location=None):
    return FetchResponse(
        url=url,
        status=status,
        headers={},
        body=text.encode(),
        content_type=content_type,
        charset="utf-8",
        location=location,
        latency=0.001,
        took=0.001,
        retry_after=None,
    )


def page(url, *links):
    return answer(url, "<title>A page</title><p>Words. " + "".join(f'<a href="{link}">x</a>' for link in links))


def sitemap(url, *pages, index=()):
    if index:
        entries = "".join(f"<sitemap><loc>{one}</loc></sitemap>" for one in index)
        return answer(url, f"<sitemapindex>{entries}</sitemapindex>", content_type="application/xml")
    entries = "".join(f"<url><loc>{one}</loc></url>" for one in pages)
    return answer(url, f"<urlset>{entries}</urlset>", content_type="application/xml")


def crawl(site, *, seeds=(f"{HOST}/",), config=QUICK, robots="", **options):
    """``site(url)`` makes an answer; returns crawler, report, the addresses asked for, events."""
    asked, events = [], []

    async def fetch(visit):
        asked.append(visit.url)
        if visit.url.endswith("/robots.txt"):
            return answer(visit.url, robots, 200 if robots else 404, "text/plain")
        return site(visit.url)

    crawler = Crawler(seeds, config=config, limiter=fast(), fetch=fetch, on_event=events.append, **options)
    return crawler, asyncio.run(crawler.run()), asked, events


# ---------------------------------------------------------------------- more of a kind than are followed


def test_what_was_not_followed_is_named_with_how_to_raise_the_cap():
    def site(url):
        return page(url, *(f"/post/{number}" for number in range(30)), "/about")

    _, report, asked, events = crawl(site, config=replace(QUICK, max_per_shape=20))
    assert sum("/post/" in url for url in asked) == 20
    assert report.capped == {"a.test/post/#": f"{HOST}/post/20"}
    assert [(event.url, event.host) for event in events if event.kind == "capped"] == [(f"{HOST}/post/20", "a.test")]
    said = counts_text(report)
    assert f"Skipped further URLs like a.test/post/#, such as {HOST}/post/20;" in said
    assert "--max-per-shape" in said


def test_links_to_pages_that_are_known_are_not_too_many():
    def site(url):
        return page(url, *(f"/post/{number}" for number in range(20)))

    _, report, asked, _ = crawl(site, config=replace(QUICK, max_per_shape=20))
    assert len(asked) == 22
    assert report.capped == {}


def test_a_full_host_is_named_too():
    _, report, asked, _ = crawl(lambda url: page(url, "/x", "/y", "/z"), config=replace(QUICK, max_per_host=3))
    assert len(asked) == 1 + 3
    assert report.capped == {"a.test/z": f"{HOST}/z"}


def test_by_default_an_honest_site_of_thousands_is_followed():
    assert CrawlConfig().max_per_shape == Bounds().per_shape == 10_000


def test_what_is_named_in_a_report_is_bounded():
    report = CrawlReport()
    for number in range(MOST_NAMED + 10):
        report.note_capped(f"h/{number}", "u")
        report.note_sitemap(f"u/{number}", "sitemap is empty")
    assert len(report.capped) == len(report.sitemap_problems) == MOST_NAMED


def test_a_redirect_is_bounded_as_a_link_would_be():
    """An endless calendar of redirects, a page between any two so that none is cut short for its length alone."""

    def site(url):
        number = int(url.rpartition("/")[2] or 0)
        if number % 2:
            return answer(url, status=302, location=f"/day/{number + 1}")
        return page(url, f"/day/{number + 1}")

    _, report, asked, _ = crawl(site, config=replace(QUICK, max_per_shape=10), seeds=[f"{HOST}/day/0"])
    assert report.complete
    assert len(asked) == 1 + 10
    assert report.capped == {"a.test/day/#": f"{HOST}/day/10"}


def test_a_redirect_to_a_page_that_is_known_is_no_refusal():
    def site(url):
        if "/old/" in url:
            return answer(url, status=301, location="/day/1")
        return page(url, "/day/1", "/day/2", "/old/x", "/old/y")

    _, report, _, _ = crawl(site, config=replace(QUICK, max_per_shape=2))
    assert (report.pages, report.sent_on, report.refused) == (3, 2, 0)


# ---------------------------------------------------------------------- sitemaps


MAPS = f"User-agent: *\nSitemap: {HOST}/map.xml"


def test_sitemaps_that_lead_to_sitemaps_come_to_an_end():
    def site(url):
        if "map" not in url:
            return page(url)
        number = int("".join(filter(str.isdigit, url)) or 0)
        return sitemap(url, index=[f"{HOST}/map-{number + 1}.xml"])

    _, report, asked, events = crawl(site, robots=MAPS)
    assert sum("map" in url for url in asked) == DEEPEST_SITEMAP
    assert report.complete
    last = f"{HOST}/map-{DEEPEST_SITEMAP - 1}.xml"
    problem = f"sitemap is nested {DEEPEST_SITEMAP} levels deep; the sitemaps it lists are not read"
    assert report.sitemap_problems == {last: problem}
    assert [event.reason for event in events if event.kind == "sitemap" and event.url == last] == [problem]


def test_a_host_has_no_more_sitemaps_than_are_bounded(monkeypatch):
    monkeypatch.setattr("headgate.crawl.run.Bounds", partial(Bounds, sitemaps=10))

    def site(url):
        if "map" not in url:
            return page(url)
        return sitemap(url, index=[f"{url}/{letter}" for letter in "abc"]) if url.count("/") < 8 else sitemap(url)

    _, report, asked, _ = crawl(site, robots=MAPS)
    assert sum("map" in url for url in asked) == 10
    assert list(report.capped) == ["a.test sitemaps"]


def test_numbered_sitemaps_are_no_trap():
    def site(url):
        if url.endswith("map.xml"):
            return sitemap(url, index=[f"{HOST}/map-{number}.xml" for number in range(30)])
        return sitemap(url, f"{HOST}/page/{url[-5]}") if "map-" in url else page(url)

    _, report, asked, _ = crawl(site, robots=MAPS, config=replace(QUICK, max_per_shape=10))
    assert sum("map-" in url for url in asked) == 30
    assert report.sitemaps == 31


def test_whatever_its_address_and_type_what_an_index_names_is_a_sitemap():
    def site(url):
        if url.endswith("map.xml"):
            return sitemap(url, index=[f"{HOST}/list?of=pages"])
        if "list" in url:
            return answer(url, f"{HOST}/listed\n", content_type="application/octet-stream")
        return page(url)

    _, report, asked, _ = crawl(site, robots=MAPS)
    assert f"{HOST}/listed" in asked
    assert (report.sitemaps, report.pages) == (2, 2)


def test_seeds_alone_need_no_sitemap():
    _, report, asked, _ = crawl(page, robots=MAPS, config=replace(QUICK, max_depth=0))
    assert asked == [f"{HOST}/robots.txt", f"{HOST}/"]
    assert report.complete


def test_a_broken_sitemap_is_told_of(tmp_path):
    def site(url):
        return answer(url, "<urlset><url><loc>/a</loc></url>", content_type="text/xml") if "map" in url else page(url)

    _, report, asked, _ = crawl(site, robots=MAPS, output=tmp_path / "p.jsonl")
    assert f"{HOST}/a" in asked
    (told,) = report.sitemap_problems.items()
    assert told == (f"{HOST}/map.xml", "sitemap is invalid XML (no element found)")
    assert f"{HOST}/map.xml: sitemap is invalid XML (no element found)." in counts_text(report)
    with reading(str(tmp_path / "p.jsonl.headgate")) as frontier:
        kept = frontier.execute("SELECT reason FROM urls WHERE depth < 0").fetchall()
    assert kept == [("sitemap is invalid XML (no element found)",)]


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ["map.xml.gz", pytest.param("map.xml", marks=pytest.mark.chaos)])
def test_a_sitemap_of_30_megabytes_is_read(name):
    """... and its pages are bounded in size all the same."""
    entry = "<url><loc>http://{host}/p/{number}</loc><!--" + "x" * 1000 + "--></url>"

    async def serve(request):
        host = request.host
        if request.path == "/robots.txt":
            return web.Response(text=f"User-agent: *\nSitemap: http://{host}/{name}")
        if "map" in request.path:
            entries = "".join(entry.format(host=host, number=number % 3) for number in range(28_000))
            body = f"<urlset>{entries}</urlset>".encode()
            assert 28_000_000 < len(body) < 50_000_000
            return web.Response(body=gzip.compress(body, 1) if name.endswith(".gz") else body, content_type="text/xml")
        return web.Response(
            text="<title>x</title>" + "y " * 200_000 * (request.path == "/p/2"), content_type="text/html"
        )

    async def main():
        config = replace(QUICK, allow_private=True, max_size=100_000)
        async with http_site(serve) as port:
            return await Crawler(f"http://127.0.0.1:{port}/", config=config, limiter=fast()).run()

    report = asyncio.run(main())
    assert (report.sitemaps, report.pages, report.reasons) == (1, 3, {"too_large": 1})
    assert report.sitemap_problems == {}


# ---------------------------------------------------------------------- going on as somebody else


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"robots_agent": "otherbot"}, "robots agent was 'headgate' and is now 'otherbot'"),
        ({"sitemaps": False}, "sitemaps was 'True' and is now 'False'"),
        ({"types": ("application/json",)}, "types was "),
        ({"max_depth": 3}, "depth was 'None' and is now '3'"),
    ],
)
def test_a_crawl_that_goes_on_by_other_rules_is_noticed(tmp_path, changed, named):
    output = tmp_path / "p.jsonl"
    crawl(page, output=output)
    with pytest.raises(LedgerError, match="Use the original options, or choose another output") as error:
        crawl(page, output=output, config=replace(QUICK, **changed))
    assert named in str(error.value)


def test_a_login_makes_it_another_crawl(tmp_path):
    output = tmp_path / "p.jsonl"
    crawl(page, output=output)
    with pytest.raises(LedgerError, match=r"signed in at was '' and is now 'https://a\.test'") as error:
        crawl(page, output=output, headers={HOST: {"Cookie": "a-secret"}})
    assert "a-secret" not in str(error.value)


def test_how_fast_and_how_much_may_change(tmp_path):
    output = tmp_path / "p.jsonl"
    crawl(page, output=output)
    other = replace(QUICK, max_per_shape=5, max_per_host=7, rate=3.0, max_pages=9, agent="me", max_held=1_000)
    assert crawl(page, output=output, config=other)[1].before == 1


# ---------------------------------------------------------------------- the file, and Ctrl-C


def test_faults_of_the_file_speak_of_a_frontier(tmp_path):
    (tmp_path / "p.jsonl.headgate").write_text("these are notes\n" * 100)
    with pytest.raises(LedgerError) as error:
        crawl(page, output=tmp_path / "p.jsonl")
    assert "is not a frontier" in str(error.value)
    with pytest.raises(LedgerError) as error:
        crawl(page, output=tmp_path / "p", frontier=tmp_path / "no" / "p")
    assert "for the frontier" in str(error.value)
    assert "ledger" not in str(error.value)


def test_a_disk_that_is_full_speaks_of_no_ledger(tmp_path, monkeypatch):
    from headgate.crawl.frontier.transaction import FrontierTransaction

    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FrontierTransaction, "flush", full)
    with pytest.raises(LedgerError, match="the disk is full") as error:
        crawl(page, output=tmp_path / "p.jsonl")
    assert "ledger" not in str(error.value)


class Quietly(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
def test_ctrl_c_after_the_last_line_changes_nothing(tmp_path):
    """A signal every millisecond from the last line on: the exit code is what came of the crawl."""
    folder = Path(__file__).with_name("site")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quietly, directory=str(folder)))
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    command = [sys.executable, "-m", "headgate", "crawl", f"http://127.0.0.1:{server.server_port}/", "--allow-private"]
    command += ["--rate", "500/s", "-o", "p.jsonl", "--exclude", "*missing*", "--exclude", "*old-guide*", "--quiet"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.001)
    _, err = process.communicate()
    server.shutdown()
    server.server_close()
    thread.join()
    assert (process.returncode, line.startswith("The crawl is complete"), err) == (0, True, "")
    assert len({json.loads(line)["url"] for line in (tmp_path / "p.jsonl").read_text().splitlines()}) == 8
