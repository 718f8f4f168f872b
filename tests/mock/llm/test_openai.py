"""The mock of OpenAI, spoken to by OpenAI's own client over loopback."""

import asyncio
import json

import aiohttp
import pytest
from tests.sdks import openai

from headgate.mock.api import MockPlan
from headgate.mock.llm.language_api import tokens_of
from headgate.mock.providers.provider_api import Fault
from headgate.mock.server import MockServer
from headgate.units import Outage, Rate

PLENTY = MockPlan(rate=Rate(1000.0, 60.0), tokens=Rate(100_000.0, 60.0), latency=0.0)
ASKED = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "What is a headgate?"}]}


def talk(conversation, plan=PLENTY, *, key="key-a", max_retries=0, **settings):
    """Run ``conversation(client, server)`` with the real client."""

    async def main():
        async with MockServer(plan, providers=("openai",), **{"seed": 1, **settings}) as server:
            base_url = server.base_url("openai")
            async with openai.AsyncOpenAI(api_key=key, base_url=base_url, max_retries=max_retries) as client:
                return await conversation(client, server)

    return asyncio.run(main())


def refused(conversation, error=None, **settings):
    async def expecting(client, server):
        with pytest.raises(error or openai.APIStatusError) as caught:
            await conversation(client, server)
        return caught.value

    return talk(expecting, **settings)


async def collected(stream):
    return [event async for event in await stream]


# -- chat completions ------------------------------------------------------------------------------


def test_a_chat_completion_has_text_usage_a_request_id_and_limits_in_its_headers():
    async def conversation(client, server):
        return await client.chat.completions.with_raw_response.create(**ASKED)

    raw = talk(conversation)
    answer = raw.parse()
    text = answer.choices[0].message.content
    assert (answer.choices[0].finish_reason, answer.model) == ("stop", "gpt-4o-mini")
    assert answer.usage.prompt_tokens == 5  # ceil(19 characters / 4)
    assert answer.usage.completion_tokens == tokens_of(text)
    assert answer.usage.total_tokens == 5 + answer.usage.completion_tokens
    assert raw.request_id.startswith("req_")
    assert raw.headers["x-ratelimit-limit-requests"] == "1000"
    assert raw.headers["x-ratelimit-remaining-requests"] == "999"
    assert raw.headers["x-ratelimit-limit-tokens"] == "100000"
    left = 100_000 - answer.usage.total_tokens
    assert left <= int(raw.headers["x-ratelimit-remaining-tokens"]) <= 100_000  # it refills by 1,667 a second
    reset = raw.headers["x-ratelimit-reset-requests"]
    assert reset.endswith("ms")
    assert 0 < int(reset.removesuffix("ms")) <= 60  # less, where the answer took a moment


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_callers_maximum_cuts_the_answer(name):
    async def conversation(client, server):
        return await client.chat.completions.create(**ASKED, **{name: 7})

    answer = talk(conversation)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 7)


def test_a_streamed_completion_comes_in_pieces_and_tells_its_usage_last():
    async def conversation(client, server):
        whole = await client.chat.completions.create(**ASKED)
        stream = client.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True})
        return whole, await collected(stream)

    whole, (*chunks, last) = talk(conversation)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert len(chunks) > 10
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "stop"]
    assert (last.choices, last.usage) == ([], whole.usage)
    assert len({chunk.id for chunk in chunks}) == 1


def test_without_being_asked_a_stream_tells_no_usage():
    async def conversation(client, server):
        return await collected(client.chat.completions.create(**ASKED, stream=True))

    assert not any(chunk.usage for chunk in talk(conversation))


def test_the_latency_of_a_stream_is_spread_over_its_pieces():
    async def conversation(client, server):
        loop, stream = asyncio.get_running_loop(), await client.chat.completions.create(**ASKED, stream=True)
        return [loop.time() async for _ in stream]

    # Real time, since it is about the socket; the bound is far below the half second a whole answer takes.
    at = talk(conversation, MockPlan(latency=0.5))
    assert at[-1] - at[0] > 0.2


def test_the_same_seed_gives_the_same_answers_and_another_seed_others():
    async def conversation(client, server):
        return [(await client.chat.completions.create(**ASKED)).model_dump() for _ in range(2)]

    fixed = {"wall": lambda: 1_790_000_000.0}
    first, again = talk(conversation, seed=1, **fixed), talk(conversation, seed=1, **fixed)
    other = talk(conversation, seed=2, **fixed)
    assert first == again
    assert first[0]["choices"] == first[1]["choices"]
    assert first[0]["choices"] != other[0]["choices"]


# -- responses and embeddings ----------------------------------------------------------------------


@pytest.mark.no_cover
def test_a_response_has_text_and_usage():
    async def conversation(client, server):
        return await client.responses.create(model="gpt-5", instructions="Be brief.", input="What is a headgate?")

    answer = talk(conversation)
    assert answer.status == "completed"
    assert answer.usage.input_tokens == tokens_of("Be brief.\nWhat is a headgate?")
    assert answer.usage.output_tokens == tokens_of(answer.output_text)
    assert answer._request_id.startswith("req_")


def test_a_response_of_several_messages_reads_all_their_texts():
    async def conversation(client, server):
        content = [{"type": "input_text", "text": "abcd"}, {"type": "input_image", "image_url": "data:" + "x" * 999}]
        said = [{"role": "user", "content": content}, {"role": "assistant", "content": "efgh"}]
        return await client.responses.create(model="gpt-5", input=said)

    assert talk(conversation).usage.input_tokens == tokens_of("abcd\nefgh")


@pytest.mark.no_cover
@pytest.mark.parametrize(("most", "end"), [(4000, "response.completed"), (16, "response.incomplete")])
def test_a_streamed_response_goes_through_all_its_events(most, end):
    async def conversation(client, server):
        asked = {"model": "gpt-5", "input": "Hello", "max_output_tokens": most}
        async with client.responses.stream(**asked) as stream:
            events = [event async for event in stream]
        return await client.responses.create(**asked), events

    whole, events = talk(conversation)
    names = [event.type for event in events]
    assert names[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(names[4:-4]) == {"response.output_text.delta"}
    assert names[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        end,
    ]
    assert "".join(event.delta for event in events[4:-4]) == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response.usage == whole.usage


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_embeddings_are_the_same_in_every_encoding(encoding):
    async def conversation(client, server):
        asked = {"model": "text-embedding-3-small", "input": ["one", "another"], "dimensions": 64}
        plain = await client.embeddings.create(**asked, encoding_format="float")
        return plain, await client.embeddings.create(**asked, **({"encoding_format": encoding} if encoding else {}))

    plain, answer = talk(conversation)
    if encoding == "base64":  # the client leaves what it was asked for as it is
        import base64
        import struct

        vectors = [list(struct.unpack("<64f", base64.b64decode(each.embedding))) for each in answer.data]
    else:
        vectors = [each.embedding for each in answer.data]
    for told, meant in zip(vectors, plain.data, strict=True):
        assert told == pytest.approx(meant.embedding, abs=1e-6)
    assert sum(number**2 for number in vectors[0]) == pytest.approx(1.0, abs=1e-4)
    assert answer.usage.total_tokens == tokens_of("one") + tokens_of("another")


def test_tokens_can_be_embedded_too():
    async def conversation(client, server):
        return await client.embeddings.create(model="text-embedding-3-large", input=[[1, 2, 3], [4]])

    answer = talk(conversation)
    assert answer.usage.prompt_tokens == 4
    assert [len(each.embedding) for each in answer.data] == [3072, 3072]


# -- errors ----------------------------------------------------------------------------------------


def ask(client, server):
    return client.chat.completions.create(**ASKED)


@pytest.mark.parametrize("key", ["revoked-1", "nobody"])
def test_a_wrong_key_is_an_authentication_error(key):
    plan = MockPlan(latency=0.0, keys=(MockPlan(),)) if key == "nobody" else PLENTY
    error = refused(ask, openai.AuthenticationError, plan=plan, key=key)
    assert (error.status_code, error.code) == (401, "invalid_api_key")


def test_a_key_that_is_not_paid_is_out_of_quota():
    error = refused(ask, openai.RateLimitError, key="unpaid-1")
    assert (error.type, error.code) == ("insufficient_quota", "insufficient_quota")


def test_a_missing_model_is_not_found():
    error = refused(lambda client, server: client.responses.create(model="missing-1", input="x"), openai.NotFoundError)
    assert error.code == "model_not_found"


@pytest.mark.parametrize(
    ("endpoint", "asked", "param"),
    [
        ("chat", {"messages": []}, "messages"),
        ("chat", {"messages": [{"content": "x"}]}, "messages[0].role"),
        ("chat", {"max_tokens": 0}, "max_tokens"),
        ("chat", {"n": 2}, "n"),
        ("chat", {"max_tokens": "many"}, "max_tokens"),
        ("responses", {"input": ""}, "input"),
        ("responses", {"input": "x", "max_output_tokens": 15}, "max_output_tokens"),
        ("embeddings", {"input": []}, "input"),
        ("embeddings", {"input": ["x", 1]}, "input"),
        ("embeddings", {"input": "x" * 40_000}, "input"),
        ("embeddings", {"input": "x", "dimensions": 4000}, "dimensions"),
    ],
)
def test_what_it_does_not_take_is_a_bad_request_that_names_the_parameter(endpoint, asked, param):
    def conversation(client, server):
        if endpoint == "chat":
            return client.chat.completions.create(**(ASKED | asked))
        return getattr(client, endpoint).create(model="mock", **asked)

    assert refused(conversation, openai.BadRequestError).param == param


def test_a_question_longer_than_the_context_is_a_bad_request():
    asked = ASKED | {"messages": [{"role": "user", "content": "x" * 600_000}]}
    error = refused(lambda client, server: client.chat.completions.create(**asked), openai.BadRequestError)
    assert error.code == "context_length_exceeded"


@pytest.mark.parametrize("body", [b"{", b"[]", b"[" * 50_000, b'{"a":' * 5_000])
def test_what_is_no_json_object_is_a_bad_request(body):
    async def conversation(client, server):
        url, headers = f"{server.base_url('openai')}/chat/completions", {"Authorization": "Bearer key-a"}
        async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as response:
            return response.status, json.loads(await response.text())["error"]["type"]

    assert talk(conversation) == (400, "invalid_request_error")


def test_half_a_character_is_answered_too():
    async def conversation(client, server):
        url, headers = f"{server.base_url('openai')}/chat/completions", {"Authorization": "Bearer key-a"}
        body = b'{"model": "m\\ud800", "messages": [{"role": "user", "content": "\\ud800"}]}'
        async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as response:
            return response.status

    assert talk(conversation) == 200


def test_a_body_above_the_bound_is_a_413(monkeypatch):
    monkeypatch.setattr("headgate.mock.server.LARGEST_BODY", 1000)
    asked = ASKED | {"messages": [{"role": "user", "content": "x" * 2000}]}
    error = refused(lambda client, server: client.chat.completions.create(**asked))
    assert (error.status_code, error.code) == (413, "request_too_large")


@pytest.mark.parametrize("trouble", ["server_error", "unavailable", "overloaded"])
def test_its_own_failures_are_internal_server_errors_with_the_limits_in_their_headers(trouble):
    async def conversation(client, server):
        server.services["openai"].faults.add(Fault(trouble=trouble))
        await ask(client, server)

    error = refused(conversation, openai.InternalServerError)
    assert error.status_code == {"server_error": 500}.get(trouble, 503)
    assert error.response.headers["x-ratelimit-remaining-requests"] == "1000"
    assert error.request_id.startswith("req_")


def test_an_outage_is_a_503():
    error = refused(ask, openai.InternalServerError, plan=MockPlan(latency=0.0, outages=(Outage(0.0, 60.0),)))
    assert error.status_code == 503


def test_a_started_chat_stream_can_fail():
    async def conversation(client, server):
        server.services["openai"].faults.add(Fault(trouble="server_error", drop="midway"))
        await collected(client.chat.completions.create(**ASKED, stream=True))

    assert refused(conversation, openai.APIError).type == "server_error"


def test_a_started_response_stream_can_fail():
    async def conversation(client, server):
        server.services["openai"].faults.add(Fault(trouble="rate_limited", drop="midway"))
        return await collected(client.responses.create(model="gpt-5", input="Hello", stream=True))

    last = talk(conversation)[-1]
    assert (last.type, last.response.error.code) == ("response.failed", "rate_limit_exceeded")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("drop", ["before", "midway"])
def test_it_can_hang_up(stream, drop):
    async def conversation(client, server):
        server.services["openai"].faults.add(Fault(drop=drop))
        answer = await client.chat.completions.create(**ASKED, stream=stream)
        if stream:
            _ = [chunk async for chunk in answer]

    refused(conversation, openai.APIConnectionError)


@pytest.mark.parametrize("trouble", ["server_error", "rate_limited"])
def test_the_client_that_retries_by_itself_gets_through(trouble):
    async def conversation(client, server):
        server.services["openai"].faults.add(Fault(trouble=trouble))
        await ask(client, server)  # the client itself waits about half a second
        return server.services["openai"].truth()

    truth = talk(conversation, max_retries=openai.DEFAULT_MAX_RETRIES)
    assert (truth["asked"], truth["failed"], truth["answered"]) == (2, 1, 1)


def test_the_sync_client_is_served_too():
    async def conversation(client, server):
        def ask_at_once():
            with openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0) as sync:  # alone: also at /v1
                whole = sync.chat.completions.create(**ASKED).choices[0].message.content
                chunks = sync.chat.completions.create(**ASKED, stream=True)
                return whole, "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

        return await asyncio.to_thread(ask_at_once)

    whole, streamed = talk(conversation)
    assert whole == streamed
