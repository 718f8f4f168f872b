"""One API of language models at work on its socket: whose key it is, what it may still do, and the answer.

    a fault is scripted        that           an outage                its 503 or 529
    no key, or a revoked one   its 401        over calls or tokens     its 429, with the numbers
    a key without credit       its 429, 402   over the key's day       its 429, until midnight UTC
    the request is bad         its 400, 404, 413

Every key has budgets of its own, or its project or its organisation has (``MockPlan.scope``, ``owners_of``), for each
model if ``per_model`` says so. If ``keys`` names some, only those are taken; if none, all are, except those that
begin with ``revoked`` or ``unpaid``. What a call costs is taken when it arrives: by ``LanguageApi.counted``, and of
limits on input and output tokens what its ``usage`` will say. Where output counts as it is produced, the call is let
in while some of that limit is left, and what it has written is taken off it when it has.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from ...units import LONGEST_DURATION, Rate
from ..api import LATENCY_SPREAD, MOST_IDS, MockPlan, Reply
from ..dialects import LimitStatuses
from ..dialects.dialect import DAY, RETRY_WHEN_UNKNOWN
from ..providers.provider_api import Fault, FaultScript, MockRequest
from ..providers.service import MOST_KEYS, REVOKED, answer
from ..quota import LimitStatus, Quota, make_quota
from .language_api import Answer, Event, LanguageApi, Refusal, RejectedError, Stamp, owners_of

UNPAID = "unpaid"
TOKENS = ("tokens", "input_tokens", "output_tokens")
"""What plans may limit beside calls."""
LARGEST_BODY = 32 * 1024 * 1024
"""Bytes of a request; more is a 413."""
LONGEST_ID = 200
"""Characters of an ``Idempotency-Key`` that count; the rest is cut."""

_STREAM = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "Server": "headgate-mock",
}


@dataclass(slots=True)
class KeyBudget:
    """What a key may still do: calls and tokens by the minute, input and output tokens apart, calls by the day.

    A call fits into all of them, or spends nothing.
    """

    plan: MockPlan
    per_day: int | None
    today: int = 0
    _day: float = -1.0
    _steps_taken: int = 0
    _quotas: dict[str, Quota] = field(init=False)
    """By what they count; calls first."""

    def __post_init__(self) -> None:
        self._quotas = {"calls": self.plan.make_quota()}
        algorithm = "bucket" if self.plan.algorithm == "concurrency" else self.plan.algorithm
        for unit in TOKENS:
            rate: Rate | None = getattr(self.plan, unit)
            if rate is not None:
                self._quotas[unit] = make_quota(algorithm, rate=rate, burst=max(1.0, rate.amount), at_once=1)

    def take(self, elapsed: float, wall: float, tokens: int, tokens_in: int = 0, tokens_out: int = 0) -> Refusal | None:
        """Let a call of so many tokens through, or say what keeps it out; ``end`` follows one that was let through."""
        self._catch_up(elapsed, wall)
        amounts = {"calls": 1, "tokens": tokens, "input_tokens": tokens_in, "output_tokens": tokens_out}
        refusal = self._too_large(elapsed, amounts) or self._daily(wall) or self._rate_limited(elapsed, amounts)
        self.today += refusal is None
        for unit, quota in self._quotas.items():
            (quota.take if refusal is None else quota.refuse)(elapsed, amounts[unit])
        return refusal

    def produce(self, elapsed: float, tokens: int) -> None:
        """Take what was written, whatever is left."""
        if "output_tokens" in self._quotas:
            self._quotas["output_tokens"].yield_to(elapsed, tokens)

    def end(self, elapsed: float) -> None:
        self._quotas["calls"].end(elapsed)

    def statuses(self, elapsed: float, wall: float) -> LimitStatuses:
        self._catch_up(elapsed, wall)
        return [(unit, quota.status(elapsed)) for unit, quota in self._quotas.items()]

    def _too_large(self, elapsed: float, amounts: Mapping[str, int]) -> Refusal | None:
        for unit in TOKENS:
            status = self._quotas[unit].status(elapsed) if unit in self._quotas else None
            if status is not None and amounts[unit] > status.burst:
                return Refusal("too_large", unit, status, amounts[unit])
        return None

    def _daily(self, wall: float) -> Refusal | None:
        if self.per_day is None or self.today < self.per_day:
            return None
        left = (self._day + 1) * DAY - wall
        status = LimitStatus(self.per_day, DAY, self.today, 0.0, left, left, self.per_day, left)
        return Refusal("daily", "calls", status, 1)

    def _rate_limited(self, elapsed: float, amounts: Mapping[str, int]) -> Refusal | None:
        """By the limit that keeps it out longest."""
        longest, refusal = 0.0, None
        for unit, quota in self._quotas.items():
            wait = quota.wait(elapsed, amounts[unit])
            told = RETRY_WHEN_UNKNOWN if wait is None else wait
            if told > longest:
                longest = told
                refusal = Refusal("rate_limited", unit, replace(quota.status(elapsed), retry=wait), amounts[unit])
        return refusal

    def _catch_up(self, elapsed: float, wall: float) -> None:
        """Take every step that fell due, at its own instant, and start a new day at midnight."""
        for step in self.plan.steps[self._steps_taken :]:
            if step.at > elapsed:
                break
            for quota in self._quotas.values():
                quota.scale(step.factor, step.at)
            self._steps_taken += 1
        if wall // DAY > self._day:
            self.today, self._day = 0, wall // DAY


class LanguageService:
    def __init__(
        self,
        api: LanguageApi,
        plan: MockPlan,
        *,
        keys: Mapping[str, MockPlan],
        per_day: int | None,
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
        self._plan, self._plans, self._per_day = plan, keys, per_day
        self._clock, self._wall, self._random, self._seed = clock, wall, rng, str(seed)
        self._budgets: OrderedDict[str, KeyBudget] = OrderedDict()
        self._started_at: float | None = None

    @property
    def routes(self) -> list[tuple[str, str]]:
        return [("POST", self.api.root + path) for path in self.api.endpoints]

    def truth(self) -> dict[str, Any]:
        """What only the server knows; keys are counted, never named."""
        told = ("asked", "answered", "rate_limited", "out_of_quota", "refused", "failed", "tokens_in", "tokens_out")
        return {name: self.counts[name] for name in told} | {
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
                body = await _json(request)
            except web.HTTPRequestEntityTooLarge:
                return self._tell("refused", self.api.refuse("too_large"), stamp)
            asked = MockRequest(request.method, request.path, request.query, request.headers, body)
            return await self._serve(request, asked, stamp)
        finally:
            self.in_flight -= 1

    async def _serve(self, request: web.Request, asked: MockRequest, stamp: Stamp) -> web.StreamResponse:
        key = self.api.key_of(asked)
        fault = self.faults.take(key)
        if fault is not None:
            self.counts["failed"] += 1
            announced = self._announced(self._budget(key)) if self._knows(key) else {}
            return await self._inject(fault, request, asked, stamp, announced | fault.headers)
        if not self._knows(key):
            return self._tell("refused", self.api.refuse("unauthorized"), stamp)
        if key.startswith(UNPAID):
            return self._tell("out_of_quota", self.api.refuse("quota"), stamp)
        owners = owners_of(key)
        stamp = replace(stamp, organization=owners[0], project=owners[1])
        budget, elapsed = self._budget(key, asked), self._elapsed()
        if self._plan.is_down_at(elapsed):
            return self._tell("failed", self.api.refuse("overloaded"), stamp, budget)
        try:
            parsed = self._parse(asked)
        except RejectedError as rejected:
            return self._tell("refused", rejected.reply, stamp, budget)
        written = min(1, parsed.tokens_out) if self.api.counts_produced else parsed.tokens_out
        refusal = budget.take(elapsed, self._wall(), self.api.counted(parsed), parsed.tokens_in, written)
        if refusal is not None:
            what = "out_of_quota" if refusal.trouble == "daily" else "rate_limited"
            return self._tell(what, self.api.refuse_limit(refusal, parsed.model), stamp, budget)
        try:
            takes = self._plan.latency * (1 + LATENCY_SPREAD * (2 * self._random.random() - 1))
            response = await self._send(request, parsed, stamp, budget, takes)
        finally:
            budget.end(self._elapsed())
        self._count_done(asked, parsed)
        return response

    def _knows(self, key: str) -> bool:
        return key in self._plans if self._plans else bool(key) and not key.startswith(REVOKED)

    def _parse(self, asked: MockRequest) -> Answer:
        self.api.check(asked)
        path = next(path for path in self.api.endpoints if asked.path.endswith(self.api.root + path))
        try:
            return self.api.endpoints[path](asked.body, self._seed)
        except RecursionError:
            self.api.reject("invalid", "The request is nested too deeply.")

    def _tell(self, what: str, reply: Reply, stamp: Stamp, budget: KeyBudget | None = None) -> web.Response:
        self.counts[what] += 1
        return answer(self.api.sign(reply, stamp), self._announced(budget) if budget else None)

    def _announced(self, budget: KeyBudget) -> dict[str, str]:
        wall = self._wall()
        return self.api.dialect.announce(budget.statuses(self._elapsed(), wall), wall)

    def _count_done(self, asked: MockRequest, parsed: Answer) -> None:
        self.counts["answered"] += 1
        self.counts["tokens_in"] += parsed.tokens_in
        self.counts["tokens_out"] += parsed.tokens_out
        item_id = asked.headers.get("Idempotency-Key", "")[:LONGEST_ID]
        if item_id and (item_id in self.times_done or len(self.times_done) < MOST_IDS):
            self.times_done[item_id] += 1

    async def _send(
        self, request: web.Request, parsed: Answer, stamp: Stamp, budget: KeyBudget, takes: float
    ) -> web.StreamResponse:
        if not parsed.streamed:
            await asyncio.sleep(takes)
            self._take_produced(parsed, budget)
            return answer(self.api.sign(Reply(200, parsed.body(stamp)), stamp), self._announced(budget))
        headers = self._announced(budget)
        response = await self._stream(request, list(parsed.events(stamp)), stamp, headers, takes)
        self._take_produced(parsed, budget)
        return response

    def _take_produced(self, parsed: Answer, budget: KeyBudget) -> None:
        if self.api.counts_produced and parsed.tokens_out > 1:
            budget.produce(self._elapsed(), parsed.tokens_out - 1)

    async def _stream(
        self, request: web.Request, events: list[Event], stamp: Stamp, headers: dict[str, str], takes: float
    ) -> web.StreamResponse:
        signed = self.api.sign(Reply(200, None, headers), stamp)
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
            parsed = self._parse(asked)
            usual = Reply(200, parsed.body(stamp))
        except RejectedError as rejected:
            usual = rejected.reply
        told = self.api.sign(fault.reply(self.api, usual), stamp)
        response: web.StreamResponse
        streams = told.body is usual.body if not fault.drop else fault.drop == "midway"
        if parsed is not None and parsed.streamed and streams:
            events = list(parsed.events(stamp))
            if fault.drop == "midway":
                events = events[: len(events) // 2]
                events += [parsed.failure(told.body, stamp)] if fault.trouble else []
            response = await self._stream(request, events, stamp, headers, 0.0)
            if fault.trouble:
                return response
        elif fault.drop == "midway":
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b'{"id": "')
        else:
            response = answer(told, headers)
        if fault.drop and request.transport is not None:
            request.transport.close()
        return response

    def _budget(self, key: str, asked: MockRequest | None = None) -> KeyBudget:
        plan = self._plans.get(key, self._plan)
        name = {"key": key, "project": "/".join(owners_of(key)), "organization": owners_of(key)[0]}[plan.scope]
        if plan.per_model and asked is not None:
            name = f"{name}/{self.api.model_of(asked)}"
        budget = self._budgets.get(name)
        if budget is None:
            budget = self._budgets[name] = KeyBudget(plan, self._per_day if plan.per_day is None else plan.per_day)
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


async def _json(request: web.Request) -> Any:
    """The body as JSON, or None when it is none; a bad one is the API's to refuse."""
    with suppress(ValueError, RecursionError):
        return json.loads(await request.read())
    return None


def _on_the_wire(event: Event) -> bytes:
    name = f"event: {event.name}\n" if event.name else ""
    data = event.data if isinstance(event.data, str) else json.dumps(event.data)
    return f"{name}data: {data}\n\n".encode()
