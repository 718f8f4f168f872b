"""No credential follows a redirect: not to another origin, not down to http, however it is written and however long.

The client follows redirects itself; each hop comes through the gate, which is where it is looked at here.
"""

from __future__ import annotations

import pytest

from headgate import CredentialCoordinator

HOME = "https://api.example.com"
START = f"{HOME}/v1/start"
SECRET = "s3cret-of-home-0001"
KEY_HEADERS = ("x-api-key", "api-key", "X-Goog-Api-Key", "Ocp-Apim-Subscription-Key", "X-Auth-Token", "Authorization")

ELSEWHERE = {
    "another host": "https://evil.example/steal",
    "another host, same path": "https://evil.example/v1/start",
    "a subdomain": "https://api.example.com.evil.example/",
    "a sibling": "https://other.example.com/",
    "the parent domain": "https://example.com/",
    "another port": "https://api.example.com:8443/",
    "downgrade to http": "http://api.example.com/v1/start",
    "downgrade on the same port": "http://api.example.com:443/v1/start",
    "userinfo that looks like home": "https://api.example.com@evil.example/",
    "userinfo with a password": "https://api.example.com:443@evil.example/",
    "userinfo for home": "https://someone:else@evil.example/",
    "without a scheme": "//evil.example/steal",
    "home in the query": "https://evil.example/?next=https://api.example.com",
    "home in the fragment": "https://evil.example/#@api.example.com",
    "upper case": "HTTPS://EVIL.EXAMPLE/",
    "a trailing dot and another label": "https://api.example.com.evil./",
    "an address of a machine": "https://127.0.0.1/",
    "IPv6": "https://[::1]/",
    "punycode": "https://xn--bcher-kva.example/",
    "loopback by name": "http://localhost/",
}
STAYS = {
    "another path": "/v1/other",
    "the same, absolute": "https://api.example.com/v1/other",
    "upper case": "HTTPS://API.EXAMPLE.COM/v1/other",
    "the default port, written": "https://api.example.com:443/v1/other",
}


def redirect(lab, to, status=302):
    return lab.library.Response(status, headers={"location": to})


def carried(request):
    """Everything of a request in which a secret could be."""
    return f"{request.url} {list(request.headers.raw)}"


@pytest.mark.no_cover
@pytest.mark.parametrize("status", [307, pytest.param(302, marks=pytest.mark.chaos)])
@pytest.mark.parametrize("to", ELSEWHERE.values(), ids=ELSEWHERE)
def test_headers_with_keys_do_not_follow(lab, to, status):
    lab.answers = [redirect(lab, to, status), 200]
    headers = dict.fromkeys(KEY_HEADERS, SECRET) | {"X-Request-Id": "harmless"}
    lab.ask("POST", START, headers=headers, json={}, options={"follow_redirects": True})
    first, second = lab.sent
    assert SECRET in carried(first)
    assert SECRET not in carried(second)
    assert second.headers["x-request-id"] == "harmless"


@pytest.mark.no_cover
@pytest.mark.parametrize("to", ELSEWHERE.values(), ids=ELSEWHERE)
def test_leased_credential_goes_to_its_origin_alone(lab, to):
    keys = CredentialCoordinator([SECRET], clock=lab.clock)
    lab.gate(credentials={HOME: (keys, "X-Api-Key: {secret}")})
    lab.answers = [redirect(lab, to), 200]
    answer = lab.ask("GET", START, options={"follow_redirects": True})
    first, second = lab.sent
    assert first.headers["x-api-key"] == SECRET
    assert SECRET not in carried(second)
    assert SECRET not in carried(answer.request)
    assert all(SECRET not in carried(past.request) for past in answer.history)


@pytest.mark.parametrize("to", STAYS.values(), ids=STAYS)
def test_credentials_stay_within_their_origin(lab, to):
    keys = CredentialCoordinator([SECRET], clock=lab.clock)
    lab.gate(credentials={HOME: keys})
    lab.answers = [redirect(lab, to), 200]
    lab.ask("GET", START, headers={"x-other-key": "mine"}, options={"follow_redirects": True})
    assert [sent.headers["authorization"] for sent in lab.sent] == [f"Bearer {SECRET}"] * 2
    assert lab.sent[1].headers["x-other-key"] == "mine"


def test_upgrade_to_https_of_the_same_host_keeps_them_and_the_way_back_does_not(lab):
    lab.answers = [redirect(lab, "https://api.example.com/"), redirect(lab, "http://api.example.com/"), 200]
    lab.ask("GET", "http://api.example.com/", headers={"x-api-key": SECRET}, options={"follow_redirects": True})
    assert ["x-api-key" in sent.headers for sent in lab.sent] == [True, True, False]


def test_open_redirect_of_home_leads_to_nobody_elses_hands(lab):
    """Home itself sends us on, there and back: what was taken off stays off, what is leased is for home alone."""
    keys = CredentialCoordinator([SECRET], clock=lab.clock)
    lab.gate(credentials={HOME: keys})
    lab.answers = [redirect(lab, "https://evil.example/"), redirect(lab, f"{HOME}/v1/back"), 200]
    lab.ask("GET", f"{HOME}/go?to=evil", headers={"x-api-key": "own"}, options={"follow_redirects": True})
    assert [sent.headers.get("authorization") for sent in lab.sent] == [f"Bearer {SECRET}", None, f"Bearer {SECRET}"]
    assert [sent.headers.get("x-api-key") for sent in lab.sent] == ["own", None, None]


def test_long_chain_carries_nothing_and_ends(lab):
    lab.answers = [lambda request: redirect(lab, f"https://hop{len(lab.sent)}.example/")]
    with pytest.raises(lab.library.TooManyRedirects):
        lab.ask("GET", START, headers={"x-api-key": SECRET}, options={"follow_redirects": True, "max_redirects": 10})
    assert len(lab.sent) == 11
    assert all(SECRET not in carried(sent) for sent in lab.sent[1:])


def test_next_request_to_home_is_as_it_was(lab):
    """What is remembered of a request's hops belongs to that request."""
    lab.answers = [200]
    timeouts = {"timeout": {"connect": 1, "read": 1, "write": 1, "pool": 1}}
    lab.ask("GET", START, headers={"x-api-key": SECRET}, extensions=timeouts)
    lab.ask("GET", "https://second.example/", headers={"x-api-key": SECRET}, extensions=timeouts)
    assert [sent.headers["x-api-key"] for sent in lab.sent] == [SECRET] * 2
    assert set(timeouts) == {"timeout"}


@pytest.mark.parametrize(
    ("to", "follows"),
    [("https://other.example.com/", True), ("https://evil.example/", False), ("http://api.example.com/", False)],
)
def test_cookies_stay_within_their_site(lab, to, follows):
    lab.answers = [redirect(lab, to), 200]
    lab.ask("GET", START, options={"follow_redirects": True, "cookies": {"session": SECRET}})
    assert SECRET in carried(lab.sent[0])
    assert (SECRET in carried(lab.sent[1])) is follows


def test_basic_authentication_from_an_address_does_not_follow(lab):
    lab.answers = [redirect(lab, "https://evil.example/"), 200]
    lab.ask("GET", f"https://me:{SECRET}@api.example.com/", options={"follow_redirects": True})
    assert "authorization" in lab.sent[0].headers
    assert "authorization" not in lab.sent[1].headers
    assert SECRET not in carried(lab.sent[1])


def test_leased_credential_takes_the_place_of_the_clients_own(lab):
    keys = CredentialCoordinator([SECRET], clock=lab.clock)
    lab.gate(credentials={HOME: keys})
    lab.answers = [200]
    lab.ask("GET", START, headers={"Authorization": "Bearer stand-in"})
    assert lab.sent[0].headers.get_list("authorization") == [f"Bearer {SECRET}"]


def test_body_of_a_generator_is_not_sent_along(lab):
    lab.answers = [redirect(lab, "https://evil.example/", 307), 200]

    def pieces():
        yield b"once"

    async def pieces_async():
        yield b"once"

    content = pieces_async() if lab.is_async else pieces()
    with pytest.raises(lab.library.StreamConsumed):
        lab.ask("POST", START, content=content, options={"follow_redirects": True})
    assert lab.bodies == [b"once"]


def test_refused_credential_gives_way_to_the_next(lab):
    keys = CredentialCoordinator(["first-key-0001", "second-key-0002"], clock=lab.clock)
    lab.gate(credentials={HOME: keys})
    lab.answers = [
        lambda request: lab.library.Response(401 if "first" in request.headers["authorization"] else 200, json={})
    ]
    assert lab.ask("POST", START, json={}).status_code == 200
    assert lab.ask("POST", START, json={}).status_code == 200
    assert sum("first" in sent.headers["authorization"] for sent in lab.sent) == 1
