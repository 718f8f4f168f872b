"""Six vendors as their mocks count, refuse and scope, met over a real socket by the real SDKs."""

import asyncio
import json

import aiohttp
import pytest
from tests.sdks import anthropic, openai

from headgate.core.decision import Outcome
from headgate.mock.api import MockPlan
from headgate.mock.llm import LANGUAGE_APIS
from headgate.mock.providers.provider_api import Fault
from headgate.mock.server import MockServer
from headgate.units import Rate
from headgate.wire import read, signal_of

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
SIX_IN_THE_EVENING = 1_790_000_000.0 - 1_790_000_000.0 % DAY + 18 * HOUR  # UTC; eleven in the morning, Pacific
PROMPT = "abcd" * 40
LONG = "abcd" * 1100
"""Long enough for a cache."""


class Caller:
    """Calls one vendor's mock by the SDK that its users have."""

    def __init__(self, name, server):
        self.name, self.server = name, server

    def client(self, key):
        base = self.server.base_url(self.name)
        if self.name == "anthropic":
            return anthropic.AsyncAnthropic(api_key=key, base_url=base, max_retries=0)
        if self.name == "azure-openai":
            return openai.AsyncAzureOpenAI(api_key=key, azure_endpoint=base, api_version="2024-10-21", max_retries=0)
        base += "/v1beta/openai" if self.name == "gemini" else ""
        return openai.AsyncOpenAI(api_key=key, base_url=base, max_retries=0)

    async def __call__(self, content=PROMPT, *, key="key-a", model="m", max_tokens=60, system=None, **extra):
        messages = [{"role": "user", "content": content}]
        if system is not None and self.name != "anthropic":
            messages.insert(0, {"role": "system", "content": system})
        elif system is not None:
            extra["system"] = [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]
        async with self.client(key) as client:
            create = client.messages if self.name == "anthropic" else client.chat.completions
            asked = {"model": model, "max_tokens": max_tokens, "messages": messages, **extra}
            try:
                return await create.with_raw_response.create(**asked)
            except (openai.APIStatusError, anthropic.APIStatusError) as error:
                return error


def talk(name, conversation, **plan):
    """Run ``conversation(call, server)``, in which no time passes for the server."""

    async def main():
        still = {"clock": lambda: 100.0, "wall": lambda: SIX_IN_THE_EVENING}
        plan.setdefault("rate", Rate(600_000.0, MINUTE))
        async with MockServer(MockPlan(latency=0.0, **plan), providers=(name,), seed=1, **still) as server:
            return await conversation(Caller(name, server), server)

    return asyncio.run(main())


def statuses(answers):
    return [answer.status_code for answer in answers]


def heard(error):
    return signal_of(error, None, None, None, None, SIX_IN_THE_EVENING)


def body(answer):
    return json.loads(answer.http_response.content)


def header(answer, name):
    return getattr(answer, "response", answer).headers[name]


# -- counting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "asked", "let_in"),
    [
        ("openai", {}, 5),  # the larger of max_tokens 60 and the prompt of 40
        ("azure-openai", {}, 3),  # the sum
        ("azure-openai", {"extra_body": {"best_of": 2}}, 2),  # 40 + 2 x 60
        ("groq", {}, 3),
        ("gemini", {}, 8),  # the prompt alone
    ],
)
def test_a_limit_on_tokens_lets_in_as_many_calls_as_the_vendor_counts(name, asked, let_in):
    async def conversation(call, server):
        return [await call(**asked) for _ in range(let_in + 1)]

    *good, over = talk(name, conversation, tokens=Rate(340.0, MINUTE))
    assert statuses([*good, over]) == [200] * let_in + [429]
    assert heard(over).outcome is Outcome.RATE_LIMITED


def test_mistral_counts_what_is_written_when_it_is():
    async def conversation(call, server):
        return [await call() for _ in range(2)]

    for answer in talk("mistral", conversation, tokens=Rate(100_000.0, MINUTE)):
        usage = body(answer)["usage"]
        assert header(answer, "x-ratelimit-tokens-query-cost") == str(usage["total_tokens"])
    left, used = int(header(answer, "x-ratelimit-remaining-tokens-minute")), 2 * usage["total_tokens"]
    assert left == 100_000 - used


def test_anthropic_counts_input_without_cache_reads_and_output_as_it_is_written():
    async def conversation(call, server):
        return [await call(system=LONG, max_tokens=4000) for _ in range(2)]

    limits = {"input_tokens": Rate(50_000.0, MINUTE), "output_tokens": Rate(50_000.0, MINUTE)}
    first, second = (body(answer)["usage"] for answer in talk("anthropic", conversation, **limits))
    assert (first["cache_creation_input_tokens"], first["cache_read_input_tokens"]) == (1100, 0)
    assert (second["cache_creation_input_tokens"], second["cache_read_input_tokens"]) == (0, 1100)
    assert first["input_tokens"] == second["input_tokens"] == 41  # with the line break

    async def counted(call, server):
        answers = [await call(system=LONG, max_tokens=4000) for _ in range(41)]
        return [header(answers[at], "anthropic-ratelimit-input-tokens-remaining") for at in (0, 1, 40)], answers[0]

    remaining, answer = talk("anthropic", counted, **limits)
    assert remaining == ["49000", "49000", "47000"]  # 50,000 - 1,141 - 40 x 41, to the nearest thousand
    assert int(header(answer, "anthropic-ratelimit-output-tokens-remaining")) == 50_000  # not 4,000 fewer


def test_groq_gives_cached_tokens_back_and_openai_does_not():
    async def conversation(call, server):
        first, second = [await call(system=LONG, max_tokens=60) for _ in range(2)]
        cached = body(second)["usage"]["prompt_tokens_details"]["cached_tokens"]
        return cached, [int(header(answer, "x-ratelimit-remaining-tokens")) for answer in (first, second)]

    plenty = {"tokens": Rate(100_000.0, MINUTE)}
    cached, (before, after) = talk("groq", conversation, **plenty)
    assert (cached, before, before - after) == (1100, 100_000 - 1141 - 60, 41 + 60)
    cached, (before, after) = talk("openai", conversation, **plenty)
    assert (cached, before - after) == (1100, 1141)


@pytest.mark.parametrize(
    ("name", "told", "let_in"),
    [("azure-openai", "x-ratelimit-remaining-requests", 10), ("mistral", "x-ratelimit-remaining-req-minute", 1)],
)
def test_a_limit_on_calls_is_judged_over_a_shorter_time_too(name, told, let_in):
    """60 a minute are 10 in 10 s at Azure, and one a second at Mistral."""

    async def conversation(call, server):
        return [await call() for _ in range(let_in + 1)]

    *good, over = talk(name, conversation, rate=Rate(60.0, MINUTE))
    assert statuses([*good, over]) == [200] * let_in + [429]
    assert header(over, told) == str(60 - let_in)  # of the minute's
    if name == "azure-openai":
        assert header(over, "x-ratelimit-renewalperiod-requests") == "60"
        assert (header(over, "retry-after"), header(over, "x-ratelimit-type")) == ("1", "Requests")


def test_groqs_headers_tell_the_calls_of_the_day():
    async def conversation(call, server):
        return [await call() for _ in range(3)]

    *good, over = talk("groq", conversation, per_day=2)
    assert [header(answer, "x-ratelimit-remaining-requests") for answer in (*good, over)] == ["1", "0", "0"]
    assert header(over, "x-ratelimit-limit-requests") == "2"
    assert heard(over).outcome is Outcome.QUOTA_EXHAUSTED
    assert heard(over).retry_after == 6 * HOUR  # midnight UTC


def test_geminis_day_ends_at_midnight_pacific():
    async def conversation(call, server):
        return [await call(key=key) for key in ("a.p.1", "a.p.2", "a.q.1")]

    first, over, other_project = talk("gemini", conversation, per_day=1, scope="vendor")
    assert statuses([first, over, other_project]) == [200, 429, 200]
    assert heard(over).outcome is Outcome.QUOTA_EXHAUSTED
    assert over.response.json()["error"]["details"][1]["retryDelay"] == f"{13 * HOUR:.0f}s"


# -- scopes ------------------------------------------------------------------------------------------------------

SAME = {"key": "acme.web.1", "model": "m"}


@pytest.mark.parametrize(
    ("name", "other", "shares"),
    [
        ("openai", {"key": "acme.web.2"}, True),
        ("openai", {"key": "acme.search.1"}, False),
        ("openai", {"model": "other"}, False),
        ("azure-openai", {"key": "acme.search.1"}, True),
        ("azure-openai", {"model": "other"}, False),
        ("azure-openai", {"service_tier": "flex"}, True),
        ("groq", {"key": "acme.search.1"}, True),
        ("groq", {"model": "other"}, False),
        ("groq", {"service_tier": "flex"}, False),
        ("gemini", {"key": "acme.search.1"}, False),
        ("gemini", {"service_tier": "flex"}, True),
        ("mistral", {"model": "other"}, True),
        ("mistral", {"key": "acme.search.1"}, True),
        ("anthropic", {"key": "acme.search.1"}, True),
        ("anthropic", {"model": "other"}, False),
        ("anthropic", {"key": "bcme.web.1"}, False),
    ],
)
def test_which_keys_share_a_budget(name, other, shares):
    async def conversation(call, server):
        return [await call(**SAME), await call(**(SAME | other))]

    assert statuses(talk(name, conversation, rate=Rate(1.0, MINUTE), scope="vendor")) == [200, 429 if shares else 200]


# -- errors ------------------------------------------------------------------------------------------------------

SPEND = {"openai": 429, "azure-openai": 429, "groq": 400, "gemini": 402, "anthropic": 402}


@pytest.mark.parametrize("name", SPEND)
def test_an_account_without_credit_is_a_spend_stop_by_its_code(name):
    async def conversation(call, server):
        return await call(key="unpaid-1")

    error = talk(name, conversation)
    assert (error.status_code, heard(error).outcome) == (SPEND[name], Outcome.SPEND)
    assert "retry-after" not in error.response.headers


@pytest.mark.parametrize(("name", "status"), [("openai", 429), ("azure-openai", 429), ("groq", 498)])
def test_a_full_tier_is_no_rate_limit(name, status):
    async def conversation(call, server):
        return await call(model="busy-1", service_tier="flex"), await call(model="busy-1")

    full, standard = talk(name, conversation)
    assert (full.status_code, heard(full).outcome) == (status, Outcome.CAPACITY)
    assert standard.status_code == 200


def test_more_than_the_whole_limit_is_413_at_groq_with_the_numbers():
    async def conversation(call, server):
        return await call(max_tokens=9000)

    error = talk("groq", conversation, tokens=Rate(6000.0, MINUTE))
    assert (error.status_code, heard(error).outcome) == (413, Outcome.TOO_LARGE)
    assert "(TPM): Limit 6000, Requested 9040." in error.message
    assert "for model `m` in organization `org-mock` service tier `on_demand`" in error.message


def test_a_limit_in_geminis_body_names_the_quota_the_model_and_the_delay():
    async def conversation(call, server):
        return [await call() for _ in range(2)][-1]

    signal = heard(talk("gemini", conversation, input_tokens=Rate(60.0, MINUTE)))
    limit = signal.limits[0]
    assert (signal.outcome, signal.retry_after) == (Outcome.RATE_LIMITED, 20.0)
    assert (limit.dimension, limit.limit, limit.window) == ("input_tokens", 60.0, MINUTE)
    assert signal.dialect == "gemini"


OUTCOMES = {
    "rate_limited": Outcome.RATE_LIMITED,
    "unauthorized": Outcome.AUTH,
    "forbidden": Outcome.AUTH,
    "invalid": Outcome.INVALID,
    "not_found": Outcome.INVALID,
    "too_large": Outcome.TOO_LARGE,
    "server_error": Outcome.TRANSIENT,
    "unavailable": Outcome.OVERLOADED,
    "overloaded": Outcome.OVERLOADED,
}


@pytest.mark.parametrize("name", LANGUAGE_APIS)
def test_headgate_reads_every_refusal_from_the_clients_own_error(name):
    async def conversation(call, server):
        for trouble in OUTCOMES:
            server.services[name].faults.add(Fault(trouble=trouble))
        return [await call() for _ in OUTCOMES]

    read_as = {trouble: heard(error) for trouble, error in zip(OUTCOMES, talk(name, conversation), strict=True)}
    assert {trouble: signal.outcome for trouble, signal in read_as.items()} == OUTCOMES
    assert read_as["rate_limited"].dialect == name


@pytest.mark.parametrize("name", ["openai", "azure-openai", "groq", "gemini", "anthropic", "mistral"])
def test_a_model_that_does_not_exist_is_told_by_its_code(name):
    async def conversation(call, server):
        return await call(model="missing-1")

    error = talk(name, conversation)
    assert (error.status_code, heard(error).is_unknown_model) == (400 if name == "mistral" else 404, True)


def test_azure_wants_a_version_in_the_query_and_takes_its_newer_paths_without():
    async def conversation(call, server):
        base, headers = server.base_url("azure-openai"), {"api-key": "k"}
        asked = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        paths = ("/openai/deployments/m/chat/completions", "/openai/v1/chat/completions")
        async with aiohttp.ClientSession(headers=headers) as session:
            answers = [await session.post(base + path, json=asked) for path in paths]
            return [(answer.status, answer.headers["x-ms-region"], await answer.json()) for answer in answers]

    (status, _, body), (new, region, _) = talk("azure-openai", conversation)
    assert (status, body) == (404, {"error": {"code": "404", "message": "Resource not found"}})
    assert (new, region) == (200, "Mock")


def test_mistral_takes_max_tokens_only():
    async def conversation(call, server):
        return await call(max_completion_tokens=5)

    error = talk("mistral", conversation)
    assert (error.status_code, heard(error).outcome) == (422, Outcome.INVALID)


# -- subscriptions, and Google's own requests ----------------------------------------------------------------------


@pytest.mark.parametrize(("window", "name", "claim"), [(5 * HOUR, "5h", "five_hour"), (7 * DAY, "7d", "seven_day")])
def test_a_subscription_is_told_what_is_used_of_its_windows(window, name, claim):
    async def conversation(call, server):
        return [await call(key="sk-ant-oat01-x") for _ in range(3)]

    answers = talk("anthropic", conversation, rate=Rate(2.0, window), algorithm="window")
    unified = "anthropic-ratelimit-unified"
    assert statuses(answers) == [200, 200, 429]
    assert [header(answer, f"{unified}-{name}-utilization") for answer in answers] == ["0.5000", "1.0000", "1.0000"]
    assert [header(answer, f"{unified}-status") for answer in answers] == ["allowed", "rejected", "rejected"]
    assert header(answers[2], f"{unified}-representative-claim") == claim
    assert "per minute" not in str(answers[2])
    signal = heard(answers[2])
    assert (signal.outcome, signal.retry_after) == (Outcome.RATE_LIMITED, window)


def test_gemini_takes_googles_own_requests_whole_and_streamed():
    async def conversation(call, server):
        base, headers = server.base_url("gemini") + "/v1beta/models/gemini-3:", {"x-goog-api-key": "k"}
        asked = {
            "contents": [{"role": "user", "parts": [{"text": PROMPT}]}],
            "generationConfig": {"maxOutputTokens": 9},
        }
        async with aiohttp.ClientSession(headers=headers) as session:
            whole = await (await session.post(base + "generateContent", json=asked)).json()
            stream = await (await session.post(base + "streamGenerateContent?alt=sse", json=asked)).text()
            bad = await session.post(base + "generateContent?key=k", json={})
            return whole, stream, bad.status, await bad.json()

    whole, stream, status, bad = talk("gemini", conversation)
    assert whole["usageMetadata"] == {"promptTokenCount": 40, "candidatesTokenCount": 9, "totalTokenCount": 49}
    pieces = [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line]
    said = "".join(piece["candidates"][0]["content"]["parts"][0]["text"] for piece in pieces)
    assert said == whole["candidates"][0]["content"]["parts"][0]["text"]
    assert pieces[-1]["usageMetadata"] == whole["usageMetadata"]
    assert (status, bad["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert read(200, {}, whole, wall=0.0).outcome is Outcome.OK
