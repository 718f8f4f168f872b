"""How vendors count tokens: what a call takes when it is let in, and once it is answered; limits on tokens in calls."""

from __future__ import annotations

import pytest

from headgate.core.decision import Outcome
from headgate.core.signal import CALLS_BY_TOKENS, Limit, Signal
from headgate.wire.token_usage import LARGER, TokensPerCall, Usage, admitted, output_limit, settled, usage_of

LIKELY = Usage(100, 4000)
REAL = Usage(120, 200, 50)


@pytest.mark.parametrize(
    ("vendor", "at_first", "in_the_end", "input_tokens"),
    [
        ("openai", 4000, 4000, 120),
        ("azure-openai", 4100, 4120, 120),
        ("groq", 4100, 4070, 70),
        ("anthropic", 4100, 270, 70),
        ("gemini", 100, 120, 120),
        ("", 4100, 320, 120),
    ],
)
def test_what_counts_by_vendor(vendor: str, at_first: int, in_the_end: int, input_tokens: int) -> None:
    assert admitted(vendor, LIKELY) == {"requests": 1, "tokens": at_first, "input_tokens": 100, "output_tokens": 4000}
    counted = settled(vendor, REAL, 4000)
    assert counted == {"tokens": in_the_end, "input_tokens": input_tokens, "output_tokens": 200}


def test_openai_counts_a_prompt_that_is_larger_than_what_may_come_back() -> None:
    assert admitted("openai", Usage(9000, 100))["tokens"] == 9000
    assert settled("openai", Usage(9100, 80), 100)["tokens"] == 9100


@pytest.mark.parametrize("vendor", ["openai", "azure-openai", ""])
def test_without_a_maximum_what_was_taken_counts(vendor: str) -> None:
    assert settled(vendor, Usage(100, 300), None)["tokens"] == 400


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ({"max_tokens": 10}, 10),
        ({"max_tokens": 10, "best_of": 3}, 30),
        ({"max_tokens": 10, "n": 2, "best_of": 3}, 30),
        ({"generationConfig": {"maxOutputTokens": 7}}, 7),
        ({"n": 4}, None),
        ({"max_tokens": True}, None),
        ("text", None),
    ],
)
def test_what_a_request_allows(body: object, most: int | None) -> None:
    assert output_limit(body) == most


def test_gemini_says_what_it_took_in_its_own_words() -> None:
    said = {"promptTokenCount": 9, "candidatesTokenCount": 3, "thoughtsTokenCount": 2, "cachedContentTokenCount": 4}
    assert usage_of({"usageMetadata": said}) == Usage(9, 5, 4)
    assert usage_of({"usageMetadata": {"promptTokenCount": "9"}}) is None


def test_limit_on_tokens_is_told_in_calls():
    pace = TokensPerCall()
    told = Signal(outcome=Outcome.OK, limits=(Limit(dimension="tokens", limit=600.0, remaining=300.0, reset=6.0),))
    assert pace.in_calls(told) is told, "as long as nothing is known of calls"
    pace.note(settled("", Usage(40, 20), None))
    in_calls = pace.in_calls(told).limits[1]
    assert in_calls.dimension == CALLS_BY_TOKENS
    assert in_calls.limit == pytest.approx(10 / LARGER)
    assert in_calls.remaining == pytest.approx(5 / LARGER)
    assert in_calls.reset == 6.0


def test_average_follows_what_calls_take():
    pace = TokensPerCall()
    for _ in range(100):
        pace.note(settled("", Usage(1000, 0), None))
    for _ in range(100):
        pace.note(settled("", Usage(10, 0), None))
    told = Signal(outcome=Outcome.OK, limits=(Limit(dimension="input_tokens", limit=1000.0, remaining=1000.0),))
    assert pace.in_calls(told).limits[1].limit > 50
