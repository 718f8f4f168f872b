"""One host of a crawl, as it decides alone: what may be visited, what is next, and when."""

from headgate.crawl.fetch.gated_fetcher import FetchFailed
from headgate.crawl.frontier import Reason, Visit
from headgate.crawl.robots import Rules
from headgate.crawl.scheduler import FORBIDDEN, Host

ORIGIN = "https://a.test"
LONG = 1e9


def visit(number, path, attempts=0, origin=ORIGIN):
    return Visit(number, f"{origin}{path}", "a.test", 0, attempts=attempts)


def test_what_the_rules_forbid_is_not_queued_and_leaves_the_queue():
    host = Host("a.test", 0.2)
    kept, hidden = visit(1, "/page"), visit(2, "/private/x")
    assert host.add(kept) is None
    assert host.add(hidden) is None  # nothing is known yet
    rejected = host.set_rules(ORIGIN, Rules.parse(b"User-agent: *\nDisallow: /private", "headgate"), LONG)
    assert rejected == [(hidden, FORBIDDEN)]
    assert list(host.queue) == [kept]
    assert host.add(visit(3, "/private/y")) is FORBIDDEN


def test_rules_are_those_of_one_origin_and_until_their_time():
    host = Host("a.test", 0.2)
    host.set_rules(ORIGIN, Rules(), 10.0)
    assert host.knows_rules_of(f"{ORIGIN}/page", 9.9)
    assert not host.knows_rules_of(f"{ORIGIN}/page", 10.0)
    assert not host.knows_rules_of("http://a.test/page", 0.0)


def test_an_origin_that_cannot_be_reached_takes_only_its_own_urls_along():
    host = Host("a.test", 0.2)
    lost, kept = visit(1, "/page"), visit(2, "/page", origin="http://a.test")
    for one in (lost, kept):
        host.add(one)
    why = FetchFailed(Reason("robots", "could not be read"), attempts=0)
    assert host.mark_unreachable(ORIGIN, why) == [(lost, why)]
    assert list(host.queue) == [kept]
    assert host.add(visit(3, "/other")) is why


def test_a_url_is_taken_for_its_own_origin_once_its_rules_are_known():
    host = Host("a.test", 0.2)
    plain, secure = visit(1, "/page", origin="http://a.test"), visit(2, "/page")
    for one in (plain, secure):
        host.add(one)
    assert host.take(ORIGIN, 0.0) is None
    host.set_rules(ORIGIN, Rules(), LONG)
    assert host.take(ORIGIN, 0.0) == secure
    assert host.take(ORIGIN, 0.0) is None
    assert host.take_all() == [plain]
    assert not host.queue


def test_retries_wait_for_their_budget_and_first_visits_do_not():
    host = Host("a.test", 0.0)
    host.set_rules(ORIGIN, Rules(), LONG)
    retries = [visit(number, f"/{number}", attempts=1) for number in range(1, 6)]
    for one in retries:
        host.add(one)
    started = [one for _ in retries if (one := host.take(ORIGIN, 0.0)) is not None]
    assert len(started) == 3  # as many as always may
    assert host.first(0.0) is None
    fresh = visit(9, "/fresh")
    host.add(fresh)
    assert host.first(0.0) == fresh
    host.budget.ended()
    assert host.first(0.0) == retries[3]


def test_the_longest_delay_counts():
    host = Host("a.test", 0.2)
    host.start_delay(5.0, 0.0)
    assert host.next_at < 5.0
    host.set_rules(ORIGIN, Rules(delay=2.0), LONG)
    host.start_delay(5.0, 1.0)
    assert host.next_at == 7.0
    host.start_delay(5.0, 3.0)
    assert host.next_at == 8.0
