"""What a server says of an error to people: the sentence in its body, behind the status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .bodies import first_object, open_body
from .responses import facts_of

_SENTENCES = ("message", "detail", "error_description", "title", "error", "msg")
"""Where a sentence stands, in an error or around it."""


def in_words(response: object, otherwise: str) -> str:
    """``400 The request is not valid.``, with ``otherwise`` where the body has no sentence; empty words are left out.

    The sentence is the server's, as long as it likes, and may quote a secret: redact it first, then make it shorter.
    """
    try:
        status, _, body = facts_of(response)
    except TypeError:
        return otherwise
    words = _sentence(open_body(body)) or otherwise
    return f"{status} {words}".strip() if status >= 400 else words


def _sentence(body: Mapping[str, Any] | None) -> str:
    if body is None:
        return ""
    inner = body.get("error")
    error = inner if isinstance(inner, Mapping) else first_object(body.get("errors")) or body
    for place in (error, body):
        for name in _SENTENCES:
            text = place.get(name)
            if isinstance(text, str) and text.strip():
                return "".join(one if one.isprintable() else " " for one in text).strip()
    return ""
