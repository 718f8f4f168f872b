"""One API of language models at work on its socket: whose key it is, what it may still do, and the answer.

    a fault is scripted        that           an outage                its 503 or 529
    no key, or a revoked one   its 401        over calls or tokens     its 429, with the numbers
    a key without credit       its 429, 402   over the key's day       its 429, until midnight
    the request is bad         its 400, 404   its tier is full         its 429, 498

Every key has budgets of its own, or its project or its organisation has (``MockPlan.scope``, ``owners_of``), for each
model if ``per_model`` says so; with the scope ``vendor`` as the vendor does. If ``keys`` names some, only those are
taken; if none, all are, except those that begin with ``revoked`` or ``unpaid``. What a call costs is taken when it
arrives, as ``LanguageApi.counting`` says. Where output counts as it is produced, the call is let in while some of that
limit is left, and what it has written is taken off it when it has; where cached tokens are free, they are given back.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web

from ...units import LONGEST_DURATION
from ...wire.retry_after import next_midnight_pacific
from ..api import LATENCY_SPREAD, MOST_IDS, MockPlan, Reply
from ..providers.provider_api import Fault, FaultScript, MockRequest
from ..providers.service import COUNTED, MOST_KEYS, REVOKED, answer, begin_json, read_json
from .key_budget import KeyBudget, midnight_utc
from .language_api import (
    BUSY,
    SUBSCRIBER,
    Answer,
    Event,
    LanguageApi,
    RejectedError,
    Scope,
    Stamp,
    model_and_tier,
    owners_of,
    tokens_of,
)

UNPAID = "unpaid"
LARGEST_BODY = 32 * 1024 * 1024
"""Bytes of a request; more is a 413."""
MOST_CACHED = 10_000
"""Beginnings of prompts that are remembered."""
LONGEST_ID = 200
"""Characters of an ``Idempotency-Key`` that count; the rest is cut."""

_STREAM = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "Server": "headgate-mock",
}


class LanguageService:
    def __init__(
        self,
        api: LanguageApi,
        plan: MockPlan,
        *,
        keys: Mapping[str, MockPlan],
        clock: Callable[[], float],
        wall: Callable[[], float],
        rng: random.Random,
        seed: int | None,
    ) -> None:
        self.api = api
        self.faults = FaultScript(api)
        self.counts: Counter[str] = Counter()
        self.in_flight = self.most_in_flight = 0
        self.times_done: Counter[str] = Counter()
        """How often each ``Idempotency-Key`` was answered."""
        self._plan, self._plans = plan, keys
        self._clock, self._wall, self._random, self._seed = clock, wall, rng, str(seed)
        self._budgets: OrderedDict[str, KeyBudget] = OrderedDict()
        self._cached: OrderedDict[tuple[str, str, int], None] = OrderedDict()
        self._started_at: float | None = None

    @property
    def routes(self) -> list[tuple[str, str]]:
        return [("POST", self.api.root + path) for path in self.api.endpoints]

    def truth(self) -> dict[str, Any]:
        """What only the server knows; keys are counted, never named."""
        return {name: self.counts[name] for name in (*COUNTED, "tokens_in", "tokens_out")} | {
            "keys": len(self._budgets),
            "faults_waiting": len(self.faults),
            "most_in_flight": self.most_in_flight,
            "ids_done": len(self.times_done),
            "ids_done_twice": sum(times > 1 for times in self.times_done.values()),
        }

    async def serve(self, request: web.Request) -> web.StreamResponse:
        stamp = Stamp(f"{self._random.getrandbits(96):024x}", int(self._wall()))
        self.counts["asked"] += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            try:
                body = await read_json(request)
            except web.HTTPRequestEntityTooLarge:
                return self._tell("refused", self.api.refuse("too_large"), stamp)
            if isinstance(body, dict) and "model" in request.match_info:
                body["model"] = request.match_info["model"]
            asked = MockRequest(request.method, request.path, request.query, request.headers, body)
            return await self._serve(request, asked, stamp)
        finally:
            self.in_flight -= 1

    async def _serve(self, request: web.Request, asked: MockRequest, stamp: Stamp) -> web.StreamResponse:
        key = self.api.key_of(asked)
        fault = self.faults.take(key)
        if fault is not None:
            self.counts["failed"] += 1
            announced = self._announced(self._budget(key), key) if self._knows(key) else {}
            return await self._inject(fault, request, asked, stamp, announced | fault.headers)
        if not self._knows(key):
            return self._tell("refused", self.api.refuse("unauthorized"), stamp)
        if key.startswith(UNPAID):
            return self._tell("out_of_quota", self.api.refuse("quota"), stamp)
        owners = owners_of(key)
        stamp = replace(stamp, organization=owners[0], project=owners[1])
        budget, elapsed = self._budget(key, asked), self._elapsed()
        announce = partial(self._announced, budget, key)
        if self._plan.is_down_at(elapsed):
            return self._tell("failed", self.api.refuse("overloaded"), stamp, announce)
        try:
            parsed = self._parse(request, asked)
        except RejectedError as rejected:
            return self._tell("refused", self.api.rejection(rejected), stamp, announce)
        if model_and_tier(asked)[1] == "flex" and parsed.model.startswith(BUSY) and "capacity" in self.api.errors:
            return self._tell("refused", self.api.refuse("capacity"), stamp, announce)
        self._look_up(parsed, owners[0])
        refusal = budget.admit(elapsed, self._wall(), parsed)
        if refusal is not None:
            what = "out_of_quota" if refusal.trouble == "daily" else "rate_limited"
            reply = self.api.limit_reached(refusal, parsed.model, owners[0])
            return self._tell(what, reply, stamp, announce, parsed.model)
        try:
            takes = self._plan.latency * (1 + LATENCY_SPREAD * (2 * self._random.random() - 1))
            response = await self._send(request, parsed, stamp, budget, announce, takes)
        finally:
            budget.end(self._elapsed())
        self._count_done(asked, parsed)
        return response

    def _knows(self, key: str) -> bool:
        return key in self._plans if self._plans else bool(key) and not key.startswith(REVOKED)

    def _parse(self, request: web.Request, asked: MockRequest) -> Answer:
        if not isinstance(asked.body, dict):
            raise RejectedError("invalid", "We could not parse the JSON body of your request.")
        self.api.check(asked)
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical
        endpoint = next(made for below, made in self.api.endpoints.items() if path.endswith(self.api.root + below))
        try:
            return endpoint(asked.body, self._seed)
        except RecursionError:
            raise RejectedError("invalid", "The request is nested too deeply.") from None

    def _look_up(self, parsed: Answer, owner: str) -> None:
        """Whether the beginning of the prompt is in the owner's cache; it is from now on."""
        if not parsed.prefix:
            return
        name, size = (owner, parsed.model, hash(parsed.prefix)), tokens_of(parsed.prefix)
        if name in self._cached:
            parsed.cached = size
        elif parsed.is_prefix_marked:
            parsed.cache_written = size
        self._cached[name] = None
        self._cached.move_to_end(name)
        if len(self._cached) > MOST_CACHED:
            self._cached.popitem(last=False)

    def _tell(
        self,
        what: str,
        reply: Reply,
        stamp: Stamp,
        announce: Callable[[], dict[str, str]] | None = None,
        model: str = "",
    ) -> web.Response:
        self.counts[what] += 1
        return answer(self.api.sign(reply, stamp, model), announce() if announce else None)

    def _announced(self, budget: KeyBudget, key: str) -> dict[str, str]:
        api, wall = self.api, self._wall()
        dialect = api.subscription if api.subscription and key.startswith(SUBSCRIBER) else api.dialect
        return dialect.announce(budget.statuses(self._elapsed(), wall, api.tells_day), wall)

    def _count_done(self, asked: MockRequest, parsed: Answer) -> None:
        self.counts["answered"] += 1
        self.counts["tokens_in"] += parsed.tokens_in
        self.counts["tokens_out"] += parsed.tokens_out
        item_id = asked.headers.get("Idempotency-Key", "")[:LONGEST_ID]
        if item_id and (item_id in self.times_done or len(self.times_done) < MOST_IDS):
            self.times_done[item_id] += 1

    async def _send(
        self,
        request: web.Request,
        parsed: Answer,
        stamp: Stamp,
        budget: KeyBudget,
        announce: Callable[[], dict[str, str]],
        takes: float,
    ) -> web.StreamResponse:
        if parsed.streamed:
            response = await self._stream(request, list(parsed.events(stamp)), stamp, announce(), takes, parsed.model)
            budget.settle(self._elapsed(), parsed)
            return response
        await asyncio.sleep(takes)
        budget.settle(self._elapsed(), parsed)
        return answer(self.api.sign(Reply(200, parsed.body(stamp)), stamp, parsed.model), announce())

    async def _stream(
        self,
        request: web.Request,
        events: list[Event],
        stamp: Stamp,
        headers: dict[str, str],
        takes: float,
        model: str,
    ) -> web.StreamResponse:
        signed = self.api.sign(Reply(200, None, headers), stamp, model)
        response = web.StreamResponse(headers=signed.headers | _STREAM)
        await response.prepare(request)
        for event in events:
            await asyncio.sleep(takes / len(events))
            await response.write(_on_the_wire(event))
        return response

    async def _inject(
        self, fault: Fault, request: web.Request, asked: MockRequest, stamp: Stamp, headers: dict[str, str]
    ) -> web.StreamResponse:
        await asyncio.sleep(fault.delay)
        parsed: Answer | None = None
        try:
            parsed = self._parse(request, asked)
            usual = Reply(200, parsed.body(stamp))
        except RejectedError as rejected:
            usual = self.api.rejection(rejected)
        told = self.api.sign(fault.reply(self.api, usual), stamp, parsed.model if parsed else "")
        response: web.StreamResponse
        streams = told.body is usual.body if not fault.drop else fault.drop == "midway"
        if parsed is not None and parsed.streamed and streams:
            events = list(parsed.events(stamp))
            if fault.drop == "midway":
                events = events[: len(events) // 2]
                events += [parsed.failure(told.body, stamp)] if fault.trouble else []
            response = await self._stream(request, events, stamp, headers, 0.0, parsed.model)
            if fault.trouble:
                return response
        elif fault.drop == "midway":
            response = await begin_json(request, b'{"id": "')
        else:
            response = answer(told, headers)
        if fault.drop and request.transport is not None:
            request.transport.close()
        return response

    def _budget(self, key: str, asked: MockRequest | None = None) -> KeyBudget:
        plan = self._plans.get(key, self._plan)
        scope = self.api.scope
        if plan.scope != "vendor":
            scope = Scope(owner=plan.scope, per_model=plan.per_model, per_tier=plan.per_model)
        name = {"key": key, "project": "/".join(owners_of(key)), "organization": owners_of(key)[0]}[scope.owner]
        if asked is not None:
            model, tier = model_and_tier(asked)
            name += f"/{model}" * scope.per_model + f"/{tier}" * scope.per_tier
        budget = self._budgets.get(name)
        if budget is None:
            day_end = next_midnight_pacific if self.api.pacific_days else midnight_utc
            budget = self._budgets[name] = KeyBudget(plan, self.api.counting, day_end)
            if len(self._budgets) > MOST_KEYS:
                self._budgets.popitem(last=False)
        self._budgets.move_to_end(name)
        return budget

    def _elapsed(self) -> float:
        """Since the first call of any key, as steps and outages are counted."""
        now = self._clock()
        if self._started_at is None:
            self._started_at = now
        return min(max(0.0, now - self._started_at), LONGEST_DURATION)


def _on_the_wire(event: Event) -> bytes:
    name = f"event: {event.name}\n" if event.name else ""
    data = event.data if isinstance(event.data, str) else json.dumps(event.data)
    return f"{name}data: {data}\n\n".encode()
