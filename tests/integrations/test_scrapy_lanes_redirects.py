"""What a Scrapy request must not take along to the next hop; decided on plain data, without Scrapy."""

from __future__ import annotations

import pytest

from headgate.integrations.scrapy_lanes import leave_slot_of_other_host, secrets_to_drop

HOME = "https://home.example/a"
HEADERS = ["X-Api-Key", "X-Auth-Token", "Accept", "Authorization", "Cookie", "Proxy-Authorization"]
OURS = ["X-Api-Key", "X-Auth-Token"]


def redirected(meta, url):
    """As Scrapy's redirects do: all of ``meta`` goes along."""
    return {**meta, "redirect_urls": [*meta.get("redirect_urls", []), url]}


@pytest.mark.parametrize(
    ("there", "dropped"),
    [
        ("https://home.example/b", []),
        ("https://HOME.example:443/b", []),
        ("https://evil.example/", OURS),
        ("https://www.home.example/", OURS),
        ("http://home.example/b", OURS),
        ("https://home.example:8443/b", OURS),
        ("https://home.example@evil.example/", OURS),
        ("https://home.example.evil.example/", OURS),
    ],
)
def test_headers_stay_with_their_origin(there, dropped):
    """``Authorization`` and cookies are Scrapy's own business, and those of a proxy are no server's."""
    meta = {}
    assert secrets_to_drop(meta, HOME, HEADERS) == []
    assert secrets_to_drop(redirected(meta, HOME), there, HEADERS) == dropped


def test_from_http_up_to_https_of_the_same_host_they_may_go_along():
    meta = {}
    secrets_to_drop(meta, "http://home.example/a", HEADERS)
    assert secrets_to_drop(redirected(meta, "http://home.example/a"), HOME, HEADERS) == []


def test_back_home_nothing_is_trusted_that_came_from_elsewhere():
    meta = {}
    secrets_to_drop(meta, HOME, HEADERS)
    meta = redirected(meta, HOME)
    assert secrets_to_drop(meta, "https://evil.example/", HEADERS) == OURS
    meta = redirected(meta, "https://evil.example/")
    assert secrets_to_drop(meta, "https://worse.example/", HEADERS) == OURS


def test_second_try_of_a_hop_is_the_same_hop():
    """Default headers are attached to every try."""
    meta = {}
    secrets_to_drop(meta, HOME, HEADERS)
    meta = redirected(meta, HOME)
    assert secrets_to_drop(meta, "https://evil.example/", HEADERS) == OURS
    assert secrets_to_drop(meta, "https://evil.example/", HEADERS) == OURS


def test_request_of_the_spiders_own_keeps_what_it_was_given():
    """Also where the spider has copied the ``meta`` of an answer into it."""
    meta = {}
    secrets_to_drop(meta, HOME, HEADERS)
    meta = redirected(meta, HOME)
    secrets_to_drop(meta, "https://home.example/b", HEADERS)
    assert secrets_to_drop(dict(meta), "https://other.example/", HEADERS) == []


@pytest.mark.parametrize(
    ("slot", "there", "kept"),
    [
        ("home.example", "https://other.example/", False),
        ("home.example", "https://home.example/b", True),
        ("my group", "https://other.example/", True),
    ],
)
def test_redirect_leaves_the_slot_of_the_host_it_came_from(slot, there, kept):
    meta = {"download_slot": slot, "redirect_urls": [HOME]}
    leave_slot_of_other_host(meta, there)
    assert ("download_slot" in meta) == kept


def test_slot_of_a_request_that_was_not_redirected_stays():
    meta = {"download_slot": "home.example"}
    leave_slot_of_other_host(meta, "https://other.example/")
    assert meta == {"download_slot": "home.example"}
