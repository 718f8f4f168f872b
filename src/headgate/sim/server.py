"""The mock API on a real socket, so that real clients, proxies and ``curl`` can meet it.

    GET /          explains itself
    ANY /v1/...    the API: small JSON, or a refusal in the chosen dialect
    GET /_truth    the true quota and the counters, for people who watch; no client may peek

A call may carry an ``Idempotency-Key``; the server then proves that it was done once.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from .api import MockApi, MockPlan, Verdict
from .dialects import DIALECTS, Reply

LONGEST_ID = 200
"""Characters of an ``Idempotency-Key`` that count; the rest is cut."""
GRACE = 1.0
"""How long a stopping server lets calls in flight finish."""


class MockServer:
    """``async with MockServer(plan) as server:`` listens until the block ends; ``server.url`` is its address."""

    def __init__(
        self,
        plan: MockPlan,
        *,
        dialect: str = "none",
        host: str = "127.0.0.1",
        port: int = 0,
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if dialect not in DIALECTS:
            raise ValueError(f"headers must be one of {', '.join(DIALECTS)}, not {dialect!r}")
        self.api = MockApi(plan)
        self.dialect_name = dialect
        self.host = host
        self.port = port
        self._dialect = DIALECTS[dialect]
        self._clock = clock
        self._random = random.Random(seed)
        app = web.Application()
        app.router.add_get("/", self._explain)
        app.router.add_get("/_truth", self._tell_truth)
        app.router.add_route("*", "/v1/{rest:.*}", self._serve)
        app.router.add_route("*", "/{rest:.*}", self._lost)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=GRACE)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def truth(self) -> dict[str, Any]:
        return self.api.truth(self._clock())

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.host, self.port).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        item_id = request.headers.get("Idempotency-Key", "")[:LONGEST_ID]
        ruling = self.api.begin(self._clock(), self._random.random())
        announced = self._dialect.announce(ruling.standing, time.time())
        if ruling.verdict is Verdict.DOWN:
            return answer(self._dialect.overloaded)
        if ruling.verdict is Verdict.RATE_LIMITED:
            return answer(self._dialect.refuse(ruling.standing), announced)
        answered = False
        try:
            await asyncio.sleep(ruling.service_time)
            answered = True
        finally:
            self.api.end(self._clock(), answered=answered, item_id=item_id)
        return answer(Reply(200, {"ok": True, "path": request.path, "id": item_id or None}), announced)

    async def _tell_truth(self, request: web.Request) -> web.Response:
        return answer(Reply(200, self.truth()))

    async def _lost(self, request: web.Request) -> web.Response:
        return answer(Reply(404, {"error": f"nothing at {request.path}; the API is under {self.url}/v1/"}))

    async def _explain(self, request: web.Request) -> web.Response:
        plan = self.api.plan
        about = {
            "what": "headgate mock: a rate-limited API to practise on",
            "api": f"{self.url}/v1/anything",
            "truth": f"{self.url}/_truth",
            "algorithm": plan.algorithm,
            "headers": self.dialect_name,
        }
        if "json" in request.headers.get("Accept", ""):
            return answer(Reply(200, about))
        lines = [
            about["what"],
            "",
            f"  curl -i {about['api']}   the API, any method and any path; quota kept by a {plan.algorithm}",
            f"  curl {about['truth']}          the true quota and counters; for people who watch, not for clients",
            "",
            f"Limits are told in the dialect {self.dialect_name!r}. Steps and outages count from the first call.",
        ]
        return web.Response(text="\n".join(lines) + "\n")


def answer(reply: Reply, announced: dict[str, str] | None = None) -> web.Response:
    headers = {**(announced or {}), **reply.headers, "Server": "headgate-mock"}
    text = json.dumps(reply.body) + "\n"
    return web.Response(text=text, status=reply.status, headers=headers, content_type=reply.content_type)
