"""What is urllib3's own: ways of reading a body, Retry, pools, and time, behind the gate."""

from __future__ import annotations

import gc
import threading

import pytest
import urllib3

from headgate.errors import ConfigError
from headgate.integrations.urllib3 import gate


@pytest.fixture
def client():
    return "urllib3"


@pytest.fixture
def manager(lab):
    lab.gate()
    with lab.manager() as manager:
        yield manager


READINGS = {
    "read": lambda response: response.read(),
    "read in parts": lambda response: b"".join(iter(lambda: response.read(3), b"")),
    "read1": lambda response: b"".join(iter(lambda: response.read1(3), b"")),
    "stream": lambda response: b"".join(response.stream(3)),
    "stream by chunks": lambda response: b"".join(response.stream(None)),
    "data": lambda response: response.data,
    "drained": lambda response: response.drain_conn() or b"0123456789",
}


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
def test_body_holds_its_permit_until_it_is_read(lab, manager, reading, chunked):
    lab.home.answers = [lab.Reply(body=b"0123456789", pieces=[b"01234", b"56789"] if chunked else None)]
    response = manager.request("GET", f"{lab.home.origin}/", preload_content=False)
    assert lab.look().in_flight == 1
    assert reading(response) == b"0123456789"
    assert lab.look().in_flight == 0
    assert lab.kinds == ["request_success"]
    response.release_conn()
    assert lab.kinds == ["request_success"]


@pytest.mark.parametrize("how", ["close", "release_conn"])
def test_body_that_is_left_gives_the_permit_back(lab, manager, how):
    never = threading.Event()
    lab.home.answers = [lab.Reply(pieces=[b"a", never])]
    response = manager.request("GET", f"{lab.home.origin}/", preload_content=False)
    assert lab.look().in_flight == 1
    getattr(response, how)()
    assert lab.look().in_flight == 0
    response.close()
    never.set()


def test_answer_that_is_thrown_away_gives_the_permit_back_with_the_next_request(lab, manager):
    never = threading.Event()
    lab.home.answers = [lab.Reply(pieces=[b"a", never]), 200]
    response = manager.request("GET", f"{lab.home.origin}/", preload_content=False)
    del response
    gc.collect()
    manager.request("GET", f"{lab.home.origin}/")
    never.set()
    assert lab.look().in_flight == 0


def test_body_that_breaks_counts_as_a_failure(lab, manager):
    lab.home.answers = [lab.Reply(pieces=[b"a", None])]
    response = manager.request("GET", f"{lab.home.origin}/", preload_content=False)
    with pytest.raises(urllib3.exceptions.ProtocolError):
        response.read()
    assert (lab.look().in_flight, lab.look().consecutive_failures) == (0, 1)


def test_retries_of_urllib3_are_left_to_the_gate(lab, manager):
    lab.home.answers = [500]
    everything = urllib3.Retry(5, status_forcelist=[500], allowed_methods=None, backoff_factor=0)
    assert manager.request("POST", f"{lab.home.origin}/", body=b"x", retries=everything).status == 500
    assert len(lab.sent) == 1


@pytest.mark.parametrize(("retries", "kind"), [(3, "MaxRetryError"), (False, "NewConnectionError")])
def test_errors_look_as_retries_say(lab, manager, retries, kind):
    with pytest.raises(getattr(urllib3.exceptions, kind)):
        manager.request("GET", lab.nobody_there(), retries=retries)
    assert lab.kinds.count("retry_attempt") == 2


def test_redirects_are_followed_as_often_as_retries_say(lab, manager):
    lab.home.answers = [lambda seen: lab.Reply(302, {"Location": f"/{len(lab.sent)}"})]
    with pytest.raises(urllib3.exceptions.MaxRetryError):
        manager.request("GET", f"{lab.home.origin}/", retries=urllib3.Retry(redirect=3))
    assert len(lab.sent) == 4
    assert manager.request("GET", f"{lab.home.origin}/", retries=False).status == 302


def test_no_free_connection_in_ones_own_pool_says_nothing_about_the_host(lab):
    lab.gate()
    with lab.manager(maxsize=1, block=True) as manager:
        held = manager.request("GET", f"{lab.home.origin}/", preload_content=False)
        with pytest.raises(urllib3.exceptions.EmptyPoolError):
            manager.request("GET", f"{lab.home.origin}/", pool_timeout=0.01)
        held.close()
    assert (lab.look().consecutive_failures, len(lab.sent)) == (0, 1)


@pytest.mark.parametrize(("own", "left", "total"), [(None, 2.0, 2.0), (1.0, 2.0, 1.0), (3.0, 2.0, 2.0)])
def test_time_budget_bounds_the_timeouts(lab, manager, own, left, total):
    pool = manager.connection_from_url(lab.home.origin)
    assert pool._within(urllib3.Timeout(total=own), left).total == total


def test_time_between_reads_is_bounded_as_ever(lab):
    never = threading.Event()
    lab.gate(retries=0)
    lab.home.answers = [lambda seen: never.wait(60) and None]
    with lab.manager() as manager, pytest.raises(urllib3.exceptions.ReadTimeoutError):
        manager.request("POST", f"{lab.home.origin}/", timeout=0.03, retries=False)
    never.set()
    assert lab.look().consecutive_failures == 1


def test_manager_of_a_proxy_is_gated_too(lab):
    proxy = lab.origins["elsewhere"]
    proxy.answers = [503, 200]
    with gate(urllib3.ProxyManager(proxy.origin), passing=lab.gate()) as manager:
        assert manager.request("GET", f"{lab.home.origin}/x").status == 200
    assert [seen.path for seen in proxy.seen] == [f"{lab.home.origin}/x"] * 2
    assert lab.look() is not None


def test_manager_is_gated_once(manager):
    with pytest.raises(ConfigError, match="already"):
        gate(manager)
