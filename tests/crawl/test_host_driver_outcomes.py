"""What is recorded of URLs that brought no page."""

import asyncio

import pytest

from headgate.crawl.fetch.gated_fetcher import Deferred, Fetched, FetchFailed, Redirected
from headgate.crawl.fetch.response import FetchResponse
from headgate.crawl.frontier import FoundUrl, Reason, VisitState
from headgate.crawl.frontier.frontier import Frontier, read_lost
from headgate.crawl.host_driver import OutcomeWriter
from headgate.crawl.report import CrawlReport, CrawlReporter
from headgate.crawl.scheduler import Backlog
from headgate.crawl.url import Scope
from headgate.engine.supervisor import Supervisor
from headgate.events import CrawlEvent, EventDispatcher
from headgate.lab.virtual_time import VirtualClock

URL = "https://a.test/page"


def response(status=200):
    return FetchResponse(
        url=URL, status=status, headers={}, body=b"", content_type="", charset=None, location=None, latency=0.0,
        took=0.0, retry_after=None,
    )  # fmt: skip


async def recorded(folder, outcome, max_redirects=5):
    """What the frontier, the report and a listener know of one visit that ended like this."""
    clock, report, events, failed = VirtualClock(), CrawlReport(), [], []
    backlog = Backlog(report, clock)
    async with Frontier(folder / "frontier", identity={}, clock=clock) as frontier:
        writer = OutcomeWriter(
            frontier,
            Scope(hosts=frozenset(["a.test"])),
            CrawlReporter(report, EventDispatcher(CrawlEvent, clock, lambda: events.append)),
            backlog,
            Supervisor(lambda stop, now: failed.append(stop)),
            max_redirects=max_redirects,
        )
        report.open = await frontier.add([FoundUrl(URL, 0)])
        (visit,) = await frontier.take(1)
        backlog.held = 1
        writer.record(visit, outcome)
        await writer.drain()
        assert (backlog.held, failed) == (0, [])
        return await frontier.counts(), read_lost(frontier.path), report, events


FATES = {
    "a page that is not there": (Fetched(response(404), 0.0, 1), VisitState.FAILED, "http_404: answered 404"),
    "a failure for good": (FetchFailed(Reason("tls", "no trust")), VisitState.FAILED, "tls: no trust"),
    "nothing was sent": (FetchFailed(Reason("robots", "no"), sent=False), VisitState.REFUSED, "robots: no"),
    "a redirect to itself": (Redirected(response(301), URL), VisitState.FAILED, "redirect: redirects to itself"),
    "a redirect to nowhere": (
        Redirected(response(301), None), VisitState.FAILED, "redirect: redirects to an invalid URL",
    ),
    "a redirect outside": (
        Redirected(response(301), "https://b.test/"), VisitState.REFUSED,
        "scope: redirects to b.test: the URL is on another host",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FATES)
def test_a_url_is_lost_with_its_reason(tmp_path, name):
    outcome, state, reason = FATES[name]
    counts, (lost,), report, (event,) = asyncio.run(recorded(tmp_path, outcome))
    assert (lost.state, lost.reason, lost.category) == (state, reason, reason.partition(":")[0])
    assert (event.kind, event.reason, event.url) == (state.value, reason, URL)
    assert (counts.open, report.open) == (0, 0)


def test_a_redirect_leads_to_a_new_url(tmp_path):
    outcome = Redirected(response(302), "https://a.test/new")
    counts, lost, report, (event,) = asyncio.run(recorded(tmp_path, outcome))
    assert (counts.done, counts.waiting, lost, report.open, report.sent_on) == (1, 1, [], 1, 1)
    assert (event.kind, event.reason) == ("sent_on", "to https://a.test/new")


def test_too_many_redirects_in_a_row_end(tmp_path):
    outcome = Redirected(response(302), "https://a.test/new")
    _, (lost,), *_ = asyncio.run(recorded(tmp_path, outcome, max_redirects=0))
    assert lost.reason == "redirect: 1 redirects in a row"


def test_what_is_deferred_stays_open(tmp_path):
    outcome = Deferred(60.0, Reason("transient", "answered 503"), attempts=1)
    counts, lost, report, (event,) = asyncio.run(recorded(tmp_path, outcome))
    assert (counts.put_off, lost, report.open, report.put_off) == (1, [], 1, 1)
    assert (event.kind, event.reason, event.seconds) == ("put_off", "transient: answered 503", 60.0)
