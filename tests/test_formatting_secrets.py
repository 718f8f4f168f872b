"""Secrets leave no text, and the work of hiding them grows with the text and no faster."""

from __future__ import annotations

import pytest

from headgate.formatting import LONGEST_TEXT, redact
from headgate.wire.explain import explain

SECRET = "zX9-hush_hush.zX9"


@pytest.mark.parametrize(
    "text",
    [
        "GET https://user:{}@host.example/path",
        "GET https://{}@host.example/path",
        "https://generativelanguage.googleapis.com/v1?key={}",
        "https://x.example/?a=1&key={}&b=2",
        "https://x.example/?api_key={}",
        "https://x.example/?apikey={}#top",
        "https://x.example/?access_token={}&x=1",
        "https://x.example/?token={}",
        "https://x.example/?X-Amz-Signature={}",
        "Authorization: Bearer {}",
        "authorization={}",
        "Proxy-Authorization: Basic {}",
        "{{'Authorization': 'Bearer {}'}}",
        '{{"x-api-key": "{}"}}',
        "x-goog-api-key: {}",
        "api-key: {}",
        "Cookie: session={}; other={}",
        '{{"api_key": "{}", "model": "m"}}',
        '"{{\\"access_token\\": \\"{}\\"}}"',
        "OPENAI_API_KEY={}",
        "client_secret: {}",
        "password={}",
        "sent with bearer {}",
        "Incorrect API key provided: sk-{}.",
        "sk-ant-api03-{}",
        "AIza{}",
        "tvly-dev-{}",
        "gsk_{}",
        "ghp_{}",
        "xoxb-{}",
        "sk_live_{}",
        "eyJhbGciOiJIUzI1.{}",
    ],
)
def test_secrets_are_hidden(text: str) -> None:
    shown = redact(text.format(SECRET, SECRET))
    assert "hush" not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "429 from https://api.example.com/v1/chat?model=m&monkey=5",
        "30,000 tokens a minute, tokens: 5, max_tokens=100",
        "rate_limit_exceeded insufficient_quota",
        "task-force bask-in-the-sun a basic idea",
        "keyboard=x",
    ],
)
def test_other_text_stays_whole(text: str) -> None:
    assert redact(text) == text


def test_redacting_twice_changes_nothing_more() -> None:
    once = redact(f"https://u:{SECRET}@h/?key={SECRET} Authorization: Bearer {SECRET}\nsk-{SECRET}")
    assert redact(once) == once


def test_long_text_is_cut_not_shown_unread() -> None:
    shown = redact("a" * LONGEST_TEXT + f" sk-{SECRET}")
    assert "hush" not in shown
    assert shown.endswith(" ...")


def test_an_error_code_that_quotes_a_key_is_hidden_too() -> None:
    body = {"error": {"code": f"sk-{SECRET}", "message": "no"}}
    assert "hush" not in " ".join(
        explain(401, {}, body, wall=0, url=f"https://u:{SECRET}@api.openai.com/?key={SECRET}")
    )
