"""Read one answer, and no more of it than is good for us.

    until the headers   ``first_byte``                      looking up and connecting included
    each piece          ``silence``, and ``total`` for all
    after each piece    how slow, how many bytes packed
    after each step     how many bytes unpacked, and how many for each that came

One timer does it all: it is set anew for every piece, and stands still while there is no room in memory for the
next. Of an answer that is not 2xx the status is what matters, so
whatever is wrong with its body, it is an answer.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection, Mapping

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy

from ..wire.times import retry_after
from .address import host_of
from .fetched import Fetched, FetchLimits, FetchProblem
from .room import Share
from .unpack import UnpackError, unpacker

LARGEST_ERROR_BODY = 65_536
"""Bytes of an answer that is not 2xx; the rest is of no use to anyone."""
UNSUSPECTED = 1 << 20
"""Bytes: up to here nobody asks what they were packed in; a page full of blanks is no attack."""
LONGEST_CONTENT_TYPE = 256

_CHARSET = re.compile(r"(?i);\s*charset\s*=\s*[\"']?([a-z0-9_:.+-]{1,40})")
_XML = re.compile(r"(?:application|text)/[a-z0-9.-]+\+xml")


class Reading:
    """One answer on its way in. ``alarm`` is the timer that everything happens under."""

    def __init__(self, url: str, limits: FetchLimits, accept: Collection[str], share: Share | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._url, self._limits, self._accept, self._share = url, limits, accept, share
        self._started_at = self._loop.time()
        self._total_at = self._started_at + limits.total
        self.first_byte_at = min(self._total_at, self._started_at + limits.first_byte)
        self.alarm: asyncio.Timeout
        self.has_begun = False
        self._is_cut_off = False
        self._body_at = 0.0
        self._came = 0

    async def read(self, response: aiohttp.ClientResponse) -> Fetched:
        self.has_begun = True
        latency = self._loop.time() - self._started_at
        if response.status < 200:
            raise self._problem("bad_headers", f"answered {response.status}, which nobody asked for")
        declared = response.headers.get("Content-Type", "")[:LONGEST_CONTENT_TYPE]
        content_type = declared.partition(";")[0].strip().lower()
        if 200 <= response.status <= 299:
            if not _is_wanted(content_type, self._accept):
                raise self._problem("not_wanted", "sent a type of content that is not wanted")
            body = await self._body(response, self._limits.largest)
        else:
            body = await self._body_of_error(response)
        charset = _CHARSET.search(declared)
        hints, date = response.headers.getall("Retry-After", ()), response.headers.get("Date")
        return Fetched(
            url=self._url,
            status=response.status,
            headers=_readable(response.headers),
            body=body,
            content_type=content_type,
            charset=None if charset is None else charset[1].lower(),
            location=response.headers.get("Location") if 300 <= response.status <= 399 else None,
            latency=latency,
            took=self._loop.time() - self._started_at,
            retry_after=retry_after(", ".join(hints), wall=time.time(), date=date) if hints else None,
        )

    async def _body_of_error(self, response: aiohttp.ClientResponse) -> bytes:
        """Its body is worth a moment; the status is what was wanted."""
        self._total_at = min(self._total_at, self._loop.time() + self._limits.silence)
        self.alarm.reschedule(None)
        try:
            async with asyncio.timeout(None) as self.alarm:
                return await self._body(response, min(LARGEST_ERROR_BODY, self._limits.largest))
        except (FetchProblem, aiohttp.ClientError, OSError):
            response.close()
            return b""

    async def _body(self, response: aiohttp.ClientResponse, largest: int) -> bytes:
        if (response.content_length or 0) > largest:
            raise self._problem("too_large", f"announced more than {largest:,} bytes")
        if response.headers.get("Transfer-Encoding", "chunked").strip().lower() not in ("chunked", "identity"):
            raise self._problem("bad_encoding", "packed its answer for the way, which was not asked for")
        content = bytearray()
        try:
            unpacking = unpacker(", ".join(response.headers.getall("Content-Encoding", ())))
            self._body_at = self._loop.time()
            while piece := await self._piece(response, largest):
                if unpacking is None:
                    await self._make_room(len(piece))
                    content += piece
                    continue
                for part in unpacking.feed(piece):
                    await self._make_room(len(part))
                    content += part
                    self._judge(len(content), unpacking.taken, largest)
            if unpacking is not None:
                unpacking.finish()
        except UnpackError as error:
            raise self._problem("bad_encoding", str(error)) from None
        return bytes(content)

    async def _piece(self, response: aiohttp.ClientResponse, largest: int) -> bytes:
        """What has come, on time and not too much of it; nothing at the end."""
        self.alarm.reschedule(min(self._total_at, self._loop.time() + self._limits.silence))
        try:
            piece = await response.content.readany()
        except asyncio.CancelledError:
            self._is_cut_off = response.connection is None or response.connection.transport is None
            raise
        self._came += len(piece)
        if self._came > largest:
            raise self._problem("too_large", f"sent more than {largest:,} bytes; the rest was not read")
        lasted = self._loop.time() - self._body_at
        if piece and lasted > self._limits.silence and self._came < self._limits.slowest * lasted:
            raise self._problem("timeout", f"sent less than {self._limits.slowest:,.0f} bytes per second of its answer")
        return piece

    async def _make_room(self, count: int) -> None:
        """Not before there is memory for it; the server is not to blame for the time."""
        share = self._share
        if share is None or share.grow(count):
            return
        began_at = self._loop.time()
        self.alarm.reschedule(None)
        while not share.grow(count):
            await share.wait()
        paused = self._loop.time() - began_at
        self._total_at += paused
        self._body_at += paused
        self.alarm.reschedule(self._total_at)

    def _judge(self, unpacked: int, taken: int, largest: int) -> None:
        if unpacked > self._limits.largest_ratio * taken and unpacked > min(UNSUSPECTED, largest):
            raise self._problem("bomb", f"sent {taken:,} bytes that unpack to more than {unpacked:,}")
        if unpacked > largest:
            raise self._problem("too_large", f"sent more than {largest:,} bytes, unpacked; the rest was not read")

    def why_late(self) -> tuple[str, str]:
        """Kind and sentence, once the alarm has gone off."""
        limits = self._limits
        if not self.has_begun:
            return "timeout", f"did not answer within {min(limits.first_byte, limits.total):.3g} s"
        if self._is_cut_off:  # aiohttp closes the connection when it cannot read a chunk, and tells nobody
            return "bad_encoding", "sent chunks that cannot be read"
        if self._loop.time() >= self._total_at:
            return "timeout", f"did not end its answer within {limits.total:.3g} s"
        return "timeout", f"fell silent for {limits.silence:.3g} s in the middle of its answer"

    def _problem(self, kind: str, sentence: str) -> FetchProblem:
        return FetchProblem(kind, sentence, host=host_of(self._url))


def _is_wanted(content_type: str, accept: Collection[str]) -> bool:
    """What does not say what it is may be anything."""
    if not content_type or content_type in accept or "*/*" in accept:
        return True
    if f"{content_type.partition('/')[0]}/*" in accept:
        return True
    return "application/xml" in accept and bool(_XML.fullmatch(content_type))


def _readable(headers: CIMultiDictProxy[str]) -> Mapping[str, str]:
    """Without bytes that are no text, which nobody could write down."""
    if all(map(str.isascii, headers.values())):
        return headers
    return CIMultiDict(
        (name, value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")) for name, value in headers.items()
    )
