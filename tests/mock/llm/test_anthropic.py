"""The mock of Anthropic, spoken to by Anthropic's own client over loopback."""

import asyncio

import aiohttp
import pytest
from tests.sdks import anthropic

from headgate.mock.api import MockPlan
from headgate.mock.llm.language_api import tokens_of
from headgate.mock.providers.provider_api import Fault
from headgate.mock.server import MockServer
from headgate.units import Outage, Rate

PLENTY = MockPlan(rate=Rate(1000.0, 60.0), tokens=Rate(100_000.0, 60.0), latency=0.0)
ASKED = {
    "model": "claude-haiku-4-5",
    "max_tokens": 1000,
    "messages": [{"role": "user", "content": "What is a headgate?"}],
}


def talk(conversation, plan=PLENTY, *, key="key-a", max_retries=0, **settings):
    """Run ``conversation(client, server)`` with the real client."""

    async def main():
        async with MockServer(plan, providers=("anthropic",), seed=1, **settings) as server:
            base_url = server.base_url("anthropic")
            async with anthropic.AsyncAnthropic(api_key=key, base_url=base_url, max_retries=max_retries) as client:
                return await conversation(client, server)

    return asyncio.run(main())


def refused(conversation, error=None, **settings):
    async def expecting(client, server):
        with pytest.raises(error or anthropic.APIStatusError) as caught:
            await conversation(client, server)
        return caught.value

    return talk(expecting, **settings)


def kind_of(error):
    return error.body["error"]["type"]


def ask(client, server):
    return client.messages.create(**ASKED)


def test_a_message_has_text_usage_a_request_id_and_limits_in_its_headers():
    async def conversation(client, server):
        raw = await client.messages.with_raw_response.create(**ASKED, system="Be brief.")
        return raw, await raw.parse()

    raw, answer = talk(conversation, wall=lambda: 1_790_000_000.0)
    assert answer.stop_reason == "end_turn"
    assert answer.usage.input_tokens == tokens_of("Be brief.\nWhat is a headgate?")
    assert answer.usage.output_tokens == tokens_of(answer.content[0].text)
    assert raw.headers["request-id"] == answer._request_id
    assert raw.headers["anthropic-ratelimit-requests-limit"] == "1000"
    assert raw.headers["anthropic-ratelimit-requests-remaining"] == "999"
    assert raw.headers["anthropic-ratelimit-requests-reset"] == "2026-09-21T14:13:21Z"
    assert raw.headers["anthropic-ratelimit-tokens-limit"] == "100000"


def test_the_callers_maximum_cuts_the_answer():
    answer = talk(lambda client, server: client.messages.create(**(ASKED | {"max_tokens": 7})))
    assert (answer.stop_reason, answer.usage.output_tokens) == ("max_tokens", 7)


def test_a_stream_goes_through_all_its_events():
    async def conversation(client, server):
        whole = await ask(client, server)
        return whole, [event async for event in await client.messages.create(**ASKED, stream=True)]

    whole, events = talk(conversation)
    names = [event.type for event in events]
    assert names[:2] == ["message_start", "content_block_start"]
    assert set(names[2:-3]) == {"content_block_delta"}
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert "".join(event.delta.text for event in events[2:-3]) == whole.content[0].text
    assert events[0].message.usage.input_tokens == whole.usage.input_tokens
    assert events[-2].usage.output_tokens == whole.usage.output_tokens


def test_the_clients_own_stream_puts_the_message_together():
    async def conversation(client, server):
        async with client.messages.stream(**ASKED) as stream:
            texts = [text async for text in stream.text_stream]
            return texts, await stream.get_final_message(), await ask(client, server)

    texts, message, whole = talk(conversation)
    assert "".join(texts) == whole.content[0].text
    assert (message.content[0].text, message.usage) == (whole.content[0].text, whole.usage)


def test_overloaded_can_come_inside_a_started_stream():
    heard = []

    async def conversation(client, server):
        server.services["anthropic"].faults.add(Fault(trouble="overloaded", drop="midway"))
        async with client.messages.stream(**ASKED) as stream:
            async for text in stream.text_stream:
                heard.append(text)  # noqa: PERF401 - what came before the error counts

    error = refused(conversation)
    assert len(heard) > 5
    assert (error.response.status_code, kind_of(error)) == (200, "overloaded_error")


@pytest.mark.parametrize("key", ["revoked-1", "nobody"])
def test_a_wrong_key_is_an_authentication_error(key):
    plan = MockPlan(latency=0.0, keys=(MockPlan(),)) if key == "nobody" else PLENTY
    error = refused(ask, anthropic.AuthenticationError, plan=plan, key=key)
    assert kind_of(error) == "authentication_error"
    assert error.body["request_id"] == error.response.headers["request-id"]


def test_a_key_that_is_not_paid_is_a_billing_error():
    error = refused(ask, key="unpaid-1")
    assert (error.status_code, kind_of(error)) == (402, "billing_error")


def test_a_missing_model_is_not_found():
    asked = ASKED | {"model": "missing-1"}
    error = refused(lambda client, server: client.messages.create(**asked), anthropic.NotFoundError)
    assert error.body["error"] == {"type": "not_found_error", "message": "model: missing-1"}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
        ({"extra_body": {"max_tokens": None}}, "max_tokens: Field required"),
        ({"messages": []}, "messages: at least one message is required"),
        ({"messages": None}, "messages: Field required"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages.0.role"),
        ({"model": ""}, "model: Field required"),
        ({"messages": [{"role": "user", "content": "x" * 900_000}]}, "prompt is too long: 225000 tokens > 200000"),
    ],
)
def test_what_it_does_not_take_is_a_bad_request_in_its_words(asked, words):
    error = refused(lambda client, server: client.messages.create(**(ASKED | asked)), anthropic.BadRequestError)
    assert words in error.body["error"]["message"]


def test_without_a_version_it_does_not_answer():
    async def conversation(client, server):
        url, headers = f"{server.url}/v1/messages", {"x-api-key": "key-a"}
        async with aiohttp.ClientSession() as session, session.post(url, json=ASKED, headers=headers) as response:
            return response.status, (await response.json())["error"]["message"]

    assert talk(conversation) == (400, "anthropic-version: header is required")


def test_a_body_above_the_bound_is_a_413(monkeypatch):
    monkeypatch.setattr("headgate.mock.server.LARGEST_BODY", 1000)
    asked = ASKED | {"system": "x" * 2000}
    error = refused(lambda client, server: client.messages.create(**asked))
    assert (error.status_code, kind_of(error)) == (413, "request_too_large")


@pytest.mark.parametrize(
    ("trouble", "status", "kind"),
    [
        ("server_error", 500, "api_error"),
        ("unavailable", 503, "api_error"),
        ("overloaded", 529, "overloaded_error"),
    ],
)
def test_its_own_failures_keep_the_limits_in_their_headers(trouble, status, kind):
    async def conversation(client, server):
        server.services["anthropic"].faults.add(Fault(trouble=trouble))
        await ask(client, server)

    error = refused(conversation)
    assert (error.status_code, kind_of(error)) == (status, kind)
    assert error.response.headers["anthropic-ratelimit-requests-remaining"] == "1000"


def test_an_outage_is_a_529():
    error = refused(ask, plan=MockPlan(latency=0.0, outages=(Outage(0.0, 60.0),)))
    assert (error.status_code, kind_of(error)) == (529, "overloaded_error")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("drop", ["before", "midway"])
def test_it_can_hang_up(stream, drop):
    async def conversation(client, server):
        server.services["anthropic"].faults.add(Fault(drop=drop))
        answer = await client.messages.create(**ASKED, stream=stream)
        if stream:
            _ = [event async for event in answer]

    refused(conversation, Exception)


def test_the_client_that_retries_by_itself_obeys_the_wait_and_gets_through():
    async def conversation(client, server):
        server.services["anthropic"].faults.add(Fault(trouble="rate_limited"))
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        await ask(client, server)  # the client itself waits the second it is told
        return loop.time() - began_at, server.services["anthropic"].truth()

    took, truth = talk(conversation, max_retries=anthropic.DEFAULT_MAX_RETRIES)
    assert took >= 0.9
    assert (truth["asked"], truth["failed"], truth["answered"]) == (2, 1, 1)


def test_the_sync_client_is_served_too():
    async def conversation(client, server):
        def ask_at_once():
            sync = anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0)  # alone: also at /v1
            with sync, sync.messages.stream(**ASKED) as stream:
                return "".join(stream.text_stream), sync.messages.create(**ASKED).content[0].text

        return await asyncio.to_thread(ask_at_once)

    streamed, whole = talk(conversation)
    assert streamed == whole


def test_a_bearer_token_is_a_key_too():
    async def conversation(client, server):
        async with anthropic.AsyncAnthropic(auth_token="key-b", base_url=server.url, max_retries=0) as other:
            return await ask(other, server)

    assert talk(conversation).role == "assistant"
