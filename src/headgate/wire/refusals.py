"""What an answer that is no error still refuses: a filter ended it, or it ran out of context.

{"choices": [{"finish_reason": "content_filter"}]}                      OpenAI and compatible, Azure
{"status": "incomplete", "incomplete_details": {"reason": ...}}         OpenAI's Responses
{"type": "message", "stop_reason": "refusal"}                           Anthropic
{"type": "message", "stop_reason": "model_context_window_exceeded"}     Anthropic: too long
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.fallback import MoveReason

_FILTERED = "content_filter"
_STOPS = {"refusal": MoveReason.REFUSED_CONTENT, "model_context_window_exceeded": MoveReason.TOO_LONG}


def refusal_in(body: object) -> MoveReason | None:
    """Why another model may be asked, by the parsed body of a good answer."""
    if not isinstance(body, Mapping):
        return None
    choices, details, stop = body.get("choices"), body.get("incomplete_details"), body.get("stop_reason")
    if isinstance(stop, str) and stop in _STOPS:
        return _STOPS[stop]
    if isinstance(details, Mapping) and details.get("reason") == _FILTERED:
        return MoveReason.REFUSED_CONTENT
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, Mapping) and first.get("finish_reason") == _FILTERED:
        return MoveReason.REFUSED_CONTENT
    return None
