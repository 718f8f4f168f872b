"""One API at work on its socket: whose turn it is, what their key may still do, and the answer.

    no key, or a revoked one   its 401       a fault is scripted    that
    outage                     its 503       the request is bad     its 400
    over the key's rate        its 429       over the key's day     its quota error, until midnight Pacific

Every key has a quota of its own, counted as the server's plan says. Keys that begin with
``revoked`` are refused, all others are taken.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from ...wire.retry_after import next_midnight_pacific
from ..api import Decision, MockApi, MockPlan, Reply, Verdict
from ..dialects.dialect import whole_seconds
from .provider_api import Fault, FaultScript, InvalidRequestError, MockRequest, ProviderApi

MOST_KEYS = 10_000
"""Keys whose quotas are remembered; above that the one used longest ago starts over."""
MOST_REMEMBERED = 1_000
"""Requests kept, for tests and displays."""
REVOKED = "revoked"
COUNTED = ("asked", "answered", "rate_limited", "out_of_quota", "refused", "failed")


@dataclass(slots=True)
class Account:
    """What one key has used."""

    api: MockApi
    today: int = 0
    day_ends_at: float = 0.0
    """By the wall clock."""


class ProviderService:
    def __init__(
        self,
        api: ProviderApi,
        plan: MockPlan,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self.api = api
        self.faults = FaultScript(api)
        self.asked: deque[MockRequest] = deque(maxlen=MOST_REMEMBERED)
        self.counts: Counter[str] = Counter()
        self.in_flight = self.most_in_flight = 0
        self._plan = plan
        self._clock, self._wall, self._random = clock, wall, rng
        self._accounts: OrderedDict[str, Account] = OrderedDict()
        self._started_at: float | None = None

    @property
    def routes(self) -> list[tuple[str, str]]:
        return [(self.api.method, self.api.path)]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        asked = MockRequest(request.method, request.path, request.query, request.headers, await read_json(request))
        self.asked.append(asked)
        self.counts["asked"] += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._answer(request, asked)
        finally:
            self.in_flight -= 1

    def truth(self) -> dict[str, Any]:
        """What only the server knows; keys are counted, never named."""
        return {
            **{name: self.counts[name] for name in COUNTED},
            "keys": len(self._accounts),
            "faults_waiting": len(self.faults),
            "most_in_flight": self.most_in_flight,
        }

    async def _answer(self, request: web.Request, asked: MockRequest) -> web.StreamResponse:
        key = self.api.key_of(asked)
        fault = self.faults.take(key)
        if fault is not None:
            self.counts["failed"] += 1
            return await self._inject(fault, request, asked)
        if not (key or self.api.keyless) or key.startswith(REVOKED):
            self.counts["refused"] += 1
            return answer(self.api.refuse("unauthorized"))
        try:
            body = self.api.answer(asked)
        except InvalidRequestError as error:
            self.counts["refused"] += 1
            return answer(self.api.refuse("invalid", str(error)))
        account = self._account(key)
        if self._plan.per_day is not None and account.today >= self._plan.per_day:
            self.counts["out_of_quota"] += 1
            return answer(self.api.refuse("quota"))
        decision = account.api.begin(self._clock(), self._random.random())
        if decision.verdict is not Verdict.ADMITTED:
            return answer(self._refusal(decision))
        account.today += 1
        answered = False
        try:
            await asyncio.sleep(decision.service_time)
            answered = True
        finally:
            account.api.end(self._clock(), answered=answered)
        self.counts["answered"] += 1
        return answer(Reply(200, body))

    def _refusal(self, decision: Decision) -> Reply:
        if decision.verdict is Verdict.DOWN:
            self.counts["failed"] += 1
            return self.api.refuse("unavailable")
        self.counts["rate_limited"] += 1
        return self.api.refuse("rate_limited", retry_after=whole_seconds(decision.status.retry))

    async def _inject(self, fault: Fault, request: web.Request, asked: MockRequest) -> web.StreamResponse:
        await asyncio.sleep(fault.delay)
        try:
            usual = Reply(200, self.api.answer(asked))
        except InvalidRequestError as error:
            usual = self.api.refuse("invalid", str(error))
        response: web.StreamResponse = answer(fault.reply(self.api, usual))
        if fault.drop == "midway":
            response = await begin_json(request, b'{"results": [')
        if fault.drop and request.transport is not None:
            request.transport.close()
        return response

    def _account(self, key: str) -> Account:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(MockApi(self._plan))
            # Steps and outages come at one time for all keys, counted from the first call of any.
            self._started_at = account.api.started_at = self._clock() if self._started_at is None else self._started_at
            if len(self._accounts) > MOST_KEYS:
                self._accounts.popitem(last=False)
        self._accounts.move_to_end(key)
        now = self._wall()
        if now >= account.day_ends_at:
            account.today, account.day_ends_at = 0, next_midnight_pacific(now)
        return account


async def read_json(request: web.Request) -> Any:
    """The body as JSON, or None when it is none; a bad one is the API's to refuse."""
    with suppress(ValueError, RecursionError):
        return json.loads(await request.read())
    return None


async def begin_json(request: web.Request, beginning: bytes) -> web.StreamResponse:
    """An answer of which only the beginning is sent, for a connection that is closed midway."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(beginning)
    return response


def answer(reply: Reply, announced: dict[str, str] | None = None) -> web.Response:
    headers = {**(announced or {}), **reply.headers, "Server": "headgate-mock"}
    body: Any = reply.body
    if isinstance(body, bytes):
        return web.Response(body=body, status=reply.status, headers=headers)
    if isinstance(body, str):
        return web.Response(text=body, status=reply.status, headers=headers, content_type="text/html")
    return web.Response(
        text=json.dumps(body) + "\n", status=reply.status, headers=headers, content_type=reply.content_type
    )
