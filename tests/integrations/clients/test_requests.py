"""What is requests' own: streams, timeouts, proxies, cookies, and an adapter that is mounted for https alone."""

from __future__ import annotations

import gc
import threading

import pytest
import requests

from headgate.integrations.requests import Adapter

SECRET = "s3cret-of-home-0001"


@pytest.fixture
def client():
    return "requests"


@pytest.fixture
def session(lab):
    lab.gate()
    with lab.requests_session() as session:
        yield session


def test_streamed_body_holds_its_permit_to_the_end(lab, session):
    goes_on = threading.Event()
    lab.home.answers = [lab.Reply(pieces=[b"one\n", goes_on, b"two\n"])]
    with session.get(f"{lab.home.origin}/", stream=True) as response:
        lines = response.iter_lines(chunk_size=None)
        assert next(lines) == b"one", "it comes when it is sent"
        assert lab.look().in_flight == 1
        goes_on.set()
        assert list(lines) == [b"two"]
        assert lab.look().in_flight == 0
    assert lab.kinds == ["request_success"]


def test_stream_that_is_left_gives_the_permit_back(lab, session):
    never = threading.Event()
    lab.home.answers = [lab.Reply(pieces=[b"one", never])]
    with session.get(f"{lab.home.origin}/", stream=True) as response:
        next(response.iter_content(None))
    never.set()
    assert lab.look().in_flight == 0


def test_stream_that_is_thrown_away_gives_the_permit_back_with_the_next_request(lab, session):
    never = threading.Event()
    lab.home.answers = [lab.Reply(pieces=[b"one", never]), 200]
    response = session.get(f"{lab.home.origin}/", stream=True)
    del response
    gc.collect()
    session.get(f"{lab.home.origin}/")
    never.set()
    assert lab.look().in_flight == 0


def test_body_that_breaks_counts_as_a_failure_and_is_not_repeated(lab, session):
    lab.home.answers = [lab.Reply(pieces=[b"a", None])]
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        session.get(f"{lab.home.origin}/")
    assert len(lab.sent) == 1
    assert (lab.look().in_flight, lab.look().consecutive_failures) == (0, 1)


@pytest.mark.parametrize("stream", [False, True])
def test_time_between_reads_is_bounded_as_ever(lab, stream):
    never = threading.Event()
    lab.gate(retries=0)
    lab.home.answers = [lambda seen: never.wait(60) and None]
    with lab.requests_session() as session, pytest.raises(requests.ReadTimeout):
        session.get(f"{lab.home.origin}/", timeout=0.03, stream=stream)
    never.set()
    assert lab.look().consecutive_failures == 1


def test_post_that_timed_out_is_not_sent_twice(lab, session):
    never = threading.Event()
    lab.home.answers = [lambda seen: never.wait(60) and None]
    with pytest.raises(requests.ReadTimeout):
        session.post(f"{lab.home.origin}/", data="x", timeout=1.0)
    never.set()
    assert len(lab.sent) == 1


def test_through_a_proxy_the_line_is_the_hosts(lab, session):
    proxy = lab.origins["elsewhere"]
    proxy.answers = [lab.Reply(429, {"Retry-After": "2"}), 200]
    answer = session.get(f"{lab.home.origin}/x", proxies={"http": proxy.origin})
    assert answer.status_code == 200
    assert [seen.path for seen in proxy.seen] == [f"{lab.home.origin}/x"] * 2
    assert lab.look() is not None


@pytest.mark.parametrize("location", ["{home}/", "{elsewhere}/", "//{elsewhere_host}/", "http://[::1"])
def test_mounted_for_https_alone_no_key_goes_down_to_http(lab, location, ca):
    """The hop to http is sent by requests' own adapter, which knows nothing of keys."""
    home, elsewhere = lab.origins["home_tls"], lab.origins["elsewhere"]
    names = {"home": lab.home.origin, "elsewhere": elsewhere.origin, "elsewhere_host": elsewhere.origin[7:]}
    home.answers = [lab.Reply(302, {"Location": location.format(**names)}, b"")]
    with requests.Session() as session:
        session.verify, session.trust_env = ca[1], False
        session.mount("https://", Adapter(passing=lab.gate(retries=0)))
        try:
            answer = session.get(f"{home.origin}/", headers={"x-api-key": SECRET})
        except (requests.RequestException, ValueError):
            answer = None
    assert home.seen[0].headers["x-api-key"] == SECRET
    assert all(SECRET not in str(seen) for seen in (*lab.home.seen, *elsewhere.seen))
    if answer is not None:
        assert answer.history[0].request.headers["x-api-key"] == SECRET, "what was sent is still told"


def test_cookies_without_a_domain_do_not_follow_to_another_site(lab, session):
    elsewhere = lab.origins["elsewhere"]
    lab.home.answers = [lab.Reply(302, {"Location": f"http://localhost:{elsewhere.server_port}/"})]
    session.cookies.set("session", SECRET)
    session.get(f"{lab.home.origin}/", cookies={"other": SECRET})
    assert str(lab.sent[0]).count(SECRET) == 2
    assert SECRET not in str(elsewhere.seen[0])


def test_password_does_not_follow(lab, session):
    elsewhere = lab.origins["elsewhere"]
    lab.home.answers = [lab.Reply(307, {"Location": elsewhere.origin})]
    session.get(f"{lab.home.origin}/", auth=("me", SECRET))
    assert "authorization" in lab.sent[0].headers
    assert "authorization" not in elsewhere.seen[0].headers


def test_cookies_of_an_answer_are_kept_also_of_an_error(lab, session):
    lab.home.answers = [lab.Reply(404, {"Set-Cookie": "a=b", "Content-Type": "application/json"})]
    session.get(f"{lab.home.origin}/")
    assert session.cookies["a"] == "b"
