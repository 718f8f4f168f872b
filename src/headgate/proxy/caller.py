"""The caller's end of a connection: told to go on sending, noticed when it hangs up, or cut off so that it shows.

A caller that closes its connection and one that has only finished sending look alike: both send FIN. What tells them
apart is how they take a byte of the answer, which begins with the same bytes whatever it will be:

    FIN ──first byte of the answer──┬─ RST: the caller is gone, and its call with it
                                    └─ nothing: it waits for the rest

While a body lies unread nothing is read from its connection, so FIN is looked for beside the event loop's own reading.
Where the body fills the buffers, FIN does not even arrive: such a caller gets a byte now and then, and one when its
turn has come.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from .answering import TurnedAwayError

if TYPE_CHECKING:
    from .listening import Connection

ANSWER_START = b"HTTP/1."
"""What every answer begins with: so many bytes can be sent before it is known."""
FIRST_PROBE = 0.25
"""Seconds in line after which a caller whose body lies unread gets a byte; then after twice as long each time."""
RESET_WITHIN = 0.02
"""Seconds for which its turn waits for a caller to show that it is gone."""
MOST_EVENTS = 256
_FIN = getattr(select, "EPOLLRDHUP", 0)


class CutOffError(ConnectionResetError):
    """The answer cannot be finished; the caller's connection ends in the middle of it."""


class CallerLeftError(Exception):
    """The caller hung up before anything was sent for it."""


class HangupMonitor:
    """Ends the connections of callers that are gone, also of those from which nothing is read.

    Where the system has no epoll, FIN alone counts as hanging up, and only when it is read.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll = select.epoll() if hasattr(select, "epoll") else None
        self._watched: dict[int, Connection] = {}
        self._probes: dict[Connection, asyncio.TimerHandle] = {}
        if self._poll is not None:
            self._loop.add_reader(self._poll.fileno(), self._look)

    def watch_unread(self, connection: Connection) -> None:
        """From now on its body may lie unread."""
        if self._register(connection, _FIN):
            self._probes[connection] = self._loop.call_later(FIRST_PROBE, self._probe_again, connection, FIRST_PROBE)

    def still_waits(self, connection: Connection) -> bool:
        """FIN has come: whether the caller may still be there. If it proves to be gone, the connection ends."""
        if not self._register(connection, 0):
            return False
        connection.begin_answer()
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

    def _look(self) -> None:
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
                self.still_waits(connection)

    def _probe_again(self, connection: Connection, after: float) -> None:
        if connection.begin_answer(spare=1):
            self._probes[connection] = self._loop.call_later(2 * after, self._probe_again, connection, 2 * after)


class BegunTransport:
    """A transport by which an answer's first bytes have gone: the first write goes without them."""

    def __init__(self, connection: Connection, transport: asyncio.Transport) -> None:
        self._connection, self._transport = connection, transport
        self.gone = 0
        """Bytes of ``ANSWER_START``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def begin(self, spare: int) -> bool:
        """Send one byte more, if there are more than ``spare``."""
        if self.gone + spare >= len(ANSWER_START):
            return False
        self._transport.write(ANSWER_START[self.gone : self.gone + 1])
        self.gone += 1
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._connection.transport = self._transport
        self._transport.write(memoryview(data)[self.gone :])

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(pieces))


def cut(request: web.BaseRequest) -> None:
    """End the caller's connection so that what it has cannot be taken for all of it."""
    transport = request.transport
    if transport is None:
        return
    if request.version < aiohttp.HttpVersion11:  # there, an end is how a body without a length is over
        own = transport.get_extra_info("socket")
        if own is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()


async def expected(request: web.BaseRequest) -> None:
    if request.headers["Expect"].lower() != "100-continue":
        raise TurnedAwayError(417, "unknown_expectation", "only 100-continue can be expected")
    if request.version >= aiohttp.HttpVersion11 and request.body_exists:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # what comes next is the first of the answer
