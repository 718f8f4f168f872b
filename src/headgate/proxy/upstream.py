"""Requests to one API, over connections that are kept open.

    head and a small body ──one write──> the API ──> status, headers, a reader of the body
    a large body          ──chunks in a task of its own, while the response may already arrive

aiohttp's connector makes and keeps the connections (names, TLS, keep-alive) and its protocol parses the responses. Its
session is not used: redirects, cookies, middlewares and repeats are none of the proxy's, and took half of its time. A
request is written once; whether it goes again is the gate's to decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.client_reqrep import ClientRequest
from aiohttp.http import HttpProcessingError, StreamWriter
from yarl import URL

from ..exchange import CONNECT_WITHIN
from .connection import LARGEST_FIELD, READ_AHEAD

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from multidict import CIMultiDict, CIMultiDictProxy

WITHOUT_LENGTH = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))
"""Methods whose requests say nothing about a body that they do not have."""
_SWITCHING = 101


class UpstreamResponse:
    """A response whose body may still be arriving. Its connection is kept once the body has ended, else closed."""

    __slots__ = ("_connection", "_writing", "content", "headers", "reason", "status")

    def __init__(
        self,
        message: aiohttp.http.RawResponseMessage,
        content: aiohttp.StreamReader,
        connection: Connection,
        writing: asyncio.Task[None] | None,
    ) -> None:
        self.status: int = message.code
        self.reason: str = message.reason or ""
        self.headers: CIMultiDictProxy[str] = message.headers
        self.content = content
        self._connection: Connection | None = connection
        self._writing = writing
        content.on_eof(self._end)

    def close(self) -> None:
        """Read no further."""
        connection, self._connection = self._connection, None
        if self._writing is not None:
            self._writing.cancel()
        if connection is not None:
            connection.close()

    def _end(self) -> None:
        if self._writing is not None and not self._writing.done():
            self.close()  # it was answered before all of the body was sent
        elif self._connection is not None and self.status != _SWITCHING:
            self._connection.release()
            self._connection = None


class Upstream:
    def __init__(self, connector: aiohttp.TCPConnector, origin: str, timeout: float) -> None:
        """``timeout``: seconds of the API's silence."""
        self._connector, self._silence = connector, timeout
        self._loop = asyncio.get_running_loop()
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_WITHIN)
        self._address = ClientRequest("GET", URL(origin), loop=self._loop)
        """What the connector knows the origin by."""
        self.host: str = self._address.headers["Host"]

    async def send(
        self, method: str, target: str, headers: CIMultiDict[str], body: bytes | AsyncIterator[bytes] | None
    ) -> UpstreamResponse:
        """``headers`` have ``Host``, and the length of the body where it is known.

        Raises ``aiohttp.ClientError``, ``OSError``; ``ValueError`` for a header that cannot be sent.
        """
        try:
            connection = await self._connector.connect(self._address, [], self._timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"no connection within {CONNECT_WITHIN:g} s") from error
        protocol = connection.protocol
        assert protocol is not None
        writing = None
        try:
            protocol.set_response_params(
                skip_payload=method == "HEAD",
                read_until_eof=True,
                auto_decompress=False,
                read_timeout=self._silence,
                read_bufsize=READ_AHEAD,
                max_line_size=LARGEST_FIELD,
                max_field_size=LARGEST_FIELD,
            )
            writer = StreamWriter(protocol, self._loop)
            if "Content-Length" not in headers:
                if body is not None:
                    headers["Transfer-Encoding"] = "chunked"
                    writer.enable_chunking()
                elif method not in WITHOUT_LENGTH:
                    headers["Content-Length"] = "0"
            await writer.write_headers(f"{method} {target} HTTP/1.1", headers)
            if body is None or isinstance(body, bytes):
                await writer.write_eof(body or b"")
                protocol.start_timeout()
            else:
                writer.send_headers()
                writing = self._loop.create_task(_write(writer, body))
            message, content = await protocol.read()
            while message.code < 200 and message.code != _SWITCHING:
                message, content = await protocol.read()
            return UpstreamResponse(message, content, connection, writing)
        except BaseException as error:
            if writing is not None:
                writing.cancel()
            connection.close()
            if isinstance(error, HttpProcessingError):
                raise aiohttp.ClientResponseError(self._address.request_info, (), status=error.code) from error
            if isinstance(error, OSError) and not isinstance(error, aiohttp.ClientError | TimeoutError):
                raise aiohttp.ClientOSError(*error.args) from error
            raise


async def _write(writer: StreamWriter, body: AsyncIterator[bytes]) -> None:
    """The body, chunk by chunk. If it cannot be sent, the wait for a response ends."""
    protocol = writer.protocol
    assert isinstance(protocol, aiohttp.client_proto.ResponseHandler)
    try:
        async for chunk in body:
            await writer.write(chunk)
        await writer.write_eof()
        protocol.start_timeout()
    except Exception as error:
        protocol.set_exception(aiohttp.ClientConnectionError("the body was not sent"), error)
