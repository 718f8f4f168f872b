"""Sites on loopback that keep a log, and the packages that only the long suites need."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import time
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from bench.ports import free_port


class Asked(NamedTuple):
    at: float
    host: str
    path: str
    status: int
    headers: Any


class Site:
    """``with Site(answer) as site: ...`` keeps a log of every call.

    ``answer(site, host, path, headers)`` is a status, and perhaps headers and a body.
    """

    def __init__(self, answer, hosts=("127.0.0.1",), latency=0.0):
        self.answer, self.hosts, self.latency = answer, hosts, latency
        self.log: list[Asked] = []
        self.tokens: dict[str, tuple[float, float]] = {}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def lets_in(self, host, rate):
        """A quota of so many a second, with a second's worth at once."""
        now = time.monotonic()
        tokens, at = self.tokens.get(host, (rate, now))
        tokens = min(rate, tokens + (now - at) * rate)
        self.tokens[host] = (tokens - 1.0 if tokens >= 1.0 else tokens, now)
        return tokens >= 1.0

    def url(self, path="/", host="127.0.0.1"):
        return f"http://{host}:{self.port}{path}"

    def of(self, host="127.0.0.1", status=None):
        return [one for one in self.log if one.host == host and status in (None, one.status)]

    async def _handle(self, request):
        host = request.host.partition(":")[0]
        status, headers, body = _whole(self.answer(self, host, request.path, request.headers))
        self.log.append(Asked(time.monotonic(), host, request.path, status, dict(request.headers)))
        if self.latency:
            await asyncio.sleep(self.latency)
        return web.Response(status=status, headers=headers, text=body, content_type="text/html")

    async def _start(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        self.port = free_port(*self.hosts)
        for host in self.hosts:
            site = web.TCPSite(self.runner, host, self.port)
            await site.start()

    def __enter__(self):
        self.thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(60.0)
        return self

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self.runner.cleanup(), self.loop).result(60.0)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(60.0)
        self.loop.close()


def _whole(answer):
    return (*answer, *(None, {}, "")[len(answer) :])


def needs(package):
    """A suite that cannot be run has not passed."""
    if importlib.util.find_spec(package) is None:
        pytest.fail(f"this suite runs the real {package}, which is not installed: pip install -e '.[heavy]'")
