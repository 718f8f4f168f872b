"""Requests to a search API and the parts of an answer; ``headgate.exchange`` sends them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from ..exchange import USUAL_HEADERS, Answer, exchange
from ..wire.redact import HIDDEN, redact
from .results import Json, inner, text

if TYPE_CHECKING:
    import aiohttp

LARGEST_ANSWER = 8 << 20
"""Bytes, decompressed; a page of search results is a thousandth of it, extracted pages a tenth."""
LONGEST_MESSAGE = 200
"""Characters of a server's error message that are repeated."""

_MESSAGE_FIELDS = (("detail", "error"), ("error", "message"), ("error",), ("detail",), ("message",))
"""Where APIs put the error message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str = "GET"
    path: str
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Json | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def with_header(self, name: str, value: str) -> Self:
        return replace(self, headers={**self.headers, name: value})

    def with_query(self, name: str, value: str) -> Self:
        return replace(self, query={**self.query, name: value})


async def send(
    session: aiohttp.ClientSession, base_url: str, request: Request, *, name: str, within: float, secret: str = ""
) -> Answer:
    """Raises as ``exchange`` does. The session may be the caller's own, so the usual headers go with the request."""
    headers = {**USUAL_HEADERS, **request.headers}
    body = None
    if request.body is not None:
        body = json.dumps(request.body).encode()
        headers["Content-Type"] = "application/json"
    return await exchange(
        session,
        request.method,
        base_url + request.path,
        body,
        headers,
        query=request.query,
        name=name,
        within=within,
        largest=LARGEST_ANSWER,
        secret=secret,
    )


def json_of(answer: Answer) -> Json | None:
    """The JSON object it holds, or None."""
    try:
        value = json.loads(answer.content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_error(answer: Answer, secret: str) -> str:
    """The server's error message: short, printable and without the secret."""
    body = json_of(answer)
    message = next((found for names in _MESSAGE_FIELDS if (found := text(inner(body, *names)))), "")
    hidden = message.replace(secret, HIDDEN) if secret else message
    shown = redact("".join(character if character.isprintable() else " " for character in hidden))
    return shown if len(shown) <= LONGEST_MESSAGE else f"{shown[: LONGEST_MESSAGE - 3]}..."
