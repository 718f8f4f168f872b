"""The mock API on a real socket, so that real clients, proxies and ``curl`` can meet it.

    GET  /             explains itself
    ANY  /v1/...       the API: small JSON, or a refusal in the chosen dialect; with several keys, each
                       is sent as "Authorization: Bearer mock-key-1"
    *    /tavily/...   a search API, if it is spoken: its real paths below its name (and below / if it is alone)
    POST /openai/v1/.. a language model's API, the same way; with several keys, each has its budgets
    GET  /_truth       the true quota and the counters, for displays; no client may peek
    POST /_faults      what the next calls of such an API are to meet

A call may carry an ``Idempotency-Key``; the server then proves that it was done once.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from .api import MockApi, MockPlan, Reply, Verdict
from .dialects import DIALECTS
from .llm import LANGUAGE_APIS
from .llm.service import LARGEST_BODY, LONGEST_ID, LanguageService
from .providers import PROVIDER_APIS
from .providers.provider_api import Fault
from .providers.service import ProviderService, answer

FAULT_FIELDS = ("provider", "times", *(field.name for field in fields(Fault)))
GRACE = 1.0
"""How long a stopping server lets calls in flight finish."""


def key_secret(number: int) -> str:
    """What a caller sends for the key of this number, counted from 1."""
    return f"mock-key-{number}"


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
        wall: Callable[[], float] = time.time,
        providers: Sequence[str] = (),
    ) -> None:
        if dialect not in DIALECTS:
            raise ValueError(f"headers must be one of {', '.join(DIALECTS)}, not {dialect!r}")
        known = [*PROVIDER_APIS, *LANGUAGE_APIS]
        if unknown := [name for name in providers if name not in known]:
            raise ValueError(f"provider must be one of {', '.join(known)}, not {unknown[0]!r}")
        self.api = MockApi(plan)
        self._keys = {f"Bearer {key_secret(number + 1)}": number for number in range(len(plan.keys))}
        self.dialect_name = dialect
        self.host = host
        self.port = port
        self._dialect = DIALECTS[dialect]
        self._clock = clock
        self._wall = wall
        self._random = random.Random(seed)
        keys = {key_secret(number): own for number, own in enumerate(plan.keys, 1)}
        shared: dict[str, Any] = {"clock": clock, "wall": wall, "rng": self._random}
        self.services: dict[str, ProviderService | LanguageService] = {
            name: LanguageService(LANGUAGE_APIS[name], plan, keys=keys, seed=seed, **shared)
            if name in LANGUAGE_APIS
            else ProviderService(PROVIDER_APIS[name], plan, **shared)
            for name in dict.fromkeys(providers)
        }
        """The real APIs that are spoken; ``server.services["tavily"].faults`` is where a test writes its script."""
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_get("/", self._explain)
        app.router.add_get("/_truth", self._tell_truth)
        if self.services:
            app.router.add_post("/_faults", self._take_fault)
        alone = len({service.api.site for service in self.services.values()}) == 1
        for service in self.services.values():
            for base in (f"/{service.api.site}", "") if alone else (f"/{service.api.site}",):
                for method, path in service.routes:
                    app.router.add_route(method, base + path, service.serve)
        app.router.add_route("*", "/v1/{rest:.*}", self._serve)
        app.router.add_route("*", "/{rest:.*}", self._not_found)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=GRACE)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def base_url(self, provider: str) -> str:
        """What a client of that API takes for the real one's address."""
        api = self.services[provider].api
        return f"{self.url}/{api.site}{api.root}"

    def truth(self) -> dict[str, Any]:
        truth = self.api.truth(self._clock())
        return (
            truth | {"providers": {name: service.truth() for name, service in self.services.items()}}
            if self.services
            else truth
        )

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
        key = self._keys.get(request.headers.get("Authorization", "")) if self._keys else 0
        if key is None:
            return answer(Reply(401, {"error": f"send a key: Authorization: Bearer {key_secret(1)}"}))
        decision = self.api.begin(self._clock(), self._random.random(), key)
        wall = self._wall()
        announced = self._dialect.announce([("calls", decision.status)], wall)
        if decision.verdict is Verdict.DOWN:
            return answer(self._dialect.overloaded)
        if decision.verdict is Verdict.RATE_LIMITED:
            return answer(self._dialect.refuse("calls", decision.status, wall), announced)
        answered = False
        try:
            await asyncio.sleep(decision.service_time)
            answered = True
        finally:
            self.api.end(self._clock(), answered=answered, item_id=item_id, key=key)
        return answer(Reply(200, {"ok": True, "path": request.path, "id": item_id or None}), announced)

    async def _tell_truth(self, request: web.Request) -> web.Response:
        return answer(Reply(200, self.truth()))

    async def _take_fault(self, request: web.Request) -> web.Response:
        """``{"provider": "tavily", "trouble": "rate_limited", "times": 3}``, or any of ``Fault``'s fields."""
        try:
            fault = json.loads(await request.read())
            if not isinstance(fault, dict):
                raise ValueError('expected a JSON object such as {"provider": "...", "status": 503}')
            if unknown := [name for name in fault if name not in FAULT_FIELDS]:
                raise ValueError(f"unknown field {unknown[0]!r}; known are {', '.join(FAULT_FIELDS)}")
            service = self.services.get(str(fault.pop("provider", None)))
            if service is None:
                raise ValueError(f"provider must be one of {', '.join(self.services)}")
            times = fault.pop("times", 1)
            service.faults.add(Fault(**fault), times)
        except (ValueError, TypeError) as error:
            return answer(Reply(400, {"error": f"invalid fault: {error}"}))
        return answer(Reply(200, {"faults_waiting": len(service.faults)}))

    async def _not_found(self, request: web.Request) -> web.Response:
        return answer(Reply(404, {"error": f"not found: {request.path}; the API is under {self.url}/v1/"}))

    async def _explain(self, request: web.Request) -> web.Response:
        plan = self.api.plan
        about: dict[str, Any] = {
            "what": "headgate mock: a rate-limited API for tests",
            "api": f"{self.url}/v1/anything",
            "truth": f"{self.url}/_truth",
            "algorithm": plan.algorithm,
            "headers": self.dialect_name,
        }
        if self.services:
            about["providers"] = {name: self.base_url(name) for name in self.services}
        if "json" in request.headers.get("Accept", ""):
            return answer(Reply(200, about))
        lines = [
            about["what"],
            "",
            f"  curl -i {about['api']}   the API, any method and any path; limited by a {plan.algorithm}",
            f"  curl {about['truth']}          the true quota and counters, for you, not for clients",
            "",
            f"Limits are stated in the format of {self.dialect_name!r}. Steps and outages count from the first call.",
        ]
        if self._keys:
            lines.append(f"{len(self._keys)} keys with a quota each: -H 'Authorization: Bearer {key_secret(1)}', ...")
        if self.services:
            lines += [
                "",
                "Real APIs, each with its paths and its own errors; any key is accepted unless some were named:",
                "",
            ]
            lines += [
                f"  {name:16}  {method:4}  {self.url}/{service.api.site}{path}"
                for name, service in self.services.items()
                for method, path in service.routes
            ]
        return web.Response(text="\n".join(lines) + "\n")
