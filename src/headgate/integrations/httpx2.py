"""httpx2 behind the gate: ``httpx2.Client(transport=GatedTransport())``, and nothing else of a program changes.

    client = httpx2.Client(transport=GatedTransport())       # a new one
    client = gate(httpx2.Client(http2=True, proxy=...))      # one that has settings, or is in use already

A client with a transport leaves ``http2``, ``verify``, ``proxy`` and ``limits`` to it: ``gate`` keeps what the client
has, or give them to the one inside, ``GatedTransport(httpx2.HTTPTransport(http2=True))``.
"""

from __future__ import annotations

from typing import Any, TypeVar

import httpx2

from ..errors import CircuitOpenError, Refused, TimeBudgetExceededError, WaitTooLongError
from .httpx_shared import AsyncBody, Body, SharedAsync, SharedSync, check_ungated
from .passing import Passing

__all__ = [
    "AsyncGatedTransport",
    "GateClosedError",
    "GateRefusedError",
    "GateTimeoutError",
    "GatedTransport",
    "OutOfTimeError",
    "gate",
]


class GateTimeoutError(WaitTooLongError, httpx2.PoolTimeout):
    """The wait in line would have been longer than ``max_wait``."""


class OutOfTimeError(TimeBudgetExceededError, httpx2.TimeoutException):
    """The time budget is spent."""


class GateClosedError(CircuitOpenError, httpx2.ConnectError):
    """The host has been failing; nothing is sent for a while."""


class GateRefusedError(Refused, httpx2.TransportError):
    """Not let through for another reason, such as that no credential can be used."""


C = TypeVar("C", bound=httpx2.Client | httpx2.AsyncClient)

_REFUSALS: dict[type[Refused], type[Refused]] = {
    WaitTooLongError: GateTimeoutError,
    TimeBudgetExceededError: OutOfTimeError,
    CircuitOpenError: GateClosedError,
    Refused: GateRefusedError,
}


class _Body(Body, httpx2.SyncByteStream):
    pass


class _AsyncBody(AsyncBody, httpx2.AsyncByteStream):
    pass


class GatedTransport(SharedSync, httpx2.BaseTransport):
    """``GatedTransport(passing=...)`` shares a gate with others; else it makes one of the settings of ``Passing``."""

    library, refusals, body_kind = httpx2, _REFUSALS, _Body

    def __init__(
        self, transport: httpx2.BaseTransport | None = None, *, passing: Passing | None = None, **settings: Any
    ) -> None:
        check_ungated("transport", (transport,))
        self.passing = Passing.given(passing, settings)
        self._inside = httpx2.HTTPTransport() if transport is None else transport


class AsyncGatedTransport(SharedAsync, httpx2.AsyncBaseTransport):
    """The same for ``httpx2.AsyncClient``, on asyncio."""

    library, refusals, body_kind = httpx2, _REFUSALS, _AsyncBody

    def __init__(
        self, transport: httpx2.AsyncBaseTransport | None = None, *, passing: Passing | None = None, **settings: Any
    ) -> None:
        check_ungated("transport", (transport,))
        self.passing = Passing.given(passing, settings)
        self._inside = httpx2.AsyncHTTPTransport() if transport is None else transport


def gate(client: C, *, passing: Passing | None = None, **settings: Any) -> C:
    """Put the gate into a client as it is: its transport and those of its proxies stay, behind the gate. Returns it."""
    check_ungated("client", (client._transport, *client._mounts.values()))
    passing = Passing.given(passing, settings)

    def gated(transport: Any) -> Any:
        if isinstance(client, httpx2.AsyncClient):
            return AsyncGatedTransport(transport, passing=passing)
        return GatedTransport(transport, passing=passing)

    client._transport = gated(client._transport)
    client._mounts = {
        pattern: None if transport is None else gated(transport) for pattern, transport in client._mounts.items()
    }
    return client
