"""urllib3 behind the gate: ``http = gate(urllib3.PoolManager())``, and nothing else of a program changes.

    manager ─ redirects ─> gated pool of a host ─ line, credential, retries ─> the pool's own way to send, once
       ^                                                                               │
       └──────────── the body as it comes; at its end the permit goes back ────────────┘

The manager follows redirects above its pools, so every hop comes through the gate. ``Retry`` says how many of them
it follows and what its errors look like, as ever; what it says about repeating failures is left to the gate.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from functools import partial
from math import inf
from typing import Any, TypeVar

import urllib3
from urllib3.exceptions import (
    ClosedPoolError,
    ConnectTimeoutError,
    EmptyPoolError,
    HostChangedError,
    HTTPError,
    LocationValueError,
    NewConnectionError,
)
from urllib3.exceptions import TimeoutError as TheirTimeoutError

from ..errors import CircuitOpenError, ConfigError, Refused, TimeBudgetExceededError, WaitTooLongError
from .answering import explains_itself, in_their_words, unpacked_headers
from .dropped import end_dropped
from .hops import first_hop, strip
from .outgoing import Outgoing
from .passing import Passing
from .reading import LARGEST_ERROR, unpacked
from .request_call import RequestCall
from .urllib3_bodies import GatedResponse, read_again

__all__ = ["GateClosedError", "GateRefusedError", "GateTimeoutError", "GatedPool", "OutOfTimeError", "gate"]

_UNSENT = (NewConnectionError, ConnectTimeoutError)
_NOT_THEIRS = (EmptyPoolError, ClosedPoolError, HostChangedError, LocationValueError)


class GateTimeoutError(WaitTooLongError, TheirTimeoutError):
    """The wait in line would have been longer than ``max_wait``."""


class OutOfTimeError(TimeBudgetExceededError, TheirTimeoutError):
    """The time budget is spent."""


class GateClosedError(CircuitOpenError, HTTPError):
    """The host has been failing; nothing is sent for a while."""


class GateRefusedError(Refused, HTTPError):
    """Not let through for another reason, such as that no credential can be used."""


_REFUSALS: dict[type[Refused], type[Refused]] = {
    WaitTooLongError: GateTimeoutError,
    TimeBudgetExceededError: OutOfTimeError,
    CircuitOpenError: GateClosedError,
    Refused: GateRefusedError,
}
M = TypeVar("M", bound=urllib3.PoolManager)


def gate(manager: M, *, passing: Passing | None = None, **settings: Any) -> M:
    """Put the gate into a manager, be it of pools or of a proxy. Returns it. Settings are those of ``Passing``."""
    kinds = manager.pool_classes_by_scheme
    if any(issubclass(kind, GatedPool) for kind in kinds.values()):
        raise ConfigError("manager: it is behind a gate already, and would stand in line twice")
    passing = Passing.given(passing, settings)
    manager.pool_classes_by_scheme = {
        scheme: type(f"Gated{kind.__name__}", (GatedPool, kind), {"passing": passing}) for scheme, kind in kinds.items()
    }
    manager.clear()
    manager.clear = partial(_clear, manager.clear, passing)  # type: ignore[method-assign]  # how a manager is closed
    return manager


def _clear(clear: Callable[[], None], passing: Passing) -> None:
    clear()
    passing.client_closed()


class GatedPool(urllib3.HTTPConnectionPool):
    """A pool whose requests go through the gate. One that is taken out of its manager hands redirects over."""

    passing: Passing

    def urlopen(  # type: ignore[override]
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        retries: urllib3.Retry | bool | int | None = None,
        redirect: bool = True,
        assert_same_host: bool = True,
        timeout: Any = urllib3.util.timeout._DEFAULT_TIMEOUT,
        *,
        preload_content: bool = True,
        **options: Any,
    ) -> urllib3.BaseHTTPResponse:
        end_dropped()
        if not isinstance(retries, urllib3.Retry):
            retries = urllib3.Retry.from_int(retries, redirect=redirect, default=self.retries)
        own = self.headers if headers is None else headers
        own = _on_this_hop(retries, self._whole(url), own)
        outgoing = Outgoing(
            method.upper(),
            self._whole(url),
            {name.lower(): value for name, value in own.items()},
            body.encode() if isinstance(body, str) else bytes(body) if isinstance(body, bytes | bytearray) else None,
            can_repeat_body=body is None or isinstance(body, str | bytes | bytearray),
        )
        call = self.passing.call(outgoing, unsent=_UNSENT, not_theirs=_NOT_THEIRS)
        last: Any = None

        def attempt() -> Any:
            nonlocal last
            if last is not None:
                last.close()
            last = super(GatedPool, self).urlopen(
                method,
                url,
                body,
                _with(own, call.headers()),
                urllib3.Retry(False),  # sent once, and what goes wrong is told as it is
                False,
                assert_same_host,
                self._within(timeout, call.time_left()),
                preload_content=preload_content,
                **options,
            )
            last = _heard(last, call, method, is_loaded=preload_content)
            return last

        try:
            response = self.passing.send_sync(call, attempt)
        except BaseException as error:
            if last is not None:
                last.close()
            if isinstance(error, Refused):
                raise in_their_words(error, _REFUSALS) from error.__cause__
            if isinstance(error, HTTPError) and not isinstance(error, _NOT_THEIRS):
                _without_repeats(retries).increment(method, url, error=error, _pool=self)
            raise
        response.retries = retries
        if preload_content:
            call.piece(response.data or b"")
            call.over()
        elif response.status < 400:
            GatedResponse.hold(response, call)
        return response  # type: ignore[no-any-return]

    def _whole(self, url: str) -> str:
        """The whole address. That of a request for a proxy is whole already; any other goes to this pool's own host."""
        if self.proxy is not None and not url.startswith("/"):
            return url
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        path = url if url.startswith("/") else f"/{url}"
        return f"{self.scheme}://{host}{port}{path}"

    def _within(self, timeout: Any, left: float) -> Any:
        """The timeouts of an attempt, and not more than is left of the time budget."""
        if left == inf:
            return timeout
        bounded = self._get_timeout(timeout)
        bounded.total = min(bounded.total, left) if isinstance(bounded.total, int | float) else left
        return bounded


def _heard(response: Any, call: RequestCall, method: str, *, is_loaded: bool) -> Any:
    """Tell the call of an answer. Returns it with what was read of its body put back."""
    status, headers = response.status, response.headers
    told = unpacked_headers(headers)
    if is_loaded:
        call.heard(status, told, response.data if status >= 400 else None)
    elif explains_itself(status, headers):
        start = response.read(LARGEST_ERROR, decode_content=False)
        call.heard(status, told, unpacked(start, headers.get("content-encoding", "")))
        return read_again(start, response, method)
    else:
        call.heard(status, told)
    return response


def _on_this_hop(retries: urllib3.Retry, url: str, headers: Any) -> Any:
    """The headers without what belongs to another origin, if this is a later hop of a redirected request."""
    past = [hop.url for hop in retries.history if hop.redirect_location and hop.url]
    if not past:
        return headers
    own: MutableMapping[str, str] = urllib3.HTTPHeaderDict(headers)
    first = first_hop(past[0], own)
    for hop in (*past[1:], url):  # what was taken off elsewhere stays off at home
        first = strip(first, hop, own)
    return own


def _with(headers: Any, added: dict[str, str]) -> Any:
    if not added:
        return headers
    carried = urllib3.HTTPHeaderDict(headers)
    carried.update(added)
    return carried


def _without_repeats(retries: urllib3.Retry) -> urllib3.Retry:
    """What the errors of these look like, without another attempt: ``False`` raises them as they are."""
    counts = {name: False if getattr(retries, name) is False else 0 for name in ("total", "connect", "read", "other")}
    return retries.new(**counts)
