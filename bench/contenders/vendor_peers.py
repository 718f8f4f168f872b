"""A peer calls one vendor's mock until its time is over: `python vendor_peers.py PEER VENDOR URL ASKED SECONDS`.

A file of its own, without headgate: peers are installed in an environment of their own (``bench.vendors --peers``).
Each is used as its documentation shows it, with 20 calls at once and, where it has them, 5 retries; the tier is hidden
from it, so no limits are configured. async-batch-llm pauses for 300 s after a refusal unless it is told otherwise, and
would send nothing in the time that is judged: here it pauses for ``PAUSE``, or for as long as the server asks.
The last line says how many rows were answered, and how many it gave up.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

AT_ONCE = 20
RETRIES = 5
PAUSE = 5.0
VERSION = "2024-10-21"
KEY = "bench-key-000001"


def of_litellm(vendor: str, url: str, asked: dict[str, Any], seconds: float) -> Counter[str]:
    """Its router over one deployment."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    litellm.suppress_debug_info = True
    prefix = {"azure-openai": "azure", "anthropic": "anthropic", "mistral": "mistral", "groq": "groq"}
    params = {"model": f"{prefix.get(vendor, 'openai')}/m", "api_base": url, "api_key": KEY}
    if vendor == "azure-openai":
        params["api_version"] = VERSION
    router = litellm.Router(model_list=[{"model_name": "m", "litellm_params": params}], num_retries=RETRIES)

    async def call(number: int) -> None:
        await router.acompletion(model="m", messages=messages(asked, number), max_tokens=asked["max_tokens"])

    return asyncio.run(until(seconds, call))


def of_async_batch_llm(vendor: str, url: str, asked: dict[str, Any], seconds: float) -> Counter[str]:
    """Its processor with the settings that it comes with, but for the pause."""
    import openai
    from async_batch_llm import (
        CallableStrategy,
        CallOutcome,
        OpenAIModel,
        OpenAIStrategy,
        ProcessorConfig,
        RateLimitConfig,
        process_stream,
    )

    counts: Counter[str] = Counter()
    config = ProcessorConfig(concurrency=AT_ONCE, rate_limit=RateLimitConfig(cooldown_seconds=PAUSE))

    async def main() -> None:
        strategy: Any
        if vendor == "anthropic":
            import anthropic

            client = anthropic.AsyncAnthropic(api_key=KEY, base_url=url, max_retries=0)

            async def invoke(prompt: str, *, attempt: int, timeout: float, state: Any) -> Any:
                said = [{"role": "user", "content": prompt}]
                await client.messages.create(model="m", max_tokens=asked["max_tokens"], messages=said)
                return CallOutcome(output="")

            strategy = CallableStrategy(invoke)
        else:
            made: Any = openai.AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0)
            if vendor == "azure-openai":
                made = openai.AsyncAzureOpenAI(api_key=KEY, azure_endpoint=url, api_version=VERSION, max_retries=0)
            model = OpenAIModel("m", made, api_surface="chat_completions")
            strategy = OpenAIStrategy(model, generation_config={"max_tokens": asked["max_tokens"]})
        prompts = (messages(asked, number)[0]["content"] for number in range(100_000))
        async for result in process_stream(strategy, prompts, config=config):
            counts["done" if result.success else "failed"] += 1

    async def bounded() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(main(), seconds)

    logging.getLogger("async_batch_llm").setLevel(logging.CRITICAL)
    asyncio.run(bounded())
    return counts


def messages(asked: dict[str, Any], number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{number:06} {asked['content']}"}]


async def until(seconds: float, call: Any) -> Counter[str]:
    """Calls for so long, so many at once; a row that fails is given up."""
    counts: Counter[str] = Counter()
    numbers = iter(range(10_000_000))

    async def work() -> None:
        while True:
            try:
                await call(next(numbers))
                counts["done"] += 1
            except Exception as error:
                counts["failed"] += 1
                counts[type(error).__name__] += 1

    tasks = [asyncio.create_task(work()) for _ in range(AT_ONCE)]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return counts


PEERS = {"litellm": of_litellm, "async-batch-llm": of_async_batch_llm}

if __name__ == "__main__":
    peer, vendor, url, asked, seconds = sys.argv[1:]
    print(json.dumps(PEERS[peer](vendor, url, json.loads(asked), float(seconds))), flush=True)
    os._exit(0)
