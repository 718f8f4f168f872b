"""The real openai and anthropic clients with fallbacks, against mocks of their APIs over loopback."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.sdks import anthropic, openai

import headgate
from headgate import Fallback
from headgate.errors import ConfigError
from headgate.mock.api import MockPlan
from headgate.mock.llm import openai as mock_openai
from headgate.mock.providers.provider_api import Fault
from headgate.mock.server import MockServer
from headgate.units import Rate

PLENTY = MockPlan(rate=Rate(10_000), latency=0.0)
MESSAGES = [{"role": "user", "content": "How high is the water?"}]
OPEN = []
UNPAID, GOOD = "unpaid-0123456789", "sk-good-0123456789"


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "sk-other-0123456789")


@asynccontextmanager
async def pair(name="openai"):
    async with MockServer(PLENTY, providers=(name,)) as one, MockServer(PLENTY, providers=(name,)) as two:
        yield one, two


def asked(server, name="openai"):
    return server.services[name].truth()["asked"]


def client_of(one, two, *, key=GOOD, **more):
    other = Fallback(to=two.base_url("openai"), model="long-other", keys="env:OTHER_KEY", **more)  # type: ignore[arg-type]
    client = headgate.async_openai_client(base_url=one.base_url("openai"), api_key=key, fallback=[other])
    OPEN.append(client)
    return client


def play(main):
    """Run it, and close the clients that it has opened."""

    async def whole():
        try:
            await main()
        finally:
            while OPEN:
                await OPEN.pop().close()

    asyncio.run(whole())


def create(client, **more):
    return client.chat.completions.create(**{"model": "m", "messages": MESSAGES, "max_tokens": 9, **more})


@pytest.mark.parametrize("why", ["spend", "unknown_model", "too_long", "down", "overloaded"])
def test_another_target_takes_what_the_first_cannot(why, monkeypatch):
    async def main():
        async with pair() as (one, two):
            client = client_of(one, two, key=UNPAID if why == "spend" else GOOD)
            body = {"model": "missing-model"} if why == "unknown_model" else {}
            if why == "too_long":
                monkeypatch.setattr(mock_openai, "CONTEXT", 1)
            if why in ("down", "overloaded"):
                fault = Fault(drop="before") if why == "down" else Fault(trouble="overloaded")
                one.services["openai"].faults.add(fault, 3)
            answer = await create(client, **body)
            assert answer.model == "long-other"
            assert (asked(one) >= 1, asked(two)) == (True, 1)

    play(main)


def test_a_quota_that_is_used_up_for_hours_is_not_waited_for():
    """The day's: the second call goes to the other target, and so does the third, without asking the first."""
    six_in_the_evening = 1_790_000_000.0 - 1_790_000_000.0 % 86_400.0 + 18 * 3600.0

    async def main():
        day = {"providers": ("openai",), "wall": lambda: six_in_the_evening}
        one_a_day = MockServer(replace(PLENTY, per_day=1), **day)
        async with one_a_day as one, MockServer(PLENTY, providers=("openai",)) as two:
            client = client_of(one, two, on=["quota_until"])
            assert [(await create(client)).model for _ in range(3)] == ["m", "long-other", "long-other"]
            assert (asked(one), asked(two)) == (2, 2)

    play(main)


@pytest.mark.chaos  # a full tier is asked three times, after 1 and 2 s
def test_a_tier_that_stays_full_is_left_after_three_refusals():
    async def main():
        async with pair() as (one, two):
            client = client_of(one, two, on=["capacity"])
            answer = await create(client, model="busy-1", service_tier="flex")
            assert (answer.model, asked(one), asked(two)) == ("long-other", 3, 1)
            assert (await create(client, model="busy-1")).model == "busy-1"

    play(main)


def test_what_is_known_is_not_asked_again_and_other_models_go_on():
    async def main():
        async with pair() as (one, two):
            client = client_of(one, two)
            for _ in range(3):
                assert (await create(client, model="missing-model")).model == "long-other"
            assert (asked(one), asked(two)) == (1, 3)
            assert (await create(client)).model == "m"

    play(main)


def test_a_stream_moves_before_its_first_byte_and_never_after():
    async def main():
        async with pair() as (one, two):
            client = client_of(one, two)
            stream = await create(client, model="missing-model", stream=True)
            assert {chunk.model async for chunk in stream} == {"long-other"}
            one.services["openai"].faults.add(Fault(drop="midway"))
            with pytest.raises(Exception):  # noqa: B017 - as the client has it
                async for _ in await create(client, stream=True):
                    pass
            assert asked(two) == 1

    play(main)


def test_no_key_goes_to_another_origin():
    seen = []

    async def main():
        async with pair() as (one, two):
            service = two.services["openai"]
            api = service.api
            service.api = replace(api, key_of=lambda asked: seen.append(dict(asked.headers)) or api.key_of(asked))
            client = client_of(one, two, key=UNPAID)
            await create(client, extra_headers={"X-Api-Key": "mine"})

    play(main)
    [headers] = seen
    assert headers["Authorization"] == "Bearer sk-other-0123456789"
    assert UNPAID not in str(headers)
    assert "mine" not in headers.values()


def test_refused_content_moves_by_choice_and_the_sync_client_too():
    filtered = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    filtered["choices"] = [{"index": 0, "finish_reason": "content_filter", "message": {"role": "assistant"}}]

    async def main():
        async with pair() as (one, two):
            one.services["openai"].faults.add(Fault(status=200, body=filtered), 2)
            assert (await create(client_of(one, two))).model == "m"
            chosen = Fallback(to=two.base_url("openai"), model="o", keys="env:OTHER_KEY", on="refused_content")  # type: ignore[arg-type]
            client = headgate.openai_client(base_url=one.base_url("openai"), api_key=GOOD, fallback=[chosen])
            with client:
                assert (await asyncio.to_thread(create, client)).model == "o"

    play(main)


def test_when_no_target_takes_it_the_error_is_the_clients_own():
    async def main():
        async with pair() as (one, two):
            client = client_of(one, two, key=UNPAID, on="too_long")
            with pytest.raises(openai.RateLimitError):
                await create(client)
            assert asked(two) == 0

    play(main)


def test_anthropics_client():
    async def main():
        async with pair("anthropic") as (one, two):
            base = two.base_url("anthropic").removesuffix("/v1")
            other = Fallback(to=base, dialect="anthropic", model="claude-other", keys="env:OTHER_KEY")  # type: ignore[arg-type]
            client = headgate.async_anthropic_client(
                base_url=one.base_url("anthropic").removesuffix("/v1"), api_key=UNPAID, fallback=[other]
            )
            OPEN.append(client)
            answer = await client.messages.create(model="claude-x", max_tokens=9, messages=MESSAGES)
            assert isinstance(answer, anthropic.types.Message)
            assert answer.model == "claude-other"

    play(main)


def test_a_model_of_an_account_without_credit_leaves_the_servers_own_error():
    async def main():
        async with MockServer(PLENTY, providers=("anthropic",)) as server:
            client = headgate.async_anthropic_client(
                base_url=server.base_url("anthropic").removesuffix("/v1"), api_key=UNPAID, fallback=["claude-other"]
            )
            OPEN.append(client)
            with pytest.raises(anthropic.APIStatusError, match="billing_error"):
                await client.messages.create(model="claude-x", max_tokens=9, messages=MESSAGES)
            assert asked(server, "anthropic") == 1

    play(main)


def test_accounts_told_apart_by_a_header_only_are_two(monkeypatch, caplog):
    caplog.set_level("INFO", logger="headgate.resilience")
    monkeypatch.setenv("POOR", UNPAID)
    monkeypatch.setenv("RICH", GOOD)

    async def main():
        async with pair() as (one, two):
            service = two.services["openai"]
            service.api = replace(service.api, key_of=lambda asked: asked.headers["X-Gateway-Key"])
            to = f"to={two.base_url('openai')},on=spend,header=X-Gateway-Key: env:"
            fallbacks = [f"{to}RICH,model=missing-model", f"{to}POOR,model=poor", f"{to}POOR,model=same"]
            client = headgate.async_openai_client(
                base_url=one.base_url("openai"), api_key=UNPAID, fallback=[*fallbacks, f"{to}RICH,model=rich"]
            )
            OPEN.append(client)
            for _ in range(2):
                assert (await create(client)).model == "rich"
            assert (asked(one), asked(two)) == (1, 4)
            moves = [text.partition("moved to ")[2] for text in caplog.messages if "moved" in text]
            assert [text.rpartition("/")[2] for text in moves] == [
                "missing-model (spend)",
                "poor (spend)",
                "rich (spend)",
            ]

    play(main)


def test_a_cookie_that_changes_is_no_other_account():
    async def main():
        async with pair() as (one, two):
            client = client_of(one, two)
            for number in range(3):
                changing = {"Cookie": f"bm={number}", "X-Csrf-Token": f"token-{number}"}
                assert (await create(client, model="missing-model", extra_headers=changing)).model == "long-other"
            assert (asked(one), asked(two)) == (1, 3)

    play(main)


def test_what_cannot_be_translated_is_refused_when_the_client_is_made():
    with pytest.raises(ConfigError, match="cannot be translated"):
        headgate.openai_client(api_key=GOOD, fallback=["to=anthropic,model=claude-haiku-4-5,keys=env:OTHER_KEY"])
