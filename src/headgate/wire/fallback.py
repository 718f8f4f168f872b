"""What fallbacks need of bodies: a request for another model or vendor, and which good answers ask for one.

    model                   the other model
    max_tokens              ``max_completion_tokens`` at OpenAI, whose newer models take nothing else; the other way
                            round at vendors that know only ``max_tokens``
    service_tier            left out: tiers are a vendor's own, and the usual one is meant

Everything else goes along as it is. Requests of another shape (Anthropic's messages for OpenAI's chat) are not made
here, nor anywhere: ``can_translate`` says so before anything is sent.

An answer that is no error may refuse all the same: a filter ended it, or it ran out of context.

    {"choices": [{"finish_reason": "content_filter"}]}                      OpenAI and compatible, Azure
    {"status": "incomplete", "incomplete_details": {"reason": ...}}         OpenAI's Responses
    {"type": "message", "stop_reason": "refusal"}                           Anthropic
    {"type": "message", "stop_reason": "model_context_window_exceeded"}     Anthropic: too long
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..core.fallback import MoveReason

_CHAT = "/chat/completions"
_NEW, _OLD = "max_completion_tokens", "max_tokens"
_OUTPUT_LIMIT = {"openai": _NEW, "deepseek": _OLD, "fireworks": _OLD, "mistral": _OLD, "together": _OLD}
"""What vendors of chat completions call it, of those that do not take both."""
_SHAPE_OF = {"azure": "openai"}
_FILTERED = "content_filter"
_STOPS = {"refusal": MoveReason.REFUSED_CONTENT, "model_context_window_exceeded": MoveReason.TOO_LONG}


def can_translate(dialect: str, other: str) -> bool:
    """Whether requests in one dialect can be sent to another."""
    return _SHAPE_OF.get(dialect, dialect) == _SHAPE_OF.get(other, other)


def adapt_body(body: Mapping[str, Any], *, model: str, vendor: str, path: str) -> dict[str, Any]:
    """The same request for ``model`` (empty: the same one) at ``vendor``."""
    adapted = {name: value for name, value in body.items() if name != "service_tier"}
    if model:
        adapted["model"] = model
    wanted = _OUTPUT_LIMIT.get(vendor) if path.partition("?")[0].endswith(_CHAT) else None
    if wanted is not None:
        other = _OLD if wanted == _NEW else _NEW
        if other in adapted:
            limit = adapted.pop(other)
            adapted.setdefault(wanted, limit)
    return adapted


def adapt_bytes(body: bytes, *, model: str, vendor: str, path: str) -> bytes | None:
    """The same of a body as it is sent; None if it is no JSON object."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    return json.dumps(adapt_body(parsed, model=model, vendor=vendor, path=path), ensure_ascii=False).encode()


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
