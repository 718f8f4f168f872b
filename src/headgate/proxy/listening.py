"""The callers' connections: bounded in number, and told in JSON what is wrong with what they say.

aiohttp reads HTTP for us, strictly; whatever it does not take for HTTP (two lengths, a header without an end, a
request inside of another) ends the connection.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from .answering import says
from .caller import FIRST_PROBE, RESET_WITHIN, BegunTransport, CallerLeftError, HangupMonitor

LARGEST_FIELD = 16_384
"""Bytes of the first line, and of each header field."""
MOST_FIELDS = 128
READ_AT_ONCE = 1 << 15
READ_AHEAD = 1 << 14
"""Bytes that are read from a connection at once; and that lie unread, twice, before its reading pauses."""
UNREAD = READ_AT_ONCE + 2 * READ_AHEAD
"""Bytes of a body that is passed on as it comes that are in memory, at most."""

log = logging.getLogger("headgate.proxy")


class Connection(web.RequestHandler):
    """Speaks of what goes wrong in JSON, and logs nothing of what was asked for.

    A caller that has finished sending gets its answers, and then the connection is closed.
    """

    __slots__ = ("_answered", "_hangups", "_has_ended", "_request", "_unread_since", "watched_as")

    def __init__(self, listener: Listener, hangups: HangupMonitor, **settings: Any) -> None:
        super().__init__(listener, read_bufsize=READ_AHEAD, **settings)
        self._hangups = hangups
        self._request: web.BaseRequest | None = None
        self._answered = 0
        self._has_ended = False
        self._unread_since: float | None = None
        self.watched_as: int | None = None
        """The monitor's own: by which number."""

    @property
    def is_idle(self) -> bool:
        return self._request is None

    def begin(self, request: web.BaseRequest) -> None:
        """A request is being handled."""
        self._request = request
        if self._has_ended and not self._still_waits(request) and self.transport is not None:
            self.transport.abort()

    def end(self) -> None:
        self._request = self._unread_since = None
        self._hangups.forget(self)

    def watch_unread(self) -> None:
        """The request's body may lie unread for long; notice it if the caller hangs up meanwhile."""
        self._unread_since = self._loop.time()
        self._hangups.watch_unread(self)

    async def check_caller(self) -> None:
        """Its turn has come, and nothing is sent yet. Raises ``CallerLeftError``."""
        if self._unread_since is None or self._loop.time() - self._unread_since < FIRST_PROBE:
            return
        try:
            if self.begin_answer():
                await asyncio.sleep(RESET_WITHIN)
        except asyncio.CancelledError:
            raise CallerLeftError from None
        finally:
            self._unread_since = None

    def begin_answer(self, spare: int = 0) -> bool:
        """Send the next byte that every answer begins with; False if there is none, or the answer has begun."""
        if self.transport is None or (self._request is not None and self._request.writer.output_size):
            return False
        if not isinstance(self.transport, BegunTransport):
            self.transport = cast("asyncio.Transport", BegunTransport(self, self.transport))
        return cast("BegunTransport", self.transport).begin(spare)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open, although nothing more comes from the caller."""
        self._has_ended = True
        if self._request is None:
            return self._request_count > self._answered  # one is about to begin
        return self._still_waits(self._request)

    def _still_waits(self, request: web.BaseRequest) -> bool:
        """Not if half of the body is missing; and who leaves in the middle of the answer need not be asked."""
        if not request.content.is_eof() or request.writer.output_size:
            return False
        return self._hangups.still_waits(self)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        self._answered += 1
        if self._has_ended and self._answered == self._request_count:
            self.close()  # behind this answer
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("it cannot be answered twice")
        log.debug("not answered: %s", type(exc).__name__)
        if isinstance(exc, LineTooLong):
            return says(431, "too_large", f"a header may have {LARGEST_FIELD:,} bytes", close=True)
        if status < 500:
            return says(400, "bad_request", "this is not HTTP as it is spoken here", close=True)
        return says(500, "fault", "something went wrong in the proxy", close=True)


class Listener(web.Server):
    """Makes connections, counts them, and can tell which of them are idle."""

    def __init__(self, handler: Any, most: int, **settings: Any) -> None:
        super().__init__(handler, handler_cancellation=True, **settings)
        self._most, self._settings = most, settings
        self._hangups = HangupMonitor()
        self.open: set[Connection] = set()

    def __call__(self) -> Connection:
        return Connection(self, self._hangups, loop=asyncio.get_running_loop(), **self._settings)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self.open.add(cast("Connection", handler))
        with suppress(AttributeError):  # an event loop of another make reads as much as it will
            transport.max_size = READ_AT_ONCE  # type: ignore[attr-defined]
        if len(self.open) > self._most:
            transport.write(
                b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
            handler.force_close()
            transport.close()

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self.open.discard(cast("Connection", handler))
        self._hangups.forget(cast("Connection", handler))
        super().connection_lost(handler, exc)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # aiohttp's own
        await super().shutdown(timeout)
        self._hangups.close()

    def close_idle(self) -> None:
        for one in [one for one in self.open if one.is_idle]:
            one.close()
            if one.transport is not None:
                one.transport.close()  # what is written already still goes out
