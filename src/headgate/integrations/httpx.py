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
_ADAPTER = TransportAdapter(httpx, _REFUSALS)


class GatedTransport(SyncTransport[httpx.BaseTransport], httpx.BaseTransport):
    """``GatedTransport(passing=...)`` shares a gate with others; else it makes one of the settings of ``Passing``."""

    adapter = _ADAPTER


class AsyncGatedTransport(AsyncTransport[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport):
    """The same for ``httpx.AsyncClient``, on asyncio."""

    adapter = _ADAPTER


def gate(client: C, *, passing: Passing | None = None, **settings: Any) -> C:
    """Put the gate into a client as it is: its transport and those of its proxies stay, behind the gate. Returns it."""
    kind = AsyncGatedTransport if isinstance(client, httpx.AsyncClient) else GatedTransport
    gate_transports(client, kind, passing, settings)
    return client
