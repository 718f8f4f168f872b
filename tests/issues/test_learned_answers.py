"""max_tokens of 4,000, answers of 200 tokens, an API that counts output as it is produced: in virtual time."""

import asyncio
import json
import random

import pytest

from headgate import AdaptiveRateLimiter, BatchRunner, RateLimitConfig
from headgate.batch import target as target_module
from headgate.batch.input.shapes import Request
from headgate.batch.target import Target, TargetConfig
from headgate.exchange import Answer
from headgate.integrations.client_gate import ClientGate, OutgoingRequest
from headgate.lab.virtual_time import run
from headgate.mock.dialects import DIALECTS
from headgate.mock.quota import LimitStatus, make_quota
from headgate.units import Rate

LIMIT, WINDOW = 60_000.0, 60.0
SECONDS, WARM = 180.0, 30.0
BODY = json.dumps({"model": "m", "max_tokens": 4000, "messages": [{"role": "user", "content": "x" * 400}]}).encode()
REFUSED = b'{"type":"error","error":{"type":"rate_limit_error","message":"x"}}'
PLENTY = LimitStatus(1e5, WINDOW, 0, 1e5, 0, 0, 1e5, 0)


class Api:
    """Lets calls in while any output is left, and takes what it has written when it has."""

    def __init__(self, clock, length, latency, *, algorithm="bucket", tells=False):
        self.clock, self.length, self.latency, self.tells = clock, length, latency, tells
        self.quota = make_quota(algorithm, rate=Rate(LIMIT, WINDOW), burst=LIMIT, at_once=1)
        self.began, self.refused, self.written, self.rng = clock.now(), 0, [], random.Random(2)

    async def answer(self):
        wait = self.quota.wait(self.clock.now() - self.began, 1)
        if wait:
            self.refused += 1
            return 429, {"retry-after": str(int(wait) + 1), **self.headers()}, REFUSED
        await asyncio.sleep(self.latency)
        tokens, now = self.length(self.rng), self.clock.now() - self.began
        self.quota.yield_to(now, tokens)
        self.written.append((now, tokens))
        usage = {"usage": {"input_tokens": 100, "output_tokens": tokens}}
        return 200, {"content-type": "application/json", **self.headers()}, json.dumps(usage).encode()

    def headers(self):
        if not self.tells:
            return {}
        status = self.quota.status(self.clock.now() - self.began)
        return DIALECTS["anthropic"].announce([("calls", PLENTY), ("output_tokens", status)], self.clock.wall())

    def used(self, since):
        """The share of the limit, and the most in any window."""
        tokens = sum(tokens for at, tokens in self.written if at >= since)
        windows = [
            sum(tokens for later, tokens in self.written[place:] if later < at + WINDOW)
            for place, (at, _) in enumerate(self.written)
        ]
        return tokens / (LIMIT * (SECONDS - since) / WINDOW), max(windows) / LIMIT


async def by_client(clock, api, limits, monkeypatch):
    gate = ClientGate(limits=limits, clock=clock, rng=random.Random(1), max_wait=None).for_models()

    async def caller():
        while True:
            gated = gate.begin(OutgoingRequest("POST", "https://api.anthropic.com/v1/messages", {}, BODY))

            async def receive(answer, gated=gated):
                gated.on_response(answer[0], answer[1], answer[2] if answer[0] != 200 else None)
                return answer

            async def close(answer):
                pass

            _, _, body = await gated.send_async(api.answer, receive, close)
            gated.on_chunk(body)
            gated.complete()

    callers = [asyncio.create_task(caller()) for _ in range(40)]
    await asyncio.sleep(SECONDS)
    for task in callers:
        task.cancel()
    await asyncio.gather(*callers, return_exceptions=True)


async def by_batch(clock, api, limits, monkeypatch):
    async def exchange(*_, **__):
        return Answer(*await api.answer())

    class Row:
        counts_tokens = True

        def __init__(self, index):
            self.index, self.digest = index, b"%d" % index

        def request(self):
            return Request("row", body=BODY, model="m")

    monkeypatch.setattr(target_module, "exchange", exchange)
    limiter = AdaptiveRateLimiter(RateLimitConfig(limits=limits or {}), clock=clock, rng=random.Random(1))
    async with Target(TargetConfig(to="anthropic")) as target:
        cost = target.cost if limits else (lambda _: 1)
        runner = BatchRunner(target.fetch, workers=40, clock=clock, limiter=limiter, key=lambda _: "a", cost=cost)
        running = asyncio.create_task(runner.run(Row(index) for index in range(5000)))
        await asyncio.sleep(SECONDS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


WAYS = {"client": by_client, "batch": by_batch}


def constant(_):
    return 200


def varied(rng):
    return min(4000, 1 + int(rng.expovariate(1 / 200)))


def measure(monkeypatch, way, length, latency, limits=None, **about):
    async def scenario(clock):
        api = Api(clock, length, latency, **about)
        await WAYS[way](clock, api, limits, monkeypatch)
        return (*api.used(WARM), api.refused)

    return run(scenario)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("algorithm", ["bucket", "window"])
def test_the_quota_is_used_by_its_headers(monkeypatch, way, algorithm):
    used, _, refused = measure(monkeypatch, way, constant, 1.0, tells=True, algorithm=algorithm)
    assert (used >= 0.97, refused) == (True, 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("length", "least"), [(constant, 0.95), (varied, 0.9)])
def test_the_quota_is_used_where_only_the_limit_was_told(monkeypatch, way, length, least):
    used, most, refused = measure(monkeypatch, way, length, 3.0, {"output_tokens": "60000/min"})
    assert (used >= least, most <= 1.01, refused) == (True, True, 0), (used, most)
