"""Answers and errors that refuse what was asked."""

from __future__ import annotations

import pytest

from headgate import wire
from headgate.core.decision import Outcome
from headgate.core.fallback import MoveReason
from headgate.wire.refusals import refusal_in


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
