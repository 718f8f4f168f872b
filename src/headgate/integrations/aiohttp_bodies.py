"""Bodies of aiohttp's answers: they tell when they end, and what was read of an error's is still there.

the connection is let go ─┬─ all has come: over         a web socket: over as soon as it is one
                          ├─ it broke off: broke
                          └─ closed, released or thrown away: left
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.base_protocol import BaseProtocol

from .answering import explains_itself, unpacked_headers
from .reading import LARGEST_ERROR, unpacked
from .request_call import RequestCall

NEVER_PAUSES = 1 << 40
"""Bytes in a buffer that would stop its connection: there is none behind ours, and the one inside stops its own."""


async def hear(response: aiohttp.ClientResponse, call: RequestCall, *, is_unpacked: bool) -> None:
    """Tell the call of an answer. What is read of an error's body is put back."""
    headers = response.headers
    told = unpacked_headers(headers) if is_unpacked else list(headers.items())
    if not explains_itself(response.status, headers):
        call.heard(response.status, told)
        return
    inside, start = response.content, bytearray()
    while len(start) < LARGEST_ERROR and (piece := await inside.readany()):
        start += piece
    response.content = _Content(inside, bytes(start))
    encoding = "" if is_unpacked else headers.get("content-encoding", "")
    call.heard(response.status, told, unpacked(bytes(start), encoding))


def hold(response: aiohttp.ClientResponse, call: RequestCall) -> None:
    """Keep the permit until the body has come, or nobody wants it any more."""
    if response.status == 101:  # it goes on as a web socket
        call.over()
        return
    inside, read = response.content, None
    if call.request_sent.for_model:
        response.content = read = _Content(inside, b"", call)

    def end() -> None:
        error = inside.exception()
        if inside.is_eof():
            if read is not None:
                read.take_all()
            call.over()
        elif isinstance(error, Exception) and type(error) is not aiohttp.ClientConnectionError:
            _soon(loop, call.broke, error)
        else:  # closed, released or thrown away before its end
            _soon(loop, call.left)

    loop = asyncio.get_running_loop()
    if response.connection is None:  # all of it is there
        end()
    else:
        response.connection.add_callback(end)


def _soon(loop: asyncio.AbstractEventLoop, do: Callable[..., None], *args: Any) -> None:
    """Not at once: the collector may have found the answer, anywhere, and that is no place to take locks."""
    try:
        loop.call_soon_threadsafe(do, *args)
    except RuntimeError:  # the loop is over
        do(*args)


class _Content(aiohttp.StreamReader):
    """The body of an answer: what was read of it before, then the rest. The call hears of each piece."""

    def __init__(self, inside: aiohttp.StreamReader, start: bytes, call: RequestCall | None = None) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(BaseProtocol(loop), NEVER_PAUSES, loop=loop)
        self._inside, self._call = inside, call
        self.feed_data(start)

    def take_all(self) -> None:
        """The end has come: take what nobody has read yet."""
        if not self._eof:
            self._take(self._inside.read_nowait())
            self._take(b"")

    async def _wait(self, func_name: str) -> None:
        """Where every way of reading goes when nothing is there."""
        piece = await self._inside.readany()
        if not self._eof:
            self._take(piece)

    def _take(self, piece: bytes) -> None:
        if self._call is not None and piece:
            self._call.piece(piece)
        if piece:
            self.feed_data(piece)
        elif self._inside.is_eof():
            self.feed_eof()
