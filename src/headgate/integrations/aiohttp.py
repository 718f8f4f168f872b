"""aiohttp behind the gate: a client middleware, and nothing else of a program changes.

    session = aiohttp.ClientSession(middlewares=[Middleware()])

    session ─ redirects, cookies ─> middleware ─ queue, credential, retries ─> connection
       ^                                                                           │
       └──────── the body as it comes; at its end the permit goes back ────────────┘

The session follows redirects above the middleware, so every hop comes through it. ``ClientTimeout(total=)`` bounds
all of a request, waiting in the queue too; the others bound what they always did. What aiohttp would repeat once by
itself (a GET on a connection that was closed) is left to the gate.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
from aiohttp.base_protocol import BaseProtocol
from aiohttp.payload import BytesPayload
from multidict import CIMultiDict

from ..errors import CircuitOpenError, ConfigError, Refused, TimeBudgetExceededError, WaitTooLongError
from .client_gate import Passing, as_client_error, refusal_kinds
from .gated_request import GatedRequest
from .origins import FirstHop, first_hop, is_secret, origin_of, strip_secrets
from .request import OutgoingRequest
from .response_reader import LARGEST_ERROR, has_readable_error, unpacked, unpacked_headers

__all__ = ["GateClosedError", "GateRefusedError", "GateTimeoutError", "Middleware", "OutOfTimeError"]


NEVER_PAUSES = 1 << 40
"""Bytes in a buffer that would stop its connection: there is none behind ours, and the one inside stops its own."""
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_last_failure: ContextVar[tuple[Any, aiohttp.ClientRequest, Exception] | None] = ContextVar("failure", default=None)
"""What was raised last in this task, and for which request: aiohttp may send another one in its place."""

_request_beyond_gate: ContextVar[aiohttp.ClientRequest | None] = ContextVar("beyond", default=None)
"""The request that is beyond a gate in this task: it must not come to another."""


class GateTimeoutError(WaitTooLongError, aiohttp.ConnectionTimeoutError):
    """The wait in the queue would have been longer than ``max_wait``."""


class OutOfTimeError(TimeBudgetExceededError, aiohttp.ServerTimeoutError):
    """The time budget is spent."""


class GateClosedError(CircuitOpenError, aiohttp.ClientConnectionError):
    """The host has been failing; nothing is sent for a while."""


class GateRefusedError(Refused, aiohttp.ClientError):
    """Not let through for another reason, such as that no credential can be used."""


_REFUSALS = refusal_kinds(GateTimeoutError, OutOfTimeError, GateClosedError, GateRefusedError)


@dataclass(slots=True)
class _Redirects:
    """The hops of one request, which has the same timer on all of them and shares it with no other."""

    timer: Any
    first: FirstHop
    left_origin: bool = False
    """Whether a hop led to another origin: headers that were removed there stay removed, also back at the first."""


class Middleware:
    """``Middleware(passing=...)`` shares a gate with others; else it makes one of the settings of ``Passing``."""

    def __init__(self, *, passing: Passing | None = None, **settings: Any) -> None:
        self.passing = Passing.given(passing, settings)
        self._redirected: dict[int, _Redirects] = {}
        self._connectors: weakref.WeakSet[aiohttp.BaseConnector] = weakref.WeakSet()

    def close(self) -> None:
        """Close what this gate shares; closing the session does it too, unless the gate was given (``passing``)."""
        self.passing.client_closed()

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        _raise_again(request)
        if _request_beyond_gate.get() is request:
            raise ConfigError("middlewares has two gates, so a request would wait twice; remove one")
        self._close_with(request.session.connector)
        redirects = self._next_hop(request)
        body = request.body
        outgoing = OutgoingRequest(
            request.method,
            str(request.url),
            {name.lower(): value for name, value in request.headers.items()},
            await body.as_bytes() if isinstance(body, BytesPayload) else None,
            can_repeat_body=not body or isinstance(body, BytesPayload),
        )
        gated = self.passing.begin(outgoing, unsent=_UNSENT)

        async def send() -> aiohttp.ClientResponse:
            with (
                _unrepeatable_when_timed_out(request, outgoing),
                _carrying(request.headers, gated.headers()),
                _beyond_gate(request),
            ):
                return await handler(request)

        async def receive(response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
            with _unrepeatable_when_timed_out(request, outgoing):
                await _receive(response, gated, is_unpacked=request.session.auto_decompress)
            return response

        try:
            response = await gated.send_async(send, receive, _close_response, partial(as_client_error, kinds=_REFUSALS))
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            _last_failure.set((request._timer, request, error))
            raise
        if response.status in _REDIRECTS:
            self._remember(redirects, response)
        if response.status < 400:
            _hold(response, gated)
        return response

    def _close_with(self, connector: aiohttp.BaseConnector | None) -> None:
        """Closing a session closes its connector, but no middleware."""
        if connector is not None and connector not in self._connectors:
            self._connectors.add(connector)
            connector.close = partial(_close, connector.close, self.passing)  # type: ignore[method-assign]

    # ------------------------------------------------------------------ redirects

    def _next_hop(self, request: aiohttp.ClientRequest) -> _Redirects:
        url, headers = str(request.url), request.headers
        redirects = self._redirected.get(id(request._timer))
        if redirects is None:
            return _Redirects(request._timer, first_hop(url, headers))
        redirects.first = strip_secrets(redirects.first, url, headers)
        redirects.left_origin |= origin_of(url) != redirects.first.origin
        if redirects.left_origin:
            for name in [name for name in headers if is_secret(name) and name.lower() != "cookie"]:
                headers.popall(name, None)
        return redirects

    def _remember(self, redirects: _Redirects, response: aiohttp.ClientResponse) -> None:
        """Keep the hops for as long as this response is in the history of its request."""
        self._redirected[id(redirects.timer)] = redirects
        weakref.finalize(response, self._forget, redirects).atexit = False

    def _forget(self, redirects: _Redirects) -> None:
        if self._redirected.get(id(redirects.timer)) is redirects:
            del self._redirected[id(redirects.timer)]


def _raise_again(request: aiohttp.ClientRequest) -> None:
    """aiohttp repeats some failures once by itself, with a new request: the gate has done what may be done."""
    failure = _last_failure.get()
    if failure is None:
        return
    _last_failure.set(None)
    timer, before, error = failure
    if timer is request._timer and before is not request:
        raise error


@contextmanager
def _unrepeatable_when_timed_out(request: aiohttp.ClientRequest, outgoing: OutgoingRequest) -> Iterator[None]:
    """Let a request end with the attempt if the time is up for all of it, not for this attempt alone."""
    try:
        yield
    except TimeoutError:
        if _has_timed_out(request):
            outgoing.can_repeat_body = False
        raise


def _has_timed_out(request: aiohttp.ClientRequest) -> bool:
    try:
        request._timer.assert_timeout()
    except TimeoutError:
        return True
    return False


async def _close_response(response: aiohttp.ClientResponse) -> None:
    response.close()


def _close(close: Callable[..., Awaitable[None]], passing: Passing, **how: Any) -> Awaitable[None]:
    passing.client_closed()
    return close(**how)


@contextmanager
def _beyond_gate(request: aiohttp.ClientRequest) -> Iterator[None]:
    """While a request is beyond the gate."""
    token = _request_beyond_gate.set(request)
    try:
        yield
    finally:
        _request_beyond_gate.reset(token)


@contextmanager
def _carrying(headers: CIMultiDict[str], added: dict[str, str]) -> Iterator[None]:
    """With what this attempt adds, and afterwards as they were: an answer shows the headers it was asked with."""
    own = {name: headers.popall(name, []) for name in added}
    headers.update(added)
    try:
        yield
    finally:
        for name, values in own.items():
            headers.popall(name, None)
            headers.extend((name, value) for value in values)


# ---------------------------------------------------------------------- bodies


async def _receive(response: aiohttp.ClientResponse, gated: GatedRequest, *, is_unpacked: bool) -> None:
    """Pass a response on. What is read of an error's body is put back."""
    headers = response.headers
    known = unpacked_headers(headers) if is_unpacked else list(headers.items())
    if not has_readable_error(response.status, headers):
        gated.on_response(response.status, known)
        return
    inside, start = response.content, bytearray()
    while len(start) < LARGEST_ERROR and (piece := await inside.readany()):
        start += piece
    response.content = _Content(inside, bytes(start))
    encoding = "" if is_unpacked else headers.get("content-encoding", "")
    gated.on_response(response.status, known, unpacked(bytes(start), encoding))


def _hold(response: aiohttp.ClientResponse, gated: GatedRequest) -> None:
    """Keep the permit until the connection is let go.

    all of the body has come: complete        it broke off: fail        closed, released or thrown away: abandon
    """
    if response.status == 101:  # it goes on as a web socket
        gated.complete()
        return
    inside, read = response.content, None
    if gated.request.for_model:
        response.content = read = _Content(inside, b"", gated)

    def end() -> None:
        error = inside.exception()
        if inside.is_eof():
            if read is not None:
                read.take_all()
            gated.complete()
        elif isinstance(error, Exception) and type(error) is not aiohttp.ClientConnectionError:
            _soon(loop, gated.fail, error)
        else:  # closed, released or thrown away before its end
            _soon(loop, gated.abandon)

    loop = asyncio.get_running_loop()
    if response.connection is None:  # all of it is there
        end()
    else:
        response.connection.add_callback(end)


def _soon(loop: asyncio.AbstractEventLoop, do: Callable[..., None], *args: Any) -> None:
    """Not at once: the garbage collector may have found the response in the middle of a decision, with a lock held."""
    try:
        loop.call_soon_threadsafe(do, *args)
    except RuntimeError:  # the loop is over
        do(*args)


class _Content(aiohttp.StreamReader):
    """The body of a response: what was read of it before, then the rest. Each piece is passed on."""

    def __init__(self, inside: aiohttp.StreamReader, start: bytes, gated: GatedRequest | None = None) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(BaseProtocol(loop), NEVER_PAUSES, loop=loop)
        self._inside, self._gated = inside, gated
        self.feed_data(start)

    def take_all(self) -> None:
        """The end has come: take what was not read yet."""
        if not self._eof:
            self._take(self._inside.read_nowait())
            self._take(b"")

    async def _wait(self, func_name: str) -> None:
        """Called by every way of reading when the buffer is empty."""
        piece = await self._inside.readany()
        if not self._eof:
            self._take(piece)

    def _take(self, piece: bytes) -> None:
        if self._gated is not None and piece:
            self._gated.on_chunk(piece)
        if piece:
            self.feed_data(piece)
        elif self._inside.is_eof():
            self.feed_eof()
