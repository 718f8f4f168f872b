"""Sentences a person understands."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.decision import Outcome
from headgate.wire.dialects import DIALECTS
from headgate.wire.explain import explain, in_words


def told(answers: dict[str, Any], name: str, wall: float) -> list[str]:
    status, headers, body = answers[name]
    return explain(status, headers, body, wall=wall)


def test_a_minute_limit() -> None:
    headers = {"x-ratelimit-limit-minute": "60", "x-ratelimit-remaining-minute": "42", "x-ratelimit-reset-minute": "12"}
    assert '60 requests a minute ("minute"), 42 left, resets in 12 s.' in explain(200, headers, wall=0)


def test_a_good_answer_of_openai(answers: dict[str, Any], wall: float) -> None:
    assert told(answers, "openai", wall) == [
        "200: the call went through.",
        "Format: OpenAI.",
        "5,000 requests a minute, 4,999 left, resets in 12 ms.",
        "160,000 tokens (window not given), 159,976 left, resets in 6 min.",
        "Headgate would pace the next calls by these numbers to stay under the limit.",
    ]


def test_a_refusal_of_openai(answers: dict[str, Any], wall: float) -> None:
    assert told(answers, "openai 429", wall) == [
        "429: rate limited (rate_limit_exceeded).",
        "Format: OpenAI.",
        '30,000 tokens a minute ("TPM"), 14,468 left.',
        "Retry after 374 ms (gpt-4o).",
        "Headgate would start no calls for 374 ms, then continue at a lower rate.",
    ]


def test_a_daily_quota(answers: dict[str, Any], wall: float) -> None:
    assert told(answers, "google search 429", wall)[-2:] == [
        "The quota resets in 17 h 30 min.",
        "Headgate would start no calls for 17 h 30 min; until then, use another credential.",
    ]


def test_an_error_inside_a_200(answers: dict[str, Any], wall: float) -> None:
    first = told(answers, "openrouter in a 200", wall)[0]
    assert first == "200, but the body has an error: the server failed, or its answer was incomplete (502)."


def test_silence() -> None:
    assert explain(200, {}, wall=0) == [
        "200: the call went through.",
        "It says nothing about limits. Headgate would learn the rate from which calls succeed and how long they take.",
    ]


@pytest.mark.parametrize("header", [{"Retry-After": "banana"}, {"x-ratelimit-remaining": "plenty"}])
def test_words_about_limits_that_cannot_be_understood_are_not_silence(header: dict[str, str]) -> None:
    assert explain(200, header, wall=0)[-1].startswith("Its rate-limit headers cannot be parsed. Headgate would")


def test_a_pause_in_a_good_answer_is_understood_and_no_limit() -> None:
    assert explain(200, {"Retry-After": "5"}, wall=0)[-1].startswith("It says nothing about limits")


@pytest.mark.parametrize(
    ("status", "headers", "last"),
    [
        (401, {}, "A retry with this credential would fail the same way; use another."),
        (429, {"Retry-After": "3"}, "Headgate would start no calls for 3 s, then continue at a lower rate."),
        (429, {}, "Headgate would continue at a lower rate."),
        (503, {"Retry-After": "3"}, "Headgate would start no calls for 3 s, then continue; consecutive failures"),
        (413, {}, "A retry would fail the same way; make the call smaller."),
    ],
)
def test_nothing_is_promised_that_a_limiter_does_not_do(status: int, headers: dict[str, str], last: str) -> None:
    assert explain(status, headers, wall=0)[-1].startswith(last)


def test_policies_bytes_concurrency_and_nothing_left() -> None:
    policy = '"a";q=65535;qu="content-bytes";w=10, "b";q=1;qu="concurrent-requests", "c";q=1;w=1'
    said = explain(200, {"RateLimit-Policy": policy, "RateLimit": '"d";r=0;t=90'}, wall=0)
    assert said[2:-1] == [
        'At most 65,535 bytes every 10 s ("a").',
        'At most 1 call at a time ("b").',
        'At most 1 request a second ("c").',
        'Requests ("d"): none left, resets in 1 min 30 s.',
    ]


def test_every_answer_ends_with_what_comes_next(answers: dict[str, Any], wall: float) -> None:
    for name in answers:
        said = told(answers, name, wall)
        assert all(sentence.endswith(".") for sentence in said), name
        assert "Headgate would" in said[-1] or "would fail the same way" in said[-1], name


@pytest.mark.parametrize("status", [0, 200, 400, 401, 402, 413, 429, 432, 500, 503])
def test_every_outcome_has_words(status: int) -> None:
    said = explain(status, {}, wall=0)
    assert len(said) >= 2
    assert not any(outcome.value in said[0] for outcome in Outcome if "_" in outcome.value)


def test_every_dialect_has_a_name() -> None:
    assert all(dialect.title for dialect in DIALECTS)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.012, "12 ms"),
        (0.374, "374 ms"),
        (0.9999, "1 s"),
        (7.66, "7.7 s"),
        (12, "12 s"),
        (59.99, "1 min"),
        (60, "1 min"),
        (90, "1 min 30 s"),
        (977.764, "16 min 18 s"),
        (3600, "1 h"),
        (63000, "17 h 30 min"),
        (86400, "1 day"),
        (90000, "1 day 1 h"),
        (31 * 86400, "31 days"),
    ],
)
def test_spans_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
