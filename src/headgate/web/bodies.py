"""A request's body: short, announced, and there in time. Only POST has one."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive

from .coming import Fields
from .refusing import RefusedError

LARGEST_BODY = 4_096
BODY_TIME = 5.0
"""Seconds that a body may take."""


async def read_body(fields: Fields, method: str, receive: Receive) -> bytes:
    """All of it; raises ``RefusedError``."""
    said = fields.only(b"content-length")
    if fields.all(b"transfer-encoding") or (method == "POST" and said is None):
        raise RefusedError(411, "say how long the body is")
    length = int(said) if said is not None and said.isascii() and said.isdigit() and len(said) < 10 else None
    if fields.all(b"content-length") and (length is None or length > (LARGEST_BODY if method == "POST" else 0)):
        raise RefusedError(413, "the body is too large")
    body = b""
    if method == "POST":
        try:
            async with asyncio.timeout(BODY_TIME):
                more = True
                while more and len(body) <= LARGEST_BODY:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "the body is not complete")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
        except TimeoutError:
            raise RefusedError(408, "the body took too long") from None
        if len(body) != length:
            raise RefusedError(400, "the body is not as long as was said")
    return body


def replay(body: bytes, receive: Receive) -> Receive:
    """For an app that reads it again; then whatever else comes, such as the end of the connection."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
