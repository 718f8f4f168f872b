"""One request to an API and its response.

    accepted ─> queued ─> sent ─> responded ─┬─ complete at once ─> one write ─> done
      │           │         │                └─ streamed ─> each chunk written as it comes ─> done
      │           │         └── no response: 502, 504              │           └── the client stops reading: aborted
      │           └── refused by the gate: 429, 503               └── truncated: so is the client's, and it can tell
      └── the client disconnects, anywhere: everything is returned

In all cases the permit ends once, and the connection to the API is closed unless its response was read to the end.

The body of a request:

    known to be small, or unknown and small   read before anything else, so that a slow client holds no permit; kept, so
                                              that it can be sent again
    larger, or no memory left                 what has arrived is sent on, then each chunk as it arrives; never twice
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import aiohttp
from aiohttp import StreamReader, web

from ..errors import Refused
from ..exchange import SHORTEST_SECRET
from ..integrations.request import OutgoingRequest
from ..integrations.response_reader import LARGEST_ERROR, unpacked
from .bounds import Bounds, Counts, MemoryBudget
from .connection import ClientDisconnectedError, TruncatedResponseError, WholeResponse, abort, continue_expected
from .error_response import RejectedRequestError, error_response, gate_refusal, log_fault, upstream_failure
from .fallback import ProxiedRoute
from .mounts import Mount, request_headers, response_headers

if TYPE_CHECKING:
    from ..integrations.client_gate import ClientGate
    from ..integrations.gated_request import GatedRequest
    from .connection import Connection
    from .upstream import Upstream, UpstreamResponse

CHUNK = 1 << 16
"""Bytes that are handed to a connection before it is waited for: what it cannot send yet, it copies."""
UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
CLIENT_ERRORS = (ClientDisconnectedError, RejectedRequestError)


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
    counts: Counts = field(default_factory=Counts)
    is_stopping: bool = False


class Upload:
    """The body of a request. ``kept`` is all of it, or None: then ``_rest`` follows ``_first``."""

    __slots__ = ("_first", "_held", "_memory", "_rest", "_sender", "_stalled_after", "kept", "length", "rejection")

    def __init__(self, memory: MemoryBudget, stalled_after: float) -> None:
        self.kept: bytes | None = b""
        self.length: int | None = None
        """Of the body; None where it is not known yet, or there is none."""
        self.rejection: RejectedRequestError | None = None
        """Why the rest did not arrive, which says nothing about the API."""
        self._memory, self._held, self._stalled_after = memory, 0, stalled_after
        self._first: bytearray | None = None
        self._rest: StreamReader | None = None
        self._sender: asyncio.Task[object] | None = None
        """Reads ``_rest``."""

    async def receive(self, request: web.BaseRequest, largest: int) -> None:
        """Read a small body. Raises ``RejectedRequestError`` if it does not arrive."""
        if not request.body_exists or self._rest is not None:
            return  # there is none, or it was received before
        self.length = request.content_length
        size = largest if self.length is None else self.length
        self._rest = request.content
        if size > largest or not self._memory.take(size):
            self.kept = None
            return
        self._held = size
        arrived = self._rest.read_nowait()
        if self._rest.at_eof() and len(arrived) <= largest:  # the usual case: it came with the head
            self._keep(arrived)
            return
        first = bytearray(arrived)
        try:
            async with asyncio.timeout(self._stalled_after):
                while len(first) <= largest:
                    chunk = await self._rest.readany()
                    if not chunk:
                        self._keep(bytes(first))
                        return
                    first += chunk
        except TimeoutError:
            raise RejectedRequestError(408, "slow_upload", "the request body did not arrive in time") from None
        self.kept, self._first = None, first

    def data(self) -> bytes | AsyncIterator[bytes] | None:
        """For an attempt; a body that is not kept can be sent once."""
        if self.kept is None:
            return self._stream()
        if len(self.kept) > CHUNK:
            return _chunks_of(self.kept)
        return self.kept if self._rest is not None else None

    def replace(self, body: bytes) -> None:
        """The same request for another target."""
        self.kept, self.length = body, len(body)

    async def close(self) -> None:
        """Nothing reads the body any more: aiohttp may then read and drop what still arrives."""
        self._memory.give_back(self._held)
        self._held = 0
        if self._sender is not None and not self._sender.done():
            self._sender.cancel()
            await asyncio.wait((self._sender,))

    def _keep(self, body: bytes) -> None:
        self.kept, self.length = body, len(body)

    async def _stream(self) -> AsyncIterator[bytes]:
        rest, first, self._rest, self._first = self._rest, bytes(self._first or b""), None, None
        if rest is None:
            raise aiohttp.ClientConnectionError("the body was sent before")
        self._sender = asyncio.current_task()
        async for chunk in _chunks_of(first):
            yield chunk
        while True:
            try:
                async with asyncio.timeout(self._stalled_after):
                    chunk = await rest.readany()
            except TimeoutError:
                self.rejection = RejectedRequestError(408, "slow_upload", "the request body stopped arriving")
                raise self.rejection from None
            except RejectedRequestError as error:
                self.rejection = error
                raise
            if not chunk:
                return
            yield chunk


async def _chunks_of(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


class ProxiedRequest:
    __slots__ = (
        *("_context", "_is_rejected", "_mount", "_request", "_route", "_secret", "_target", "_upload"),
        *("is_sent", "task"),
    )

    def __init__(self, context: ProxyContext, request: web.BaseRequest, mount: Mount, target: str) -> None:
        self._context, self._request, self._mount, self._target = context, request, mount, target
        self._upload = Upload(context.memory, context.bounds.stalled)
        self._route: ProxiedRoute | None = None
        """Its way over several targets, where it has fallbacks."""
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
                is_cut_off = cast("Connection", self._request.protocol).is_cut_off
                self._context.counts.failed += is_cut_off
                self._context.counts.left += not is_cut_off
                raise
            self.task.uncancel()
            self._context.counts.refused += 1
            return error_response(503, "stopping", "the proxy is stopping; nothing was sent", 1.0, close=True)
        finally:
            await self._upload.close()

    async def _forward(self) -> web.StreamResponse:
        context, request, mount, upload = self._context, self._request, self._mount, self._upload
        if "Expect" in request.headers:
            await continue_expected(request)
        await upload.receive(request, context.bounds.kept)
        connection = cast("Connection", request.protocol)
        if upload.kept is None:
            connection.watch_unread()
        upstream = context.upstreams[mount.origin]
        adds_keys = mount.name in context.keyed or (self._route is not None and self._route.is_elsewhere)
        headers = request_headers(request.headers, mount, upstream.host, adds_keys=adds_keys)
        if upload.length is not None:
            headers["Content-Length"] = str(upload.length)
        outgoing = OutgoingRequest(
            request.method,
            mount.origin + self._target,
            request.headers,
            upload.kept,
            can_repeat_body=upload.kept is not None,
        )
        if self._route is None and context.gate.fallbacks is not None:
            self._route = ProxiedRoute.begin(context.gate, outgoing, mount, self._target)
            if self._route is not None and self._route.is_moved:
                return await self._move(self._route)
        route = self._route
        gated = context.gate.begin(
            outgoing,
            unsent=UNSENT,
            client_errors=CLIENT_ERRORS,
            route=None if route is None else route.request,
            credentials=None if route is None else route.credentials,
        )
        start = b""

        async def send() -> UpstreamResponse:
            if upload.kept is None:
                await connection.check_client()
            self.is_sent = True
            self._secret = gated.secret
            headers.update(gated.headers())
            try:
                return await upstream.send(request.method, self._target, headers, upload.data())
            except Exception as error:
                failed()
                if isinstance(error, ValueError) and not isinstance(error, aiohttp.ClientError):  # nothing was sent
                    raise RejectedRequestError(400, "bad_header", "a header has invalid characters") from None
                raise

        async def receive(response: UpstreamResponse) -> UpstreamResponse:
            nonlocal start
            body, start = None, b""
            if response.status < 200:
                failed()
                raise aiohttp.ClientPayloadError("the server switched to another protocol without being asked")
            if response.status >= 400:
                try:
                    start = await _start_of(response)
                except Exception:
                    failed()
                    raise
                body = unpacked(start, response.headers.get("Content-Encoding", "")) if start else None
                outgoing.can_repeat_body &= not context.is_stopping  # no client waits for another attempt then
            gated.on_response(response.status, response.headers, body)
            self.is_sent = response.status < 400
            return response

        def failed() -> None:
            self.is_sent = False
            outgoing.can_repeat_body &= not context.is_stopping
            if upload.rejection is not None:
                raise upload.rejection from None

        try:
            response = await gated.send_async(send, receive, _close)
        except BaseException as error:
            if route is not None and route.request.ended(error):
                return await self._move(route)
            return self._no_response(error)
        if route is not None and route.request.ended(None):
            await _close(response)
            return await self._move(route)
        self.is_sent = True
        try:
            return await self._pass_on(gated, response, start)
        except BaseException as error:
            response.close()
            gated.abandon(error)
            context.counts.failed += isinstance(error, TruncatedResponseError)
            context.counts.left += isinstance(error, ConnectionError) and not isinstance(error, TruncatedResponseError)
            raise

    async def _move(self, route: ProxiedRoute) -> web.StreamResponse:
        """Nothing was handed to the client yet: send it to the target whose turn it is."""
        self._mount, self._target, body = route.place()
        self._upload.replace(body)
        return await self._forward()

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

    async def _pass_on(self, gated: GatedRequest, response: UpstreamResponse, start: bytes) -> web.StreamResponse:
        request, content = self._request, response.content
        headers = response_headers(response.headers, self._mount, f"http://{request.headers['Host']}", self._secret)
        if self._route is not None:
            headers.update(self._route.told())
            self._context.counts.moved += self._route.is_moved
        reason = response.reason
        if not reason.isascii() or (self._secret and self._secret in reason):
            reason = self._masked(reason.encode(errors="replace")).decode()
        try:
            chunk = content.read_nowait()
        except (aiohttp.ClientError, OSError) as error:
            return self._failed(gated, response, error)
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
            return self._failed(gated, response, self._context.upstreams[self._mount.origin].malformed())
        if is_whole:
            asyncio.get_running_loop().call_soon(_complete, gated, chunk)  # the client does not wait for what it takes
            self._context.counts.answered += 1
            return passed
        if start:
            await passed.write(self._masked(start))
        while chunk or (chunk := await self._next(gated, response)):
            gated.on_chunk(chunk)
            await passed.write(self._masked(chunk))
            chunk = b""
        gated.complete()
        await passed.write_eof()
        self._context.counts.answered += 1
        return passed

    def _failed(self, gated: GatedRequest, response: UpstreamResponse, error: Exception) -> web.StreamResponse:
        """The client has nothing of the response, and gets another one."""
        gated.fail(error)
        response.close()
        return self._no_response(error)

    async def _next(self, gated: GatedRequest, response: UpstreamResponse) -> bytes:
        try:
            return await response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            gated.fail(self._upload.rejection or error)
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
