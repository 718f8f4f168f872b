"""httpx behind the gate: ``httpx.Client(transport=GatedTransport())``, and nothing else of a program changes.

    client = httpx.Client(transport=GatedTransport())       # a new one
    client = gate(httpx.Client(http2=True, proxy=...))      # one that has settings, or is in use already

A client with a transport leaves ``http2``, ``verify``, ``proxy`` and ``limits`` to it: ``gate`` keeps what the client
has, or give them to the one inside, ``GatedTransport(httpx.HTTPTransport(http2=True))``.
"""

from __future__ import annotations

from typing import Any, TypeVar

import httpx

from ..errors import CircuitOpenError, Refused, TimeBudgetExceededError, WaitTooLongError
from .client_gate import Passing, refusal_kinds
from .httpx_transport import AsyncBody, Body, TransportAdapter, check_ungated, replace_transports

__all__ = [
    "AsyncGatedTransport",
    "GateClosedError",
    "GateRefusedError",
    "GateTimeoutError",
    "GatedTransport",
    "OutOfTimeError",
    "gate",
]


class GateTimeoutError(WaitTooLongError, httpx.PoolTimeout):
    """The wait in the queue would have been longer than ``max_wait``."""


class OutOfTimeError(TimeBudgetExceededError, httpx.TimeoutException):
    """The time budget is spent."""


class GateClosedError(CircuitOpenError, httpx.ConnectError):
    """The host has been failing; nothing is sent for a while."""


class GateRefusedError(Refused, httpx.TransportError):
    """Not let through for another reason, such as that no credential can be used."""


C = TypeVar("C", bound=httpx.Client | httpx.AsyncClient)

_REFUSALS = refusal_kinds(GateTimeoutError, OutOfTimeError, GateClosedError, GateRefusedError)


class _Body(Body, httpx.SyncByteStream):
    pass


class _AsyncBody(AsyncBody, httpx.AsyncByteStream):
    pass


_ADAPTER = TransportAdapter(httpx, _REFUSALS, _Body, _AsyncBody)


class GatedTransport(httpx.BaseTransport):
    """``GatedTransport(passing=...)`` shares a gate with others; else it makes one of the settings of ``Passing``."""

    def __init__(
        self, transport: httpx.BaseTransport | None = None, *, passing: Passing | None = None, **settings: Any
    ) -> None:
        check_ungated("transport", (transport,))
        self.passing = Passing.given(passing, settings)
        self._inside = httpx.HTTPTransport() if transport is None else transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response: httpx.Response = _ADAPTER.send(self.passing, self._inside, request)
        return response

    def close(self) -> None:
        self._inside.close()
        self.passing.client_closed()


class AsyncGatedTransport(httpx.AsyncBaseTransport):
    """The same for ``httpx.AsyncClient``, on asyncio."""

    def __init__(
        self, transport: httpx.AsyncBaseTransport | None = None, *, passing: Passing | None = None, **settings: Any
    ) -> None:
        check_ungated("transport", (transport,))
        self.passing = Passing.given(passing, settings)
        self._inside = httpx.AsyncHTTPTransport() if transport is None else transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response: httpx.Response = await _ADAPTER.send_async(self.passing, self._inside, request)
        return response

    async def aclose(self) -> None:
        await self._inside.aclose()
        await self.passing.client_closed_async()


def gate(client: C, *, passing: Passing | None = None, **settings: Any) -> C:
    """Put the gate into a client as it is: its transport and those of its proxies stay, behind the gate. Returns it."""
    check_ungated("client", (client._transport, *client._mounts.values()))
    passing = Passing.given(passing, settings)
    kind = AsyncGatedTransport if isinstance(client, httpx.AsyncClient) else GatedTransport
    replace_transports(client, lambda transport: kind(transport, passing=passing))
    return client
