"""What comes of asking for a page: an answer, or a problem with a name.

    kind             what it was                                         counts as
    ---------------  --------------------------------------------------  ------------------------
    bad_address      no URL that can be asked                            abandoned: nothing sent
    refused_address  where the guard lets no request go                  abandoned: nothing sent
    dns, connect     no such name; nothing listens                       transient
    tls              certificate not trusted, or no common protocol      transient
    timeout          too late, silent or slow                            transient
    hung_up          the connection broke                                transient
    bad_headers      no HTTP, or headers beyond the limits                transient
    bad_encoding     packed in a way that cannot be unpacked             invalid
    too_large        more bytes than wanted                              ok: the server is well
    bomb             a few bytes that unpack to very many                ok
    not_wanted       another type of content                             ok

A problem names itself in our own words: whatever the server sent, or a library says about it, may be made to be read.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy

from ...checks import check, check_finite, check_whole, number
from ...core.decision import Outcome
from ...errors import HeadgateError
from ...wire.decompress import DecompressError, decompressor
from ...wire.retry_after import retry_after
from ..url import host_of
from .memory_budget import MemoryShare


class FetchProblem(StrEnum):
    """Why there is no answer to work on; also the category under which a frontier keeps a URL that failed."""

    BAD_ADDRESS = "bad_address"
    REFUSED_ADDRESS = "refused_address"
    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    HUNG_UP = "hung_up"
    BAD_HEADERS = "bad_headers"
    BAD_ENCODING = "bad_encoding"
    TOO_LARGE = "too_large"
    BOMB = "bomb"
    NOT_WANTED = "not_wanted"


OUTCOMES = {
    FetchProblem.BAD_ADDRESS: Outcome.ABANDONED,
    FetchProblem.REFUSED_ADDRESS: Outcome.ABANDONED,
    FetchProblem.DNS: Outcome.TRANSIENT,
    FetchProblem.CONNECT: Outcome.TRANSIENT,
    FetchProblem.TLS: Outcome.TRANSIENT,
    FetchProblem.TIMEOUT: Outcome.TRANSIENT,
    FetchProblem.HUNG_UP: Outcome.TRANSIENT,
    FetchProblem.BAD_HEADERS: Outcome.TRANSIENT,
    FetchProblem.BAD_ENCODING: Outcome.INVALID,
    FetchProblem.TOO_LARGE: Outcome.OK,
    FetchProblem.BOMB: Outcome.OK,
    FetchProblem.NOT_WANTED: Outcome.OK,
}
"""What each counts as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much of our time and memory one answer may take. Seconds and bytes."""

    total: float = 30.0
    connect: float = 10.0
    first_byte: float = 15.0
    """Until all headers are here, looking the name up and connecting included."""
    silence: float = 10.0
    """Between two pieces of the body."""
    slowest: float = 256.0
    """Bytes per second, on average, of a body that has taken longer than ``silence``."""
    largest: int = 10_000_000
    """Of the body, unpacked."""
    largest_ratio: float = 200.0
    """How many bytes one packed byte may stand for, in bodies of more than 1 MiB; pages reach about 50."""
    most_headers: int = 128
    longest_header: int = 8_190

    def __post_init__(self) -> None:
        for name in ("total", "connect", "first_byte", "silence"):
            check_finite(name, getattr(self, name))
        check("slowest", self.slowest, 0 <= number(self.slowest) < inf, "bytes per second, 0 or more")
        check("largest_ratio", self.largest_ratio, 1 <= number(self.largest_ratio) < inf, "1 or more")
        for name in ("largest", "most_headers", "longest_header"):
            check_whole(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """An answer that has been read to its end."""

    url: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in any case; ``items()`` has those that came more than once."""
    body: bytes = b""
    """Unpacked. Empty if the answer is not 2xx and its body was unfit."""
    content_type: str = ""
    """``text/html``; empty if the server did not say."""
    charset: str | None = None
    location: str | None = None
    """Where a 3xx leads, as the server wrote it; ``canonical(location, url)`` is a URL or None."""
    latency: float = 0.0
    """Seconds until the headers were here."""
    took: float = 0.0
    """... and all the rest."""
    retry_after: float | None = None


class FetchError(HeadgateError):
    """There is no answer to work on. ``sentence`` is a clause about the server, without a word that came from it."""

    def __init__(self, kind: FetchProblem, sentence: str, host: str = "it") -> None:
        super().__init__(f"{host} {sentence}")
        self.kind = FetchProblem(kind)
        self.sentence = sentence
        self.outcome = OUTCOMES[self.kind]
        self.host = host

    def __reduce__(self) -> tuple[object, ...]:
        return (FetchError, (self.kind, self.sentence, self.host))


# ---------------------------------------------------------------------- reading one answer, within its limits
# until the headers   ``first_byte``                      looking up and connecting included
# each piece          ``silence``, and ``total`` for all
# after each piece    how slow, how many bytes packed
# after each step     how many bytes unpacked, and how many for each that came
#
# One timer does it all: it is set again for every piece, and paused while there is no room in memory for the
# next. Of an answer that is not 2xx the status is what matters, so
# whatever is wrong with its body, it is an answer.

LARGEST_ERROR_BODY = 65_536
"""Bytes of an answer that is not 2xx; the rest is of no use."""
UNSUSPECTED = 1 << 20
"""Bytes up to which any ratio of compression is fine; a page full of blanks is no attack."""
LONGEST_CONTENT_TYPE = 256

_CHARSET = re.compile(r"(?i);\s*charset\s*=\s*[\"']?([a-z0-9_:.+-]{1,40})")
_XML = re.compile(r"(?:application|text)/[a-z0-9.-]+\+xml")


class ResponseReader:
    """One answer on its way in. ``alarm`` is the timer that everything happens under."""

    def __init__(
        self, url: str, limits: FetchLimits, accept: Collection[str], share: MemoryShare | None = None
    ) -> None:
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

    async def read(self, response: aiohttp.ClientResponse) -> FetchResponse:
        self.has_begun = True
        latency = self._loop.time() - self._started_at
        if response.status < 200:
            raise self._problem(FetchProblem.BAD_HEADERS, f"answered with an unexpected {response.status}")
        declared = response.headers.get("Content-Type", "")[:LONGEST_CONTENT_TYPE]
        content_type = declared.partition(";")[0].strip().lower()
        if 200 <= response.status <= 299:
            if not _is_wanted(content_type, self._accept):
                raise self._problem(FetchProblem.NOT_WANTED, "sent a content type that is not accepted")
            body = await self._body(response, self._limits.largest)
        else:
            body = await self._body_of_error(response)
        charset = _CHARSET.search(declared)
        hints, date = response.headers.getall("Retry-After", ()), response.headers.get("Date")
        return FetchResponse(
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
        """Read the body of an error, but only for a moment: its status is what matters."""
        self._total_at = min(self._total_at, self._loop.time() + self._limits.silence)
        self.alarm.reschedule(None)
        try:
            async with asyncio.timeout(None) as self.alarm:
                return await self._body(response, min(LARGEST_ERROR_BODY, self._limits.largest))
        except (FetchError, aiohttp.ClientError, OSError):
            response.close()
            return b""

    async def _body(self, response: aiohttp.ClientResponse, largest: int) -> bytes:
        if (response.content_length or 0) > largest:
            raise self._problem(FetchProblem.TOO_LARGE, f"announced more than {largest:,} bytes")
        if response.headers.get("Transfer-Encoding", "chunked").strip().lower() not in ("chunked", "identity"):
            raise self._problem(FetchProblem.BAD_ENCODING, "used a Transfer-Encoding that was not requested")
        content = bytearray()
        try:
            unpacking = decompressor(", ".join(response.headers.getall("Content-Encoding", ())))
            self._body_at = self._loop.time()
            while piece := await self._piece(response, largest):
                if unpacking is None:
                    await self._make_room(len(piece))
                    content += piece
                    continue
                for part in unpacking.feed(piece):
                    await self._make_room(len(part))
                    content += part
                    self._check_size(len(content), unpacking.taken, largest)
            if unpacking is not None:
                unpacking.finish()
        except DecompressError as error:
            raise self._problem(FetchProblem.BAD_ENCODING, str(error)) from None
        return bytes(content)

    async def _piece(self, response: aiohttp.ClientResponse, largest: int) -> bytes:
        """The next piece of the body, within the limits on time and size; empty at the end."""
        self.alarm.reschedule(min(self._total_at, self._loop.time() + self._limits.silence))
        try:
            piece = await response.content.readany()
        except asyncio.CancelledError:
            self._is_cut_off = response.connection is None or response.connection.transport is None
            raise
        self._came += len(piece)
        if self._came > largest:
            raise self._problem(FetchProblem.TOO_LARGE, f"sent more than {largest:,} bytes; the rest was not read")
        lasted = self._loop.time() - self._body_at
        if piece and lasted > self._limits.silence and self._came < self._limits.slowest * lasted:
            raise self._problem(
                FetchProblem.TIMEOUT, f"sent its response at less than {self._limits.slowest:,.0f} bytes per second"
            )
        return piece

    async def _make_room(self, count: int) -> None:
        """Wait until there is memory for so many bytes. The time does not count against the server."""
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

    def _check_size(self, unpacked: int, taken: int, largest: int) -> None:
        if unpacked > self._limits.largest_ratio * taken and unpacked > min(UNSUSPECTED, largest):
            raise self._problem(FetchProblem.BOMB, f"sent {taken:,} bytes that decompress to more than {unpacked:,}")
        if unpacked > largest:
            raise self._problem(
                FetchProblem.TOO_LARGE, f"sent more than {largest:,} bytes, decompressed; the rest was not read"
            )

    def why_late(self) -> tuple[FetchProblem, str]:
        """Kind and sentence, once the alarm has gone off."""
        limits = self._limits
        if not self.has_begun:
            return FetchProblem.TIMEOUT, f"did not answer within {min(limits.first_byte, limits.total):.3g} s"
        if self._is_cut_off:  # aiohttp closes the connection when it cannot read a chunk, and raises nothing
            return FetchProblem.BAD_ENCODING, "sent invalid chunked data"
        if self._loop.time() >= self._total_at:
            return FetchProblem.TIMEOUT, f"did not finish its response within {limits.total:.3g} s"
        return FetchProblem.TIMEOUT, f"sent nothing for {limits.silence:.3g} s in the middle of the response"

    def _problem(self, kind: FetchProblem, sentence: str) -> FetchError:
        return FetchError(kind, sentence, host=host_of(self._url))


def _is_wanted(content_type: str, accept: Collection[str]) -> bool:
    """Whether to read this content type; one that is not given may be anything."""
    if not content_type or content_type in accept or "*/*" in accept:
        return True
    if f"{content_type.partition('/')[0]}/*" in accept:
        return True
    return "application/xml" in accept and bool(_XML.fullmatch(content_type))


def _readable(headers: CIMultiDictProxy[str]) -> Mapping[str, str]:
    """The headers with bytes that are not text replaced, since outputs could not hold them."""
    if all(map(str.isascii, headers.values())):
        return headers
    return CIMultiDict(
        (name, value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")) for name, value in headers.items()
    )
