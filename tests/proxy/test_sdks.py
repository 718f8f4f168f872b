"""The vendors' own clients with the proxy for a base URL, against the mock of their APIs: no program has a key."""

import asyncio

import pytest
from tests.sdks import anthropic, openai

from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.units import Rate

KEY = "mock-key-1"
MESSAGES = [{"role": "user", "content": "How high is the water?"}]


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


def client_of(name, base_url):
    kind = openai.AsyncOpenAI if name == "openai" else anthropic.AsyncAnthropic
    return kind(base_url=base_url, api_key="none", max_retries=0)


def create(name, client, **more):
    body = {"model": "m", "messages": MESSAGES, "max_tokens": 20, **more}
    return (client.chat.completions if name == "openai" else client.messages).create(**body)


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_programs_need_no_key_and_see_no_429(tools, name):
    async def work():
        own = MockPlan(rate=Rate(40), burst=5)
        plan = MockPlan(latency=0.0, keys=(own,))
        header = None if name == "openai" else "x-api-key: {secret}"
        async with MockServer(plan, providers=(name,), seed=1) as server:
            settings = {"keys": [KEY], "header": header, "config": None}
            async with (
                tools.proxied(server.url, **settings) as proxy,
                client_of(name, server.base_url(name).replace(server.url, proxy.url)) as client,
            ):
                answers = await asyncio.gather(*(create(name, client) for _ in range(12)))
                pieces = [piece async for piece in await create(name, client, stream=True)]
                return answers, pieces, dict(server.services[name].counts), proxy.counts

    answers, pieces, counts, ours = run(work())
    assert len(answers) == 12
    assert all((one.choices if name == "openai" else one.content) for one in answers)
    assert len(pieces) > 3
    assert counts["answered"] == 13
    assert (ours.answered, ours.refused, ours.failed) == (13, 0, 0)


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ["openai", "anthropic"])
@pytest.mark.parametrize("keys", [None, ["unpaid-0123456789"]], ids=["", "keys"])
def test_an_account_without_credit_is_told_and_no_client_waits_for_it(tools, name, keys):
    """Also one that repeats by itself: Anthropic's sleeps for as long as Retry-After says."""

    async def work():
        async with MockServer(MockPlan(rate=Rate(1000), latency=0.0), providers=(name,), seed=1) as server:
            header = {"header": None if name == "openai" else "x-api-key: {secret}"} if keys else {}
            async with tools.proxied(server.url, config=None, **({"keys": keys} if keys else {}), **header) as proxy:
                kind = openai.AsyncOpenAI if name == "openai" else anthropic.AsyncAnthropic
                base_url = server.base_url(name).replace(server.url, proxy.url)
                told = []
                async with kind(base_url=base_url, api_key="unpaid-0123456789", max_retries=2) as client:
                    for _ in range(3):
                        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
                            await create(name, client)
                        told.append(str(caught.value))
                return told, server.services[name].counts["asked"]

    (_, *others), asked = run(work())
    assert all("spend" in one and "credit" in one for one in others), others
    assert asked <= 3, "of the first call alone, as often as the client repeats it"
