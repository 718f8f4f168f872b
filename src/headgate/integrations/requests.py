"""requests behind the gate: ``session = gate(requests.Session())``, and nothing else of a program changes.

    session ─ auth, redirects, cookies ─> Adapter ─> gated pool (``urllib3.py``): line, credential, retries ─> network

The session follows redirects above the adapter, so every hop comes through it, as long as the adapter is mounted for
http and https alike. The headers of a request that leaves its origin are taken off before it does, so that they
would not even reach a hop that another adapter sends.
"""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import urljoin

import requests
from requests.adapters import DEFAULT_POOLBLOCK, DEFAULT_POOLSIZE, HTTPAdapter

from ..errors import CircuitOpenError, Refused, TimeBudgetExceededError, WaitTooLongError
from . import urllib3 as gated
from .answering import in_their_words
from .hops import first_hop, strip
from .passing import Passing

__all__ = ["Adapter", "GateClosedError", "GateRefusedError", "GateTimeoutError", "OutOfTimeError", "gate"]

_FIRST_HOP = "headgate.first_hop"
"""Where a request remembers its first hop: of all it has, its hooks alone are handed on from hop to hop."""


class GateTimeoutError(WaitTooLongError, requests.ConnectTimeout):
    """The wait in line would have been longer than ``max_wait``."""


class OutOfTimeError(TimeBudgetExceededError, requests.Timeout):
    """The time budget is spent."""


class GateClosedError(CircuitOpenError, requests.ConnectionError):
    """The host has been failing; nothing is sent for a while."""


class GateRefusedError(Refused, requests.RequestException):
    """Not let through for another reason, such as that no credential can be used."""


_REFUSALS: dict[type[Refused], type[Refused]] = {
    WaitTooLongError: GateTimeoutError,
    TimeBudgetExceededError: OutOfTimeError,
    CircuitOpenError: GateClosedError,
    Refused: GateRefusedError,
}
S = TypeVar("S", bound=requests.Session)


def gate(session: S, *, passing: Passing | None = None, **settings: Any) -> S:
    """Mount one ``Adapter`` for all of a session's requests. Returns it."""
    adapter = Adapter(passing=passing, **settings)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
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

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        gated.gate(self.poolmanager, passing=self.passing)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        if proxy not in self.proxy_manager:
            gated.gate(super().proxy_manager_for(proxy, **options), passing=self.passing)
        return self.proxy_manager[proxy]

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        url: str = request.url or ""
        headers: Any = request.headers
        hooks: dict[str, Any] = request.hooks
        known = hooks.pop(_FIRST_HOP, None)
        hop = first_hop(url, headers) if known is None else strip(known, url, headers)
        try:
            response = super().send(request, *args, **options)
        except Refused as error:
            told: Any = in_their_words(error, _REFUSALS)
            told.request, told.response = request, None
            raise told from error.__cause__
        if response.is_redirect:
            hooks[_FIRST_HOP] = hop
            response.request = request.copy()
            strip(first_hop(url, headers), _target(url, response.headers["location"]), headers)
        return response


def _target(url: str, location: str) -> str:
    """Where a redirect leads; to nowhere if that cannot be read."""
    try:
        return urljoin(url, location)
    except ValueError:
        return ""
