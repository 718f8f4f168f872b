"""The clients' connections: bounded in number, with errors in JSON, and noticed when they end.

aiohttp parses HTTP strictly; anything else (two lengths, an endless header, a request inside another) ends the
connection.

A client that closes its connection and one that has only finished sending look the same (both send FIN). They differ in
how they take a byte of the response, which always begins with the same bytes:

    FIN ──first byte of the response──┬─ RST: the client is gone, and its call is cancelled
                                      └─ nothing: it waits for the rest

While a body lies unread, nothing is read from its connection, so FIN is polled for beside the event loop's reads. Where
the body fills the buffers, FIN does not even arrive: such a client gets a byte from time to time, and one when its call
is admitted.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import struct
import sys
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from types import CoroutineType
from typing import Any, cast

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import LineTooLong
from multidict import CIMultiDict

from .error_response import RejectedRequestError, error_response

RESPONSE_START = b"HTTP/1."
"""The bytes that every response begins with: they can be sent before it is known."""
FIRST_PROBE = 0.25
"""Seconds in the queue after which a client whose body lies unread gets a byte; then twice as long each time."""
RESET_WITHIN = 0.02
"""Seconds that an admitted call waits for the reset of a client that is gone."""
MOST_EVENTS = 256
_FIN = getattr(select, "EPOLLRDHUP", 0)


class TruncatedResponseError(ConnectionResetError):
    """The response cannot be finished; the client's connection ends in the middle of it."""


class ClientDisconnectedError(Exception):
    """The client disconnected before its request was sent."""


class DisconnectMonitor:
    """Ends the connections of clients that are gone, also while nothing is read from them.

    Without epoll, FIN alone counts as a disconnect, and only when it is read.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll = select.epoll() if hasattr(select, "epoll") else None
        self._watched: dict[int, Connection] = {}
        self._probes: dict[Connection, asyncio.TimerHandle] = {}
        if self._poll is not None:
            self._loop.add_reader(self._poll.fileno(), self._poll_events)

    def watch_unread(self, connection: Connection) -> None:
        """From now on the body of its request may lie unread."""
        if self._register(connection, _FIN):
            self._probes[connection] = self._loop.call_later(FIRST_PROBE, self._probe_again, connection, FIRST_PROBE)

    def may_be_alive(self, connection: Connection) -> bool:
        """FIN has arrived: whether the client may still be there. If it proves to be gone, the connection ends."""
        if not self._register(connection, 0):
            return False
        connection.begin_response()
        return True

    def forget(self, connection: Connection) -> None:
        timer = self._probes.pop(connection, None)
        if timer is not None:
            timer.cancel()
        if connection.watched_as is not None:
            self._watched.pop(connection.watched_as, None)
            if self._poll is not None:
                with suppress(OSError):  # it was closed
                    self._poll.unregister(connection.watched_as)
            connection.watched_as = None

    def close(self) -> None:
        if self._poll is not None:
            self._loop.remove_reader(self._poll.fileno())
            self._poll.close()
            self._poll = None
        for timer in self._probes.values():
            timer.cancel()
        self._probes.clear()

    def _register(self, connection: Connection, events: int) -> bool:
        own = None if connection.transport is None else connection.transport.get_extra_info("socket")
        if self._poll is None or own is None or own.fileno() < 0:
            return False
        if connection.watched_as is None:
            connection.watched_as = own.fileno()
            self._watched[connection.watched_as] = connection
            self._poll.register(connection.watched_as, events)
        else:
            self._poll.modify(connection.watched_as, events)
        return True

    def _poll_events(self) -> None:
        if self._poll is None:
            return
        for number, events in self._poll.poll(0, MOST_EVENTS):
            connection = self._watched.get(number)
            if connection is None:
                continue
            if events & (select.EPOLLHUP | select.EPOLLERR):
                self.forget(connection)
                if connection.transport is not None:
                    connection.transport.abort()
            else:
                self.may_be_alive(connection)

    def _probe_again(self, connection: Connection, after: float) -> None:
        if connection.begin_response(spare=1):
            self._probes[connection] = self._loop.call_later(2 * after, self._probe_again, connection, 2 * after)


class StartedTransport:
    """A transport on which the first bytes of a response were sent: the first write goes without them."""

    def __init__(self, connection: Connection, transport: asyncio.Transport) -> None:
        self._connection, self._transport = connection, transport
        self.sent = 0
        """Bytes of ``RESPONSE_START`` that were sent."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def begin(self, spare: int) -> bool:
        """Send one byte more, if there are more than ``spare``."""
        if self.sent + spare >= len(RESPONSE_START):
            return False
        self._transport.write(RESPONSE_START[self.sent : self.sent + 1])
        self.sent += 1
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._connection.transport = self._transport
        self._transport.write(memoryview(data)[self.sent :])

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(pieces))


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
        writer = request.writer
        await writer.write_headers(f"HTTP/1.1 {self._status} {self._reason}", self._headers)
        await writer.write_eof(self._whole)
        return writer

    async def write_eof(self, data: bytes = b"") -> None:
        """It is written already."""


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

    __slots__ = ("_answered", "_has_ended", "_monitor", "_request", "_unread_since", "_was_paused", "watched_as")

    def __init__(self, listener: Listener, monitor: DisconnectMonitor, **settings: Any) -> None:
        super().__init__(listener, read_bufsize=READ_AHEAD, **settings)
        self._monitor = monitor
        self._request: web.BaseRequest | None = None
        self._answered = 0
        self._has_ended = False
        self._unread_since: float | None = None
        self._was_paused = False
        self.watched_as: int | None = None
        """The file descriptor under which the monitor watches it."""

    @property
    def is_idle(self) -> bool:
        return self._request is None

    def begin(self, request: web.BaseRequest) -> None:
        """A request is being handled."""
        self._request = request
        if self._has_ended and not self._may_be_alive(request) and self.transport is not None:
            self.transport.abort()

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
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun")
        log.debug("not answered: %s", type(exc).__name__)
        if isinstance(exc, LineTooLong):
            return error_response(431, "too_large", f"a header is longer than {LARGEST_FIELD:,} bytes", close=True)
        if status < 500:
            return error_response(400, "bad_request", "malformed HTTP request", close=True)
        return error_response(500, "fault", "internal error of the proxy", close=True)


class _OneTask:
    """The event loop as a connection sees it that handles its requests in its own task.

    aiohttp makes a task for each, which takes two more rounds of the loop; from Python 3.12 on it starts them at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self.time, self.call_at, self.create_future = loop, loop.time, loop.call_at, loop.create_future

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def create_task(self, work: CoroutineType[Any, Any, Any]) -> Awaitable[Any]:
        return work if work.__name__ == "_handle_request" else self._loop.create_task(work)


class Listener(web.Server):
    """Makes connections, bounds their number, and closes idle ones."""

    def __init__(self, handler: Any, most: int, **settings: Any) -> None:
        super().__init__(handler, handler_cancellation=True, **settings)
        self._most, self._settings = most, settings
        self._monitor = DisconnectMonitor()
        self.open: set[Connection] = set()

    def __call__(self) -> Connection:
        loop: Any = asyncio.get_running_loop()
        loop = loop if sys.version_info >= (3, 12) else _OneTask(loop)
        return Connection(self, self._monitor, loop=loop, **self._settings)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self.open.add(cast("Connection", handler))
        with suppress(AttributeError):  # uvloop has no such setting
            transport.max_size = READ_AT_ONCE  # type: ignore[attr-defined]
        if len(self.open) > self._most:
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
        await super().shutdown(timeout)
        self._monitor.close()

    def close_idle(self) -> None:
        for one in [one for one in self.open if one.is_idle]:
            one.close()
            if one.transport is not None:
                one.transport.close()  # what is written already still goes out
