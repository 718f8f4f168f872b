"""Requests to one API, over connections that are kept open.

    head and a small body ──one write──> the API ──> status, headers, a reader of the body
    a large body          ──chunks in a task of its own, while the response may already arrive

aiohttp's connector makes the connections (names, TLS) and its protocol parses the responses. Its session is not used:
redirects, cookies, middlewares and repeats are none of the proxy's, and took half of its time. Nor is its pool, which
with a parser and a timer for each response took a tenth of what was left. A request is written once; whether it goes
again is the gate's to decide.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.helpers import _EXC_SENTINEL
from aiohttp.http import HttpProcessingError, StreamWriter
from yarl import URL

from ..exchange import CONNECT_WITHIN
from .connection import LARGEST_FIELD, READ_AHEAD

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from multidict import CIMultiDict, CIMultiDictProxy

WITHOUT_LENGTH = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))
"""Methods whose requests say nothing about a body that they do not have."""
IDLE = 15.0
"""Seconds for which a connection is kept that is not used."""
_SWITCHING = 101


def new_connector() -> aiohttp.TCPConnector:
    """Makes ``UpstreamConnection``; without a limit, since the gate bounds the calls in flight."""
    connector = aiohttp.TCPConnector(limit=0)
    connector._factory = partial(UpstreamConnection, asyncio.get_running_loop())  # type: ignore[assignment]
    return connector


class UpstreamConnection(ResponseHandler):
    """A connection to an API, with one parser and one timer for all of its responses.

    The timer bounds the API's silence from the first byte of a request to the last of its response, whatever arrives
    between them: while the API neither takes what is sent nor sends anything, and the client is not waited for.
    """

    is_due = False
    """Whether a response is awaited or arriving."""
    with_body: bool | None = None
    """Whether the parser expects responses to have bodies; None before there is one."""
    is_parser_paused = False
    """Whether the parser was paused: it can remember it beyond the response, and then waits to be resumed."""
    awaits_client = False
    """Whether the rest of the request's body is awaited."""
    _silent_since = 0.0

    def begin(self, with_body: bool, silence: float) -> None:
        """A request is sent now."""
        self.is_due = True
        if self.with_body is not with_body or self.is_parser_paused:
            self.with_body, self.is_parser_paused = with_body, False
            self.set_response_params(
                skip_payload=not with_body,
                read_until_eof=True,
                auto_decompress=False,
                read_timeout=silence,
                read_bufsize=READ_AHEAD,
                max_line_size=LARGEST_FIELD,
                max_field_size=LARGEST_FIELD,
            )
        self._reschedule_timeout()

    def is_clean(self) -> bool:
        """Whether nothing follows the last response: its parser is asked, which may hold part of another one."""
        if not self.is_connected() or self.should_close or self._parser is None:
            return False
        try:
            return self._parser.feed_eof() is None
        except Exception:
            return False

    def data_received(self, data: bytes) -> None:
        """Ends the connection if nothing is awaited: the next request must not get what belongs to no request."""
        if self.is_due:
            super().data_received(data)
        elif data and self.transport is not None:
            self.force_close()
            self.transport.close()

    def pause_reading(self) -> None:
        self.is_parser_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Asked for after every read; nothing is to be done unless reading was paused."""
        if self._reading_paused or self.is_parser_paused:
            super().resume_reading(resume_parser)

    def set_exception(self, exc: BaseException, exc_cause: BaseException = _EXC_SENTINEL) -> None:
        """Also of the body that is being read."""
        super().set_exception(exc, exc_cause)
        payload, self._payload = self._payload, None
        if payload is not None and not payload.is_eof() and payload.exception() is None:
            if not isinstance(exc, aiohttp.ClientError | OSError):
                exc, exc_cause = aiohttp.ClientPayloadError("malformed response"), exc
            payload.set_exception(exc, exc_cause)

    def close(self) -> None:
        """What the API does not take is not waited for."""
        if self.transport is not None and self.transport.get_write_buffer_size():
            self.abort()
        super().close()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._read_timeout_handle is not None:
            self._read_timeout_handle.cancel()
            self._read_timeout_handle = None

    def _reschedule_timeout(self) -> None:
        """The timer is not moved: when it fires, it looks how long the silence has lasted."""
        self._silent_since = self._loop.time()
        if self._read_timeout_handle is None and self._read_timeout is not None:
            self._read_timeout_handle = self._loop.call_later(self._read_timeout, self._on_read_timeout)

    def _drop_timeout(self) -> None:
        """Nothing but the end of the response ends the wait."""

    def _on_read_timeout(self) -> None:
        self._read_timeout_handle = None
        if not self.is_due or self.transport is None or self._read_timeout is None:
            return
        now = self._loop.time()
        if self._reading_paused or self._buffer_paused or self.awaits_client:
            self._silent_since = now  # the client is slow, not the API
        left = self._silent_since + self._read_timeout - now
        if left > 0.0:
            self._read_timeout_handle = self._loop.call_later(left, self._on_read_timeout)
        else:
            super()._on_read_timeout()
            self.abort()


class UpstreamResponse:
    """A response whose body may still be arriving. Its connection is kept once the body has ended, else closed."""

    __slots__ = ("_connection", "_keep", "_writing", "content", "headers", "reason", "status")

    def __init__(
        self,
        message: aiohttp.http.RawResponseMessage,
        content: aiohttp.StreamReader,
        connection: Connection,
        keep: Callable[[Connection], None],
        writing: asyncio.Task[None] | None,
    ) -> None:
        self.status: int = message.code
        self.reason: str = message.reason or ""
        self.headers: CIMultiDictProxy[str] = message.headers
        self.content = content
        self._connection: Connection | None = connection
        self._keep, self._writing = keep, writing
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
            self._keep(self._connection)
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
        self._idle: deque[tuple[Connection, float]] = deque()
        """Those that may be used again, and since when; the one used last is used first."""
        self._sweep: asyncio.TimerHandle | None = None

    async def send(
        self, method: str, target: str, headers: CIMultiDict[str], body: bytes | AsyncIterator[bytes] | None
    ) -> UpstreamResponse:
        """``headers`` have ``Host``, and the length of the body where it is known.

        Raises ``aiohttp.ClientError``, ``OSError``; ``ValueError`` for a header that cannot be sent.
        """
        connection = self._take_idle()
        if connection is None:
            try:
                connection = await self._connector.connect(self._address, [], self._timeout)
            except TimeoutError as error:
                raise aiohttp.ConnectionTimeoutError(f"no connection within {CONNECT_WITHIN:g} s") from error
        protocol = cast("UpstreamConnection", connection.protocol)
        writing = None
        try:
            protocol.begin(method != "HEAD", self._silence)
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
            else:
                writer.send_headers()
                writing = self._loop.create_task(_write(writer, body))
            message, content = await protocol.read()
            while message.code < 200 and message.code != _SWITCHING:
                message, content = await protocol.read()
            return UpstreamResponse(message, content, connection, self._keep, writing)
        except BaseException as error:
            if writing is not None:
                writing.cancel()
            connection.close()
            if isinstance(error, HttpProcessingError):
                raise self.malformed(error.code) from error
            if isinstance(error, OSError) and not isinstance(error, aiohttp.ClientError | TimeoutError):
                raise aiohttp.ClientOSError(*error.args) from error
            raise

    def malformed(self, code: int = 400) -> aiohttp.ClientResponseError:
        """The API's response is not valid HTTP."""
        return aiohttp.ClientResponseError(self._address.request_info, (), status=code)

    def close(self) -> None:
        """Close the idle connections."""
        if self._sweep is not None:
            self._sweep.cancel()
        while self._idle:
            self._idle.pop()[0].close()

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection, _ = self._idle.pop()
            protocol = cast("UpstreamConnection | None", connection.protocol)
            if protocol is not None and protocol.is_clean():
                return connection
            connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        """Its response has ended: the next request may use it."""
        protocol = cast("UpstreamConnection", connection.protocol)
        protocol.is_due = False
        if protocol.should_close:
            connection.close()
            return
        self._idle.append((connection, self._loop.time()))
        if self._sweep is None:
            self._sweep = self._loop.call_later(IDLE, self._close_oldest)

    def _close_oldest(self) -> None:
        """Close those that were idle for long."""
        now, self._sweep = self._loop.time(), None
        while self._idle and now - self._idle[0][1] >= IDLE:
            self._idle.popleft()[0].close()
        if self._idle:
            self._sweep = self._loop.call_later(self._idle[0][1] + IDLE - now, self._close_oldest)


async def _write(writer: StreamWriter, body: AsyncIterator[bytes]) -> None:
    """The body, chunk by chunk. If it cannot be sent, the wait for the response ends."""
    protocol = cast("UpstreamConnection", writer.protocol)
    try:
        protocol.awaits_client = True
        async for chunk in body:
            protocol.awaits_client = False
            protocol.start_timeout()
            await writer.write(chunk)
            protocol.awaits_client = True
        protocol.awaits_client = False
        protocol.start_timeout()
        await writer.write_eof()
    except Exception as error:
        if protocol.exception() is None:
            protocol.set_exception(aiohttp.ClientConnectionError("the body was not sent"), error)
    finally:
        protocol.awaits_client = False
