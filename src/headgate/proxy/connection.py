"""The clients' connections: bounded in number, with errors in JSON, and ended where the client does not read.

aiohttp parses HTTP strictly; anything else (two lengths, an endless header, a request inside another) ends the
connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import sys
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, cast

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import LineTooLong
from multidict import CIMultiDict

from ..checks import check
from .disconnect_monitor import FIRST_PROBE, DisconnectMonitor, StartedTransport
from .error_response import RejectedRequestError, error_response, log_fault

RESET_WITHIN = 0.02
"""Seconds that an admitted call waits for the reset of a client that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What clients may take of the proxy."""

    kept: int = 1 << 20
    """Bytes of a body that is kept, so that it can be sent again."""
    kept_in_all: int = 128 << 20
    """Beside them are ``UNREAD`` bytes of each body that is streamed: 125 MiB with all connections."""
    connections: int = 2_000
    """Of clients, at once."""
    stalled: float = 60.0
    """Seconds for which a client may neither send nor read what it should."""
    idle: float = 75.0
    """Seconds until a connection without a whole request is closed."""

    def __post_init__(self) -> None:
        check("kept", self.kept, 0 <= self.kept <= 1 << 20, "0 to 1,048,576 bytes")
        for name in ("kept_in_all", "connections", "stalled", "idle"):
            check(name, getattr(self, name), getattr(self, name) > 0, "more than 0")


class TruncatedResponseError(ConnectionResetError):
    """The response cannot be finished; the client's connection ends in the middle of it."""


class ClientDisconnectedError(Exception):
    """The client disconnected before its request was sent."""


class WholeResponse(web.StreamResponse):
    """A response that is written at once, with the head that it has: in HTTP/1.1, on a connection that is kept."""

    def __init__(self, status: int, reason: str, headers: CIMultiDict[str], body: bytes) -> None:
        super().__init__(status=status, reason=reason, _real_headers=headers)
        self._whole = body
        self._keep_alive = True

    @staticmethod
    def suits(request: web.BaseRequest, status: int, headers: CIMultiDict[str], body: bytes) -> bool:
        """Whether the head is complete, and a body may follow it."""
        if status in (204, 304) or request.method == "HEAD" or not request.keep_alive:
            return False
        is_complete = "Content-Type" in headers and "Date" in headers
        is_exact = headers.get("Content-Length") == str(len(body))
        return is_complete and is_exact and request.version == aiohttp.HttpVersion11

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Raises ``ValueError`` for a head that cannot be sent."""
        if self._payload_writer is None:
            await request.writer.write_headers(f"HTTP/1.1 {self._status} {self._reason}", self._headers)
            self._payload_writer = request.writer
        return self._payload_writer

    async def write_eof(self, data: bytes = b"") -> None:
        assert self._payload_writer is not None
        await self._payload_writer.write_eof(self._whole)


def abort(request: web.BaseRequest) -> None:
    """End the client's connection so that what it has cannot be taken for a complete response."""
    transport = request.transport
    if transport is None:
        return
    if request.version < aiohttp.HttpVersion11:  # there, the end of the connection ends a body without a length
        own = transport.get_extra_info("socket")
        if own is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()


async def continue_expected(request: web.BaseRequest) -> None:
    """Answer ``Expect: 100-continue``; raises ``RejectedRequestError`` for any other expectation."""
    if request.headers["Expect"].lower() != "100-continue":
        raise RejectedRequestError(417, "unknown_expectation", "only 100-continue is supported")
    if request.version >= aiohttp.HttpVersion11 and request.body_exists:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the response itself has not begun


LARGEST_FIELD = 16_384
"""Bytes of the first line, and of each header field."""
MOST_FIELDS = 128
READ_AT_ONCE = 1 << 15
READ_AHEAD = 1 << 14
"""Bytes that are read from a connection at once; and that lie unread, twice, before reading pauses."""
UNREAD = READ_AT_ONCE + 2 * READ_AHEAD
"""Most bytes in memory of a body that is streamed."""

log = logging.getLogger("headgate.proxy")


class Connection(web.RequestHandler):
    """Reports errors in JSON, and logs nothing of the requests.

    A client that has finished sending gets its responses, and then the connection is closed.
    """

    __slots__ = (
        *("_answered", "_has_ended", "_monitor", "_request", "_stalled_after", "_unread_since", "_unsent_timer"),
        *("_was_paused", "is_cut_off"),
    )

    def __init__(self, listener: Listener, monitor: DisconnectMonitor, stalled_after: float, **settings: Any) -> None:
        super().__init__(listener, read_bufsize=READ_AHEAD, **settings)
        self._max_msg_queue_size, self._msg_queue_resume_size = 2, 1  # requests that wait behind another, in memory
        self._monitor, self._stalled_after = monitor, stalled_after
        self._unsent_timer: asyncio.TimerHandle | None = None
        self.is_cut_off = False
        """Whether it was ended because the client does not read."""
        self._request: web.BaseRequest | None = None
        self._answered = 0
        self._has_ended = False
        self._unread_since: float | None = None
        self._was_paused = False

    @property
    def is_idle(self) -> bool:
        return self._request is None

    def begin(self, request: web.BaseRequest) -> None:
        """A request is being handled. Raises ``RejectedRequestError`` for a version of HTTP that is not spoken."""
        self._request = request
        if request._version.major != 1:  # the property keeps what it has once read
            request._version = aiohttp.HttpVersion11  # of the response
            raise RejectedRequestError(505, "http_version", "only HTTP/1.1 and HTTP/1.0 are supported")
        if self._messages:
            self._look_behind(request)
        if self._has_ended and not self._may_be_alive(request) and self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages and self._request is not None:
            self._look_behind(self._request)

    def _look_behind(self, request: web.BaseRequest) -> None:
        """Something has arrived behind this request: behind half a body it is what could not be parsed."""
        if not request.content.is_eof():
            request.content.set_exception(RejectedRequestError(400, "bad_request", "malformed HTTP request"))
            request.content.feed_eof()
        elif self._buffer_paused and self._unread_since is None:
            self.watch_unread()

    def end(self) -> None:
        self._request = self._unread_since = None
        self._monitor.forget(self)

    def watch_unread(self) -> None:
        """The request's body may lie unread for long; notice a disconnect meanwhile."""
        self._unread_since = self._loop.time()
        self._monitor.watch_unread(self)

    async def check_client(self) -> None:
        """The call is admitted and nothing is sent yet. Raises ``ClientDisconnectedError``."""
        if self._unread_since is None or self._loop.time() - self._unread_since < FIRST_PROBE:
            return
        try:
            if self.begin_response():
                await asyncio.sleep(RESET_WITHIN)
        except asyncio.CancelledError:
            raise ClientDisconnectedError from None
        finally:
            self._unread_since = None

    def begin_response(self, spare: int = 0) -> bool:
        """Send the next of the bytes that every response begins with; False if there is none, or it has begun."""
        if self.transport is None or (self._request is not None and self._request.writer.output_size):
            return False
        if not isinstance(self.transport, StartedTransport):
            self.transport = cast("asyncio.Transport", StartedTransport(self, self.transport))
        return cast("StartedTransport", self.transport).begin(spare)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).set_write_buffer_limits(0)  # any unsent byte pauses writing
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._unsent_timer is not None:
            self._unsent_timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Bytes wait for the client: it must take some of them in time, also while the connection is closing."""
        super().pause_writing()
        if self.transport is not None:
            self._await_client(self.transport, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unsent_timer is not None:
            self._unsent_timer.cancel()
            self._unsent_timer = None

    def _await_client(self, transport: asyncio.Transport, unsent: int) -> None:
        self._unsent_timer = self._loop.call_later(self._stalled_after, self._check_client_reads, transport, unsent)

    def _check_client_reads(self, transport: asyncio.Transport, unsent: int) -> None:
        left = transport.get_write_buffer_size()
        if left < unsent:
            self._await_client(transport, left)
        else:
            self.is_cut_off = True
            transport.abort()

    def pause_reading(self) -> None:
        self._was_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Asked for after every read; nothing is to be done unless reading was paused.

        The parser can remember that beyond the request, and then waits to be resumed.
        """
        if self._reading_paused or self._was_paused:
            super().resume_reading(resume_parser)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open, although the client has finished sending."""
        self._has_ended = True
        if self._request is None:
            return self._request_count > self._answered  # one is about to begin
        return self._may_be_alive(self._request)

    def _may_be_alive(self, request: web.BaseRequest) -> bool:
        """Not if part of the body is missing, or if the response has begun."""
        if not request.content.is_eof() or request.writer.output_size:
            return False
        return self._monitor.may_be_alive(self)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        self._answered += 1
        if self._has_ended and self._answered == self._request_count:
            self.close()  # after this response
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500 and not isinstance(exc, ConnectionError):
            log_fault(exc)
        else:
            log.debug("not answered: %s", type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun")
        if isinstance(exc, LineTooLong):
            return error_response(431, "too_large", f"a header is longer than {LARGEST_FIELD:,} bytes", close=True)
        if status < 500:
            return error_response(400, "bad_request", "malformed HTTP request", close=True)
        return error_response(500, "fault", "internal error of the proxy", close=True)


class _OneTask:
    """The event loop as a connection sees it that handles its requests in its own task.

    aiohttp makes a task for each, which takes two more rounds of the loop; from Python 3.12 on it starts them at once.
    Until then, the requests of a connection share its context variables: a copy for each takes 3 % of a call's time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self.time, self.call_at, self.create_future = loop, loop.time, loop.call_at, loop.create_future

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def create_task(self, work: CoroutineType[Any, Any, Any]) -> Awaitable[Any]:
        return work if work.__name__ == "_handle_request" else self._loop.create_task(work)


class Listener(web.Server):
    """Makes connections, bounds their number, and closes idle ones."""

    def __init__(self, handler: Any, bounds: Bounds, **settings: Any) -> None:
        super().__init__(handler, handler_cancellation=True, **settings)
        self._bounds, self._settings = bounds, settings
        self._monitor = DisconnectMonitor()
        self.open: set[Connection] = set()

    def __call__(self) -> Connection:
        loop: Any = asyncio.get_running_loop()
        loop = loop if sys.version_info >= (3, 12) else _OneTask(loop)
        return Connection(self, self._monitor, self._bounds.stalled, loop=loop, **self._settings)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self.open.add(cast("Connection", handler))
        with suppress(AttributeError):  # uvloop has no such setting
            transport.max_size = READ_AT_ONCE  # type: ignore[attr-defined]
        if len(self.open) > self._bounds.connections:
            transport.write(
                b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
            handler.force_close()
            transport.close()

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self.open.discard(cast("Connection", handler))
        self._monitor.forget(cast("Connection", handler))
        super().connection_lost(handler, exc)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # aiohttp's own
        try:
            await super().shutdown(timeout)
        finally:
            self._monitor.close()

    def close_idle(self) -> None:
        for one in [one for one in self.open if one.is_idle]:
            one.close()
            if one.transport is not None:
                one.transport.close()  # what is written already still goes out
