"""One key, no Credentials: an account that cannot spend is asked once in 15 minutes, not with every call."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.sdks import anthropic, openai

import headgate
from headgate.core.cooldown import SPEND_REST
from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.units import Rate

pytestmark = pytest.mark.no_cover

MESSAGES = [{"role": "user", "content": "How high is the water?"}]
MADE = {"openai": headgate.async_openai_client, "anthropic": headgate.async_anthropic_client}
UNPAID, GOOD = "unpaid-0123456789", "sk-good-0123456789"


@pytest.mark.parametrize("name", MADE)
def test_calls_of_an_account_without_credit_are_refused_here(name):
    told_by_server = (openai.APIStatusError, anthropic.APIStatusError)
    refused_here = (openai.RateLimitError, anthropic.RateLimitError)

    async def main():
        passing = headgate.Passing()
        async with AsyncExitStack() as stack:
            plan = MockPlan(rate=Rate(10_000), latency=0.0)
            server = await stack.enter_async_context(MockServer(plan, providers=(name,)))
            clients = {}
            for key in (UNPAID, GOOD):
                made = MADE[name](base_url=server.base_url(name), api_key=key, passing=passing, max_retries=0)
                clients[key] = await stack.enter_async_context(made)

            async def call(key, model="m"):
                client = clients[key]
                asked = {"model": model, "max_tokens": 9, "messages": MESSAGES}
                await (client.messages if name == "anthropic" else client.chat.completions).create(**asked)

            with pytest.raises(told_by_server) as told:
                await call(UNPAID)
            with pytest.raises(refused_here) as refused:
                await call(UNPAID, "another-model")
            await call(GOOD)  # another account at the same host
            [account] = passing.hosts.spend._known
            long_ago = passing.hosts.clock.now() - SPEND_REST
            passing.hosts.spend.forget(account)
            passing.hosts.spend.stopped(account, long_ago, long_ago)
            with pytest.raises(told_by_server):
                await call(UNPAID)
            with pytest.raises(refused_here):
                await call(UNPAID)
            return told.value, refused.value, server.truth()["providers"][name]

    told, refused, truth = asyncio.run(main())
    assert told.status_code in (402, 429)
    assert "Not sent: the account has no credit or is at its spending limit" in str(refused)
    assert "next in 15 min" in str(refused) or "next in 14 min" in str(refused)
    assert "Add credit or raise the limit" in str(refused), "what to do, where a program shows it"
    assert (truth["asked"], truth["out_of_quota"], truth["answered"]) == (3, 2, 1)


@pytest.mark.parametrize("keys", [[UNPAID], [UNPAID, "unpaid-9876543210"]])
@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_so_are_those_of_a_client_that_uses_several_keys_or_streams(name, keys):
    made = headgate.openai_client if name == "openai" else headgate.anthropic_client

    async def main():
        async with MockServer(MockPlan(rate=Rate(10_000), latency=0.0), providers=(name,)) as server:

            def ask():
                client = made(base_url=server.base_url(name), keys=headgate.CredentialCoordinator(keys), max_wait=1.0)
                endpoint = client.messages if name == "anthropic" else client.chat.completions
                with client:
                    for _ in keys:
                        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
                            endpoint.create(model="m", max_tokens=9, messages=MESSAGES)
                    with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)) as refused:
                        endpoint.create(model="m", max_tokens=9, messages=MESSAGES, stream=True)
                return str(refused.value)

            return await asyncio.to_thread(ask)

    assert "Not sent: the account has no credit" in asyncio.run(main())
