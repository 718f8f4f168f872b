"""Bodies for another vendor (names alone), and answers and errors that refuse what was asked."""

from __future__ import annotations

import json

import pytest

from headgate import wire
from headgate.core.decision import Outcome
from headgate.core.fallback import MoveReason
from headgate.wire.fallback import adapt_body, adapt_bytes, can_translate, refusal_in

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


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"choices": [{"finish_reason": "content_filter"}]}, MoveReason.REFUSED_CONTENT),
        ({"choices": [{"finish_reason": "stop"}]}, None),
        ({"incomplete_details": {"reason": "content_filter"}}, MoveReason.REFUSED_CONTENT),
        ({"incomplete_details": {"reason": "max_output_tokens"}}, None),
        ({"type": "message", "stop_reason": "refusal"}, MoveReason.REFUSED_CONTENT),
        ({"type": "message", "stop_reason": "model_context_window_exceeded"}, MoveReason.TOO_LONG),
        ({"choices": []}, None),
        ({"choices": "content_filter"}, None),
        ([], None),
    ],
)
def test_a_good_answer_may_refuse(body, expected) -> None:
    assert refusal_in(body) is expected


@pytest.mark.parametrize("code", ["content_filter", "content_policy_violation", "invalid_prompt", "bio_policy"])
def test_an_error_about_what_was_asked(code) -> None:
    signal = wire.read(400, None, {"error": {"code": code, "message": "..."}}, wall=0.0)
    assert (signal.outcome, signal.is_refused_content) == (Outcome.INVALID, True)


def test_anthropics_error_for_a_long_prompt_is_known_by_its_beginning() -> None:
    error = {"type": "invalid_request_error", "message": "prompt is too long: 219898 tokens > 200000 maximum"}
    assert wire.read(400, None, {"type": "error", "error": error}, wall=0.0).outcome is Outcome.TOO_LARGE
    error["message"] = "max_tokens: the prompt is too long"
    assert wire.read(400, None, {"type": "error", "error": error}, wall=0.0).outcome is Outcome.INVALID
