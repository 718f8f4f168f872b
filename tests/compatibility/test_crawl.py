"""A crawl that an earlier version began, and that died under way, is finished by this one.

The files in ``crawl/`` were written by version 909c914: five pages done, a redirect, a failure, an address that
robots.txt forbids, one put off after a failure, two taken by a process that died, and three waiting.
"""

import asyncio
import gzip
import json
import shutil
import time
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from headgate import AdaptiveRateLimiter, CrawlConfig, Crawler, RateLimitConfig
from headgate.clock import SystemClock
from headgate.crawl.fetch.response import FetchResponse
from headgate.crawl.frontier.frontier import read_counts

FILES = Path(__file__).with_name("crawl")
SITE = "https://site.example"
DONE_BEFORE = ["/", "/p/1", "/p/2", "/p/3", "/p/4"]
OPEN = ["/busy", "/p/5", "/p/6", "/p/7", "/p/8", "/p/9"]


class LaterClock(SystemClock):
    """A year after the files were written, so that nothing in them is put off any more."""

    def wall(self) -> float:
        return 1_826_000_000.0 + time.monotonic()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("pages.jsonl", "pages.warc.gz"):
        shutil.copy(FILES / name, tmp_path)
    packed = (FILES / "pages.jsonl.headgate.gz").read_bytes()
    (tmp_path / "pages.jsonl.headgate").write_bytes(gzip.decompress(packed))
    return tmp_path


def test_what_an_earlier_version_knew_can_be_read(folder: Path) -> None:
    counts = read_counts(str(folder / "pages.jsonl.headgate"))
    assert (counts.pages, counts.done, counts.failed, counts.refused) == (5, 6, 1, 1)
    assert (counts.put_off, counts.taken, counts.waiting) == (1, 2, 3)
    assert counts.reasons == {"http_404": 1, "robots": 1}


def test_a_crawl_of_an_earlier_version_is_finished(folder: Path) -> None:
    fetched: list[str] = []

    async def fetch(visit, headers=None):
        path = visit.url.removeprefix(SITE)
        fetched.append(path)
        return FetchResponse(
            url=visit.url,
            status=200,
            headers={"Content-Type": "text/html"},
            body=f"<title>Page {path}</title><p>This is what {path} has to say.</p>".encode(),
            content_type="text/html",
            charset="utf-8",
            location=None,
            latency=0.0,
            took=0.0,
            retry_after=None,
        )

    crawler = Crawler(
        f"{SITE}/",
        output=folder / "pages.jsonl",
        warc=folder / "pages.warc.gz",
        fetch=fetch,
        config=CrawlConfig(sitemaps=False),
        limiter=AdaptiveRateLimiter(RateLimitConfig(initial_rps=1000.0), clock=LaterClock()),
    )
    report = asyncio.run(crawler.run())

    assert (report.before, report.failed_before, report.pages, report.open) == (5, 1, 6, 0)
    assert report.complete
    assert sorted(fetched) == sorted([*OPEN, "/robots.txt"])  # the rules of a year ago are read again
    with open(folder / "pages.jsonl", encoding="utf-8") as lines:
        written = [json.loads(line)["url"].removeprefix(SITE) for line in lines]
    assert written[:5] == DONE_BEFORE
    assert sorted(written[5:]) == OPEN
    with open(folder / "pages.warc.gz", "rb") as archive:
        archived = [
            one.rec_headers["WARC-Target-URI"] for one in ArchiveIterator(archive) if one.rec_type == "response"
        ]
    assert sorted(archived) == sorted(SITE + path for path in [*DONE_BEFORE, *OPEN])
    assert [(lost.url, lost.reason) for lost in crawler.lost()] == [
        (f"{SITE}/private/x", "robots: robots.txt forbids it"),
        (f"{SITE}/gone", "http_404: answered 404"),
    ]
