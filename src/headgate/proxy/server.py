"""The proxy server: it listens, tracks the requests in progress, and stops in two steps.

    serving ──drain──> no new requests; queued ones get 503; sent ones finish ──> stopped
               └──stop──> all are cancelled ──> stopped

Every connection, body and wait has a bound: ``Bounds``.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from typing import Self, cast

import aiohttp
from aiohttp import web

from ..checks import check
from ..engine.infrequent_gc import infrequent_gc
from ..integrations.client_gate import ClientGate
from ..observe.snapshot import ProgressLine
from ..observe.sources import RecentRate
from .admission import Admission
from .connection import LARGEST_FIELD, MOST_FIELDS, Bounds, Connection, Listener
from .error_response import TYPE, RejectedRequestError, error_response
from .mounts import Mount
from .proxied_request import Counts, ProxiedRequest, ProxyContext
from .upload import MemoryBudget
from .upstream import Upstream, new_connector

BACKLOG = 1024
LINGER = 3.0
"""Seconds for which a client whose request was answered early may continue sending, so that it reads the answer."""
STOP_WITHIN = 1.0
ALL_INTERFACES = ("0.0.0.0", "::", "")  # noqa: S104  # where the user asks for it


class Proxy:
    """``async with Proxy(mounts, gate) as proxy:`` serves until the block ends; ``proxy.url`` is its address."""

    def __init__(
        self,
        mounts: Sequence[Mount],
        gate: ClientGate,
        *,
        keyed: Collection[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        allow_hosts: Sequence[str] = (),
        timeout: float = 600.0,
        bounds: Bounds | None = None,
    ) -> None:
        """``keyed``: names of the mounts whose credentials ``gate`` has. ``timeout``: seconds of an API's silence.

        Any ``host`` but loopback needs a ``token``, which clients then send as their API key, or beside it.
        """
        check("timeout", timeout, timeout > 0, "more than 0 seconds")
        self.mounts, self.gate, self.keyed = list(mounts), gate, frozenset(keyed)
        self.host, self.port = host, port
        self.requests: set[ProxiedRequest] = set()
        self.counts = Counts()
        bounds = Bounds() if bounds is None else bounds
        self.memory = MemoryBudget(bounds.kept_in_all)
        self._context = ProxyContext(
            gate=gate,
            upstreams={},
            keyed=self.keyed,
            bounds=bounds,
            timeout=timeout,
            memory=self.memory,
            counts=self.counts,
        )
        self._connector: aiohttp.TCPConnector
        self._admission = Admission(mounts, host=host, token=token, allow_hosts=allow_hosts, keyed=self.keyed)
        self._listener: Listener
        self._server: asyncio.Server | None = None
        self._has_ended = asyncio.Event()
        """Set when a request ends while the proxy is stopping."""
        self._rate = RecentRate()
        self._while_serving = ExitStack()

    @property
    def url(self) -> str:
        host = socket.gethostname() if self.host in ALL_INTERFACES else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def progress(self) -> ProgressLine:
        """For a run monitor."""
        sent = sum(request.is_sent for request in list(self.requests))
        return ProgressLine(
            done=self.counts.answered,
            dead=self.counts.failed,
            in_flight=sent,
            open=len(self.requests),
            rate=self._rate.rate(time.monotonic(), self.counts.answered),
        )

    async def __aenter__(self) -> Self:
        """Raises ``OSError`` if it cannot listen there."""
        context = self._context
        context.is_stopping = False
        self._listener = Listener(
            self._handle,
            context.bounds,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=context.bounds.idle,
            lingering_time=LINGER,
            max_line_size=LARGEST_FIELD,
            max_field_size=LARGEST_FIELD,
            max_headers=MOST_FIELDS,
        )
        self._connector = new_connector()
        context.upstreams = {one: Upstream(self._connector, one, context.timeout) for one in self._origins()}
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._listener, self.host, self.port, backlog=BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]
        self._while_serving.enter_context(infrequent_gc())
        return self

    def _origins(self) -> set[str]:
        """Of the APIs, and of their fallbacks."""
        others = [] if self.gate.fallbacks is None else self.gate.fallbacks.endpoints
        return {mount.origin for mount in self.mounts} | {"/".join(one.base_url.split("/")[:3]) for one in others}

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def drain(self) -> None:
        """Accept no new requests, reject those that are queued, and wait for those that were sent."""
        self._context.is_stopping = True
        if self._server is not None:
            self._server.close()
        self._listener.close_idle()
        for request in list(self.requests):
            if not request.is_sent:
                request.reject()
        while self.requests:
            self._has_ended.clear()
            await self._has_ended.wait()

    async def stop(self) -> int:
        """Stop at once; returns how many requests were cancelled."""
        self._context.is_stopping = True
        if self._server is not None:
            self._server.close()
        cancelled = len(self.requests)
        for request in list(self.requests):
            if request.task is not None:
                request.task.cancel()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_WITHIN):
                    await self._listener.shutdown(STOP_WITHIN / 2)
        finally:
            self._while_serving.close()
            for one in self._context.upstreams.values():
                one.close()
            await self._connector.close()
        return cancelled

    # ------------------------------------------------------------------ one request

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        context = self._context
        try:
            connection.begin(request)
            admitted = self._admission.admit(request)
            if admitted.mount is None:
                return self._own_response(admitted.target)
            if context.is_stopping:
                raise RejectedRequestError(503, "stopping", "the proxy is stopping", 1.0)
            proxied = ProxiedRequest(context, request, admitted.mount, admitted.target)
            self.requests.add(proxied)
            try:
                return await proxied.respond()
            finally:
                self.requests.discard(proxied)
                if context.is_stopping:
                    self._has_ended.set()
        except RejectedRequestError as error:
            context.counts.turned_away += 1
            # What follows on the connection may not be what it looks like, so it is closed.
            return error_response(error.status, error.code, error.message, error.retry_after, close=True)
        except Exception as error:
            context.counts.failed += not isinstance(error, ConnectionError)  # the client's, and counted already
            raise
        finally:
            connection.end()

    def _own_response(self, target: str) -> web.Response:
        if target.partition("?")[0] != "/-/healthz":
            return error_response(404, "not_found", "Not found; the proxy itself has only /-/healthz")
        if self._context.is_stopping:
            return error_response(503, "stopping", "the proxy is stopping", close=True)
        return web.Response(text="ok\n", headers={"Server": TYPE, "Cache-Control": "no-store"})
