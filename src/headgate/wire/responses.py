"""Status, headers and body of an answer, from whichever library it came.

httpx, aiohttp and requests agree on nothing but that a response has a status and
headers. They are told apart by what they have, never by importing them, and a body is
taken only if it is already here: reading an answer must not start a download. So
``content`` is read where it is a plain attribute; a property may be what downloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MemberDescriptorType
from typing import Any

from .bodies import FAILED

_BODIES = ("_content", "_body")
"""Where httpx and requests (first) and aiohttp (second) keep a body once it is read."""


def facts_of(response: object) -> tuple[int, Any, bytes | str | None]:
    """The answer's status, headers and loaded body (None when it was not read)."""
    status = getattr(response, "status_code", None)
    if type(status) is not int:
        status = _status(response)
    if status is None:
        raise TypeError(
            f"a response must have an integer status_code (httpx, requests) or status (aiohttp); "
            f"{type(response).__name__} has neither"
        )
    return status, getattr(response, "headers", None), _loaded_body(response)


def response_of(exc: BaseException) -> Any | None:
    """The answer an exception carries, or None.

    httpx, requests and the openai and anthropic clients keep it in ``response``; aiohttp's
    ``ClientResponseError`` and urllib's ``HTTPError`` have status and headers themselves.
    """
    response = getattr(exc, "response", None)
    if _status(response) is not None:
        return response
    if hasattr(exc, "headers"):
        return exc if _status(exc) is not None else None
    status = getattr(exc, "status_code", None)
    return exc if isinstance(status, int) and 100 <= status <= 599 else None


def body_of(exc: BaseException) -> Mapping[str, object] | None:
    """The error that an exception has in its ``body``, as the openai and anthropic clients parse it, or None.

    What goes wrong inside of a stream is only there: the answer behind it began well. OpenAI's client
    takes the outer ``error`` off, so it is put back.
    """
    body = getattr(exc, "body", None)
    if not isinstance(body, Mapping) or not body:
        return None
    return body if "error" in body or body.get("type") in FAILED else {"error": body}


def _status(response: object) -> int | None:
    for name in ("status_code", "status"):
        status = getattr(response, name, None)
        if isinstance(status, int) and not isinstance(status, bool):
            return int(status)
    return None


def _loaded_body(response: object) -> bytes | str | None:
    for name in _BODIES:
        body = getattr(response, name, None)
        if isinstance(body, bytes | str):
            return body
    declared = getattr(type(response), "content", None)
    if hasattr(declared, "__get__") and not isinstance(declared, MemberDescriptorType):
        return None
    body = getattr(response, "content", None)
    return body if isinstance(body, bytes | str) else None
