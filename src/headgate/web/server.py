"""Run the page beside a run: a server in a thread of its own, with an event loop of its own.

    served = serve(RunMonitor(limiter=limiter))
    print(served.url)         # the link with the token, for the operator alone
    ...
    served.close()            # within a second, also with clients connected

It listens on this machine's loopback. Anything else takes an explicit ``host`` and an explicit ``token``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..checks import check
from ..errors import ConfigError, HeadgateError
from ..observe.snapshot import MonitoredRuns
from ..wire.urls import EVERY_ADDRESS, LOOPBACK, is_loopback
from .app import Metrics, WebApp
from .event_stream import WRITE_TIME
from .guard import LARGEST_HEAD, new_token

BACKLOG = 64
CLOSE_TIME = 0.6
"""Seconds that responses in progress get at the end."""
LAST_MOMENT = 0.3
START_TIME = 10.0

MOST_CONNECTIONS = 100
HEAD_TIME = 5.0
KEEP_ALIVE = 5

log = logging.getLogger("headgate.web")
silence = logging.Logger("headgate.web.silence", logging.CRITICAL + 1)


class NotServedError(HeadgateError, OSError):
    """The page cannot be served there."""


class Connection(H11Protocol):
    """One connection: it must make progress in both directions, or it is cut off.

        connected ──head complete──> busy ──answered──> idle ──next head──> ...
            │ HEAD_TIME                │ nothing read for WRITE_TIME  │ KEEP_ALIVE
            v                          v                              v
          cut off                   cut off                         closed

    uvicorn waits without limit for a head that comes byte by byte and for a client that reads nothing. It would also
    log the request line, with the token; here nothing is logged at all.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = self.access_logger = silence
        self.access_log = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """It is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= MOST_CONNECTIONS:
            idle = (one for one in self.connections if isinstance(one, Connection) and not one.is_busy)
            out = next(idle, None)
            if out is not None:
                out.transport.abort()
                self.connections.discard(out)
        full = len(self.connections) >= MOST_CONNECTIONS
        super().connection_made(transport)
        if full:
            transport.abort()
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        if not self.is_busy:
            self._expect_head()
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.is_busy and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(WRITE_TIME, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIME, self.transport.abort)


class Server(uvicorn.Server):
    """uvicorn's, which looks ten times a second whether it is to stop; this one waits for it. Beside a busy run those
    looks took as much of the processor as all that the page does."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    async def main_loop(self) -> None:
        await self._stopped.wait()

    def stop(self) -> None:
        """From its own event loop only."""
        self.should_exit = True
        self._stopped.set()


class Served:
    """The page while it is served. ``with serve(...) as served:`` closes it at the end."""

    def __init__(self, app: WebApp, listening: socket.socket, host: str, token: str) -> None:
        self.port: int = listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self.port}/"
        """Where it is, without the token."""
        self.url = f"{self.address}?token={token}"
        """What the operator opens. It gives every right that the operator has."""
        self._app = app
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE,
            h11_max_incomplete_event_size=LARGEST_HEAD,
        )
        self._server = Server(config)
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listening,), name="headgate-web", daemon=True)
        self._thread.start()
        self._started.wait(START_TIME)

    def __repr__(self) -> str:
        return f"Served({self.address!r})"

    def close(self) -> None:
        """Stop: clients are told, and after less than a second nothing is left. May be called again."""
        self._in_loop(self._server.stop)
        self._app.close()
        self._thread.join(CLOSE_TIME)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._in_loop(self._cut_off)
            self._thread.join(LAST_MOMENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _in_loop(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(act)

    def _cut_off(self) -> None:
        for one in list(self._server.server_state.connections):
            if isinstance(one, Connection):
                one.transport.abort()

    def _run(self, listening: socket.socket) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                self._loop.set_exception_handler(_note)
                self._loop.call_soon(self._started.set)
                runner.run(self._server.serve(sockets=[listening]))
        except Exception as error:
            log.error("the page has stopped: %s", type(error).__name__)
        finally:
            self._started.set()
            listening.close()


def serve(
    sources: MonitoredRuns,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    allow_hosts: Sequence[str] = (),
    read_only: bool = False,
    metrics: Metrics | None = None,
) -> Served:
    """Serve the page from now on; ``port=0`` takes a free one. ``allow_hosts`` are further names that it answers to.

    Without ``token`` one is made up, which is allowed for this machine's own addresses only. A ``RunMonitor`` that has
    not been started is started, and closed with the page.
    """
    check("port", port, isinstance(port, int) and 0 <= port <= 65_535, "0 to 65535")
    if token is None and not is_loopback(host):
        message = f"{host} is reachable from other machines; set a token (headgate.web.new_token() makes one)."
        raise ConfigError.of("token", message)
    token = new_token() if token is None else token
    names = (*LOOPBACK, *_own_names(host), *allow_hosts)
    listening = _listen(host, port)
    try:
        app = WebApp(sources, token=token, allow_hosts=names, read_only=read_only, metrics=metrics)
    except BaseException:
        listening.close()
        raise
    return Served(app, listening, _reached_as(host), token)


def _listen(host: str, port: int) -> socket.socket:
    """In the caller's thread, so that the caller is told if the port is taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            if hasattr(socket, "AF_UNIX"):  # on Windows it would share the port with other programs
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            raise
    except (OSError, UnicodeError) as error:
        raise NotServedError(f"cannot serve the page at {host}, port {port}: {error}") from None
    return listening


def _is_every(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""


def _own_names(host: str) -> tuple[str, ...]:
    if is_loopback(host):
        return (host,)
    return (socket.gethostname(), *(EVERY_ADDRESS if _is_every(host) else (host,)))


def _reached_as(host: str) -> str:
    return socket.gethostname() if _is_every(host) else host


def _note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Instead of a traceback, which would show the request."""
    error = context.get("exception")
    log.debug("a connection failed: %s", type(error).__name__ if error is not None else "unknown")
