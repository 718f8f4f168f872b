"""The transports of httpx2 and httpx, which have one interface: what is the same in both.

    client ─ auth, redirects, cookies ─> gated transport ─ queue, credential, retries ─> the transport inside ─> network
      ^                                                                                           │
      └─────────────── the body as it comes; at its end the permit goes back ─────────────────────┘

The client's timeouts bound what they always bound (connecting, each read, each write, the pool); waiting in the queue
is bounded by ``max_wait``. A refusal is raised as the client's own kind of error and as Headgate's at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar

from ..core.fallback import MoveReason
from ..errors import ConfigError, Refused
from ..reason_text import not_sent_text
from .client_gate import ClientGate, Refusals, as_client_error, is_spend_stop
from .fallback import RequestRoute, refusal_in_bytes
from .gated_request import GatedRequest, leaked_requests
from .origins import first_hop, strip_secrets
from .request import OutgoingRequest
from .response_reader import LARGEST_ERROR, has_readable_error, unpacked

T = TypeVar("T")
SPEND_STOP = "insufficient_quota"
"""The code of an answer that stands for a call which was not sent."""
FIRST_HOP = "headgate.first_hop"
"""Where a request remembers its first hop; clients take extensions along from hop to hop."""


class TransportAdapter:
    """What is a library's own: its module, its kinds of refusal, and bodies that it takes for its streams."""

    def __init__(self, library: ModuleType, refusals: Refusals) -> None:
        self.library, self.refusals = library, refusals
        self.body = type("GatedBody", (Body, library.SyncByteStream), {})
        self.async_body = type("AsyncGatedBody", (AsyncBody, library.AsyncByteStream), {})


class _Sending:
    """One request of a client on its way through the gate, to its target and to those it may move to."""

    def __init__(self, adapter: TransportAdapter, gate: ClientGate, request: Any) -> None:
        self._adapter, self._library = adapter, adapter.library
        self._gate, self._request = gate, request
        url = str(request.url)
        known = request.extensions.get(FIRST_HOP)
        hop = first_hop(url, request.headers) if known is None else strip_secrets(known, url, request.headers)
        request.extensions = {**request.extensions, FIRST_HOP: hop}
        body: bytes | None = None
        with suppress(self._library.RequestNotRead):
            body = request.content
        headers = {name.lower(): value for name, value in request.headers.items()}
        self._outgoing = OutgoingRequest(request.method, url, headers, body, can_repeat_body=body is not None)
        self._route: RequestRoute | None = None
        if gate.fallbacks is not None and known is None:  # a redirect leads where its server says
            self._route = gate.fallbacks.begin(self._outgoing, gate.limiter.clock.now())
        self._begin()

    def send(self, inside: Any) -> Any:
        """The response, by the transport ``inside``: from its target, or from one that it moved to."""

        def receive(response: Any) -> Any:
            body = self._opened(response, self._adapter.body)
            return self._received(response, None if body is None else body.begin())

        while True:
            try:
                response = self._gated.send_sync(
                    lambda: inside.handle_request(self._attempt()),
                    receive,
                    lambda response: response.close(),
                    self._as_error,
                )
            except BaseException as error:
                if not self._moves(error):
                    return self._answer_to(error)
            else:
                if not self._moves():
                    return self._completed(response)
                response.close()

    async def send_async(self, inside: Any) -> Any:
        """The same with ``await``."""

        async def receive(response: Any) -> Any:
            body = self._opened(response, self._adapter.async_body)
            return self._received(response, None if body is None else await body.begin())

        while True:
            try:
                response = await self._gated.send_async(
                    lambda: inside.handle_async_request(self._attempt()),
                    receive,
                    lambda response: response.aclose(),
                    self._as_error,
                )
            except BaseException as error:
                if not self._moves(error):
                    return self._answer_to(error)
            else:
                if not self._moves():
                    return self._completed(response)
                await response.aclose()

    # ------------------------------------------------------------------ decisions: what is the same for both

    def _begin(self) -> None:
        """Make the request as it is sent to its target now, and its way through the gate."""
        library, request, outgoing, credentials = self._library, self._request, self._outgoing, None
        moved = None if self._route is None else self._route.moved
        if moved is not None:
            request = library.Request(
                request.method, moved.url, headers=moved.headers, content=moved.body, extensions=request.extensions
            )
            outgoing = OutgoingRequest(request.method, moved.url, moved.headers, moved.body)
            credentials = moved.credentials
        self._sent = request
        self._refusal: MoveReason | None = None
        self._gated: GatedRequest = self._gate.begin(
            outgoing,
            unsent=(library.ConnectError, library.ConnectTimeout),
            client_errors=(library.PoolTimeout, library.UnsupportedProtocol, library.LocalProtocolError),
            route=self._route,
            credentials=credentials,
        )

    def _attempt(self) -> Any:
        """The request with what this attempt adds. The client's own stays as it is, for redirects are made of it."""
        request, added, left = self._sent, self._gated.headers(), self._gated.time_left()
        if not added and left == inf:
            return request
        headers, extensions = self._library.Headers(request.headers), request.extensions
        headers.update(added)
        if left != inf:
            timeouts = extensions.get("timeout") or dict.fromkeys(("connect", "read", "write", "pool"))
            within = {name: left if given is None else min(given, left) for name, given in timeouts.items()}
            extensions = {**extensions, "timeout": within}
        return self._library.Request(
            request.method, request.url, headers=headers, stream=request.stream, extensions=extensions
        )

    def _opened(self, response: Any, kind: Callable[[Any, GatedRequest], Any]) -> Any:
        """Put a body of this kind around the response's; returns it if its start has to be read first."""
        if response.is_closed:  # it was in memory from the start
            return None
        response.stream = body = kind(response.stream, self._gated)
        return body if self._reads_start(response) else None

    def _reads_start(self, response: Any) -> bool:
        """Of an error; of a good answer that may refuse its content, if that was chosen and it is not a stream."""
        if has_readable_error(response.status_code, response.headers):
            return True
        fallbacks = self._gate.fallbacks
        if self._route is None or fallbacks is None or not fallbacks.moves_content:
            return False
        return response.status_code == 200 and "json" in response.headers.get("content-type", "")

    def _received(self, response: Any, start: bytes | None) -> Any:
        """Pass a response on; ``start`` is how its body begins, as it was sent, where that was read."""
        body: bytes | None = None
        if response.is_closed:
            body = response.content if response.status_code >= 400 else None
        elif start is not None:
            encoding = response.headers.get("content-encoding", "")
            if response.status_code == 200:
                self._refusal = refusal_in_bytes(start, encoding)
            else:
                body = unpacked(start, encoding)
        self._gated.on_response(response.status_code, response.headers, body)
        return response

    def _completed(self, response: Any) -> Any:
        """A response that was in memory from the start, unpacked, has no stream to be read to its end."""
        if response.is_closed:
            if "content-encoding" not in response.headers:
                self._gated.on_chunk(response.content)
            self._gated.complete()
        return response

    def _moves(self, error: BaseException | None = None) -> bool:
        """Its target has answered, or failed: whether it goes to another one now."""
        if self._route is None or not self._route.ended(error, None if error else self._refusal):
            return False
        self._begin()
        return True

    def _answer_to(self, error: BaseException) -> Any:
        """What a vendor's client is told of an account that cannot spend, as by its server; else raises the error."""
        if not (self._gate.answers_spend_stops and isinstance(error, Refused) and is_spend_stop(error)):
            raise error
        told = {"type": SPEND_STOP, "code": SPEND_STOP, "message": not_sent_text(error.retry_after)}
        headers = {"x-should-retry": "false"}
        return self._library.Response(
            429, headers=headers, json={"type": "error", "error": told}, request=self._request
        )

    def _as_error(self, error: Refused) -> Refused:
        """A refusal as an error of the client's library."""
        converted = as_client_error(error, self._adapter.refusals)
        converted.request = self._request  # type: ignore[attr-defined]  # which errors of these libraries know
        return converted


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


class _Transport(Generic[T]):
    """A transport ``T`` of one library behind the gate; the library's own file adds its base class and ``adapter``."""

    adapter: ClassVar[TransportAdapter]
    usual: ClassVar[str]
    """The library's transport that is inside unless another is given."""

    def __init__(self, transport: T | None = None, *, passing: ClientGate | None = None, **settings: Any) -> None:
        _check_ungated("transport", (transport,))
        self.passing = ClientGate.given(passing, settings)
        self._inside: Any = getattr(self.adapter.library, self.usual)() if transport is None else transport


class SyncTransport(_Transport[T]):
    usual = "HTTPTransport"

    def handle_request(self, request: Any) -> Any:
        return _Sending(self.adapter, self.passing, request).send(self._inside)

    def close(self) -> None:
        self._inside.close()
        self.passing.client_closed()


class AsyncTransport(_Transport[T]):
    usual = "AsyncHTTPTransport"

    async def handle_async_request(self, request: Any) -> Any:
        return await _Sending(self.adapter, self.passing, request).send_async(self._inside)

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

    def _passed(self, piece: bytes) -> bytes:
        self._gated.on_chunk(piece)
        return piece

    @contextmanager
    def _until_end(self) -> Iterator[None]:
        """While it is read; leaving early ends nothing, because the client closes it then."""
        try:
            yield
        except Exception as error:
            self._is_over = True
            self._gated.fail(error)
            raise
        self._is_over = True
        self._gated.complete()

    def _closed(self) -> None:
        self._is_over = True
        self._gated.abandon()


class Body(_OpenBody):
    """The body of a response: what was read of it before, then the rest. Each piece and the end are passed on."""

    def begin(self) -> bytes:
        """How it begins: enough to see what an error says."""
        self._pieces = iter(self._stream)
        while sum(map(len, self._start)) < LARGEST_ERROR and (piece := next(self._pieces, None)) is not None:
            self._start.append(piece)
        return b"".join(self._start)

    def __iter__(self) -> Iterator[bytes]:
        with self._until_end():
            for piece in self._start:
                yield self._passed(piece)
            for piece in iter(self._stream) if self._pieces is None else self._pieces:
                yield self._passed(piece)

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._closed()


class AsyncBody(_OpenBody):
    """The same, with await."""

    async def begin(self) -> bytes:
        self._pieces = aiter(self._stream)
        while sum(map(len, self._start)) < LARGEST_ERROR and (piece := await anext(self._pieces, None)) is not None:
            self._start.append(piece)
        return b"".join(self._start)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with self._until_end():
            for piece in self._start:
                yield self._passed(piece)
            async for piece in aiter(self._stream) if self._pieces is None else self._pieces:
                yield self._passed(piece)

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._closed()
