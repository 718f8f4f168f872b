"""Where a row may lead, and where not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from headgate.batch.endpoints import KNOWN_ENDPOINTS, InvalidPathError, endpoint_of
from headgate.errors import ConfigError


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("http://localhost:8000", "/v1/chat/completions", "http://localhost:8000/v1/chat/completions"),
        ("http://localhost:8000/", "/v1/x", "http://localhost:8000/v1/x"),
        ("http://localhost:8000/v1", "/v1/x", "http://localhost:8000/v1/x"),
        ("http://localhost:8000/v1", "/x", "http://localhost:8000/v1/x"),
        ("http://localhost:8000/v1", "/v2/x", "http://localhost:8000/v1/v2/x"),
        ("https://gw.example/openai", "/v1/x", "https://gw.example/openai/v1/x"),
        ("openai", "/v1/embeddings", "https://api.openai.com/v1/embeddings"),
        ("openai", "", "https://api.openai.com/v1/chat/completions"),
        ("anthropic", "", "https://api.anthropic.com/v1/messages"),
        ("gemini", "/v1/chat/completions", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"),
        ("http://[::1]:80", "/v1/x?a=b&c=/d", "http://[::1]:80/v1/x?a=b&c=/d"),
        ("HTTPS://API.Example.COM/v1", "/v1/x", "https://api.example.com/v1/x"),
    ],
)
def test_a_path_is_joined_to_the_base(base: str, path: str, url: str) -> None:
    assert endpoint_of(base).url(path) == url


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/v1/x",
        "//evil.example/v1/x",
        "/\\evil.example/x",
        "v1/x",
        "@evil.example/x",
        ".evil.example/x",
        ":8080/x",
        "/v1/../admin",
        "/v1/%2e%2e/admin",
        "/v1/%252e%252e/admin",
        "/v1/..%2fadmin",
        "/v1/./x",
        "/v1/%5c..%5cadmin",
        "/v1/x#fragment",
        "/v1/x y",
        "/v1/x\r\nHost: evil",
        "/v1/é",
        "/" + "x" * 3000,
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(InvalidPathError, match="url"):
        endpoint_of("http://host.example/base").url(path)


@given(path=st.text(st.sampled_from("/.%2eEfF5c\\@:?#[]v1a "), max_size=14).map(lambda rest: "/" + rest))
def test_whatever_a_path_is_it_stays_on_its_host_and_below_its_base(path: str) -> None:
    try:
        url = URL(endpoint_of("http://host.example/base").url(path), encoded=True)
    except InvalidPathError:
        return
    normal = URL(str(url))
    for one in (url, normal):
        assert (one.scheme, one.host, one.port, one.user, one.password) == ("http", "host.example", 80, None, None)
        assert one.path.startswith("/base/")


@pytest.mark.parametrize(
    "to",
    [
        "nobody",
        "ftp://host",
        "http://user:pw@host",
        "http://host?key=1",
        "http://host#x",
        "http://host/../x",
        "http://host:99999",
        "http://ho st",
        "http://",
        "",
        "http://host/" + "x" * 3000,
    ],
)
def test_a_target_that_is_no_base_url_is_refused_without_repeating_it(to: str) -> None:
    with pytest.raises(ConfigError, match=r"target.*(one of openai, anthropic|without user)") as caught:
        endpoint_of(to)
    assert "pw" not in str(caught.value)


def test_a_known_host_is_spoken_to_in_its_own_way_but_never_unencrypted() -> None:
    assert endpoint_of("https://api.anthropic.com").key_header == "x-api-key"
    assert endpoint_of("https://api.anthropic.com").url() == "https://api.anthropic.com/v1/messages"
    assert endpoint_of("http://api.anthropic.com").key_header == "Authorization"


def test_every_known_target_has_a_usual_path_and_a_place_for_its_key() -> None:
    for name, address in KNOWN_ENDPOINTS.items():
        assert address.url().startswith(address.base_url + "/")
        assert address.key_variable == f"{name.upper()}_API_KEY"


def test_a_base_url_may_have_anthropics_or_azures_dialect() -> None:
    claude = endpoint_of("http://localhost:8080/anthropic", "anthropic")
    assert claude.url() == "http://localhost:8080/anthropic/v1/messages"
    assert (claude.key_header, claude.key_prefix, claude.key_variable) == ("x-api-key", "", "")
    assert dict(claude.headers) == {"anthropic-version": "2023-06-01"}
    azure = endpoint_of("https://me.openai.azure.com/openai/deployments/gpt", "azure")
    assert azure.url("/v1/chat/completions") == "https://me.openai.azure.com/openai/deployments/gpt/chat/completions"
    assert (azure.key_header, azure.key_prefix) == ("api-key", "")


@pytest.mark.parametrize(("to", "dialect"), [("openai", "anthropic"), ("http://x", "nonsense")])
def test_a_dialect_that_cannot_be_is_refused(to: str, dialect: str) -> None:
    with pytest.raises(ConfigError, match="dialect="):
        endpoint_of(to, dialect)
