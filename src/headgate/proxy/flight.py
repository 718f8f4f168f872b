"""One request there and its answer back.

    taken ─> in line ─> out ─> answered ─┬─ all there at once ─> one write ─> over
      │        │         │              └─ in pieces ─> each written when it comes ─> over
      │        │         └── no answer: 502, 504                │           └── the caller stops reading: left
      │        └── refused by the gate: 429, 503                └── cut off: so is the caller's, and it can tell
      └── the caller hangs up, anywhere: everything is given back

Whatever happens, the permit ends once, and the connection to the API is closed unless its answer was read to the end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import aiohttp
from aiohttp import web
from yarl import URL

from ..errors import Refused
from ..exchange import SHORTEST_SECRET, sent_once
from ..integrations.outgoing import Outgoing
from ..integrations.reading import LARGEST_ERROR, unpacked
from .answering import TurnedAwayError, of_gate, of_trouble, says
from .caller import CallerLeftError, CutOffError, cut, expected
from .headers import back, there
from .mounts import Mount
from .upload import CallerStalledError, Upload

if TYPE_CHECKING:
    from ..integrations.request_call import RequestCall
    from .listening import Connection
    from .server import Proxy

UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
NOT_THEIRS = (CallerLeftError, CallerStalledError, TurnedAwayError)
MUCH_UNREAD = 1 << 16
"""Bytes that may lie ready for a caller; a write of more waits for him, and not for ever."""


class Flight:
    __slots__ = ("_mount", "_proxy", "_request", "_secret", "_target", "_upload", "is_out", "is_turned_away", "task")

    def __init__(self, proxy: Proxy, request: web.BaseRequest, mount: Mount, target: str) -> None:
        self._proxy, self._request, self._mount, self._target = proxy, request, mount, target
        self._upload = Upload(proxy.room, proxy.bounds.stalled)
        self._secret = ""
        self.is_out = False
        """Whether it has been sent and its answer is awaited or on its way back."""
        self.is_turned_away = False
        self.task = asyncio.current_task()

    def turn_away(self) -> None:
        """The proxy is about to end, and this one is not out."""
        if self.task is not None:
            self.is_turned_away = True
            self.task.cancel()

    async def fly(self) -> web.StreamResponse:
        try:
            return await self._fly()
        except asyncio.CancelledError:
            if not self.is_turned_away or self.is_out or self.task is None:
                self._proxy.counts.left += 1
                raise
            self.task.uncancel()
            self._proxy.counts.refused += 1
            return says(503, "stopping", "the proxy is about to end; nothing was sent", 1.0, close=True)
        finally:
            self._upload.close()

    async def _fly(self) -> web.StreamResponse:
        proxy, request, mount, upload = self._proxy, self._request, self._mount, self._upload
        if "Expect" in request.headers:
            await expected(request)
        await upload.take(request, proxy.bounds.kept)
        connection = cast("Connection", request.protocol)
        if upload.kept is None:
            connection.watch_unread()
        url = URL(mount.origin + self._target, encoded=True)
        headers = there(request.headers, mount, adds_keys=mount.name in proxy.keyed)
        if upload.length is not None:
            headers["Content-Length"] = str(upload.length)
        outgoing = Outgoing(
            request.method,
            mount.origin + self._target,
            request.headers,
            upload.kept,
            can_repeat_body=upload.kept is not None,
        )
        call = proxy.passing.call(outgoing, unsent=UNSENT, not_theirs=NOT_THEIRS)
        last: aiohttp.ClientResponse | None = None
        start = b""

        async def attempt() -> aiohttp.ClientResponse:
            nonlocal last, start
            if last is not None:
                last.close()
            await connection.check_caller()
            self.is_out = True
            added = call.headers()
            self._secret = call.lease.secret if added and call.lease is not None else ""
            for name, value in added.items():
                headers[name] = value
            try:
                last = response = await proxy.session.request(
                    request.method,
                    url,
                    data=upload.data(),
                    headers=headers,
                    allow_redirects=False,
                    middlewares=sent_once(request.method),
                )
                if response.status < 200:
                    raise aiohttp.ClientPayloadError("nobody asked for another protocol")
                start = await _start_of(response) if response.status >= 400 else b""
            except Exception as error:
                self.is_out = False
                outgoing.can_repeat_body &= not proxy.is_stopping
                if upload.stalled:
                    raise CallerStalledError("the body stopped coming") from None
                if isinstance(error, ValueError):  # nothing was sent
                    raise TurnedAwayError(400, "bad_header", "a header has characters that none can have") from None
                raise
            body = unpacked(start, response.headers.get("Content-Encoding", "")) if start else None
            call.heard(response.status, response.headers, body)
            self.is_out = response.status < 400
            outgoing.can_repeat_body &= not proxy.is_stopping  # nobody waits for another try then
            return response

        try:
            response = await proxy.passing.send(call, attempt)
        except BaseException as error:
            if last is not None:
                last.close()
            return self._unanswered(error)
        self.is_out = True
        try:
            return await self._answer(call, response, start)
        except BaseException as error:
            response.close()
            call.left(error)
            proxy.counts.failed += isinstance(error, CutOffError)
            proxy.counts.left += isinstance(error, ConnectionError) and not isinstance(error, CutOffError)
            raise

    # ------------------------------------------------------------------ back

    def _unanswered(self, error: BaseException) -> web.StreamResponse:
        counts = self._proxy.counts
        if isinstance(error, Refused):
            counts.refused += 1
            return of_gate(error)
        if isinstance(error, CallerLeftError):
            raise asyncio.CancelledError from None  # which it was; but its permit went back unused
        if isinstance(error, CallerStalledError):
            raise TurnedAwayError(408, "slow_upload", "the body of the request stopped coming") from None
        if isinstance(error, aiohttp.ClientError | OSError):  # and TimeoutError, which is one
            counts.failed += 1
            return of_trouble(self._mount.name, error, self._proxy.timeout)
        raise error

    async def _answer(self, call: RequestCall, response: aiohttp.ClientResponse, start: bytes) -> web.StreamResponse:
        request, content = self._request, response.content
        headers = back(response.headers, self._mount, f"http://{request.headers['Host']}", self._secret)
        reason = self._hidden((response.reason or "").encode(errors="replace")).decode()
        try:
            piece = content.read_nowait()
        except (aiohttp.ClientError, OSError) as error:
            call.broke(error)
            response.close()
            return self._unanswered(error)
        if content.at_eof():
            call.piece(piece)
            call.over()
            self._proxy.counts.answered += 1
            whole = web.Response(
                status=response.status, reason=reason, headers=headers, body=self._hidden(start + piece)
            )
            if self._proxy.is_stopping:
                whole.force_close()
            return whole
        answer = web.StreamResponse(status=response.status, reason=reason, headers=headers)
        if self._proxy.is_stopping:
            answer.force_close()
        await answer.prepare(request)
        if start:
            await self._write(answer, start)
        while piece or (piece := await self._next(call, response)):
            call.piece(piece)
            await self._write(answer, piece)
            piece = b""
        call.over()
        await answer.write_eof()
        self._proxy.counts.answered += 1
        return answer

    async def _next(self, call: RequestCall, response: aiohttp.ClientResponse) -> bytes:
        try:
            return await response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            call.broke(error)
        cut(self._request)
        raise CutOffError

    async def _write(self, answer: web.StreamResponse, piece: bytes) -> None:
        transport = self._request.transport
        if transport is None or transport.get_write_buffer_size() + len(piece) < MUCH_UNREAD:
            await answer.write(self._hidden(piece))
            return
        try:
            async with asyncio.timeout(self._proxy.bounds.stalled):
                await answer.write(self._hidden(piece))
        except TimeoutError:
            cut(self._request)
            raise CutOffError from None

    def _hidden(self, data: bytes) -> bytes:
        """What an API repeats of the credential is not for the caller; the length stays what it is."""
        secret = self._secret
        if len(secret) < SHORTEST_SECRET or (found := secret.encode()) not in data:
            return data
        return data.replace(found, b"*" * len(found))


async def _start_of(response: aiohttp.ClientResponse) -> bytes:
    """How an error's body begins: enough to see what it says."""
    content, start = response.content, b""
    while len(start) < LARGEST_ERROR and (piece := await content.readany()):
        start += piece
    return start
