"""The proxy itself: it listens, knows what is under way, and ends in two steps.

    serving ──drain──> no new ones; those in line get 503; those that are out finish ──> ended
               └──stop──> all are cut off ──> ended

Every connection, body and wait has a bound: ``Bounds``.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, cast

import aiohttp
from aiohttp import web

from ..checks import check
from ..exchange import CONNECT_WITHIN
from ..integrations.passing import Passing
from ..observe.snapshot import ProgressLine
from .admission import Admission
from .answering import TYPE, TurnedAwayError, says, turned_away
from .flight import Flight
from .listening import LARGEST_FIELD, MOST_FIELDS, READ_AHEAD, Connection, Listener
from .mounts import Mount
from .upload import Room

BACKLOG = 1024
LINGER = 3.0
"""Seconds for which a caller whose request was answered early may go on sending, so that he sees the answer."""
LAST_MOMENT = 1.0
EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104  # as it is asked for
OF_LATE, MOST_LOOKS = 10.0, 100
_NOTHING_ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    kept: int = 1 << 20
    """Bytes of a body that is kept, so that it may be sent again."""
    kept_in_all: int = 128 << 20
    """Beside them are ``UNREAD`` bytes of each body that is passed on as it comes: 125 MiB with all connections."""
    connections: int = 2_000
    """Of callers, at once."""
    stalled: float = 60.0
    """Seconds for which a caller may neither send nor read what he should."""
    idle: float = 75.0
    """Seconds until a connection without a whole request is closed."""

    def __post_init__(self) -> None:
        check("kept", self.kept, 0 <= self.kept <= 1 << 20, "0 to 1,048,576 bytes")
        for name in ("kept_in_all", "connections", "stalled", "idle"):
            check(name, getattr(self, name), getattr(self, name) > 0, "more than 0")


@dataclass(slots=True)
class Counts:
    answered: int = 0
    """Whatever the API said was handed on."""
    refused: int = 0
    """By the gate: 429, 503."""
    failed: int = 0
    """No answer came, or not all of it."""
    turned_away: int = 0
    """Not a request that may pass."""
    left: int = 0
    """The caller hung up."""


class Pace:
    """Calls a second, of late, from how many there were at each look."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque(maxlen=MOST_LOOKS)

    def seen(self, count: int) -> float:
        now = time.monotonic()
        self._looks.append((now, count))
        while now - self._looks[0][0] > OF_LATE and len(self._looks) > 1:
            self._looks.popleft()
        since, before = self._looks[0]
        return (count - before) / (now - since) if now > since else 0.0


class Proxy:
    """``async with Proxy(mounts, passing) as proxy:`` serves until the block ends; ``proxy.url`` is its address."""

    def __init__(
        self,
        mounts: Sequence[Mount],
        passing: Passing,
        *,
        keyed: Collection[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        allow_hosts: Sequence[str] = (),
        timeout: float = 600.0,
        bounds: Bounds | None = None,
    ) -> None:
        """``keyed``: names of the mounts whose credentials ``passing`` has. ``timeout``: seconds of an API's silence.

        Any ``host`` but loopback needs a ``token``, which callers then send as their API key, or beside it.
        """
        check("timeout", timeout, timeout > 0, "more than 0 seconds")
        self.mounts, self.passing, self.keyed = list(mounts), passing, frozenset(keyed)
        self.bounds = Bounds() if bounds is None else bounds
        self.host, self.port, self.timeout = host, port, timeout
        self.room = Room(self.bounds.kept_in_all)
        self.counts = Counts()
        self.is_stopping = False
        self.flights: set[Flight] = set()
        self.session: aiohttp.ClientSession
        self._admission = Admission(mounts, host=host, token=token, allow_hosts=allow_hosts, keyed=self.keyed)
        self._listener: Listener
        self._server: asyncio.Server | None = None
        self._landed = asyncio.Event()
        self._pace = Pace()

    @property
    def url(self) -> str:
        host = socket.gethostname() if self.host in EVERYWHERE else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def progress(self) -> ProgressLine:
        """How it stands, for whoever looks on."""
        out = sum(flight.is_out for flight in list(self.flights))
        counts = self.counts
        return ProgressLine(
            done=counts.answered,
            dead=counts.failed,
            in_flight=out,
            open=len(self.flights),
            rate=self._pace.seen(counts.answered),
        )

    async def __aenter__(self) -> Self:
        """Raises ``OSError`` if nobody can listen there."""
        self._listener = Listener(
            self._handle,
            self.bounds.connections,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=self.bounds.idle,
            lingering_time=LINGER,
            max_line_size=LARGEST_FIELD,
            max_field_size=LARGEST_FIELD,
            max_headers=MOST_FIELDS,
        )
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._listener, self.host, self.port, backlog=BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # the gate decides how many are out
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_NOTHING_ADDED,
            read_bufsize=READ_AHEAD,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_WITHIN, sock_read=self.timeout),
            max_line_size=LARGEST_FIELD,
            max_field_size=LARGEST_FIELD,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def drain(self) -> None:
        """Take no new ones, turn away those in line, and wait for those that are out."""
        self.is_stopping = True
        if self._server is not None:
            self._server.close()
        self._listener.close_idle()
        for flight in list(self.flights):
            if not flight.is_out:
                flight.turn_away()
        while self.flights:
            self._landed.clear()
            await self._landed.wait()

    async def stop(self) -> int:
        """End at once; returns how many were cut off."""
        self.is_stopping = True
        if self._server is not None:
            self._server.close()
        cut = len(self.flights)
        for flight in list(self.flights):
            if flight.task is not None:
                flight.task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_MOMENT):
                await self._listener.shutdown(LAST_MOMENT / 2)
        await self.session.close()
        return cut

    # ------------------------------------------------------------------ inside

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        connection.begin(request)
        try:
            admitted = self._admission.admit(request)
            if admitted.mount is None:
                return self._own(admitted.target)
            if self.is_stopping:
                raise TurnedAwayError(503, "stopping", "the proxy is about to end", 1.0)
            flight = Flight(self, request, admitted.mount, admitted.target)
            self.flights.add(flight)
            try:
                return await flight.fly()
            finally:
                self.flights.discard(flight)
                if self.is_stopping:
                    self._landed.set()
        except TurnedAwayError as refusal:
            self.counts.turned_away += 1
            return turned_away(refusal)
        finally:
            connection.end()

    def _own(self, target: str) -> web.Response:
        if target.partition("?")[0] != "/-/healthz":
            return says(404, "not_found", "there is /-/healthz")
        if self.is_stopping:
            return says(503, "stopping", "the proxy is about to end", close=True)
        return web.Response(text="ok\n", headers={"Server": TYPE, "Cache-Control": "no-store"})
