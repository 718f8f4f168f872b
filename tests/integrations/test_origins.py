"""Which headers hold a credential, and how an origin is written."""

from __future__ import annotations

import pytest

from headgate.integrations.origins import is_secret, origin_of


@pytest.mark.parametrize(
    "header",
    [
        "Authorization",
        "x-api-key",
        "api-key",
        "apikey",
        "X-Auth-Token",
        "X-Amz-Security-Token",
        "PRIVATE-TOKEN",
        "x_api_key",
        "X-Auth",
        "AccessToken",
        "X-JWT",
        "X-Bearer",
        "X-Session-Id",
        "Session",
        "X-Vault-Token",
        "X-Goog-Iam-Authorization-Token",
        "X-Amz-Signature",
        "Proxy-Authorization",
        "Authentication",
        "Ocp-Apim-Subscription-Key",
        "X-Password",
        "sid",
    ],
)
def test_names_of_secrets(header):
    assert is_secret(header)


@pytest.mark.parametrize(
    "header",
    [
        "Idempotency-Key",
        "accept",
        "user-agent",
        "x-request-id",
        "content-type",
        "range",
        "x-author",
        "sec-websocket-key",
        "x-max-tokens",
        "side",
    ],
)
def test_names_of_what_is_none(header):
    assert not is_secret(header)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://a.example", "https://a.example:443"),
        ("HTTPS://A.Example:443/x?y#z", "https://a.example:443"),
        ("http://a.example", "http://a.example:80"),
        ("https://me:pw@a.example/", "https://a.example:443"),
        ("https://a.example./", "https://a.example:443"),
        ("https://[::1]:8443/", "https://[::1]:8443"),
        ("https://a.example:99999/", ""),
        ("https://a.example\\.evil.example/", ""),
        ("https://a.example%2f.evil.example/", ""),
        ("https://a.example&b/", ""),
        ("file:///etc/passwd", ""),
        ("a.example", ""),
        ("", ""),
    ],
)
def test_origins_have_one_spelling(url, origin):
    assert origin_of(url) == origin
