"""requests behind the gate: ``session = gate(requests.Session())``, and nothing else of a program changes.

    session ─ auth, redirects, cookies ─> Adapter ─> gated pool (``urllib3.py``): queue, credential, retries ─> network

``gate`` puts every adapter of a session behind one gate, whatever prefix it is mounted for; each stays what it is, with
its pool and its own ways. The session follows redirects above its adapters, so every hop comes through the gate, as
long as both http and https are behind it. The headers of a request that leaves its origin are taken off before it
does, so that they would not even reach a hop that another adapter sends.
"""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import urljoin

import requests
from requests.adapters import DEFAULT_POOLBLOCK, DEFAULT_POOLSIZE, HTTPAdapter

from ..errors import CircuitOpenError, ConfigError, Refused, TimeBudgetExceededError, WaitTooLongError
from . import urllib3 as gated
from .client_gate import Passing, as_client_error, refusal_kinds
from .origins import first_hop, strip_secrets

__all__ = ["Adapter", "GateClosedError", "GateRefusedError", "GateTimeoutError", "OutOfTimeError", "gate"]

_FIRST_HOP = "headgate.first_hop"
"""Where a request remembers its first hop: of all it has, its hooks alone are handed on from hop to hop."""


class GateTimeoutError(WaitTooLongError, requests.ConnectTimeout):
    """The wait in the queue would have been longer than ``max_wait``."""


class OutOfTimeError(TimeBudgetExceededError, requests.Timeout):
    """The time budget is spent."""


class GateClosedError(CircuitOpenError, requests.ConnectionError):
    """The host has been failing; nothing is sent for a while."""


class GateRefusedError(Refused, requests.RequestException):
    """Not let through for another reason, such as that no credential can be used."""


_REFUSALS = refusal_kinds(GateTimeoutError, OutOfTimeError, GateClosedError, GateRefusedError)
S = TypeVar("S", bound=requests.Session)


def gate(session: S, *, passing: Passing | None = None, **settings: Any) -> S:
    """Put the gate into all adapters of a session. Returns it. One that is mounted later is not behind the gate."""
    mounted: dict[str, Any] = {
        prefix: one for prefix, one in session.adapters.items() if prefix.lower().startswith("http")
    }
    for prefix, adapter in mounted.items():
        if isinstance(adapter, Adapter):
            raise ConfigError(f"session: its adapter for {prefix} is already gated, and would wait twice")
        if not isinstance(adapter, HTTPAdapter):
            kind = type(adapter).__name__
            raise ConfigError(f"session: its adapter for {prefix} is a {kind}; only an HTTPAdapter can be gated")
    passing = Passing.given(passing, settings)
    for adapter in {id(one): one for one in mounted.values()}.values():
        Adapter.gate(adapter, passing)
    return session


class Adapter(HTTPAdapter):
    """``Adapter(passing=...)`` shares a gate with others; else it makes one of the settings of ``Passing``."""

    def __init__(
        self,
        pool_connections: int = DEFAULT_POOLSIZE,
        pool_maxsize: int = DEFAULT_POOLSIZE,
        pool_block: bool = DEFAULT_POOLBLOCK,
        *,
        passing: Passing | None = None,
        **settings: Any,
    ) -> None:
        self.passing = Passing.given(passing, settings)
        super().__init__(pool_connections, pool_maxsize, pool_block=pool_block)

    @classmethod
    def gate(cls, adapter: HTTPAdapter, passing: Passing) -> None:
        """Make an adapter of a user's own one of these, and keep what it is otherwise."""
        for manager in (adapter.poolmanager, *adapter.proxy_manager.values()):
            gated.gate(manager, passing=passing)
        adapter.__class__ = _gated_kind(type(adapter))
        adapter.passing = passing  # type: ignore[attr-defined]

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        gated.gate(self.poolmanager, passing=self.passing)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        if proxy not in self.proxy_manager:
            gated.gate(super().proxy_manager_for(proxy, **options), passing=self.passing)
        return self.proxy_manager[proxy]

    def __reduce__(self) -> tuple[object, ...]:
        kind = type(self)
        return _blank, (getattr(kind, "ungated", kind),), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "passing": self.passing}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.passing = state["passing"]  # the pool that is made again needs it
        super().__setstate__({name: value for name, value in state.items() if name != "passing"})

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        url: str = request.url or ""
        headers: Any = request.headers
        hooks: dict[str, Any] = request.hooks
        known = hooks.pop(_FIRST_HOP, None)
        hop = first_hop(url, headers) if known is None else strip_secrets(known, url, headers)
        try:
            response = super().send(request, *args, **options)
        except Refused as error:
            converted: Any = as_client_error(error, _REFUSALS)
            converted.request, converted.response = request, None
            raise converted from error.__cause__
        if response.is_redirect:
            hooks[_FIRST_HOP] = hop
            response.request = request.copy()
            strip_secrets(first_hop(url, headers), _target(url, response.headers["location"]), headers)
        return response


def _gated_kind(kind: type[HTTPAdapter]) -> type[Adapter]:
    """The same kind of adapter behind the gate."""
    return Adapter if kind is HTTPAdapter else type(f"Gated{kind.__name__}", (Adapter, kind), {"ungated": kind})


def _blank(kind: type[HTTPAdapter]) -> Adapter:
    """For unpickling: an adapter of the gated kind, without its state."""
    return object.__new__(kind if issubclass(kind, Adapter) else _gated_kind(kind))


def _target(url: str, location: str) -> str:
    """Where a redirect leads; to nowhere if that cannot be read."""
    try:
        return urljoin(url, location)
    except ValueError:
        return ""
