"""No credential follows a redirect, whichever client: not to another origin, not down to http.

Every client follows redirects above the gate, so each hop comes through it. The servers' own logs say what came.
"""

from __future__ import annotations

from contextlib import suppress

import aiohttp
import pytest
import requests
import urllib3

from headgate import CredentialCoordinator

SECRET = "s3cret-of-home-0001"
KEY_HEADERS = ("x-api-key", "api-key", "X-Goog-Api-Key", "Ocp-Apim-Subscription-Key", "X-Auth-Token", "Authorization")
HEADERS = dict.fromkeys(KEY_HEADERS, SECRET) | {"X-Request-Id": "harmless"}

ELSEWHERE = {
    "another port": "http://127.0.0.1:{elsewhere}/steal",
    "another port, same path": "http://127.0.0.1:{elsewhere}/v1/start",
    "another name of the same host": "http://localhost:{home}/steal",
    "another name and port": "http://localhost:{elsewhere}/steal",
    "another port with https": "https://127.0.0.1:{elsewhere_tls}/steal",
    "userinfo that looks like home": "http://127.0.0.1:{home}@127.0.0.1:{elsewhere}/steal",
    "userinfo with a password": "http://someone:else@127.0.0.1:{elsewhere}/steal",
    "userinfo and home's name in https": "https://localhost@127.0.0.1:{elsewhere_tls}/steal",
    "without a scheme": "//127.0.0.1:{same_scheme}/steal",
    "home in the query": "http://127.0.0.1:{elsewhere}/?next=http://127.0.0.1:{home}",
    "home in the fragment": "http://127.0.0.1:{elsewhere}/#@127.0.0.1:{home}",
    "home in the path": "http://127.0.0.1:{elsewhere}/127.0.0.1:{home}/",
    "upper case": "HTTP://LOCALHOST:{elsewhere}/STEAL",
}
ODD = {
    "a backslash": "http://127.0.0.1:{elsewhere}\\@127.0.0.1:{home}/",
    "a backslash the other way": "http://127.0.0.1:{home}\\@127.0.0.1:{elsewhere}/",
    "backslashes for slashes": "\\\\127.0.0.1:{elsewhere}\\steal",
    "one slash": "http:/127.0.0.1:{elsewhere}/steal",
    "three slashes": "http:///127.0.0.1:{elsewhere}/steal",
    "a tab": "http://127.0.0.1:{elsewhere}\t/steal",
    "two at signs": "http://a@127.0.0.1:{home}@127.0.0.1:{elsewhere}/",
    "an encoded at sign": "http://127.0.0.1:{home}%40127.0.0.1:{elsewhere}/",
    "a number for an address": "http://2130706433:{elsewhere}/",
    "no address": "http://[::1",
    "another scheme": "ftp://127.0.0.1:{elsewhere}/",
}


@pytest.fixture
def to(lab):
    ports = {name: server.server_port for name, server in lab.origins.items()}

    def written_out(text, start="home"):
        return text.format(**ports, same_scheme=ports[start.replace("home", "elsewhere")])

    return written_out


def redirect(lab, location, status=302):
    return lab.Reply(status, {"Location": location}, b"")


def elsewhere(lab, home):
    """What came to any other origin; ``localhost`` is another one, on whichever port."""
    return [seen for server in lab.origins.values() for seen in server.seen if server is not home or _is_alias(seen)]


def _is_alias(seen):
    return seen.headers["host"].startswith("localhost")


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("start", "status"),
    [
        ("home_tls", 307),
        *(pytest.param(*one, marks=pytest.mark.chaos) for one in (("home", 302), ("home", 307), ("home_tls", 302))),
    ],
)
@pytest.mark.parametrize("location", ELSEWHERE.values(), ids=ELSEWHERE)
def test_headers_with_keys_do_not_follow(lab, to, location, start, status):
    home = lab.origins[start]
    home.answers = [redirect(lab, to(location, start), status), 200]
    answer = lab.ask("POST", f"{home.origin}/v1/start", headers=HEADERS, body=b"x")
    assert answer.status == 200
    assert SECRET in str(home.seen[0])
    (stranger,) = elsewhere(lab, home)
    assert SECRET not in str(stranger)
    assert stranger.headers["x-request-id"] == "harmless"


@pytest.mark.no_cover
@pytest.mark.parametrize("start", ["home", "home_tls"])
@pytest.mark.parametrize("location", ELSEWHERE.values(), ids=ELSEWHERE)
def test_leased_credential_goes_to_its_origin_alone(lab, to, location, start):
    home = lab.origins[start]
    keys = CredentialCoordinator([SECRET], clock=lab.clock)
    lab.gate(credentials={home.origin: (keys, "X-Api-Key: {secret}")})
    home.answers = [redirect(lab, to(location, start)), 200]
    answer = lab.ask("GET", f"{home.origin}/v1/start")
    assert home.seen[0].headers["x-api-key"] == SECRET
    (stranger,) = elsewhere(lab, home)
    assert SECRET not in str(stranger)
    assert SECRET not in answer.asked_with, "what the client shows of its requests says nothing of it"


@pytest.mark.no_cover
@pytest.mark.parametrize("location", ODD.values(), ids=ODD)
def test_odd_address_gets_nothing_whatever_the_client_makes_of_it(lab, to, location):
    keys = CredentialCoordinator(["leased-" + SECRET], clock=lab.clock)
    lab.gate(credentials={lab.home.origin: (keys, "X-Leased: {secret}")}, retries=0)
    lab.home.answers = [redirect(lab, to(location)), 200]
    with suppress(Exception):
        lab.ask("GET", headers=HEADERS)
    assert SECRET in str(lab.sent[0])
    assert all(SECRET not in str(seen) for seen in elsewhere(lab, lab.home))


@pytest.mark.parametrize(
    "location", ["/v1/other", "other", "?a=b", "http://127.0.0.1:{home}/v1/other", "HTTP://127.0.0.1:{home}/v1/other"]
)
def test_credentials_stay_within_their_origin(lab, to, location):
    keys = CredentialCoordinator([SECRET], clock=lab.clock)
    lab.gate(credentials={lab.home.origin: keys})
    lab.home.answers = [redirect(lab, to(location)), 200]
    lab.ask("GET", headers={"x-other-key": "mine"})
    assert [seen.headers["authorization"] for seen in lab.sent] == [f"Bearer {SECRET}"] * 2
    assert lab.sent[1].headers["x-other-key"] == "mine"


def test_downgrade_on_the_same_host_carries_nothing(lab, to):
    home = lab.origins["home_tls"]
    home.answers = [redirect(lab, to("http://127.0.0.1:{home}/v1/start")), 200]
    lab.ask("GET", f"{home.origin}/v1/start", headers=HEADERS)
    (plain,) = lab.home.seen
    assert SECRET not in str(plain)


@pytest.mark.parametrize("start", ["home", "home_tls"])
def test_cookies_do_not_follow_to_another_site(lab, to, start):
    home = lab.origins[start]
    home.answers = [redirect(lab, to("http://localhost:{elsewhere}/")), 200]
    lab.ask("GET", f"{home.origin}/v1/start", headers={"Cookie": f"session={SECRET}"})
    assert SECRET in str(home.seen[0])
    (stranger,) = lab.origins["elsewhere"].seen
    assert SECRET not in str(stranger)


def test_open_redirect_there_and_back_brings_nothing_back(lab, to):
    """What was taken off elsewhere stays off; what is leased is for home alone."""
    keys = CredentialCoordinator([SECRET], clock=lab.clock)
    lab.gate(credentials={lab.home.origin: keys})
    lab.home.answers = [redirect(lab, to("http://127.0.0.1:{elsewhere}/")), 200]
    lab.origins["elsewhere"].answers = [redirect(lab, to("http://127.0.0.1:{home}/back"))]
    lab.ask("GET", "/go?to=elsewhere", headers={"x-api-key": "own"})
    (stranger,) = lab.origins["elsewhere"].seen
    assert [seen.headers.get("authorization") for seen in lab.sent] == [f"Bearer {SECRET}"] * 2
    assert [seen.headers.get("x-api-key") for seen in lab.sent] == ["own", None]
    assert "authorization" not in stranger.headers
    assert "x-api-key" not in stranger.headers


def test_long_chain_carries_nothing_and_ends(lab, to):
    def hop(seen):
        return redirect(lab, to("http://localhost:{elsewhere}/") + f"?{len(lab.origins['elsewhere'].seen)}")

    lab.home.answers = [hop]
    lab.origins["elsewhere"].answers = [hop]
    most = {"aiohttp": {"max_redirects": 10}, "urllib3": {"retries": 9}, "requests": {}}[lab.client]
    with pytest.raises((aiohttp.TooManyRedirects, requests.TooManyRedirects, urllib3.exceptions.MaxRetryError)):
        lab.ask("GET", headers=HEADERS, **most)
    strangers = lab.origins["elsewhere"].seen
    assert 8 <= len(strangers) <= 30
    assert all(SECRET not in str(seen) for seen in strangers)


def test_next_request_is_as_it_was(lab):
    """What is remembered of a request's hops belongs to that request."""
    lab.home.answers = [redirect(lab, "/v1/other"), 200]
    lab.ask("GET", headers=HEADERS)
    lab.ask("GET", f"{lab.origins['elsewhere'].origin}/", headers=HEADERS)
    assert SECRET in str(lab.origins["elsewhere"].seen[0]), "that is where it was sent by its own will"


def test_redirect_that_is_not_followed_is_handed_over(lab, to):
    lab.home.answers = [redirect(lab, to("http://127.0.0.1:{elsewhere}/")), 200]
    answer = lab.ask("GET", headers=HEADERS, follow=False)
    assert answer.status == 302
    assert lab.origins["elsewhere"].seen == []


@pytest.mark.parametrize("status", [307, 308])
def test_body_of_a_generator_is_not_sent_along(lab, to, status):
    def once():
        yield b"once"

    async def once_async():
        yield b"once"

    lab.home.answers = [redirect(lab, to("http://127.0.0.1:{elsewhere}/"), status), 200]
    with suppress(Exception):
        lab.ask("POST", body=once_async() if lab.client == "aiohttp" else once())
    bodies = [seen.body for server in lab.origins.values() for seen in server.seen if seen.body]
    assert bodies == [b"once"]


def test_leased_credential_takes_the_place_of_the_clients_own(lab):
    keys = CredentialCoordinator([SECRET], clock=lab.clock)
    lab.gate(credentials={lab.home.origin: keys})
    lab.ask("GET", headers={"Authorization": "Bearer stand-in"})
    assert lab.sent[0].headers["authorization"] == f"Bearer {SECRET}"


def test_refused_credential_gives_way_to_the_next(lab):
    keys = CredentialCoordinator(["first-key-0001", "second-key-0002"], clock=lab.clock)
    lab.gate(credentials={lab.home.origin: keys})
    lab.home.answers = [lambda seen: lab.Reply(401 if "first" in seen.headers["authorization"] else 200)]
    assert lab.ask("POST", body=b"x").status == 200
    assert lab.ask("POST", body=b"x").status == 200
    assert sum("first" in seen.headers["authorization"] for seen in lab.sent) == 1
