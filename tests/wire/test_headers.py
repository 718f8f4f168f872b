"""Any kind of headers, in any case, split, repeated or malformed; cheap when they say nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import multidict
import pytest
from requests.structures import CaseInsensitiveDict

from headgate.core.decision import Outcome
from headgate.core.signal import SILENT, Limit
from headgate.wire import read
from headgate.wire.headers import LONGEST_NAME, LONGEST_VALUE, MOST_HEADERS, NAMES_REMEMBERED, meaning

PAIRS = [("Server", "x"), ("RateLimit-LIMIT", "60"), ("ratelimit-remaining", "42"), ("RateLimit-Reset", "12")]


@pytest.mark.parametrize(
    "kind",
    [
        dict,
        list,
        iter,
        tuple,
        httpx2.Headers,
        multidict.CIMultiDict,
        lambda pairs: multidict.CIMultiDictProxy(multidict.CIMultiDict(pairs)),
        CaseInsensitiveDict,
        lambda pairs: {name.encode(): value.encode() for name, value in pairs},
        lambda pairs: {name.upper(): [value] for name, value in pairs},
        lambda pairs: {name: int(value) if value.isdigit() else value for name, value in pairs},
    ],
)
def test_every_kind_of_headers_reads_the_same(kind: Callable[[list[tuple[str, str]]], Any]) -> None:
    assert read(200, kind(PAIRS), wall=0).limits == (Limit(limit=60, remaining=42, reset=12),)


def test_repeated_lines_are_joined() -> None:
    policy = [("RateLimit-Policy", '"a";q=5;w=1'), ("RateLimit-Policy", '"b";q=9;w=60')]
    for headers in (policy, httpx2.Headers(policy), multidict.CIMultiDict(policy)):
        assert [limit.name for limit in read(200, headers, wall=0).limits] == ["a", "b"]


def test_of_repeated_numbers_the_least_left_and_the_longest_wait_count() -> None:
    twice = [("x-ratelimit-remaining", "9"), ("x-ratelimit-remaining", "4"), ("retry-after", "3"), ("retry-after", "8")]
    signal = read(429, [*twice, ("x-ratelimit-limit", "10"), ("x-ratelimit-limit", "10")], wall=0)
    assert (signal.limits, signal.retry_after) == ((Limit(limit=10, remaining=4),), 8)


def test_a_folded_line_is_one_line() -> None:
    assert read(503, {"Retry-After": "Fri, 31 Dec 1999\r\n 23:59:59 GMT"}, wall=946684790).retry_after == 9


def test_malformed_parts_are_ignored_one_by_one() -> None:
    headers = {"x-ratelimit-limit": "many", "x-ratelimit-remaining": "7", "x-ratelimit-reset": "soon", "age": "?"}
    signal = read(429, headers, wall=0)
    assert (signal.limits, signal.retry_after) == ((Limit(remaining=7),), None)


@pytest.mark.parametrize(
    ("name", "dimension", "window"),
    [
        ("X-RateLimit-Limit-Minute", "requests", 60),
        ("X-RateLimit-Limit-Hour", "requests", 3600),
        ("x-rate-limit-limit", "requests", None),
        ("X-Example-RateLimit-Limit", "requests", None),
        ("x-ratelimit-limit-images", "images", None),
    ],
)
def test_names_that_are_not_listed(name: str, dimension: str, window: float | None) -> None:
    (limit,) = read(200, {name: "5"}, wall=0).limits
    assert (limit.limit, limit.dimension, limit.window) == (5, dimension, window)


def test_headers_in_milliseconds() -> None:
    headers = {"x-ratelimit-limit": "5", "x-ratelimit-remaining": "0", "x-ratelimit-reset-ms": "1500"}
    assert read(429, headers, wall=0).retry_after == 1.5
    assert read(429, {"retry-after-ms": "250"}, wall=0).retry_after == 0.25


@pytest.mark.parametrize("headers", [None, {}, [], {"content-type": "text/html", "date": "x", "cf-ray": "1"}])
def test_an_answer_without_a_word_about_limits_costs_no_object(headers: Any) -> None:
    assert read(200, headers, wall=0) is SILENT[Outcome.OK]
    assert read(200, headers, b'{"error": null, "text": "fine"}', wall=0) is SILENT[Outcome.OK]


@pytest.mark.parametrize(
    "headers",
    [5, "retry-after: 5", b"x", object(), [1, 2], [("a",)], [("a", "b", "c")], {1: 2}, {None: None}, [([], "x")], True],
)
def test_what_are_no_headers_say_nothing(headers: Any) -> None:
    assert read(429, headers, wall=0) == SILENT[Outcome.RATE_LIMITED]


class Hostile(dict[str, str]):
    def items(self) -> Any:
        raise RuntimeError("no")


def test_headers_that_raise_leave_the_status_to_speak() -> None:
    assert read(429, Hostile(a="b"), wall=0) is SILENT[Outcome.RATE_LIMITED]


def test_no_more_headers_are_looked_at_than_the_bound() -> None:
    looked = 0

    def endless() -> Iterator[tuple[str, str]]:
        nonlocal looked
        while True:
            looked += 1
            yield f"x-{looked}", "1"

    read(429, endless(), wall=0)
    assert looked == MOST_HEADERS


def test_a_value_that_is_too_long_is_ignored_not_cut() -> None:
    assert read(429, {"retry-after": "1" * (LONGEST_VALUE + 1)}, wall=0).retry_after is None
    assert read(429, {"retry-after": b"1" * 10_000_000}, wall=0).retry_after is None
    policy = '"a";q=5;w=60,' * (LONGEST_VALUE // 10)
    assert read(200, {"ratelimit-policy": policy}, wall=0).limits == ()


def test_names_are_remembered_within_a_bound() -> None:
    for i in range(2 * NAMES_REMEMBERED):
        read(200, {f"x-{i}": "1"}, wall=0)
    read(200, {"x" * (LONGEST_NAME + 1): "1"}, wall=0)
    assert meaning.cache_info().currsize <= NAMES_REMEMBERED


@pytest.mark.parametrize(
    ("url", "dialect"),
    [
        ("https://api.openai.com/v1/chat/completions", "openai"),
        ("https://me.openai.azure.com/openai/deployments/x", "azure-openai"),
        ("https://shop.myshopify.com/admin", "shopify"),
        ("https://openai.com.example/", "rfc9110"),
        ("https://example.com/", "rfc9110"),
        ("not an address", "rfc9110"),
        ("https://" + "a" * 10_000, "rfc9110"),
        (None, "rfc9110"),
    ],
)
def test_the_address_tells_who_is_speaking(url: str | None, dialect: str) -> None:
    assert read(429, {"retry-after": "1"}, wall=0, url=url).dialect == dialect
