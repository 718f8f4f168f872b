"""Status, headers and body of an answer, from whichever library it came.

httpx, aiohttp and requests agree on nothing but that a response has a status and
headers. They are told apart by what they have, never by importing them, and a body is
taken only if it is already here: reading an answer must not start a download. So
``content`` is read where it is a plain attribute; a property may be what downloads.

An exception says most by the answer it carries; without one, the name of its class tells whether the server failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MemberDescriptorType
from typing import Any

from ..core.decision import Outcome
from .error_body import FAILED, first_object, open_body

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


MOST_CAUSES = 5
"""Exceptions looked at along ``raise ... from ...``."""

_BY_CLASS = {
    # The call never made sense, or a file is missing: says nothing about the server.
    "InvalidURL": Outcome.INVALID,
    "InvalidSchema": Outcome.INVALID,
    "MissingSchema": Outcome.INVALID,
    "InvalidHeader": Outcome.INVALID,
    "InvalidJSONError": Outcome.INVALID,
    "JSONDecodeError": Outcome.INVALID,
    "UnsupportedProtocol": Outcome.INVALID,
    "LocalProtocolError": Outcome.INVALID,
    "TooManyRedirects": Outcome.INVALID,
    "LocationParseError": Outcome.INVALID,
    "FileNotFoundError": Outcome.INVALID,
    "FileExistsError": Outcome.INVALID,
    "IsADirectoryError": Outcome.INVALID,
    "NotADirectoryError": Outcome.INVALID,
    # No answer came, or not all of it: Python itself, with asyncio and sockets ...
    "TimeoutError": Outcome.TRANSIENT,
    "ConnectionError": Outcome.TRANSIENT,
    "OSError": Outcome.TRANSIENT,
    "HTTPException": Outcome.TRANSIENT,
    # ... aiohttp, httpx, requests and urllib3, the openai and anthropic clients.
    "ClientError": Outcome.TRANSIENT,
    "TransportError": Outcome.TRANSIENT,
    "RequestError": Outcome.TRANSIENT,
    "TimeoutException": Outcome.TRANSIENT,
    "RequestException": Outcome.TRANSIENT,
    "ProtocolError": Outcome.TRANSIENT,
    "APIConnectionError": Outcome.TRANSIENT,
    "APITimeoutError": Outcome.TRANSIENT,
}


def response_behind(exc: BaseException) -> object | None:
    """The answer of this exception or of the first one along its causes that says anything about the server."""
    cause, known = _informative_cause(exc)
    return None if cause is None or known is Outcome.INVALID else response_of(cause)


def body_behind(exc: BaseException) -> Mapping[str, object] | None:
    """... and the error that a client has found inside of the answer."""
    cause, known = _informative_cause(exc)
    return None if cause is None or known is Outcome.INVALID else body_of(cause)


def outcome_of_class(exc: BaseException) -> Outcome | None:
    """... and what its class says: the server failed, or the call never made sense; None if it says nothing."""
    return _informative_cause(exc)[1]


def _informative_cause(exc: BaseException) -> tuple[BaseException | None, Outcome | None]:
    """Of an exception and its causes the first that says anything about the server; and what its class says."""
    current: BaseException | None = exc
    for _ in range(MOST_CAUSES):
        if current is None:
            break
        known = next((_BY_CLASS[name] for cls in type(current).__mro__ if (name := cls.__name__) in _BY_CLASS), None)
        if known is not None or response_of(current) is not None or body_of(current) is not None:
            return current, known
        current = current.__cause__
    return None, None


_SENTENCES = ("message", "detail", "error_description", "title", "error", "msg")
"""Where a sentence is found, in an error or around it."""


def error_message(response: object, otherwise: str) -> str:
    """``400 The request is not valid.``, with ``otherwise`` where the body has no sentence; empty words are left out.

    The sentence is the server's, as long as it likes, and may quote a secret: redact it first, then make it shorter.
    """
    try:
        status, _, body = facts_of(response)
    except TypeError:
        return otherwise
    words = error_sentence(body) or otherwise
    return f"{status} {words}".strip() if status >= 400 else words


def error_sentence(body: object) -> str:
    """The sentence in the body of an error, on one line; empty if there is none."""
    opened = open_body(body)
    if opened is None:
        return ""
    inner = next((opened[name] for name in ("error", "detail") if isinstance(opened.get(name), Mapping)), None)
    for place in (inner or first_object(opened.get("errors")) or opened, opened):
        for name in _SENTENCES:
            text = place.get(name)
            if isinstance(text, str) and text.strip():
                return "".join(one if one.isprintable() else " " for one in text).strip()
    return ""
