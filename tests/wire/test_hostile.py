"""Damaged, spliced and malicious answers: read never raises, never lies about time, never works without end.

Real answers are damaged by a seeded generator. What is checked is the reader without its
safety net, so that the net in ``read`` is what it claims to be: for mappings that raise.
Work is bounded by named constants, and these are what is tested, not the clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.core.decision import LONGEST_WAIT, Outcome
from headgate.core.signal import Signal
from headgate.formatting import redact
from headgate.wire import error_body, ietf_fields, limits, read, retry_after
from headgate.wire.explain import explain
from headgate.wire.parse import read_strictly
from headgate.wire.urls import group_key, host_key

pytestmark = pytest.mark.no_cover

SEED = 20260921
PIECES = [
    *("", " ", ",", ";", '"', "\\", ":", "=", "-", "\x00", "\r\n ", "\ud800", "\u202e", "💥", "é", "٣", "１２", "\x7f"),
    *("nan", "inf", "-inf", "1e308", "1e999", "-1", "0", "00", "1" * 20, "9" * 310, "9" * 5000, "0x1f", "1_000"),
    *("1790000000", "1790000000000", "179000000000000000000", "6m0s", "12ms", "9" * 16 + "h", "1h" * 60, "µs", "1.2.3"),
    *("2026-09-27T12:05:00Z", "9999-12-31T23:59:60Z", "0000-00-00T00:00:00Z", "Fri, 31 Dec 1999 23:59:59 GMT"),
    *(
        '"a";r=1;t=1',
        '"a";q=5;w=60;pk=:AA==:',
        "limit=1, remaining=2",
        "((((",
        "?1",
        "@1",
        '%"x"',
        "100;w=60",
        "a=(1 2)",
    ),
    *("{", "}", "[" * 50, "[" * 2000, '{"a":' * 1500, "null", "true", '"error":', '"error":{"code":429}', "data: {}"),
    *("insufficient_quota", "PerDay", "per day", "(TPM): Limit 5, Requested 9", "Please try again in 9h9m9s."),
]
NUMBERS: list[Any] = [True, -1, 0, 10**400, 1.5, float("nan"), float("inf")]
ODDITIES: list[Any] = [None, *NUMBERS, b"\xff\x00", [], {}, [[]], object(), "429"]


def damaged_text(rng: random.Random, text: str) -> str:
    if not text:
        return rng.choice(PIECES)
    at, to = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    way = rng.randrange(6)
    if way == 0:
        return text[:at]
    if way == 1:
        return text[:at] + rng.choice(PIECES) + text[at:]
    if way == 2:
        return text[:at] + rng.choice(PIECES) + text[to:]
    if way == 3:
        return text[at:] + text[:at]
    if way == 4:
        return text + rng.choice((",", ", ", "\n", "")) + text
    return text[:at] + chr(rng.randrange(0x250)) + text[at + 1 :]


def damaged_value(rng: random.Random, value: object, depth: int = 0) -> object:
    """The same JSON with something wrong somewhere inside."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        changed = dict(value)
        if rng.random() < 0.1:
            del changed[key]
        else:
            changed[key] = damaged_value(rng, value[key], depth + 1)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        repeats = rng.choice((1, 1, 1, 50))
        return [*value[:at], *[damaged_value(rng, value[at], depth + 1)] * repeats, *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.7:
        return damaged_text(rng, value)
    return rng.choice(ODDITIES) if depth else value


def answers_damaged(
    rng: random.Random, originals: list[tuple[int, dict[str, str], Any]], texts: list[str | None], count: int
) -> Iterator[tuple[Any, Any, Any, Any]]:
    statuses = [200, 400, 402, 403, 409, 413, 429, 429, 429, 500, 503, 529]
    walls: list[Any] = [1_789_997_400.0] * 12 + [0.0, -5.0, 1e300, float("nan"), float("inf"), None]
    for _ in range(count):
        which = rng.randrange(len(originals))
        status, headers, body = originals[which]
        pairs: list[Any] = list(headers.items())
        for _ in range(rng.randrange(3)):
            pairs += rng.choice(originals)[1].items()
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            if pairs:
                at = rng.randrange(len(pairs))
                name, value = pairs[at] if isinstance(pairs[at], tuple) and len(pairs[at]) == 2 else ("age", "1")
                if rng.random() < 0.15:
                    pairs[at] = (damaged_text(rng, str(name)), value)
                elif rng.random() < 0.1:
                    pairs[at] = rng.choice(
                        [(name, rng.choice(ODDITIES)), (rng.choice(ODDITIES[:7]), value), (name,), 7]
                    )
                elif isinstance(value, str):
                    pairs[at] = (name, damaged_text(rng, value))
        sent: Any = pairs
        if rng.random() < 0.3:
            sent = {str(pair[0]): pair[1] for pair in pairs if isinstance(pair, tuple) and len(pair) == 2}
        if rng.random() < 0.05:
            sent = rng.choice(ODDITIES)
        said: Any = body
        if rng.random() < 0.2:
            said = originals[rng.randrange(len(originals))][2]
        if isinstance(said, dict) and rng.random() < 0.6:
            for _ in range(rng.randrange(1, 3)):
                said = damaged_value(rng, said)
        elif rng.random() < 0.6:
            said = damaged_text(rng, texts[which] or rng.choice(PIECES))
            if rng.random() < 0.5:
                said = said.encode("utf-8", "surrogatepass")
        if rng.random() < 0.3:
            status = rng.choice(statuses) if rng.random() < 0.95 else rng.choice(ODDITIES)
        yield status, sent, said, rng.choice(walls)


def assert_in_bounds(signal: Signal) -> None:
    assert isinstance(signal.outcome, Outcome)
    waits = [signal.retry_after, *(limit.reset for limit in signal.limits)]
    assert all(wait is None or 0.0 <= wait <= LONGEST_WAIT for wait in waits)
    for limit in signal.limits:
        for amount in (limit.limit, limit.remaining, limit.window):
            assert amount is None or (math.isfinite(amount) and amount >= 0.0)
        assert limit.window != 0.0
        assert len(limit.name) <= 80
        assert len(limit.dimension) <= 80
    assert len(signal.limits) <= limits.MOST_LIMITS
    assert len(signal.reason) <= 2 * error_body.LONGEST_CODE
    assert len(signal.scope or "") <= error_body.LONGEST_CODE


def attack(count: int, seed: int, answers: dict[str, Any], encoded: list[Any]) -> None:
    rng = random.Random(seed)
    originals = list(answers.values())
    texts = [body for _, _, body in encoded]
    seen: set[Outcome] = set()
    for number, (status, headers, body, wall) in enumerate(answers_damaged(rng, originals, texts, count)):
        try:
            signal = read_strictly(status, headers, body, wall, None)
            assert_in_bounds(signal)
        except BaseException as exc:
            exc.add_note(f"seed {seed}, input {number}: {status!r} {headers!r:.2000} {body!r:.2000} wall={wall!r}")
            raise
        seen.add(signal.outcome)
    assert seen == set(Outcome) - {Outcome.ABANDONED}, "the damage leaves nothing to tell apart"


def test_thousands_of_damaged_answers(answers: dict[str, Any], encoded: list[Any]) -> None:
    attack(6_000, SEED, answers, encoded)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(SEED + 1, SEED + 11))
def test_a_million_damaged_answers(seed: int, answers: dict[str, Any], encoded: list[Any]) -> None:
    attack(100_000, seed, answers, encoded)


def test_damaged_text_harms_no_other_reader() -> None:
    rng = random.Random(SEED)
    texts = ["https://u:p@Example.com:8080/x?key=1", "30", "16m17.764s", "Fri, 31 Dec 1999 23:59:59 GMT", *PIECES]
    for _ in range(1_500):
        text = damaged_text(rng, damaged_text(rng, rng.choice(texts)))
        wait = retry_after(text, wall=rng.choice((0.0, 1.8e9, float("nan"))), date=rng.choice((None, text, 5, "x")))
        assert wait is None or 0.0 <= wait <= LONGEST_WAIT, repr(text)
        assert group_key(host_key(text)) is not None, repr(text)
        assert redact(text) is not None, repr(text)
        assert explain(429, {"retry-after": text, "ratelimit": text}, text, wall=0.0), repr(text)


def test_ten_thousand_headers_and_ten_megabytes(wall: float) -> None:
    headers = [(f"x-ratelimit-limit-{i}", "5") for i in range(10_000)]
    assert len(read(200, headers, wall=wall).limits) == limits.MOST_LIMITS
    for name in ("retry-after", "ratelimit", "ratelimit-policy", "x-ratelimit-limit", "date", "x" * 10_000_000):
        assert read(429, {name: "1," * 5_000_000}, wall=wall).limits == ()


@pytest.mark.parametrize("text", ["[" * 1_000_000, '{"error":' * 1_000_000, '{"error":{"code":' + "9" * 200_000 + "}}"])
@pytest.mark.parametrize("status", [200, 429])
def test_towers_of_brackets_and_endless_numbers(text: str, status: int, wall: float) -> None:
    for body in (text, text.encode(), text[: error_body.LONGEST_BODY - 8]):
        assert read(status, {}, body, wall=wall).outcome in (Outcome.OK, Outcome.RATE_LIMITED)


def test_a_body_beyond_the_bound_is_not_parsed(monkeypatch: pytest.MonkeyPatch, wall: float) -> None:
    parsed: list[int] = []
    real = error_body._json
    monkeypatch.setattr(error_body, "_json", lambda text: parsed.append(len(text)) or real(text))  # type: ignore[func-returns-value]
    huge = '{"error":{"code":"insufficient_quota","x":"' + "z" * error_body.LONGEST_BODY + '"}}'
    assert read(429, {}, huge, wall=wall).outcome is Outcome.RATE_LIMITED
    assert read(429, {}, huge.replace("z", ""), wall=wall).outcome is Outcome.SPEND
    assert max(parsed) <= error_body.LOOK


def test_lists_inside_a_body_are_read_as_far_as_the_bound(wall: float) -> None:
    class Counted(list[Any]):
        taken = 0

        def __iter__(self) -> Iterator[Any]:
            for entry in super().__iter__():
                Counted.taken += 1
                yield entry

    errors = Counted([{"reason": "unknown"}] * 10_000)
    read(403, {}, {"error": {"errors": errors, "details": errors}}, wall=wall)
    assert Counted.taken <= 5 * error_body.MOST_ENTRIES


def test_the_full_field_parser_is_given_no_more_than_one_value(monkeypatch: pytest.MonkeyPatch, wall: float) -> None:
    given: list[int] = []
    monkeypatch.setattr(ietf_fields, "_parsed", lambda text: given.append(len(text)) or [])  # type: ignore[func-returns-value]
    for size in (100, 4096, 4097, 10_000_000):
        read(200, {"ratelimit": "(" * size}, wall=wall)
    assert given == [100, 4096]
