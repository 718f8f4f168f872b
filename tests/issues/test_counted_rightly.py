"""Tokens counted as each vendor counts them, over loopback: with the real clients, and by ``headgate run``."""

import asyncio
import json

import pytest

import headgate
from headgate.integrations.client_gate import Passing
from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.units import Rate

MESSAGES = [{"role": "user", "content": "How high is the water?"}]
PLENTY = "10000000/min"
HEADERS = {
    "openai": {"x-ratelimit-limit-tokens": "9000", "x-ratelimit-remaining-tokens": "8000"},
    "azure-openai": {
        "x-ratelimit-limit-tokens": "9000",
        "x-ratelimit-remaining-tokens": "8000",
        "x-ratelimit-renewalperiod-tokens": "60",
        "apim-request-id": "1",
    },
    "groq": {"x-groq-region": "us", "x-ratelimit-limit-tokens": "9000", "x-ratelimit-remaining-tokens": "8000"},
    "": {},
}


def spent(passing, dimension):
    """What the one key of this gate has taken of its limit."""
    limiter = passing.limiter
    (entry,) = [entry for entry in limiter._registry.entries.values() if entry.gate.config.quotas]
    quotas = next(policy for policy in entry.gate.policies.in_order if hasattr(policy, "all"))
    bucket = next(one for one in quotas.all if one.dimension == dimension)
    return sum(part for _, _, part in bucket.spent)


@pytest.mark.parametrize(
    ("vendor", "tokens"), [("openai", 4000), ("azure-openai", 4120), ("groq", 4070), ("", 320)], ids=str
)
def test_what_an_answer_settles(server, vendor, tokens):
    usage = {"prompt_tokens": 120, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 50}}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "so"}}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    server.plan = lambda _: (200, answer, HEADERS[vendor])
    passing = Passing(limits={"tokens": PLENTY, "input_tokens": PLENTY, "output_tokens": PLENTY})
    client = headgate.openai_client(api_key="any", base_url=server.url, passing=passing)
    client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=4000)
    client.close()
    assert spent(passing, "tokens") == tokens
    assert spent(passing, "input_tokens") == (70 if vendor == "groq" else 120)
    assert spent(passing, "output_tokens") == 200


@pytest.mark.parametrize("streams", [False, True])
def test_anthropic_counts_input_and_output_apart(streams):
    async def main():
        plan = MockPlan(rate=Rate(1000), latency=0.0, input_tokens=Rate(1e6, 60.0), output_tokens=Rate(1e6, 60.0))
        passing = Passing(limits={"input_tokens": PLENTY, "output_tokens": PLENTY})
        async with MockServer(plan, providers=("anthropic",), seed=1) as server:
            base_url = server.base_url("anthropic")
            client = headgate.async_anthropic_client(api_key="any", base_url=base_url, passing=passing)
            asked = {"model": "m", "messages": MESSAGES, "max_tokens": 4000}
            if streams:
                async with client.messages.stream(**asked) as stream:
                    message = await stream.get_final_message()
            else:
                message = await client.messages.create(**asked)
            await client.close()
        return message.usage, spent(passing, "input_tokens"), spent(passing, "output_tokens")

    usage, read, written = asyncio.run(main())
    assert (read, written) == (usage.input_tokens, usage.output_tokens), "as produced, whatever max_tokens was"


def test_a_stream_that_does_not_say_what_it_took_is_counted_by_its_text():
    async def main():
        plan = MockPlan(rate=Rate(1000), latency=0.0)
        passing = Passing(limits={"output_tokens": PLENTY})
        async with MockServer(plan, providers=("openai",), seed=1) as server:
            client = headgate.async_openai_client(api_key="any", base_url=server.base_url("openai"), passing=passing)
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=4000, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
            await client.close()
        return text, spent(passing, "output_tokens")

    text, written = asyncio.run(main())
    assert written == pytest.approx(len(text) / 4, abs=2), "and not by max_tokens"


def test_anthropic_tells_and_refuses_each_kind_of_tokens():
    async def main():
        plan = MockPlan(rate=Rate(1000), latency=0.0, input_tokens=Rate(10, 60.0), output_tokens=Rate(1e6, 60.0))
        async with MockServer(plan, providers=("anthropic",), seed=1) as server:
            import anthropic

            client = anthropic.AsyncAnthropic(api_key="any", base_url=server.base_url("anthropic"), max_retries=0)
            asked = {"model": "m", "messages": MESSAGES, "max_tokens": 40}
            fine = await client.messages.with_raw_response.create(**asked)
            with pytest.raises(anthropic.RateLimitError) as refused:
                await client.messages.create(**asked)
            await client.close()
        return fine.headers, str(refused.value)

    headers, refusal = asyncio.run(main())
    assert headers["anthropic-ratelimit-input-tokens-limit"] == "10"
    assert headers["anthropic-ratelimit-output-tokens-limit"] == "1000000"
    assert "10 input tokens per minute" in refusal


def test_a_run_keeps_limits_on_input_and_output_tokens(batch, server):
    server.plan = lambda _: (200, {"usage": {"prompt_tokens": 40, "completion_tokens": 10}})
    text = [{"role": "user", "content": "x" * 100}]
    lines = [{"custom_id": f"row-{at}", "body": {"model": "m", "messages": text, "max_tokens": 10}} for at in range(20)]
    batch.rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    limits = ("--limits", "requests=60000/min,input_tokens=100/day,output_tokens=60000/min")
    ended = json.loads(batch.run("--json", "--workers", "1", *limits).out.splitlines()[-1])
    assert (ended["exit_code"], ended["done"]) == (4, 2), "40 of 100 input tokens each, as the answers say"
    assert (ended["held_by"], ended["come_back_in"] > 20_000) == ("limiter", True)


def test_a_row_that_no_window_holds_is_refused_with_the_number(batch, server):
    text = [{"role": "user", "content": "x" * 4000}]
    line = {"custom_id": "row-0", "body": {"model": "m", "messages": text, "max_tokens": 10}}
    batch.rows.write_text(json.dumps(line) + "\n")
    ended = json.loads(batch.run("--json", "--limits", "input_tokens=500/min").out.splitlines()[-1])
    assert (ended["dead"], ended["reasons"], server.calls) == (1, {"too_large": 1}, [])
    assert "500" in ended["failures"][0]["said"]
