"""The real openai and anthropic clients behind the gate, against the mock of their APIs over loopback.

These wait for real: a client, sockets and a server have no virtual clock in common. It takes seconds.
"""

from __future__ import annotations

import asyncio
import importlib

import httpx2
import pytest
from tests.quota_spent import quota_spent
from tests.sdks import LazyModule, anthropic, openai

import headgate
from headgate.errors import ConfigError, WaitTooLongError
from headgate.integrations.client_gate import Passing
from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.units import Rate, Step

pytestmark = pytest.mark.no_cover

sdks = LazyModule("bench.sdks")
NAMES = ("openai", "anthropic")
PLENTY = MockPlan(rate=Rate(10_000), tokens=Rate(1e6), latency=0.0)
FAST = headgate.RateLimitConfig(initial_rps=10_000, strategy="fixed", token_bucket_capacity=1000)
MESSAGES = [{"role": "user", "content": "How high is the water?"}]


def make_client(name, **settings):
    return getattr(headgate, f"{name}_client")(**settings)


def create(name, client, **more):
    body = {"model": "m", "messages": MESSAGES, "max_tokens": 40, **more}
    return (client.chat.completions if name == "openai" else client.messages).create(**body)


def passing_of(client):
    return client._client._transport.passing


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def serve(name):
    """``serve(work, plan)``: ``await work(server)`` while the mock of this vendor runs."""

    def run(work, plan=PLENTY):
        async def main():
            async with MockServer(plan, providers=(name,), seed=1) as server:
                return await work(server)

        return asyncio.run(main())

    return run


@pytest.mark.parametrize("streams", [False, True])
def test_tokens_are_reserved_and_settled_from_usage(name, serve, streams):
    async def work(server):
        limits = {"requests": "1000/s", "tokens": "100000/min"}
        async with make_client(f"async_{name}", api_key="k", base_url=server.base_url(name), limits=limits) as client:
            answer = await create(name, client, stream=streams, max_tokens=400)
            if streams:
                reserved = _spent(client)
                async for _ in answer:
                    pass
            else:
                reserved = None
            counts = server.services[name].counts
            return reserved, _spent(client), counts["tokens_in"] + counts["tokens_out"]

    reserved, spent, real = serve(work)
    assert spent == (400 if name == "openai" else real), "OpenAI counts what may come back, Anthropic what did"
    assert reserved is None or reserved > spent, "while it streams, what was expected is held"


def _spent(client):
    limiter = passing_of(client).limiter
    return quota_spent(limiter, limiter.snapshot().keys[0].key)


def test_responses_and_embeddings_are_counted_too():
    async def work():
        async with MockServer(PLENTY, providers=("openai",), seed=1) as server:
            limits = {"tokens": "100000/min"}
            base_url = server.base_url("openai")
            async with headgate.async_openai_client(api_key="k", base_url=base_url, limits=limits) as client:
                await client.responses.create(model="m", input="How high?")
                async for _ in await client.responses.create(model="m", input="How low?", stream=True):
                    pass
                await client.embeddings.create(model="m", input=["a" * 400])
                counts = server.services["openai"].counts
                return _spent(client), counts["tokens_in"] + counts["tokens_out"]

    spent, real = asyncio.run(work())
    assert spent == real


def test_own_retries_are_off_and_the_gate_repeats_instead(name, serve):
    async def work(server):
        async with make_client(f"async_{name}", api_key="k", base_url=server.base_url(name)) as client:
            await _script(server, name, trouble="server_error", times=2)
            await create(name, client)
            return client.max_retries, server.services[name].counts

    max_retries, counts = serve(work)
    assert max_retries == 0
    assert (counts["asked"], counts["answered"]) == (3, 1)


def test_retries_of_the_clients_own_are_told_apart(name, serve):
    """Each of the two would make three of it: together five, not nine."""

    async def work(server):
        passing = Passing(config=FAST, retries=2, repeatable=lambda request: True)
        async with make_client(
            f"async_{name}", api_key="k", base_url=server.base_url(name), passing=passing, max_retries=2
        ) as client:
            await _script(server, name, trouble="server_error", times=50)
            with pytest.raises((openai.InternalServerError, anthropic.InternalServerError)):
                await create(name, client)
            return server.services[name].counts["asked"]

    assert serve(work) == 5


def test_refusals_are_waited_out(name, serve):
    async def work(server):
        async with make_client(f"async_{name}", api_key="k", base_url=server.base_url(name)) as client:
            await _script(server, name, trouble="rate_limited", times=1)
            await create(name, client)
            return server.services[name].counts["asked"]

    assert serve(work) == 2


def test_too_long_a_wait_is_the_clients_own_timeout(name, serve):
    async def work(server):
        passing = Passing(limits={"requests": "1/min"}, max_wait=1)
        async with make_client(f"async_{name}", api_key="k", base_url=server.base_url(name), passing=passing) as client:
            await create(name, client)
            with pytest.raises((openai.APITimeoutError, anthropic.APITimeoutError)) as caught:
                await create(name, client)
            return caught.value.__cause__

    cause = serve(work)
    assert isinstance(cause, WaitTooLongError)
    assert cause.retry_after > 50


def test_several_keys_in_turn(name):
    async def work():
        plan = MockPlan(latency=0.0, keys=(MockPlan(rate=Rate(1, 60.0)), MockPlan(rate=Rate(1, 60.0))))
        async with MockServer(plan, providers=(name,), seed=1) as server:
            keys = headgate.CredentialCoordinator(["mock-key-1", "mock-key-2"])
            async with make_client(f"async_{name}", base_url=server.base_url(name), keys=keys) as client:
                await create(name, client)
                await create(name, client)
                return server.services[name].counts

    counts = asyncio.run(work())
    assert (counts["answered"], counts["refused"]) == (2, 0)


def test_keys_do_not_follow_a_redirect(name):
    """The vendor's client follows redirects; its key must not."""
    sent = []

    def answer(request):
        sent.append(request)
        if request.url.host == "home.example":
            return httpx2.Response(307, headers={"location": "https://evil.example/v1"})
        return httpx2.Response(200, json={})

    http_client = httpx2.Client(transport=httpx2.MockTransport(answer), follow_redirects=True)
    client = make_client(name, api_key="secret-0001", base_url="https://home.example", http_client=http_client)
    create(name, client)
    assert "secret-0001" in str(sent[0].headers.raw)
    assert len(sent) == 2
    assert "secret-0001" not in str(sent[1].headers.raw)


def test_sync_client_works_alike(name):
    def answer(request):
        return httpx2.Response(200, json={"usage": {"prompt_tokens": 3, "completion_tokens": 4}})

    http_client = httpx2.Client(transport=httpx2.MockTransport(answer))
    client = make_client(name, api_key="k", http_client=http_client, limits={"tokens": "1000/s"})
    create(name, client)
    assert _spent(client) == (40 if name == "openai" else 7), "OpenAI counts what may come back"


def test_each_model_has_a_line_of_its_own(name):
    http_client = httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(200, json={})))
    client = make_client(name, api_key="k", base_url="https://home.example", http_client=http_client)
    create(name, client, model="small")
    create(name, client, model="large")
    assert set(passing_of(client).limiter._registry.entries) == {"home.example/small", "home.example/large"}


@pytest.mark.parametrize("beside", ["limits", "store", "keys"])
def test_gate_of_ones_own_takes_no_settings_beside_it(name, beside):
    with pytest.raises(ConfigError, match="passing"):
        make_client(name, api_key="k", passing=Passing(), **{beside: object()})


def test_vendors_packages_are_loaded_when_asked_for():
    assert set(headgate.__all__).isdisjoint({"openai_client", "anthropic_client"})
    assert headgate.openai_client is importlib.import_module("headgate.integrations.openai").openai_client


@pytest.mark.parametrize("name", ["openai", pytest.param("anthropic", marks=pytest.mark.chaos)])
def test_short_of_quota_nothing_is_lost_and_hardly_anything_refused(name):
    """The short form of ``python -m bench.sdks``: the limits are learned, and halved on the way."""
    plan = MockPlan(rate=Rate(40), tokens=Rate(2_000), steps=(Step(factor=0.5, at=1.5),))
    figures = asyncio.run(sdks.measure(name, "headgate", 70, plan))
    assert figures.lost == 0
    assert figures.refused <= 6


async def _script(server, name, **fault):
    async with httpx2.AsyncClient() as client:
        answer = await client.post(f"{server.url}/_faults", json={"provider": name, **fault})
        assert answer.status_code < 300, answer.text
