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
from .client_gate import Passing, refusal_kinds
from .httpx_transport import AsyncTransport, SyncTransport, TransportAdapter, gate_transports

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
    """The wait in the queue would have been longer than ``max_wait``."""


class OutOfTimeError(TimeBudgetExceededError, httpx2.TimeoutException):
    """The time budget is spent."""


class GateClosedError(CircuitOpenError, httpx2.ConnectError):
    """The host has been failing; nothing is sent for a while."""


class GateRefusedError(Refused, httpx2.TransportError):
    """Not let through for another reason, such as that no credential can be used."""


C = TypeVar("C", bound=httpx2.Client | httpx2.AsyncClient)


_REFUSALS = refusal_kinds(GateTimeoutError, OutOfTimeError, GateClosedError, GateRefusedError)
_ADAPTER = TransportAdapter(httpx2, _REFUSALS)


class GatedTransport(SyncTransport[httpx2.BaseTransport], httpx2.BaseTransport):
    """``GatedTransport(passing=...)`` shares a gate with others; else it makes one of the settings of ``Passing``."""

    adapter = _ADAPTER


class AsyncGatedTransport(AsyncTransport[httpx2.AsyncBaseTransport], httpx2.AsyncBaseTransport):
    """The same for ``httpx2.AsyncClient``, on asyncio."""

    adapter = _ADAPTER


def gate(client: C, *, passing: Passing | None = None, **settings: Any) -> C:
    """Put the gate into a client as it is: its transport and those of its proxies stay, behind the gate. Returns it."""
    kind = AsyncGatedTransport if isinstance(client, httpx2.AsyncClient) else GatedTransport
    gate_transports(client, kind, passing, settings)
    return client
