"""The transports of httpx2 and httpx, which have one interface: what is the same in both.

    client ─ auth, redirects, cookies ─> gated transport ─ line, credential, retries ─> the transport inside ─> network
      ^                                                                                          │
      └─────────────── the body as it comes; at its end the permit goes back ────────────────────┘

The client's timeouts bound what they always bound (connecting, each read, each write, the pool); waiting in line is
bounded by ``max_wait``. A refusal is raised as the client's own kind of error and as Headgate's at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from math import inf
from types import ModuleType
from typing import Any

from ..errors import ConfigError, Refused
from .answering import Refusals, explains_itself, in_their_words
from .dropped import dropped, end_dropped
from .hops import first_hop, strip
from .outgoing import Outgoing
from .passing import Passing
from .reading import LARGEST_ERROR, unpacked
from .request_call import RequestCall

FIRST_HOP = "headgate.first_hop"
"""Where a request remembers its first hop; clients take extensions along from hop to hop."""


class Shared:
    """What the sync and the async transport of both libraries have in common."""

    library: ModuleType
    refusals: Refusals
    passing: Passing

    def _begin(self, request: Any) -> RequestCall:
        end_dropped()
        url = str(request.url)
        known = request.extensions.get(FIRST_HOP)
        hop = first_hop(url, request.headers) if known is None else strip(known, url, request.headers)
        request.extensions = {**request.extensions, FIRST_HOP: hop}
        body: bytes | None = None
        with suppress(self.library.RequestNotRead):
            body = request.content
        outgoing = Outgoing(
            request.method,
            url,
            {name.lower(): value for name, value in request.headers.items()},
            body,
            can_repeat_body=body is not None,
        )
        library = self.library
        return self.passing.call(
            outgoing,
            unsent=(library.ConnectError, library.ConnectTimeout),
            not_theirs=(library.PoolTimeout, library.UnsupportedProtocol, library.LocalProtocolError),
        )

    def _to_send(self, request: Any, call: RequestCall) -> Any:
        """The request with what this attempt adds. The client's own stays as it is, for redirects are made of it."""
        added, left = call.headers(), call.time_left()
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
        """The same in the client's own words, which know their request."""
        told = in_their_words(error, self.refusals)
        told.request = request  # type: ignore[attr-defined]
        return told


def check_ungated(name: str, transports: Iterable[object]) -> None:
    """Refuse what is behind a gate of either library already."""
    if any(isinstance(transport, Shared) for transport in transports):
        raise ConfigError(f"{name}: it is behind a gate already, and would wait in line twice")


def heard(call: RequestCall, response: Any, start: bytes | None) -> None:
    """Tell the call of an answer; ``start`` is how an error's body begins, as it was sent."""
    if response.is_closed:  # it was in memory from the start
        call.heard(response.status_code, response.headers, response.content if response.status_code >= 400 else None)
    elif start is None:
        call.heard(response.status_code, response.headers)
    else:
        body = unpacked(start, response.headers.get("content-encoding", ""))
        call.heard(response.status_code, response.headers, body)


def ended_before(call: RequestCall, response: Any) -> None:
    """The answer was in memory from the start, unpacked: nobody will read its stream."""
    if "content-encoding" not in response.headers:
        call.piece(response.content)
    call.over()


class Body:
    """The body of an answer: what was read of it before, then the rest. The call hears of each piece and of the end."""

    def __init__(self, stream: Any, call: RequestCall) -> None:
        self._stream, self._call = stream, call
        self._pieces: Any = None
        self._start: list[bytes] = []
        self._is_over = False

    def begin(self) -> bytes:
        """How it begins: enough to see what an error says."""
        self._pieces = iter(self._stream)
        while sum(map(len, self._start)) < LARGEST_ERROR and (piece := next(self._pieces, None)) is not None:
            self._start.append(piece)
        return b"".join(self._start)

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._start
            for piece in iter(self._stream) if self._pieces is None else self._pieces:
                self._call.piece(piece)
                yield piece
        except Exception as error:
            self._is_over = True
            self._call.broke(error)
            raise
        self._is_over = True
        self._call.over()

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._is_over = True
            self._call.left()

    def __del__(self) -> None:
        if not self._is_over:
            dropped.append(self._call)


class AsyncBody:
    """The same, with await."""

    def __init__(self, stream: Any, call: RequestCall) -> None:
        self._stream, self._call = stream, call
        self._pieces: Any = None
        self._start: list[bytes] = []
        self._is_over = False

    async def begin(self) -> bytes:
        self._pieces = aiter(self._stream)
        while sum(map(len, self._start)) < LARGEST_ERROR and (piece := await anext(self._pieces, None)) is not None:
            self._start.append(piece)
        return b"".join(self._start)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            for piece in self._start:
                yield piece
            async for piece in aiter(self._stream) if self._pieces is None else self._pieces:
                self._call.piece(piece)
                yield piece
        except Exception as error:
            self._is_over = True
            self._call.broke(error)
            raise
        self._is_over = True
        self._call.over()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._is_over = True
            self._call.left()

    def __del__(self) -> None:
        if not self._is_over:
            dropped.append(self._call)


class SharedSync(Shared):
    """One request at a time and thread."""

    body_kind: Callable[[Any, RequestCall], Any]
    _inside: Any

    def handle_request(self, request: Any) -> Any:
        call = self._begin(request)
        last: Any = None

        def attempt() -> Any:
            nonlocal last
            if last is not None:
                last.close()
            last = response = self._inside.handle_request(self._to_send(request, call))
            start = None
            if not response.is_closed:
                response.stream = body = type(self).body_kind(response.stream, call)
                if explains_itself(response.status_code, response.headers):
                    start = body.begin()
            heard(call, response, start)
            return response

        try:
            response = self.passing.send_sync(call, attempt)
        except BaseException as error:
            if last is not None:
                last.close()
            if isinstance(error, Refused):
                raise self._refusal(error, request) from error.__cause__
            raise
        if response.is_closed:
            ended_before(call, response)
        return response

    def close(self) -> None:
        self._inside.close()
        self.passing.client_closed()


class SharedAsync(Shared):
    """Many at once on an event loop of asyncio."""

    body_kind: Callable[[Any, RequestCall], Any]
    _inside: Any

    async def handle_async_request(self, request: Any) -> Any:
        call = self._begin(request)
        last: Any = None

        async def attempt() -> Any:
            nonlocal last
            if last is not None:
                await last.aclose()
            last = response = await self._inside.handle_async_request(self._to_send(request, call))
            start = None
            if not response.is_closed:
                response.stream = body = type(self).body_kind(response.stream, call)
                if explains_itself(response.status_code, response.headers):
                    start = await body.begin()
            heard(call, response, start)
            return response

        try:
            response = await self.passing.send(call, attempt)
        except BaseException as error:
            if last is not None:
                await last.aclose()
            if isinstance(error, Refused):
                raise self._refusal(error, request) from error.__cause__
            raise
        if response.is_closed:
            ended_before(call, response)
        return response

    async def aclose(self) -> None:
        await self._inside.aclose()
        await self.passing.client_closed_async()
