"""The body of a request on its way: kept, if it is small, so that it may be sent again; else handed on as it comes.

known to be small           read before anything else: whoever sends slowly holds no permit meanwhile
unknown, and small          likewise
larger, or no room left     what has come is sent on, then each piece when it comes; never twice
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import BytesPayload, StreamReader, web

from .answering import TurnedAwayError

PIECE = 1 << 16
"""Bytes that are handed to a connection before it is waited for: what it cannot send yet, it copies."""


class CallerStalledError(Exception):
    """The caller's body stopped coming, which says nothing about the API."""


class Room:
    """What all kept bodies together may take of the memory."""

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
    """``kept`` is the whole body or None; then ``_rest`` follows ``_first``."""

    __slots__ = ("_first", "_held", "_rest", "_room", "_stalled", "kept", "length", "stalled")

    def __init__(self, room: Room, stalled: float) -> None:
        self.kept: bytes | None = b""
        self.length: int | None = None
        """Of the body; None where it is not known yet, or there is none."""
        self.stalled = False
        self._room, self._held, self._stalled = room, 0, stalled
        self._first: bytearray | None = None
        self._rest: StreamReader | None = None

    async def take(self, request: web.BaseRequest, largest: int) -> None:
        """Read what is small. Raises ``TurnedAwayError`` if it does not come."""
        if not request.body_exists:
            return
        self.length = request.content_length
        size = largest if self.length is None else self.length
        self._rest = request.content
        if size > largest or not self._room.take(size):
            self.kept = None
            return
        self._held = size
        first = bytearray(self._rest.read_nowait())
        if self._rest.at_eof() and len(first) <= largest:  # as mostly: it came with its head
            self._keep(first)
            return
        try:
            async with asyncio.timeout(self._stalled):
                while len(first) <= largest:
                    piece = await self._rest.readany()
                    if not piece:
                        self._keep(first)
                        return
                    first += piece
        except TimeoutError:
            raise TurnedAwayError(408, "slow_upload", "the body of the request did not come in time") from None
        self.kept, self._first = None, first

    def data(self) -> BytesPayload | AsyncIterator[bytes] | None:
        """For an attempt; what is not kept can be asked for once."""
        if self.kept is None:
            return self._pieces()
        if len(self.kept) > PIECE:
            return _pieces_of(self.kept)
        return BytesPayload(self.kept) if self._rest is not None else None

    def close(self) -> None:
        self._room.give_back(self._held)
        self._held = 0

    def _keep(self, whole: bytearray) -> None:
        self.kept, self.length = bytes(whole), len(whole)

    async def _pieces(self) -> AsyncIterator[bytes]:
        rest, first, self._rest, self._first = self._rest, bytes(self._first or b""), None, None
        if rest is None:
            raise CallerStalledError("the body has been sent before")
        async for piece in _pieces_of(first):
            yield piece
        while True:
            try:
                async with asyncio.timeout(self._stalled):
                    piece = await rest.readany()
            except TimeoutError:
                self.stalled = True
                raise CallerStalledError("the body stopped coming") from None
            if not piece:
                return
            yield piece


async def _pieces_of(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]
