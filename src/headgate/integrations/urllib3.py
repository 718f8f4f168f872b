"""urllib3 behind the gate: ``http = gate(urllib3.PoolManager())``, and nothing else of a program changes.

    manager ─ redirects ─> gated pool of a host ─ queue, credential, retries ─> the pool's own way to send, once
       ^                                                                                │
       └──────────── the body as it comes; at its end the permit goes back ─────────────┘

The manager follows redirects above its pools, so every hop comes through the gate. ``Retry`` says how many of them
it follows and what its errors look like, as ever; what it says about repeating failures is left to the gate.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
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
from .client_gate import Passing, as_client_error, refusal_kinds
from .gated_request import GatedRequest, leaked_requests
from .origins import first_hop, strip_secrets
from .request import OutgoingRequest
from .response_reader import LARGEST_ERROR, has_readable_error, unpacked, unpacked_headers

__all__ = ["GateClosedError", "GateRefusedError", "GateTimeoutError", "GatedPool", "OutOfTimeError", "gate"]

_UNSENT = (NewConnectionError, ConnectTimeoutError)
_CLIENT_ERRORS = (EmptyPoolError, ClosedPoolError, HostChangedError, LocationValueError)


class GateTimeoutError(WaitTooLongError, TheirTimeoutError):
    """The wait in the queue would have been longer than ``max_wait``."""


class OutOfTimeError(TimeBudgetExceededError, TheirTimeoutError):
    """The time budget is spent."""


class GateClosedError(CircuitOpenError, HTTPError):
    """The host has been failing; nothing is sent for a while."""


class GateRefusedError(Refused, HTTPError):
    """Not let through for another reason, such as that no credential can be used."""


_REFUSALS = refusal_kinds(GateTimeoutError, OutOfTimeError, GateClosedError, GateRefusedError)
M = TypeVar("M", bound=urllib3.PoolManager)


def gate(manager: M, *, passing: Passing | None = None, **settings: Any) -> M:
    """Put the gate into a manager, be it of pools or of a proxy. Returns it. Settings are those of ``Passing``."""
    kinds = manager.pool_classes_by_scheme
    if any(issubclass(kind, GatedPool) for kind in kinds.values()):
        raise ConfigError("manager is already gated, and would wait twice")
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
        if not isinstance(retries, urllib3.Retry):
            retries = urllib3.Retry.from_int(retries, redirect=redirect, default=self.retries)
        own = self.headers if headers is None else headers
        own = _on_this_hop(retries, self._whole(url), own)
        outgoing = OutgoingRequest(
            method.upper(),
            self._whole(url),
            {name.lower(): value for name, value in own.items()},
            body.encode() if isinstance(body, str) else bytes(body) if isinstance(body, bytes | bytearray) else None,
            can_repeat_body=body is None or isinstance(body, str | bytes | bytearray),
        )
        gated = self.passing.begin(outgoing, unsent=_UNSENT, client_errors=_CLIENT_ERRORS)

        def send() -> Any:
            return super(GatedPool, self).urlopen(
                method,
                url,
                body,
                _with(own, gated.headers()),
                urllib3.Retry(False),  # sent once, and what goes wrong is raised as it is
                False,
                assert_same_host,
                self._within(timeout, gated.time_left()),
                preload_content=preload_content,
                **options,
            )

        try:
            response = gated.send_sync(
                send,
                lambda response: _received(response, gated, method, is_loaded=preload_content),
                lambda response: response.close(),
                partial(as_client_error, kinds=_REFUSALS),
            )
        except HTTPError as error:
            if not isinstance(error, (Refused, *_CLIENT_ERRORS)):
                _without_repeats(retries).increment(method, url, error=error, _pool=self)
            raise
        response.retries = retries
        if preload_content:
            gated.on_chunk(response.data or b"")
            gated.complete()
        elif response.status < 400:
            GatedResponse.hold(response, gated)
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


def _received(response: Any, gated: GatedRequest, method: str, *, is_loaded: bool) -> Any:
    """Pass a response on. Returns it with what was read of its body put back."""
    status, headers = response.status, response.headers
    known = unpacked_headers(headers)
    if is_loaded:
        gated.on_response(status, known, response.data if status >= 400 else None)
    elif has_readable_error(status, headers):
        start = response.read(LARGEST_ERROR, decode_content=False)
        gated.on_response(status, known, unpacked(start, headers.get("content-encoding", "")))
        return _read_again(start, response, method)
    else:
        gated.on_response(status, known)
    return response


def _on_this_hop(retries: urllib3.Retry, url: str, headers: Any) -> Any:
    """The headers without what belongs to another origin, if this is a later hop of a redirected request."""
    past = [hop.url for hop in retries.history if hop.redirect_location and hop.url]
    if not past:
        return headers
    own: MutableMapping[str, str] = urllib3.HTTPHeaderDict(headers)
    first = first_hop(past[0], own)
    for hop in (*past[1:], url):  # what was taken off elsewhere stays off at home
        first = strip_secrets(first, hop, own)
    return own


def _with(headers: Any, added: dict[str, str]) -> Any:
    if not added:
        return headers
    carried = urllib3.HTTPHeaderDict(headers)
    carried.update(added)
    return carried


def _without_repeats(retries: urllib3.Retry) -> urllib3.Retry:
    """The same without another attempt, for the errors that it raises; ``False`` raises them as they are."""
    counts = {name: False if getattr(retries, name) is False else 0 for name in ("total", "connect", "read", "other")}
    return retries.new(**counts)


# ---------------------------------------------------------------------- bodies


class GatedResponse(urllib3.HTTPResponse):
    """A response that holds its permit until its body has ended, or is not read any further.

    read, stream, data ──> on_chunk        the end: complete        an error: fail        close, release: abandon
    """

    _gated: GatedRequest
    _is_inside = False
    _is_over = False

    @classmethod
    def hold(cls, response: Any, gated: GatedRequest) -> None:
        """Let a response of urllib3 hold the permit. One of another class ends it at once: its end cannot be seen."""
        if type(response) is urllib3.HTTPResponse:
            response._gated = gated  # type: ignore[attr-defined]
            response.__class__ = cls
            if response.closed:
                gated.complete()
        else:
            gated.complete()

    def read(self, amt: int | None = None, decode_content: bool | None = None, cache_content: bool = False) -> bytes:
        with self._reading():
            data = super().read(amt, decode_content, cache_content)
        self._take(data, is_last=amt is None or amt < 0 or (not data and amt > 0))
        return data

    def read1(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:
        with self._reading():
            data = super().read1(amt, decode_content)
        self._take(data, is_last=not data and amt != 0)
        return data

    def stream(self, amt: int | None = 2**16, decode_content: bool | None = None) -> Any:
        yield from super().stream(amt, decode_content)
        self._take(b"", is_last=amt != 0)

    def read_chunked(self, amt: int | None = None, decode_content: bool | None = None) -> Any:
        pieces = super().read_chunked(amt, decode_content)
        while True:
            with self._reading():
                piece = next(pieces, None)
            if piece is None:
                break
            self._take(piece)
            yield piece
        self._take(b"", is_last=True)

    def release_conn(self) -> None:
        has_ended = self.closed
        super().release_conn()
        self._end(has_ended)

    def drain_conn(self) -> None:
        super().drain_conn()
        self._end(True)

    def close(self) -> None:
        has_ended = self.closed
        super().close()
        self._end(has_ended)

    def __del__(self) -> None:
        if not self._is_over:
            leaked_requests.append(self._gated)
        super().close()

    # ------------------------------------------------------------------ inside

    @contextmanager
    def _reading(self) -> Iterator[None]:
        outer, self._is_inside = self._is_inside, True
        try:
            yield
        except Exception as error:
            self._gated.fail(error)
            raise
        finally:
            self._is_inside = outer

    def _take(self, data: bytes, *, is_last: bool = False) -> None:
        if self._is_inside:  # one way of reading uses another
            return
        self._gated.on_chunk(data)
        if is_last:
            self._is_over = True
            self._gated.complete()

    def _end(self, has_ended: bool) -> None:
        if self._is_inside:  # urllib3 itself is done with the connection; the last piece is still to come
            return
        self._is_over = True
        if has_ended:
            self._gated.complete()
        else:
            self._gated.abandon()


class _RestOfBody:
    """A body whose start was read already: the start again, then the rest."""

    def __init__(self, start: bytes, response: Any) -> None:
        self._start, self._response = io.BytesIO(start), response
        self.closed = False

    def read(self, amt: int | None = None) -> bytes:
        start = self._start.read(amt)
        if amt is None:
            return start + bytes(self._response.read(decode_content=False))
        return start or bytes(self._response.read(amt, decode_content=False))

    read1 = read

    def close(self) -> None:
        self.closed = True
        self._response.close()
        self._response.release_conn()


def _read_again(start: bytes, response: Any, method: str) -> urllib3.HTTPResponse:
    """The same response, as if nothing had been read of it."""
    rest: Any = _RestOfBody(start, response)
    return urllib3.HTTPResponse(
        body=rest,
        headers=response.headers,
        status=response.status,
        version=response.version,
        version_string=response.version_string,
        reason=response.reason,
        preload_content=False,
        decode_content=response.decode_content,
        original_response=response._original_response,
        request_method=method,
        request_url=response.url,
    )
