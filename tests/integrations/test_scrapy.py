"""The real Scrapy behind the gate, in a process of its own, against sites on loopback. These wait for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integrations.logged_site import Site, needs

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]

PROGRAM = Path(__file__).with_name("scrapy_crawl.py")
HERE, THERE, YONDER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
SLACK = 0.02
"""Seconds that clocks of two processes and a socket may differ by."""
FAST = {"strategy": "fixed", "initial_rps": 100.0}


@pytest.fixture(autouse=True)
def crawl_here(tmp_path, monkeypatch):
    needs("scrapy")
    monkeypatch.chdir(tmp_path)


def start(requests, hold=None, **settings):
    given = {"requests": requests, "hold": hold, "settings": settings}
    environment = {**os.environ, "HEADGATE_STATE": str(Path.cwd())}
    words = [sys.executable, str(PROGRAM), json.dumps(given)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def result(process):
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return json.loads(said)


def crawl(requests, hold=None, **settings):
    return result(start(requests, hold, **settings))


def pages(server, number, host=HERE, **more):
    return [{"url": server.url(f"/p/{one}", host), **more} for one in range(number)]


def fine(site, host, path, headers):
    return (200,)


def quota(rate):
    return lambda site, host, path, headers: (200,) if site.lets_in(host, rate) else (429,)


def statuses(told):
    return sorted(status for _, status in told["answers"])


# ---------------------------------------------------------------------- pace


def test_hidden_quota_is_learned():
    with Site(quota(20.0), latency=0.02) as server:
        told = crawl(pages(server, 300))
        refused, took = len(server.of(status=429)), server.log[-1].at - server.log[0].at
    assert statuses(told) == [200] * 300
    assert told["failures"] == []
    assert refused <= 9, "3 % while it learns"
    assert 300 / took > 0.8 * 20.0, f"{300 / took:.1f} pages/s"


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_never_undercut(status):
    """For all of the host, and with several requests at once: only what was under way already may still arrive."""
    asks = iter(range(1000))

    def answer(site, host, path, headers):
        return (status, {"Retry-After": "2"}) if next(asks) in (10, 25) else (200,)

    with Site(answer) as server:
        told = crawl(pages(server, 40), hold=FAST, CONCURRENT_REQUESTS_PER_DOMAIN=4)
        at = [one.at for one in server.log]
        refused = [one.at for one in server.log if one.status == status]
    assert statuses(told) == [200] * 40
    for refusal in refused:
        early = [one - refusal for one in at if 0.0 < one - refusal < 2.0 - SLACK]
        assert all(one < 0.1 for one in early), early
        assert len(early) <= 3, "no more than were under way"


def test_waiting_host_takes_no_place_from_the_others():
    """Sixteen that ask for a long pause, two places in all, and one host that is well."""
    sick = [f"127.0.0.{number}" for number in range(10, 26)]

    def answer(site, host, path, headers):
        return (429, {"Retry-After": "5"}) if host in sick else (200,)

    def took(server):
        return server.of(HERE)[-1].at - server.of(HERE)[0].at

    places = {"CONCURRENT_REQUESTS": 2, "hold": FAST, "HEADGATE_MAX_WAIT": 4.0}
    with Site(answer, hosts=[HERE, *sick], latency=0.02) as server:
        crawl(pages(server, 150), **places)
        alone, before = took(server), len(server.log)
        server.log.clear()
        waiting = [request for host in sick for request in pages(server, 5, host)]
        told = crawl(waiting + pages(server, 150), **places)
        beside, asked = took(server), len(server.log) - len(server.of(HERE))
    assert before == 150
    assert len([url for url, status in told["answers"] if status == 200]) == 150
    assert beside < 1.5 * alone + 0.5, f"{beside:.2f} s beside sick hosts, {alone:.2f} s alone"
    assert len(told["failures"]) == 80, "each is told what is in the way"
    assert asked <= 16 * 3, "and hardly any was sent"


def test_quota_is_shared_by_two_crawls():
    limits = {"HEADGATE_LIMITS": {"requests": "20/s"}, "HEADGATE_STORE": "machine"}
    with Site(fine) as server:
        both = [start(pages(server, 100), **limits) for _ in range(2)]
        told = [result(one) for one in both]
        at = [one.at for one in server.log]
    assert [statuses(one) for one in told] == [[200] * 100] * 2
    fullest = max(sum(one <= other < one + 1.0 for other in at) for one in at)
    assert fullest <= 20 * 1.15, f"{fullest} within a second"


def test_middleware_works_without_the_rest():
    """Waits are in the downloader then, and Scrapy's own retries apply."""
    alone = {"DOWNLOADER_MIDDLEWARES": {"headgate.integrations.scrapy.DownloaderMiddleware": 950}, "ADDONS": {}}
    with Site(quota(20.0)) as server:
        told = crawl(pages(server, 60), HEADGATE_LIMITS={"requests": "15/s"}, **alone)
        assert server.of(status=429) == []
    assert statuses(told) == [200] * 60


# ---------------------------------------------------------------------- failures


def test_open_circuit_puts_off_and_drops_nothing():
    def answer(site, host, path, headers):
        return (500,) if time.monotonic() < site.well_at else (200,)

    hold = {**FAST, "open_state_duration": 0.5}
    with Site(answer) as server:
        server.well_at = time.monotonic() + 6.0
        told = crawl(pages(server, 40), hold=hold)
        failed = server.of(status=500)
        last = failed[-1].at - failed[0].at
    assert told["failures"] == []
    assert statuses(told) == [200] * 40
    assert last > 1.5, "it was down for a while"
    assert len(failed) < 30, "and was hardly asked meanwhile"


def test_host_that_stays_down_is_refused_aloud():
    with Site(lambda *_: (500,)) as server:
        hold = {**FAST, "open_state_duration": 0.5}
        told = crawl(pages(server, 60), hold=hold, HEADGATE_MAX_WAIT=3.0)
        asked = len(server.log)
    assert told["answers"] == []
    assert len(told["failures"]) == 60, "none is dropped silently"
    assert "CircuitOpenError" in {name for _, name, _ in told["failures"]}
    assert asked < 30


def test_refused_connections_are_waited_out():
    """Nothing listens there: errors without an answer count as the host's."""
    with Site(fine) as server:
        port = server.port
    told = crawl([{"url": f"http://{HERE}:{port}/{one}"} for one in range(20)], hold=FAST, HEADGATE_MAX_WAIT=1.0)
    assert len(told["failures"]) == 20
    assert "CircuitOpenError" in {name for _, name, _ in told["failures"]}


def test_failures_back_off_and_429_uses_up_no_attempt():
    seen = {}

    def answer(site, host, path, headers):
        seen[path] = seen.get(path, 0) + 1
        return (429,) if path == "/p/0" and seen[path] <= 6 else (502,) if path == "/p/1" else (200,)

    with Site(answer) as server:
        told = crawl(pages(server, 10), hold=FAST)
    assert seen["/p/0"] == 7
    assert seen["/p/1"] == 3, "RETRY_TIMES is 2"
    assert statuses(told) == [200] * 9
    assert told["stats"]["headgate/turned_away"] == 6


@pytest.mark.parametrize(("status", "asked"), [(500, 1), (429, 2)])
def test_post_is_sent_again_only_if_it_was_turned_away(status, asked):
    asks = iter(range(100))
    with Site(lambda *_: (status if next(asks) == 0 else 200,)) as server:
        crawl([{"url": server.url("/order"), "method": "POST", "body": "one"}], hold=FAST)
        assert len(server.log) == asked


def test_robots_txt_goes_through_the_same_lane():
    """Even where one call at a time is let through, the page does not wait for its robots.txt for ever."""

    def answer(site, host, path, headers):
        return (200, {}, "User-agent: *\nDisallow: /p/3") if path == "/robots.txt" else (200,)

    with Site(answer) as server:
        began_at = time.monotonic()
        told = crawl(pages(server, 10), ROBOTSTXT_OBEY=True, HEADGATE_LIMITS={"requests": "4/s"})
        took = time.monotonic() - began_at
    assert len(told["answers"]) == 9
    assert server.log[0].path == "/robots.txt"
    assert len(server.log) == 10
    assert took >= 2.0, "four calls in each second; how close they arrive is the machine's"


def test_interrupted_crawl_goes_on_with_what_was_waiting():
    with Site(fine) as server:
        requests = pages(server, 60, dont_filter=False)
        job = {"JOBDIR": "job", "HEADGATE_LIMITS": {"requests": "30/s"}}
        first = crawl(requests, CLOSESPIDER_PAGECOUNT=15, **job)
        second = crawl(requests, **job)
        assert len(server.log) == 60, "each once"
    assert len(first["answers"]) + len(second["answers"]) == 60
    assert len(second["answers"]) > 20


# ---------------------------------------------------------------------- credentials


SECRETS = {"Authorization": "Bearer s3cret", "X-Api-Key": "s3cret", "X-Auth-Token": "s3cret", "Cookie": "id=s3cret"}
HOPS = {
    "301": (301, THERE),
    "302": (302, THERE),
    "303": (303, THERE),
    "307": (307, THERE),
    "308": (308, THERE),
    "open": (302, YONDER),
    "long": (302, THERE),
    "login": (302, "me:pw@" + THERE),
}


def test_credentials_do_not_follow_a_redirect_to_another_origin():
    """By every status, over several hops, by a meta refresh, from a retry on the other side, and from the settings."""
    retried = iter((500,))

    def answer(site, host, path, headers):
        name = path.strip("/").partition("/")[0]
        if host == HERE and name in HOPS:
            status, where = HOPS[name]
            return status, {"Location": f"http://{where}:{site.port}/{name}"}
        if host == HERE and name == "refresh":
            return 200, {}, f'<meta http-equiv="refresh" content="0; url=http://{THERE}:{site.port}/refreshed">'
        if host == HERE and name == "retry":
            return 307, {"Location": f"http://{THERE}:{site.port}/retried"}
        if name == "retried":
            return (next(retried, 200),)
        if host == THERE and name == "long":
            return 302, {"Location": f"http://{YONDER}:{site.port}/end"}
        return (200,)

    with Site(answer, hosts=[HERE, THERE, YONDER]) as server:
        requests = [{"url": server.url(f"/{name}"), "headers": SECRETS} for name in [*HOPS, "refresh", "retry"]]
        by_default = {"DEFAULT_REQUEST_HEADERS": {"X-Default-Token": "s3cret"}}
        told = crawl(requests, hold=FAST, COOKIES_ENABLED=False, **by_default)
        first, elsewhere = server.of(HERE), server.of(THERE) + server.of(YONDER)
    assert [url.rpartition("/")[2] for url, _, _ in told["failures"]] == ["login"], (
        "Scrapy takes no login in an address"
    )
    assert len(told["answers"]) == len(requests) - 1
    assert all("s3cret" in str(one.headers) for one in first)
    assert len(elsewhere) == len(HOPS) - 1 + 1 + 1 + 2
    assert [one for one in elsewhere if "s3cret" in str(one.headers)] == []


def test_redirect_within_an_origin_keeps_its_credentials():
    def answer(site, host, path, headers):
        return (302, {"Location": "/new"}) if path == "/old" else (200,)

    with Site(answer) as server:
        crawl([{"url": server.url("/old"), "headers": SECRETS}], COOKIES_ENABLED=False)
        assert all(server.log[1].headers[name] == value for name, value in SECRETS.items())


def test_redirect_stands_in_the_line_of_its_own_host():
    """Its first host is limited to a few; where it leads to is not."""

    def answer(site, host, path, headers):
        return (302, {"Location": f"http://{THERE}:{site.port}{path}"}) if host == HERE else (429, {"Retry-After": "3"})

    with Site(answer, hosts=[HERE, THERE]) as server:
        crawl(pages(server, 20), hold=FAST, HEADGATE_MAX_WAIT=1.0)
        assert len(server.of(HERE)) == 20, "the pause of the other host is not its own"
        assert len(server.of(THERE)) < 10


# ---------------------------------------------------------------------- settings


def test_addon_puts_everything_in_its_place():
    from scrapy.downloadermiddlewares.retry import RetryMiddleware as ScrapysOwn
    from scrapy.settings import Settings

    from headgate.integrations.scrapy import Addon, DownloaderMiddleware, PriorityQueue, RetryMiddleware

    settings = Settings({"AUTOTHROTTLE_ENABLED": True}, priority="spider")
    Addon().update_settings(settings)
    places = settings.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")
    places = {getattr(one, "__name__", one): place for one, place in places.items()}
    assert settings.getbool("AUTOTHROTTLE_ENABLED") is False
    assert settings["SCHEDULER_PRIORITY_QUEUE"] is PriorityQueue
    assert settings["DOWNLOADER_MIDDLEWARES"][ScrapysOwn] is None
    assert settings["DOWNLOADER_MIDDLEWARES"][RetryMiddleware] == 550
    assert settings["DOWNLOADER_MIDDLEWARES"][DownloaderMiddleware] == 950


def test_addon_leaves_a_retry_middleware_of_the_projects_own_alone():
    from scrapy.settings import Settings

    from headgate.integrations.scrapy import Addon, RetryMiddleware

    off = {"scrapy.downloadermiddlewares.retry.RetryMiddleware": None}
    settings = Settings({"DOWNLOADER_MIDDLEWARES": off})
    Addon().update_settings(settings)
    assert RetryMiddleware not in settings["DOWNLOADER_MIDDLEWARES"]
