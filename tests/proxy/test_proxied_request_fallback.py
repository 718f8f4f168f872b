"""``headgate proxy --fallback``: what one API cannot take, another answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.sdks import openai

from headgate.cli.commands.proxy import fallbacks_of, gate_of, summarize
from headgate.cli.ui.shared_state import SharedState
from headgate.mock.api import MockPlan
from headgate.mock.providers.provider_api import Fault
from headgate.mock.server import MockServer
from headgate.proxy import Proxy, mounts_of
from headgate.units import Rate

pytestmark = pytest.mark.no_cover

PLENTY = MockPlan(rate=Rate(10_000), latency=0.0)
MESSAGES = [{"role": "user", "content": "How high is the water?"}]
GIVEN = {"limits": None, "max_wait": 60.0, "when_open": "wait", "time_budget": None, "retries": 1, "fallback": ("x",)}


def play(work, key="sk-good-0123456789", more=""):
    """``await work(create, one, two)`` with a proxy before the first of two APIs, and the second to fall back on."""

    async def main():
        async with MockServer(PLENTY, providers=("openai",)) as one, MockServer(PLENTY, providers=("openai",)) as two:
            mounts, shared = mounts_of([one.base_url("openai")]), SharedState.open("none")
            gate = gate_of(mounts, {}, shared, GIVEN)
            fallback = f"to={two.base_url('openai')},model=long-other,keys=env:OTHER_KEY{more}"
            gate.fallbacks = fallbacks_of(mounts, {}, shared, [fallback])
            async with (
                Proxy(mounts, gate) as proxy,
                openai.AsyncOpenAI(base_url=f"{proxy.url}/openai/v1", api_key=key, max_retries=0) as client,
            ):

                def create(**more):
                    body = {"model": "m", "messages": MESSAGES, "max_tokens": 9, **more}
                    return client.chat.completions.with_raw_response.create(**body)

                await work(create, one.services["openai"], two.services["openai"])
            gate.close()
            return proxy.counts

    return asyncio.run(asyncio.wait_for(main(), 60))


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "sk-other-0123456789")


@pytest.mark.parametrize("why", ["spend", "unknown_model", "capacity"])
def test_another_api_answers_and_the_response_says_so(why):
    async def work(create, one, two):
        if why == "capacity":
            one.faults.add(Fault(trouble="overloaded"))
        answer = await create(model="missing-model" if why == "unknown_model" else "m")
        assert answer.parse().model == "long-other"
        assert answer.headers["headgate-why"] == why
        assert answer.headers["headgate-target"].endswith("/long-other")
        assert two.truth()["asked"] == 1
        if why == "capacity":
            back = await create()
            assert (back.parse().model, back.headers.get("headgate-why")) == ("m", None)

    counts = play(work, key="unpaid-0123456789" if why == "spend" else "sk-good-0123456789")
    assert (counts.answered, counts.moved) == (2 if why == "capacity" else 1, 1)
    assert f"{counts.answered} answered, 1 by a fallback" in summarize(counts, 0).next


def test_a_fallback_gets_its_own_header_and_no_other_api(monkeypatch):
    monkeypatch.setenv("GATEWAY", "sk-gateway-0123456789")
    seen = {"one": [], "two": []}

    async def work(create, one, two):
        for name, service in (("one", one), ("two", two)):
            key_of = service.api.key_of
            service.api = replace(
                service.api,
                key_of=lambda asked, name=name, key_of=key_of: (
                    seen[name].append(asked.headers.get("X-Gateway-Key")) or key_of(asked)
                ),
            )
        await create()

    play(work, key="unpaid-0123456789", more=",header=X-Gateway-Key: env:GATEWAY")
    assert seen == {"one": [None], "two": ["sk-gateway-0123456789"]}


def test_a_stream_moves_before_its_first_byte_only():
    async def work(create, one, two):
        chunks = (await create(model="missing-model", stream=True)).parse()
        assert {chunk.model async for chunk in chunks} == {"long-other"}
        one.faults.add(Fault(drop="midway"))
        with pytest.raises(Exception):  # noqa: B017 - as the client has it
            async for _ in (await create(stream=True)).parse():
                pass
        assert two.truth()["asked"] == 1

    play(work)


def test_the_account_of_one_program_says_nothing_of_anothers():
    async def work(create, one, two):
        other = {"Authorization": "Bearer sk-good-0123456789"}
        assert (await create()).parse().model == "long-other"
        assert (await create(extra_headers=other)).parse().model == "m"
        assert (await create()).parse().model == "long-other"
        assert one.truth()["asked"] == 2, "it is known to have no credit"

    play(work, key="unpaid-0123456789")
