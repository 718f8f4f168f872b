"""Bodies for another vendor: names alone."""

from __future__ import annotations

import json

import pytest

from headgate.wire.adapt_body import adapt_body, adapt_bytes, can_translate

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("vendor", "path", "given", "expected"),
    [
        ("openai", CHAT, {"max_tokens": 9}, {"max_completion_tokens": 9}),
        ("mistral", CHAT, {"max_completion_tokens": 9}, {"max_tokens": 9}),
        ("mistral", CHAT, {"max_completion_tokens": 9, "max_tokens": 5}, {"max_tokens": 5}),
        ("groq", CHAT, {"max_completion_tokens": 9}, {"max_completion_tokens": 9}),
        ("127.0.0.1:8000", CHAT, {"max_tokens": 9}, {"max_tokens": 9}),
        ("openai", "/v1/responses", {"max_output_tokens": 9}, {"max_output_tokens": 9}),
        ("openai", CHAT, {"service_tier": "flex", "n": 1}, {"n": 1}),
    ],
)
def test_only_names_change(vendor, path, given, expected) -> None:
    assert adapt_body({"model": "a", **given}, model="b", vendor=vendor, path=path) == {"model": "b", **expected}


def test_without_another_model_it_stays() -> None:
    assert adapt_body({"model": "a"}, model="", vendor="groq", path=CHAT) == {"model": "a"}


def test_bytes_that_are_no_object_are_not_adapted() -> None:
    assert json.loads(adapt_bytes(b'{"model": "\xc3\xa4"}', model="", vendor="", path=CHAT) or b"") == {"model": "ä"}
    for body in (b"[]", b"{", b"\xff"):
        assert adapt_bytes(body, model="b", vendor="", path=CHAT) is None


def test_other_shapes_are_not_translated() -> None:
    assert can_translate("openai", "azure")
    assert not can_translate("openai", "anthropic")
    assert not can_translate("anthropic", "azure")
