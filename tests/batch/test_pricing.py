"""Tokens guessed and read, and what they cost."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.batch import pricing
from headgate.batch.pricing import Price, Prices
from headgate.errors import ConfigError
from headgate.wire.token_usage import MESSAGE, PICTURE, USUAL_OUTPUT, Usage, estimate, usage_of


def test_four_characters_are_a_token_and_a_message_adds_its_ends() -> None:
    body = {"messages": [{"role": "user", "content": "x" * 393 + "abc"}], "max_tokens": 50}
    assert estimate(body) == Usage(100 + MESSAGE, 50)  # with "user": 400 characters


def test_other_scripts_take_a_token_a_character() -> None:
    assert estimate({"input": "日本語のテキスト"}, "/v1/embeddings") == Usage(8, 0)


@pytest.mark.parametrize(
    ("body", "path", "output"),
    [
        ({}, "/v1/chat/completions", USUAL_OUTPUT),
        ({}, "/v1/embeddings", 0),
        ({}, "/v1/messages/count_tokens?x=1", 0),
        ({"max_completion_tokens": 7, "max_tokens": 9}, "", 7),
        ({"max_output_tokens": 7}, "/v1/responses", 7),
        ({"max_tokens": 7, "n": 3}, "", 21),
        ({"max_tokens": True, "n": -3}, "", USUAL_OUTPUT),
        ({"max_tokens": 10**30}, "", USUAL_OUTPUT),
    ],
)
def test_what_may_come_back_is_what_the_request_allows(body: Any, path: str, output: int) -> None:
    assert estimate(body, path).output == output


def test_a_picture_is_not_counted_by_its_letters() -> None:
    openai = {"image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    anthropic = {"source": {"type": "base64", "data": "A" * 400_000}}
    assert estimate(openai).input == PICTURE
    assert PICTURE <= estimate(anthropic).input <= PICTURE + 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["usage", "data", "n"]), inner),
    max_leaves=20,
)


@pytest.mark.no_cover
@given(body=json_values)
def test_any_json_can_be_guessed_and_any_answer_read(body: Any) -> None:
    assert estimate(body).tokens >= 0
    for answer in (body, {"usage": body}, {"usage": {"prompt_tokens": body, "input_tokens": body}}):
        usage = usage_of(answer)
        assert usage is None or 0 <= usage.cached <= usage.input


def test_a_deep_body_is_counted_without_recursion() -> None:
    body: Any = "abcd"
    for _ in range(100_000):
        body = [body]
    assert estimate(body) == Usage(1)


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}, Usage(9, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(9, 3, 4)),
        ({"prompt_tokens": 8, "total_tokens": 8}, Usage(8)),
        ({"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}, Usage(5, 2, 1)),
        (
            {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 3},
            Usage(15, 2, 7),
        ),
        ({"total_tokens": 8}, Usage(8)),
        ({"input_tokens": "5"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_usage_in_every_vendors_words(said: Any, usage: Usage | None) -> None:
    assert usage_of({"usage": said}) == usage


def test_prices_are_per_million_and_the_longest_name_that_fits_counts() -> None:
    prices = Prices.of(
        {"*": "1/1", "gpt-4o*": "2.5/10", "gpt-4o-mini*": {"input": 0.15, "output": 0.6, "cached": 0.075}}
    )
    assert prices.cost("gpt-4o-mini-2024-07-18", Usage(1_000_000, 1_000_000, 500_000)) == pytest.approx(0.7125)
    assert prices.cost("gpt-4o", Usage(1_000_000, 100_000)) == pytest.approx(3.5)
    assert prices.cost("other", Usage(1, 1)) == pytest.approx(2e-6)


def test_a_price_that_is_not_known_is_not_nothing() -> None:
    assert Prices.of({"gpt": "1/2"}).cost("claude", Usage(5)) is None
    assert not Prices()


@pytest.mark.parametrize("given", ["1", "a/b", "1/2/3/4", "-1/2", "1../2", {}, {"output": 1}, {"input": -1}, 5, None])
def test_a_bad_price_is_explained(given: Any) -> None:
    with pytest.raises(ConfigError, match="price of m: "):
        Prices.of({"m": given})


def test_price_checks_its_amounts() -> None:
    with pytest.raises(ConfigError, match="input=nan"):
        Price(input=float("nan"))


class TestPublishedPrices:
    def test_auto_takes_them_for_models_without_a_price_of_their_own(self) -> None:
        prices = Prices.of(Prices.table(["auto", "mine-*=1/2"])).at("openai")
        assert prices.cost("gpt-4o-mini", Usage(1_000, 100, 200)) == pytest.approx(0.000195)
        assert prices.cost("mine-7b", Usage(1_000_000, 0)) == pytest.approx(1.0)
        assert (prices.cost("no-such-model", Usage(5)), prices.is_known("no-such-model")) == (None, False)
        assert bool(prices)

    def test_each_vendor_has_its_own(self) -> None:
        prices = Prices(auto=True)
        assert prices.at("groq").cost("llama-3.3-70b-versatile", Usage(1_000_000, 0)) == pytest.approx(0.59)
        assert prices.at("groq").cost("gpt-4o-mini", Usage(1_000)) is None
        assert prices.at("127.0.0.1:8080").cost("gpt-4o-mini", Usage(1_000, 100)) == pytest.approx(0.00021)

    def test_without_the_package_the_error_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pricing._published_prices.cache_clear()
        monkeypatch.setitem(sys.modules, "genai_prices", None)
        with pytest.raises(ConfigError, match=r'pip install "headgate\[prices\]"'):
            Prices.of(Prices.table(["auto"]))
