"""One request to an API and its response.

    accepted ─> queued ─> sent ─> responded ─┬─ complete at once ─> one write ─> done
      │           │         │                └─ streamed ─> each chunk written as it comes ─> done
      │           │         └── no response: 502, 504              │           └── the client stops reading: aborted
      │           └── refused by the gate: 429, 503               └── truncated: so is the client's, and it can tell
      └── the client disconnects, anywhere: everything is returned

In all cases the permit ends once, and the connection to the API is closed unless its response was read to the end.

With fallbacks, a request whose API cannot take it goes to another one, as long as its client has nothing of a response:

    its API ─> no: why? ─> integrations/fallback ─> another API, adapted ─> response, with Headgate-Target
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from ..errors import Refused
from ..exchange import SHORTEST_SECRET
from ..integrations.request import OutgoingRequest
from ..integrations.response_reader import LARGEST_ERROR, unpacked
from .connection import (
    Bounds,
    ClientDisconnectedError,
    TruncatedResponseError,
    WholeResponse,
    abort,
    continue_expected,
)
from .error_response import RejectedRequestError, error_response, gate_refusal, log_fault, upstream_failure
from .mounts import Mount, request_headers, response_headers
from .upload import MemoryBudget, Upload

if TYPE_CHECKING:
    from ..integrations.client_gate import ClientGate
    from ..integrations.fallback import MovedRequest, RequestRoute
    from ..integrations.gated_request import GatedRequest
    from .connection import Connection
    from .upstream import Upstream, UpstreamResponse

UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
CLIENT_ERRORS = (ClientDisconnectedError, RejectedRequestError)
TARGET_HEADER, WHY_HEADER = "Headgate-Target", "Headgate-Why"
"""Added to the response of a fallback: which one has answered, and why that one."""


@dataclass(slots=True)
class Counts:
    answered: int = 0
    """The API's response was passed on."""
    moved: int = 0
    """Of these, and of those that broke off: the response was a fallback's."""
    refused: int = 0
    """By the gate: 429, 503."""
    failed: int = 0
    """No response, or not all of it."""
    turned_away: int = 0
    """Rejected by admission."""
    left: int = 0
    """The client disconnected."""


@dataclass(slots=True, kw_only=True)
class ProxyContext:
    """What all requests of a proxy share."""

    gate: ClientGate
    upstreams: dict[str, Upstream]
    """By the origin."""
    keyed: frozenset[str]
    """Mounts for which the proxy adds credentials."""
    bounds: Bounds
    timeout: float
    """Seconds of an API's silence."""
    memory: MemoryBudget
    counts: Counts
    is_stopping: bool = False


class ProxiedRequest:
    __slots__ = (
        *("_connection", "_context", "_gated", "_headers", "_is_rejected", "_mount", "_moved", "_origin", "_outgoing"),
        *("_request", "_route", "_secret", "_start", "_target", "_upload", "is_sent", "task"),
    )

    def __init__(self, context: ProxyContext, request: web.BaseRequest, mount: Mount, target: str) -> None:
        self._context, self._request, self._mount, self._target = context, request, mount, target
        self._connection = cast("Connection", request.protocol)
        self._upload = Upload(context.memory, context.bounds.stalled)
        self._origin = mount.origin
        """Of its own API, whatever target it goes to."""
        self._route: RequestRoute | None = None
        """Its way over several targets, where it has fallbacks."""
        self._moved: MovedRequest | None = None
        """What the fallback is sent that it goes to."""
        self._outgoing: OutgoingRequest
        self._headers: CIMultiDict[str]
        self._gated: GatedRequest
        self._start = b""
        """What was read of an error's body."""
        self._secret = ""
        self.is_sent = False
        """Whether it was sent and its response is awaited or on its way back."""
        self._is_rejected = False
        self.task = asyncio.current_task()

    def reject(self) -> None:
        """Answer 503, because the proxy is stopping and this request was not sent yet."""
        if self.task is not None:
            self._is_rejected = True
            self.task.cancel()

    async def respond(self) -> web.StreamResponse:
        """Forward it; returns the response that the client gets."""
        try:
            return await self._forward()
        except asyncio.CancelledError:
            if not self._is_rejected or self.is_sent or self.task is None:
                is_cut_off = self._connection.is_cut_off
                self._context.counts.failed += is_cut_off
                self._context.counts.left += not is_cut_off
                raise
            self.task.uncancel()
            self._context.counts.refused += 1
            return error_response(503, "stopping", "the proxy is stopping; nothing was sent", 1.0, close=True)
        finally:
            await self._upload.close()

    async def _forward(self) -> web.StreamResponse:
        """Send it to its API; where that cannot take it, to one fallback after the other."""
        gate, upload = self._context.gate, self._upload
        if "Expect" in self._request.headers:
            await continue_expected(self._request)
        await upload.receive(self._request, self._context.bounds.kept)
        if upload.kept is None:
            self._connection.watch_unread()
        self._outgoing = self._describe()
        if gate.fallbacks is not None:
            self._route = gate.fallbacks.begin(self._outgoing, gate.limiter.clock.now())
        first = self._mount, self._target, upload.kept or b""
        if self._route is not None and self._route.moved is not None:
            self._aim(self._route, *first)
        while (response := await self._exchange()) is None:
            assert self._route is not None
            self._aim(self._route, *first)
        return response

    def _describe(self) -> OutgoingRequest:
        """The request as the gate sees it."""
        request, body = self._request, self._upload.kept
        url = self._mount.origin + self._target
        return OutgoingRequest(request.method, url, request.headers, body, can_repeat_body=body is not None)

    def _aim(self, route: RequestRoute, mount: Mount, target: str, body: bytes) -> None:
        """Turn to the target whose turn it is: its own API, whose mount, target and body are given, or a fallback."""
        self._moved = moved = route.moved
        if moved is not None:
            parts = urlsplit(moved.url)
            mount = replace(mount, origin=f"{parts.scheme}://{parts.netloc}", address=route.endpoint)
            target, body = (f"{parts.path}?{parts.query}" if parts.query else parts.path), moved.body
        self._mount, self._target = mount, target
        self._upload.replace(body)
        self._outgoing = self._describe()

    async def _exchange(self) -> web.StreamResponse | None:
        """Send it to its target, and pass on the response; None if another target is to be asked."""
        context, route, moved = self._context, self._route, self._moved
        adds_keys = self._mount.name in context.keyed or self._mount.origin != self._origin
        host = context.upstreams[self._mount.origin].host
        self._headers = request_headers(self._request.headers, self._mount, host, adds_keys=adds_keys)
        if self._upload.length is not None:
            self._headers["Content-Length"] = str(self._upload.length)
        self._gated = context.gate.begin(
            self._outgoing,
            unsent=UNSENT,
            client_errors=CLIENT_ERRORS,
            route=route,
            credentials=None if moved is None else moved.credentials,
        )
        try:
            response = await self._gated.send_async(self._send, self._receive, _close)
        except BaseException as error:
            return None if route is not None and route.ended(error) else self._no_response(error)
        if route is not None and route.ended(None):
            response.close()
            return None
        self.is_sent = True
        try:
            return await self._pass_on(response)
        except BaseException as error:
            response.close()
            self._gated.abandon(error)
            context.counts.failed += isinstance(error, TruncatedResponseError)
            context.counts.left += isinstance(error, ConnectionError) and not isinstance(error, TruncatedResponseError)
            raise

    # ------------------------------------------------------------------ one attempt

    async def _send(self) -> UpstreamResponse:
        if self._upload.kept is None:
            await self._connection.check_client()
        self.is_sent = True
        self._secret = self._gated.secret
        self._headers.update(self._gated.headers())
        upstream = self._context.upstreams[self._mount.origin]
        try:
            return await upstream.send(self._request.method, self._target, self._headers, self._upload.data())
        except Exception as error:
            self._attempt_failed()
            if isinstance(error, ValueError) and not isinstance(error, aiohttp.ClientError):  # nothing was sent
                raise RejectedRequestError(400, "bad_header", "a header has invalid characters") from None
            raise

    async def _receive(self, response: UpstreamResponse) -> UpstreamResponse:
        body, self._start = None, b""
        if response.status < 200:
            self._attempt_failed()
            raise aiohttp.ClientPayloadError("the server switched to another protocol without being asked")
        if response.status >= 400:
            try:
                self._start = await _start_of(response)
            except Exception:
                self._attempt_failed()
                raise
            body = unpacked(self._start, response.headers.get("Content-Encoding", "")) if self._start else None
            self._outgoing.can_repeat_body &= not self._context.is_stopping  # no client waits for another attempt then
        self._gated.on_response(response.status, response.headers, body)
        self.is_sent = response.status < 400
        return response

    def _attempt_failed(self) -> None:
        """Raises what kept the client's body from arriving, if that is why."""
        self.is_sent = False
        self._outgoing.can_repeat_body &= not self._context.is_stopping
        if self._upload.rejection is not None:
            raise self._upload.rejection from None

    # ------------------------------------------------------------------ the response

    def _no_response(self, error: BaseException) -> web.StreamResponse:
        counts = self._context.counts
        if isinstance(error, Refused):
            counts.refused += 1
            return gate_refusal(error)
        if isinstance(error, ClientDisconnectedError):
            raise asyncio.CancelledError from None  # its permit was returned unused
        if isinstance(error, aiohttp.ClientError | OSError):  # and TimeoutError, which is one
            counts.failed += 1
            return upstream_failure(self._mount.name, error, self._context.timeout)
        raise error

    async def _pass_on(self, response: UpstreamResponse) -> web.StreamResponse:
        request, content, gated, start = self._request, response.content, self._gated, self._start
        headers = response_headers(response.headers, self._mount, f"http://{request.headers['Host']}", self._secret)
        if self._route is not None and self._moved is not None:
            headers.update({TARGET_HEADER: self._route.label, WHY_HEADER: self._route.why})
            self._context.counts.moved += 1
        reason = response.reason
        if not reason.isascii() or (self._secret and self._secret in reason):
            reason = self._masked(reason.encode(errors="replace")).decode()
        try:
            chunk = content.read_nowait()
        except (aiohttp.ClientError, OSError) as error:
            return self._failed(response, error)
        passed: web.StreamResponse
        is_whole = content.at_eof()
        if is_whole:
            body = self._masked(start + chunk)
            if not self._context.is_stopping and WholeResponse.suits(request, response.status, headers, body):
                passed = WholeResponse(response.status, reason, headers, body)
            else:
                passed = web.Response(status=response.status, reason=reason, headers=headers, body=body)
        else:
            passed = web.StreamResponse(status=response.status, reason=reason, headers=headers)
        if self._context.is_stopping:
            passed.force_close()
        try:
            await passed.prepare(request)
        except ValueError:  # a control character, which aiohttp reads and does not write
            return self._failed(response, self._context.upstreams[self._mount.origin].malformed())
        if is_whole:
            asyncio.get_running_loop().call_soon(_complete, gated, chunk)  # the client does not wait for what it takes
            self._context.counts.answered += 1
            return passed
        if start:
            await passed.write(self._masked(start))
        while chunk or (chunk := await self._next(response)):
            gated.on_chunk(chunk)
            await passed.write(self._masked(chunk))
            chunk = b""
        gated.complete()
        await passed.write_eof()
        self._context.counts.answered += 1
        return passed

    def _failed(self, response: UpstreamResponse, error: Exception) -> web.StreamResponse:
        """The client has nothing of the response, and gets another one."""
        self._gated.fail(error)
        response.close()
        return self._no_response(error)

    async def _next(self, response: UpstreamResponse) -> bytes:
        try:
            return await response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            self._gated.fail(self._upload.rejection or error)
        abort(self._request)
        raise TruncatedResponseError

    def _masked(self, data: bytes) -> bytes:
        """Without the credential, should the API repeat it; the length stays the same."""
        secret = self._secret
        if len(secret) < SHORTEST_SECRET or (found := secret.encode()) not in data:
            return data
        return data.replace(found, b"*" * len(found))


def _complete(gated: GatedRequest, body: bytes) -> None:
    """The client has its response: whatever fails here, the permit is returned."""
    try:
        gated.on_chunk(body)
        gated.complete()
    except Exception as error:
        log_fault(error)
        gated.abandon(error)


async def _close(response: UpstreamResponse) -> None:
    response.close()


async def _start_of(response: UpstreamResponse) -> bytes:
    """The beginning of an error's body: enough to read what it says."""
    content, start = response.content, b""
    while len(start) < LARGEST_ERROR and (chunk := await content.readany()):
        start += chunk
    return start
