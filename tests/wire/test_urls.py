"""One key per server, however its address is written."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from headgate.wire.urls import EVERY_ADDRESS, LONGEST_URL, LOOPBACK, AllowedHosts, group_key, host_key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("https://User:pw@API.Example.com:443/v1?key=1#x", "api.example.com"),
        ("http://example.com:80", "example.com"),
        ("http://example.com:443", "example.com"),
        ("wss://example.com:443/socket", "example.com"),
        ("http://example.com:08080/", "example.com:8080"),
        ("http://example.com:", "example.com"),
        ("HTTPS://EXAMPLE.COM.", "example.com"),
        ("example.com", "example.com"),
        (" Example.com. ", "example.com"),
        ("example.com:80", "example.com"),
        ("example.com:443", "example.com"),
        ("example.com:8443", "example.com:8443"),
        ("localhost", "localhost"),
        ("localhost:8000", "localhost:8000"),
        ("http://LOCALHOST:8000/x", "localhost:8000"),
        ("http://intranet/x", "intranet"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("http://[2001:DB8:0::1]:80/", "[2001:db8::1]"),
        ("https://[::1]:8443/", "[::1]:8443"),
        ("[::1]", "[::1]"),
        ("http://BÜCHER.example:8080", "xn--bcher-kva.example:8080"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("https://a@b@c.example/", "c.example"),
        ("https://u:p@exa mple.com/", "exa mple.com"),
    ],
)
def test_addresses(text: str, key: str) -> None:
    assert host_key(text) == key
    assert host_key(key) == key


@pytest.mark.parametrize(
    "text",
    [
        *("openai/gpt-4o", "tenant A", "Tavily", "OpenAI", "gpt-4.1", "key-1", "a:b", "Tavily:Search", "", " ", "/"),
        *("api.openai.com/gpt-4o", "me@Example.com", "file:///x", "a..B", "1.5", "[oops", ".", "\ud800"),
        "x" * (LONGEST_URL + 1),
    ],
)
def test_names_stay_as_they_are(text: str) -> None:
    assert host_key(text) == text


def test_without_the_idna_package_the_standard_library_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_idna(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "idna":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_idna)
    assert host_key("https://Bücher.example/") == "xn--bcher-kva.example"
    assert host_key("https://" + "ü" * 100 + ".example/") == "ü" * 100 + ".example"


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("example.com", "example.com"),
        ("a.b.example.com", "example.com"),
        ("a.example.co.uk", "example.co.uk"),
        ("example.co.uk", "example.co.uk"),
        ("co.uk", "co.uk"),
        ("a.b.example.com.au", "example.com.au"),
        ("a.b.example.de", "example.de"),
        ("a.owner.github.io", "owner.github.io"),
        ("a.www.city.kawasaki.jp", "city.kawasaki.jp"),
        ("a.b.internal", "b.internal"),
        ("a.example.com:8080", "example.com:8080"),
        ("127.0.0.1", "127.0.0.1"),
        ("10.0.0.1:8080", "10.0.0.1:8080"),
        ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ("localhost", "localhost"),
        ("openai/gpt-4o", "openai/gpt-4o"),
        ("tenant A", "tenant A"),
    ],
)
def test_groups(host: str, group: str) -> None:
    assert group_key(host) == group


@pytest.mark.parametrize(
    ("allowed", "host", "is_allowed"),
    [
        (LOOPBACK, "localhost:8747", True),
        (LOOPBACK, "LOCALHOST", True),
        (LOOPBACK, "127.0.0.1", True),
        (LOOPBACK, "[::1]:80", True),
        (LOOPBACK, "[127.0.0.1]", False),
        (LOOPBACK, "evil.example", False),
        (LOOPBACK, "10.0.0.1", False),
        (LOOPBACK, "", False),
        (EVERY_ADDRESS, "10.0.0.1:80", True),
        (EVERY_ADDRESS, "evil.example", False),
        (("10.0.0.0/8",), "10.1.2.3", True),
        (("*",), "evil.example", True),
        (("*",), "evil example", False),
    ],
)
def test_the_hosts_that_a_server_answers_to(allowed: tuple[str, ...], host: str, is_allowed: bool) -> None:
    assert AllowedHosts(allowed).has(host) is is_allowed
