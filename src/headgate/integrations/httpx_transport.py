"""The transports of httpx2 and httpx, which have one interface: what is the same in both.

    client ─ auth, redirects, cookies ─> gated transport ─ queue, credential, retries ─> the transport inside ─> network
      ^                                                                                           │
      └─────────────── the body as it comes; at its end the permit goes back ─────────────────────┘

The client's timeouts bound what they always bound (connecting, each read, each write, the pool); waiting in the queue
is bounded by ``max_wait``. A refusal is raised as the client's own kind of error and as Headgate's at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar

from ..core.fallback import MoveReason
from ..errors import ConfigError, Refused
from .client_gate import ClientGate, Refusals, as_client_error
from .fallback import RequestRoute, refusal_in_bytes
from .gated_request import GatedRequest, leaked_requests
from .origins import first_hop, strip
from .request import OutgoingRequest
from .response_reader import LARGEST_ERROR, has_readable_error, unpacked

T = TypeVar("T")
FIRST_HOP = "headgate.first_hop"
"""Where a request remembers its first hop; clients take extensions along from hop to hop."""


@dataclass(frozen=True, slots=True)
class TransportAdapter:
    """Takes the requests of one library through a gate."""

    library: ModuleType
    refusals: Refusals
    body: Callable[[Any, GatedRequest], Any]
    async_body: Callable[[Any, GatedRequest], Any]

    def send(self, gate: ClientGate, inside: Any, request: Any) -> Any:
        """Send a request through the gate by the transport ``inside``."""
        outgoing, route = self._outgoing(gate, request)
        while True:
            sent, gated = self._begin(gate, request, outgoing, route)
            refusal: MoveReason | None = None

            def receive(response: Any, gated: GatedRequest = gated) -> Any:
                start = None
                if not response.is_closed:
                    response.stream = body = self.body(response.stream, gated)
                    if has_readable_error(response.status_code, response.headers):
                        start = body.begin()
                    elif _may_refuse(gate, route, response):
                        nonlocal refusal
                        refusal = refusal_in_bytes(body.begin(), response.headers.get("content-encoding", ""))
                return _received(gated, response, start)

            def send(sent: Any = sent, gated: GatedRequest = gated) -> Any:
                return inside.handle_request(self._request(sent, gated))

            try:
                response = gated.send_sync(
                    send, receive, lambda response: response.close(), lambda error: self._refusal(error, request)
                )
            except BaseException as error:
                if route is None or not route.ended(error):
                    raise
                continue
            if route is None or not route.ended(None, refusal):
                return _completed(gated, response)
            response.close()

    async def send_async(self, gate: ClientGate, inside: Any, request: Any) -> Any:
        """The same with ``await``."""
        outgoing, route = self._outgoing(gate, request)
        while True:
            sent, gated = self._begin(gate, request, outgoing, route)
            refusal: MoveReason | None = None

            async def receive(response: Any, gated: GatedRequest = gated) -> Any:
                start = None
                if not response.is_closed:
                    response.stream = body = self.async_body(response.stream, gated)
                    if has_readable_error(response.status_code, response.headers):
                        start = await body.begin()
                    elif _may_refuse(gate, route, response):
                        nonlocal refusal
                        refusal = refusal_in_bytes(await body.begin(), response.headers.get("content-encoding", ""))
                return _received(gated, response, start)

            def send(sent: Any = sent, gated: GatedRequest = gated) -> Any:
                return inside.handle_async_request(self._request(sent, gated))

            try:
                response = await gated.send_async(
                    send, receive, lambda response: response.aclose(), lambda error: self._refusal(error, request)
                )
            except BaseException as error:
                if route is None or not route.ended(error):
                    raise
                continue
            if route is None or not route.ended(None, refusal):
                return _completed(gated, response)
            await response.aclose()

    def _outgoing(self, gate: ClientGate, request: Any) -> tuple[OutgoingRequest, RequestRoute | None]:
        url = str(request.url)
        known = request.extensions.get(FIRST_HOP)
        hop = first_hop(url, request.headers) if known is None else strip(known, url, request.headers)
        request.extensions = {**request.extensions, FIRST_HOP: hop}
        body: bytes | None = None
        with suppress(self.library.RequestNotRead):
            body = request.content
        headers = {name.lower(): value for name, value in request.headers.items()}
        outgoing = OutgoingRequest(request.method, url, headers, body, can_repeat_body=body is not None)
        if gate.fallbacks is None or known is not None:  # a redirect leads where its server says
            return outgoing, None
        return outgoing, gate.fallbacks.begin(outgoing, gate.limiter.clock.now())

    def _begin(
        self, gate: ClientGate, request: Any, outgoing: OutgoingRequest, route: RequestRoute | None
    ) -> tuple[Any, GatedRequest]:
        """The request as it is sent to its target, and its way through the gate."""
        moved = None if route is None else route.moved
        library, credentials = self.library, None
        if moved is not None:
            request = library.Request(
                request.method, moved.url, headers=moved.headers, content=moved.body, extensions=request.extensions
            )
            outgoing = OutgoingRequest(request.method, moved.url, moved.headers, moved.body)
            credentials = moved.credentials
        return request, gate.begin(
            outgoing,
            unsent=(library.ConnectError, library.ConnectTimeout),
            client_errors=(library.PoolTimeout, library.UnsupportedProtocol, library.LocalProtocolError),
            route=route,
            credentials=credentials,
        )

    def _request(self, request: Any, gated: GatedRequest) -> Any:
        """The request with what this attempt adds. The client's own stays as it is, for redirects are made of it."""
        added, left = gated.headers(), gated.time_left()
        if not added and left == inf:
            return request
        headers, extensions = self.library.Headers(request.headers), request.extensions
        headers.update(added)
        if left != inf:
            timeouts = extensions.get("timeout") or dict.fromkeys(("connect", "read", "write", "pool"))
            within = {name: left if given is None else min(given, left) for name, given in timeouts.items()}
            extensions = {**extensions, "timeout": within}
        return self.library.Request(
            request.method, request.url, headers=headers, stream=request.stream, extensions=extensions
        )

    def _refusal(self, error: Refused, request: Any) -> Refused:
        converted = as_client_error(error, self.refusals)
        converted.request = request  # type: ignore[attr-defined]  # which errors of these libraries know
        return converted


def _may_refuse(gate: ClientGate, route: RequestRoute | None, response: Any) -> bool:
    """Whether a good answer is looked into before it is handed on: not a stream, and only where that was chosen."""
    if route is None or gate.fallbacks is None or not gate.fallbacks.moves_content:
        return False
    return response.status_code == 200 and "json" in response.headers.get("content-type", "")


def _received(gated: GatedRequest, response: Any, start: bytes | None) -> Any:
    """Pass a response on; ``start`` is how an error's body begins, as it was sent."""
    body: bytes | None = None
    if response.is_closed:  # it was in memory from the start
        body = response.content if response.status_code >= 400 else None
    elif start is not None:
        body = unpacked(start, response.headers.get("content-encoding", ""))
    gated.on_response(response.status_code, response.headers, body)
    return response


def _completed(gated: GatedRequest, response: Any) -> Any:
    """A response that was in memory from the start, unpacked, has no stream to be read to its end."""
    if response.is_closed:
        if "content-encoding" not in response.headers:
            gated.on_chunk(response.content)
        gated.complete()
    return response


def _check_ungated(name: str, transports: Iterable[object]) -> None:
    """Refuse what is behind a gate of either library already."""
    if any(isinstance(getattr(transport, "passing", None), ClientGate) for transport in transports):
        raise ConfigError(f"{name}: already gated, and would wait twice")


def gate_transports(
    client: Any, kind: Callable[..., Any], passing: ClientGate | None, settings: dict[str, Any]
) -> None:
    """Put a client's transport, and those of its proxies, behind one gate."""
    _check_ungated("client", (client._transport, *client._mounts.values()))
    passing = ClientGate.given(passing, settings)
    client._transport = kind(client._transport, passing=passing)
    client._mounts = {
        pattern: None if transport is None else kind(transport, passing=passing)
        for pattern, transport in client._mounts.items()
    }


class SyncTransport(Generic[T]):
    """A transport ``T`` of one library behind the gate; the library's own file adds its base class and ``adapter``."""

    adapter: ClassVar[TransportAdapter]

    def __init__(self, transport: T | None = None, *, passing: ClientGate | None = None, **settings: Any) -> None:
        _check_ungated("transport", (transport,))
        self.passing = ClientGate.given(passing, settings)
        self._inside: Any = self.adapter.library.HTTPTransport() if transport is None else transport

    def handle_request(self, request: Any) -> Any:
        return self.adapter.send(self.passing, self._inside, request)

    def close(self) -> None:
        self._inside.close()
        self.passing.client_closed()


class AsyncTransport(Generic[T]):
    """The same, with await."""

    adapter: ClassVar[TransportAdapter]

    def __init__(self, transport: T | None = None, *, passing: ClientGate | None = None, **settings: Any) -> None:
        _check_ungated("transport", (transport,))
        self.passing = ClientGate.given(passing, settings)
        self._inside: Any = self.adapter.library.AsyncHTTPTransport() if transport is None else transport

    async def handle_async_request(self, request: Any) -> Any:
        return await self.adapter.send_async(self.passing, self._inside, request)

    async def aclose(self) -> None:
        await self._inside.aclose()
        await self.passing.client_closed_async()


class _OpenBody:
    """What is known of a body under way; one that is thrown away unread is noted."""

    def __init__(self, stream: Any, gated: GatedRequest) -> None:
        self._stream, self._gated = stream, gated
        self._pieces: Any = None
        self._start: list[bytes] = []
        self._is_over = False

    def __del__(self) -> None:
        if not self._is_over:
            leaked_requests.append(self._gated)


class Body(_OpenBody):
    """The body of a response: what was read of it before, then the rest. Each piece and the end are passed on."""

    def begin(self) -> bytes:
        """How it begins: enough to see what an error says."""
        self._pieces = iter(self._stream)
        while sum(map(len, self._start)) < LARGEST_ERROR and (piece := next(self._pieces, None)) is not None:
            self._start.append(piece)
        return b"".join(self._start)

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._start:
                self._gated.on_chunk(piece)
                yield piece
            for piece in iter(self._stream) if self._pieces is None else self._pieces:
                self._gated.on_chunk(piece)
                yield piece
        except Exception as error:
            self._is_over = True
            self._gated.fail(error)
            raise
        self._is_over = True
        self._gated.complete()

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._is_over = True
            self._gated.abandon()


class AsyncBody(_OpenBody):
    """The same, with await."""

    async def begin(self) -> bytes:
        self._pieces = aiter(self._stream)
        while sum(map(len, self._start)) < LARGEST_ERROR and (piece := await anext(self._pieces, None)) is not None:
            self._start.append(piece)
        return b"".join(self._start)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            for piece in self._start:
                self._gated.on_chunk(piece)
                yield piece
            async for piece in aiter(self._stream) if self._pieces is None else self._pieces:
                self._gated.on_chunk(piece)
                yield piece
        except Exception as error:
            self._is_over = True
            self._gated.fail(error)
            raise
        self._is_over = True
        self._gated.complete()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._is_over = True
            self._gated.abandon()
