"""The callers' connections: bounded in number, and told in JSON what is wrong with what they say.

aiohttp reads HTTP for us, strictly; whatever it does not take for HTTP (two lengths, a header without an end, a
request inside of another) ends the connection.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from .answering import says

LARGEST_FIELD = 16_384
"""Bytes of the first line, and of each header field."""
MOST_FIELDS = 128

log = logging.getLogger("headgate.proxy")


class Connection(web.RequestHandler):
    """Speaks of what goes wrong in JSON, and logs nothing of what was asked for."""

    __slots__ = ()

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
        self.open: set[web.RequestHandler] = set()
        self.busy: set[web.RequestHandler] = set()

    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=asyncio.get_running_loop(), **self._settings)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self.open.add(handler)
        if len(self.open) > self._most:
            transport.write(
                b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
            handler.force_close()
            transport.close()

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self.open.discard(handler)
        super().connection_lost(handler, exc)

    def close_idle(self) -> None:
        for one in self.open - self.busy:
            one.close()
            if one.transport is not None:
                one.transport.close()  # what is written already still goes out
