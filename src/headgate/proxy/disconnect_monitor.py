"""Whether a client is still there while its request waits.

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
import select
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connection import Connection

RESPONSE_START = b"HTTP/1."
"""The bytes that every response begins with: they can be sent before it is known."""
FIRST_PROBE = 0.25
"""Seconds in the queue after which a client whose body lies unread gets a byte; then twice as long each time."""
MOST_EVENTS = 256
_FIN = getattr(select, "EPOLLRDHUP", 0)


class DisconnectMonitor:
    """Ends the connections of clients that are gone, also while nothing is read from them.

    Without epoll, FIN alone counts as a disconnect, and only when it is read.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll = select.epoll() if hasattr(select, "epoll") else None
        self._watched: dict[int, Connection] = {}
        """By file descriptor ..."""
        self._descriptors: dict[Connection, int] = {}
        """... and the other way round."""
        self._probes: dict[Connection, asyncio.TimerHandle] = {}
        if self._poll is not None:
            self._loop.add_reader(self._poll.fileno(), self._poll_events)

    def watch_unread(self, connection: Connection) -> None:
        """From now on the body of its request may lie unread."""
        if self._register(connection, _FIN) and connection not in self._probes:
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
        descriptor = self._descriptors.pop(connection, None)
        if descriptor is not None:
            self._watched.pop(descriptor, None)
            if self._poll is not None:
                with suppress(OSError):  # it was closed
                    self._poll.unregister(descriptor)

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
        descriptor = self._descriptors.get(connection)
        if descriptor is None:
            descriptor = self._descriptors[connection] = own.fileno()
            self._watched[descriptor] = connection
            self._poll.register(descriptor, events)
        else:
            self._poll.modify(descriptor, events)
        return True

    def _poll_events(self) -> None:
        if self._poll is None:
            return
        for descriptor, events in self._poll.poll(0, MOST_EVENTS):
            connection = self._watched.get(descriptor)
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
