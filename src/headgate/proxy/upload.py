"""The body of a request, on its way from a client to an API.

known to be small, or unknown and small   read before anything else, so that a slow client holds no permit; kept, so
                                          that it can be sent again
larger, or no memory left                 what has arrived is sent on, then each chunk as it arrives; never twice
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import StreamReader, web

from .error_response import RejectedRequestError

CHUNK = 1 << 16
"""Bytes that are handed to a connection before it is waited for: what it cannot send yet, it copies."""


class MemoryBudget:
    """Bytes that all kept bodies together may take."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    def take(self, size: int) -> bool:
        if self.taken + size > self.most:
            return False
        self.taken += size
        return True

    def give_back(self, size: int) -> None:
        self.taken -= size


class Upload:
    """The body of a request. ``kept`` is all of it, or None: then ``_rest`` follows ``_first``."""

    __slots__ = ("_first", "_held", "_memory", "_rest", "_sender", "_stalled_after", "kept", "length", "rejection")

    def __init__(self, memory: MemoryBudget, stalled_after: float) -> None:
        self.kept: bytes | None = b""
        self.length: int | None = None
        """Of the body; None where it is not known yet, or there is none."""
        self.rejection: RejectedRequestError | None = None
        """Why the rest did not arrive, which says nothing about the API."""
        self._memory, self._held, self._stalled_after = memory, 0, stalled_after
        self._first: bytearray | None = None
        self._rest: StreamReader | None = None
        self._sender: asyncio.Task[object] | None = None
        """Reads ``_rest``."""

    async def receive(self, request: web.BaseRequest, largest: int) -> None:
        """Read a small body. Raises ``RejectedRequestError`` if it does not arrive."""
        if not request.body_exists:
            return
        self.length = request.content_length
        size = largest if self.length is None else self.length
        self._rest = request.content
        if size > largest or not self._memory.take(size):
            self.kept = None
            return
        self._held = size
        arrived = self._rest.read_nowait()
        if self._rest.at_eof() and len(arrived) <= largest:  # the usual case: it came with the head
            self._keep(arrived)
            return
        first = bytearray(arrived)
        try:
            async with asyncio.timeout(self._stalled_after):
                while len(first) <= largest:
                    chunk = await self._rest.readany()
                    if not chunk:
                        self._keep(bytes(first))
                        return
                    first += chunk
        except TimeoutError:
            raise RejectedRequestError(408, "slow_upload", "the request body did not arrive in time") from None
        self.kept, self._first = None, first

    def data(self) -> bytes | AsyncIterator[bytes] | None:
        """For an attempt; a body that is not kept can be sent once."""
        if self.kept is None:
            return self._stream()
        if len(self.kept) > CHUNK:
            return _chunks_of(self.kept)
        return self.kept if self._rest is not None else None

    def replace(self, body: bytes) -> None:
        """The same request for another target."""
        self.kept, self.length = body, len(body)

    async def close(self) -> None:
        """Nothing reads the body any more: aiohttp may then read and drop what still arrives."""
        self._memory.give_back(self._held)
        self._held = 0
        if self._sender is not None and not self._sender.done():
            self._sender.cancel()
            await asyncio.wait((self._sender,))

    def _keep(self, body: bytes) -> None:
        self.kept, self.length = body, len(body)

    async def _stream(self) -> AsyncIterator[bytes]:
        rest, first, self._rest, self._first = self._rest, bytes(self._first or b""), None, None
        if rest is None:
            raise aiohttp.ClientConnectionError("the body was sent before")
        self._sender = asyncio.current_task()
        async for chunk in _chunks_of(first):
            yield chunk
        while True:
            try:
                async with asyncio.timeout(self._stalled_after):
                    chunk = await rest.readany()
            except TimeoutError:
                self.rejection = RejectedRequestError(408, "slow_upload", "the request body stopped arriving")
                raise self.rejection from None
            except RejectedRequestError as error:
                self.rejection = error
                raise
            if not chunk:
                return
            yield chunk


async def _chunks_of(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]
