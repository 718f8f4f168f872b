"""An API that counts tokens and tells nothing of it: calls of very different size, bare 429s, virtual time."""

import asyncio
import json
import random

from headgate.integrations.client_gate import ClientGate, OutgoingRequest
from headgate.integrations.request import with_tokens
from headgate.lab.virtual_time import run
from headgate.limiter.permit import check_cost
from headgate.mock.quota import make_quota
from headgate.units import Rate

LIMIT, WINDOW = 600_000.0, 60.0
SECONDS, WARM = 300.0, 60.0
ANSWER = 100


def body_of(rng):
    text = "x" * int(200 * 40 ** rng.random())
    asked = {"model": "m", "max_tokens": ANSWER, "messages": [{"role": "user", "content": text}]}
    return json.dumps(asked).encode()


class Api:
    def __init__(self, clock):
        self.clock, self.began = clock, clock.now()
        self.quota = make_quota("bucket", rate=Rate(LIMIT, WINDOW), burst=LIMIT / 10, at_once=1)
        self.asked = self.refused = self.tokens = 0

    async def answer(self, body):
        tokens, now = len(body) / 4 + ANSWER, self.clock.now() - self.began
        self.asked += 1
        if self.quota.wait(now, tokens):
            self.refused += 1
            await asyncio.sleep(0.05)
            return 429, {}, b"{}"
        self.quota.yield_to(now, tokens)
        self.tokens += tokens if now > WARM else 0
        await asyncio.sleep(0.8)
        usage = {"usage": {"prompt_tokens": len(body) // 4, "completion_tokens": ANSWER}}
        return 200, {"content-type": "application/json"}, json.dumps(usage).encode()


async def by_client(clock, api):
    gate = ClientGate(clock=clock, rng=random.Random(1), max_wait=None).for_models()
    rng = random.Random(5)

    async def caller():
        while True:
            body = body_of(rng)
            gated = gate.begin(OutgoingRequest("POST", "https://llm.example/v1/chat/completions", {}, body))

            async def receive(answer, gated=gated):
                gated.on_response(answer[0], answer[1], answer[2] if answer[0] != 200 else None)
                return answer

            async def close(answer):
                pass

            _, _, text = await gated.send_async(lambda body=body: api.answer(body), receive, close)
            gated.on_chunk(text)
            gated.complete()

    callers = [asyncio.create_task(caller()) for _ in range(40)]
    await asyncio.sleep(SECONDS)
    for task in callers:
        task.cancel()
    await asyncio.gather(*callers, return_exceptions=True)


def test_a_quota_on_tokens_is_learned_in_tokens():
    """In calls, 1.6 % of the same calls are refused."""

    async def scenario(clock):
        api = Api(clock)
        await by_client(clock, api)
        return api.tokens / (LIMIT * (SECONDS - WARM) / WINDOW), api.refused / api.asked

    used, refused = run(scenario)
    assert (used > 0.95, refused < 0.012) == (True, True), (used, refused)


def test_a_cost_of_the_callers_own_does_not_begin_with_a_refusal():
    asked = []
    gate = ClientGate(limits={"requests": "60/min"}, cost=asked.append, rng=random.Random(1))
    gate.hosts.note_limited("llm.example")
    gate.begin(OutgoingRequest("POST", "https://llm.example/v1/chat/completions", {}, b"{}"))
    assert asked == []


def test_no_estimate_is_more_than_a_call_can_cost():
    body = json.dumps({"max_tokens": 2**38, "n": 10**6, "messages": [{"role": "user", "content": "x"}]}).encode()
    cost = with_tokens(OutgoingRequest("POST", "https://llm.example/v1/chat/completions", {}, body))
    check_cost(cost)
