"""aiohttp behind the gate: a client middleware, and nothing else of a program changes.

    session = aiohttp.ClientSession(middlewares=[Middleware()])

    session ─ redirects, cookies ─> middleware ─ line, credential, retries ─> connection
       ^                                                                          │
       └──────── the body as it comes; at its end the permit goes back ───────────┘

The session follows redirects above the middleware, so every hop comes through it. ``ClientTimeout(total=)`` bounds
all of a request, the waiting in line too; the others bound what they always did. What aiohttp would repeat once by
itself (a GET on a connection that was closed) is left to the gate.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
from aiohttp.payload import BytesPayload
from multidict import CIMultiDict

from ..errors import CircuitOpenError, ConfigError, Refused, TimeBudgetExceededError, WaitTooLongError
from .aiohttp_bodies import hear, hold
from .answering import in_their_words
from .binding import is_secret, origin_of
from .hops import FirstHop, first_hop, strip
from .outgoing import Outgoing
from .passing import Passing

__all__ = ["GateClosedError", "GateRefusedError", "GateTimeoutError", "Middleware", "OutOfTimeError"]

_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_given_up: ContextVar[tuple[Any, aiohttp.ClientRequest, Exception] | None] = ContextVar("given_up", default=None)
"""What was raised last in this task, and for which request: aiohttp comes back with another one for the same errand."""

_in_line: ContextVar[aiohttp.ClientRequest | None] = ContextVar("in_line", default=None)
"""The request that is beyond a gate in this task: it must not come to another."""


class GateTimeoutError(WaitTooLongError, aiohttp.ConnectionTimeoutError):
    """The wait in line would have been longer than ``max_wait``."""


class OutOfTimeError(TimeBudgetExceededError, aiohttp.ServerTimeoutError):
    """The time budget is spent."""


class GateClosedError(CircuitOpenError, aiohttp.ClientConnectionError):
    """The host has been failing; nothing is sent for a while."""


class GateRefusedError(Refused, aiohttp.ClientError):
    """Not let through for another reason, such as that no credential can be used."""


_REFUSALS: dict[type[Refused], type[Refused]] = {
    WaitTooLongError: GateTimeoutError,
    TimeBudgetExceededError: OutOfTimeError,
    CircuitOpenError: GateClosedError,
    Refused: GateRefusedError,
}


@dataclass(slots=True)
class _Journey:
    """A request that was redirected. All its hops have the same timer, which nothing else has."""

    timer: Any
    first: FirstHop
    went_astray: bool = False
    """It has been elsewhere: what was taken off there stays off, also when it comes back."""


class Middleware:
    """``Middleware(passing=...)`` shares a gate with others; else it makes one of the settings of ``Passing``."""

    def __init__(self, *, passing: Passing | None = None, **settings: Any) -> None:
        self.passing = Passing.given(passing, settings)
        self._journeys: dict[int, _Journey] = {}
        self._connectors: weakref.WeakSet[aiohttp.BaseConnector] = weakref.WeakSet()

    def close(self) -> None:
        """Close what this gate shares; closing the session does it too, unless the gate was given (``passing``)."""
        self.passing.client_closed()

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        _raise_again(request)
        if _in_line.get() is request:
            raise ConfigError("middlewares: there are two gates among them, and a request would wait in line twice")
        self._close_with(request.session.connector)
        journey = self._next_hop(request)
        body = request.body
        outgoing = Outgoing(
            request.method,
            str(request.url),
            {name.lower(): value for name, value in request.headers.items()},
            await body.as_bytes() if isinstance(body, BytesPayload) else None,
            can_repeat_body=not body or isinstance(body, BytesPayload),
        )
        call = self.passing.call(outgoing, unsent=_UNSENT)
        last: aiohttp.ClientResponse | None = None

        async def attempt() -> aiohttp.ClientResponse:
            nonlocal last
            if last is not None:
                last.close()
            try:
                with _carrying(request.headers, call.headers()), _passing(request):
                    last = await handler(request)
            except TimeoutError:
                if _is_up(request):
                    outgoing.can_repeat_body = False  # the time is up for the request, not for this attempt alone
                raise
            await hear(last, call, is_unpacked=request.session.auto_decompress)
            return last

        try:
            response = await self.passing.send(call, attempt)
        except BaseException as error:
            if last is not None:
                last.close()
            if isinstance(error, Refused):
                raise in_their_words(error, _REFUSALS) from error.__cause__
            if isinstance(error, aiohttp.ClientOSError | aiohttp.ServerDisconnectedError):
                _given_up.set((request._timer, request, error))
            raise
        if response.status in _REDIRECTS:
            self._remember(journey, response)
        if response.status < 400:
            hold(response, call)
        return response

    def _close_with(self, connector: aiohttp.BaseConnector | None) -> None:
        """A session does not tell its middlewares of its end; its connector hears of it."""
        if connector is not None and connector not in self._connectors:
            self._connectors.add(connector)
            connector.close = partial(_close, connector.close, self.passing)  # type: ignore[method-assign]

    # ------------------------------------------------------------------ redirects

    def _next_hop(self, request: aiohttp.ClientRequest) -> _Journey:
        url, headers = str(request.url), request.headers
        journey = self._journeys.get(id(request._timer))
        if journey is None:
            return _Journey(request._timer, first_hop(url, headers))
        journey.first = strip(journey.first, url, headers)
        journey.went_astray |= origin_of(url) != journey.first.origin
        if journey.went_astray:
            for name in [name for name in headers if is_secret(name) and name.lower() != "cookie"]:
                headers.popall(name, None)
        return journey

    def _remember(self, journey: _Journey, response: aiohttp.ClientResponse) -> None:
        """For as long as this answer is in the history of the request that was redirected."""
        self._journeys[id(journey.timer)] = journey
        weakref.finalize(response, self._forget, journey).atexit = False

    def _forget(self, journey: _Journey) -> None:
        if self._journeys.get(id(journey.timer)) is journey:
            del self._journeys[id(journey.timer)]


def _raise_again(request: aiohttp.ClientRequest) -> None:
    """aiohttp repeats some failures once by itself, with a new request: the gate has done what may be done."""
    given_up = _given_up.get()
    if given_up is None:
        return
    _given_up.set(None)
    timer, before, error = given_up
    if timer is request._timer and before is not request:
        raise error


def _is_up(request: aiohttp.ClientRequest) -> bool:
    try:
        request._timer.assert_timeout()
    except TimeoutError:
        return True
    return False


def _close(close: Callable[..., Awaitable[None]], passing: Passing, **how: Any) -> Awaitable[None]:
    passing.client_closed()
    return close(**how)


@contextmanager
def _passing(request: aiohttp.ClientRequest) -> Iterator[None]:
    """While a request is beyond the gate."""
    token = _in_line.set(request)
    try:
        yield
    finally:
        _in_line.reset(token)


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
