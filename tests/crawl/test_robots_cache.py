"""The cache of robots.txt alone: what it remembers, fetches and makes of the answers. Virtual time, no crawl."""

from types import SimpleNamespace

import pytest

from headgate.crawl.fetch.gated_fetcher import Deferred, Fetched, FetchFailed, Redirected
from headgate.crawl.fetch.response import FetchResponse
from headgate.crawl.frontier import Reason, StoredRobots
from headgate.crawl.report import CrawlReport, CrawlReporter
from headgate.crawl.robots_cache import MOST_HOPS, RobotsCache
from headgate.crawl.scheduler import Backlog
from headgate.crawl.url import Scope
from headgate.events import CrawlEvent, EventDispatcher
from headgate.lab.virtual_time import run

ORIGIN, HOST = "https://a.test", "a.test"
RULES = b"User-agent: *\nDisallow: /private\nSitemap: https://a.test/map.xml\nSitemap: https://b.test/map.xml"


def response(status=200, body=RULES):
    return FetchResponse(url=f"{ORIGIN}/robots.txt", status=status, body=body, content_type="text/plain")


class FakeFrontier:
    def __init__(self, clock, stored=None):
        self.now = clock.wall
        self.stored = {} if stored is None else {ORIGIN: stored}
        self.added = []

    async def robots(self, origin):
        return self.stored.get(origin)

    async def keep_robots(self, origin, robots):
        self.stored[origin] = robots

    async def add(self, found):
        self.added += [one.url for one in found]
        return len(self.added)


class FakePermit:
    def __init__(self):
        self.abandoned = 0

    def abandon(self):
        self.abandoned += 1


def cache_of(clock, outcomes=(), stored=None, sitemaps=True):
    """A cache whose fetches end like this, one after the other."""
    left, visits, report = iter(outcomes), [], CrawlReport()

    async def fetch(visit, permit):
        visits.append(visit)
        return next(left)

    frontier = FakeFrontier(clock, stored)
    cache = RobotsCache(
        frontier,
        SimpleNamespace(fetch=fetch),
        CrawlReporter(report, EventDispatcher(CrawlEvent, clock, lambda: None)),
        Backlog(report, clock),
        clock,
        agent="headgate",
        sitemap_scope=Scope(hosts=frozenset([HOST])) if sitemaps else None,
    )
    return SimpleNamespace(cache=cache, frontier=frontier, visits=visits, report=report)


async def read(made, next_permit=None):
    async def never(visit):
        raise AssertionError(visit)

    return await made.cache.read(made.cache.visit_for(HOST, ORIGIN), ORIGIN, FakePermit(), next_permit or never)


def test_rules_are_read_once_and_recalled_for_a_day():
    async def main(clock):
        made = cache_of(clock, [Fetched(response(), 0.0, 1)])
        assert await made.cache.recall(ORIGIN) is None
        rules, until = await read(made)
        assert (rules.allows(f"{ORIGIN}/page"), rules.allows(f"{ORIGIN}/private/x")) == (True, False)
        assert until == clock.now() + 86_400.0
        clock.advance(86_000.0)
        _, until = await made.cache.recall(ORIGIN)
        assert until == pytest.approx(86_400.0)
        clock.advance(400.0)
        assert await made.cache.recall(ORIGIN) is None

    run(main)


@pytest.mark.parametrize(("sitemaps", "added"), [(True, ["https://a.test/map.xml"]), (False, [])])
def test_sitemaps_in_scope_are_added_where_they_are_wanted(sitemaps, added):
    async def main(clock):
        made = cache_of(clock, [Fetched(response(), 0.0, 1)], sitemaps=sitemaps)
        await read(made)
        assert (made.frontier.added, made.report.open) == (added, len(added))

    run(main)


def test_an_answer_that_says_nothing_is_not_recalled():
    async def main(clock):
        made = cache_of(clock, stored=StoredRobots(503, b"", clock.wall()))
        assert await made.cache.recall(ORIGIN) is None

    run(main)


def test_attempts_are_counted_until_there_is_an_answer():
    async def main(clock):
        later = Deferred(5.0, Reason("transient", "answered 503"), attempts=1)
        made = cache_of(clock, [later, later, Fetched(response(), 0.0, 3)])
        assert await read(made) is later
        assert await read(made) is later
        await read(made)
        assert [visit.attempts for visit in made.visits] == [0, 1, 2]
        assert made.cache.visit_for(HOST, ORIGIN).attempts == 0

    run(main)


def test_an_origin_without_robots_txt_fails_as_a_whole():
    async def main(clock):
        made = cache_of(clock, [FetchFailed(Reason("dns", "no such host"))])
        failed = await read(made)
        assert (failed.reason.category, failed.sent, failed.attempts) == ("robots", True, 0)
        assert "no such host, so robots.txt could not be read" in failed.reason.detail
        refused = FetchFailed(Reason("refused_address", "is private"), sent=False)
        assert await read(cache_of(clock, [refused])) is refused

    run(main)


def test_each_hop_has_a_permit_of_its_own_and_too_many_lead_nowhere():
    async def main(clock):
        hops = [Redirected(response(301, b""), f"https://host{n}.test/robots.txt") for n in range(MOST_HOPS + 1)]
        made = cache_of(clock, hops)
        permits = []

        async def next_permit(visit):
            permits.append((visit.host, FakePermit()))
            return permits[-1][1]

        rules, _ = await read(made, next_permit)
        assert rules.allows(f"{ORIGIN}/private/x")  # there is none, so all is allowed
        assert [host for host, _ in permits] == [f"host{n}.test" for n in range(MOST_HOPS + 1)]
        assert [permit.abandoned for _, permit in permits] == [0] * MOST_HOPS + [1]

    run(main)


def test_a_hop_that_has_to_wait_defers_it_all():
    async def main(clock):
        made = cache_of(clock, [Redirected(response(301, b""), "https://b.test/robots.txt")])
        later = Deferred(60.0, Reason("", "circuit open"))

        async def next_permit(visit):
            return later

        assert await read(made, next_permit) is later

    run(main)
