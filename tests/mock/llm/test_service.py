"""What a key of a mocked language model may do, met by both real clients and read by Headgate's own wire."""

import asyncio

import aiohttp
import pytest
from tests.sdks import anthropic, openai

from headgate.core.decision import Outcome
from headgate.mock.api import MockPlan
from headgate.mock.providers.provider_api import TROUBLES, Fault
from headgate.mock.server import MockServer
from headgate.units import Rate, Step
from headgate.wire import read, signal_of

NAMES = ("openai", "anthropic")  # test_vendors.py has the others
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
SIX_IN_THE_EVENING = 1_790_000_000.0 - 1_790_000_000.0 % DAY + 18 * HOUR  # UTC
SHORT = [{"role": "user", "content": "abcd"}]  # one token
MOST = 9
COST = 1 + MOST

pytestmark = pytest.mark.parametrize("name", NAMES)


class Hands:
    """Both clocks of the server, moved by the test."""

    def __init__(self):
        self.moved = 0.0

    def clock(self):
        return 100.0 + self.moved

    def wall(self):
        return SIX_IN_THE_EVENING + self.moved


class Caller:
    """One real client of either vendor, by what they have in common."""

    def __init__(self, name, server):
        self.name, self.server = name, server

    def client(self, key):
        made = {"openai": openai.AsyncOpenAI, "anthropic": anthropic.AsyncAnthropic}[self.name]
        return made(api_key=key, base_url=self.server.base_url(self.name), max_retries=0)

    async def __call__(self, key="key-a", content="abcd", max_tokens=None):
        """A call of ``COST`` tokens: OpenAI counts what may come back, Anthropic the prompt and the answer."""
        max_tokens = max_tokens or (COST if self.name == "openai" else MOST)
        asked = {"model": "m", "max_tokens": max_tokens, "messages": [{"role": "user", "content": content}]}
        async with self.client(key) as client:
            endpoint = client.chat.completions if self.name == "openai" else client.messages
            try:
                return await endpoint.with_raw_response.create(**asked)
            except (openai.APIStatusError, anthropic.APIStatusError) as error:
                return error


def talk(name, conversation, **plan):
    """Run ``conversation(call, hands, server)``; ``call`` gives an answer or the client's own error."""

    async def main():
        hands = Hands()
        settings = {"providers": (name,), "clock": hands.clock, "wall": hands.wall, "seed": 1}
        async with MockServer(MockPlan(latency=0.0, **plan), **settings) as server:
            return await conversation(Caller(name, server), hands, server)

    return asyncio.run(main())


def statuses(answers):
    return [answer.status_code for answer in answers]


def told(answer, counted, what):
    """A header of the limits, by whichever name it has."""
    headers = getattr(answer, "response", answer).headers
    return headers.get(f"x-ratelimit-{what}-{counted}") or headers[f"anthropic-ratelimit-{counted}-{what}"]


def heard(error):
    return signal_of(error, None, None, None, None, SIX_IN_THE_EVENING)


def test_calls_above_the_rate_are_the_clients_rate_limit_error_with_the_wait(name):
    async def conversation(call, hands, server):
        return [await call() for _ in range(3)]

    *_, good, error = talk(name, conversation, rate=Rate(2.0, MINUTE))
    assert isinstance(error, (openai.RateLimitError, anthropic.RateLimitError))
    assert (told(good, "requests", "remaining"), told(error, "requests", "remaining")) == ("0", "0")
    assert told(error, "requests", "limit") == "2"
    if name == "openai":
        assert (error.type, error.code) == ("requests", "rate_limit_exceeded")
        assert "for m in organization" in error.message
        assert "on requests per min (RPM): Limit 2, Used 2, Requested 1. Please try again in 30s." in error.message
    else:
        assert error.body["error"]["type"] == "rate_limit_error"
        assert "rate limit of 2 requests per minute" in error.message
        assert error.response.headers["retry-after"] == "30"


def test_the_token_limit_refuses_while_calls_are_left(name):
    async def conversation(call, hands, server):
        answers = [await call() for _ in range(4)]
        hands.moved += COST * MINUTE / 35 - 5 * MINUTE / 35  # the five that were left are ten again
        return [*answers, await call()]

    *good, error, later = talk(name, conversation, rate=Rate(100.0, MINUTE), tokens=Rate(35.0, MINUTE))
    assert statuses([*good, error, later]) == [200, 200, 200, 429, 200]
    assert told(error, "requests", "remaining") == "97"
    assert told(error, "tokens", "limit") == "35"
    assert heard(error).outcome is Outcome.RATE_LIMITED
    if name == "openai":
        assert error.type == "tokens"
        assert "(TPM): Limit 35, Used 30, Requested 10. Please try again in 8.572s." in error.message
    else:
        assert "rate limit of 35 tokens per minute" in error.message


def test_a_refused_call_spends_nothing(name):
    async def conversation(call, hands, server):
        return [await call(content=content) for content in ("x" * 400, "abcd", "x" * 400, "abcd")]

    answers = talk(
        name, conversation, rate=Rate(3.0, MINUTE), tokens=Rate(115.0 if name == "openai" else 125.0, MINUTE)
    )
    assert statuses(answers) == [200, 200, 429, 429]
    assert told(answers[2], "requests", "remaining") == "1"


def test_a_call_above_the_whole_token_limit_never_passes(name):
    async def conversation(call, hands, server):
        return await call(content="x" * 404)

    error = talk(name, conversation, tokens=Rate(100.0, MINUTE))
    if name == "openai":
        assert "Request too large for m in organization org-mock on tokens per min (TPM): Limit 100" in error.message
        assert heard(error).outcome is Outcome.TOO_LARGE
    else:  # which has no word of its own for that
        assert heard(error).outcome is Outcome.RATE_LIMITED
    assert (error.status_code, told(error, "tokens", "limit")) == (429, "100")


def test_every_key_has_budgets_of_its_own(name):
    async def conversation(call, hands, server):
        return [await call(key=key) for key in ("key-a", "key-a", "key-b", "key-b")]

    assert statuses(talk(name, conversation, rate=Rate(1.0, MINUTE))) == [200, 429, 200, 429]
    assert statuses(talk(name, conversation, tokens=Rate(15.0, MINUTE))) == [200, 429, 200, 429]


def test_named_keys_have_plans_of_their_own_and_no_other_is_taken(name):
    keys = (
        MockPlan(rate=Rate(1.0, MINUTE)),
        MockPlan(rate=Rate(9.0, MINUTE), tokens=Rate(15.0, MINUTE)),
        MockPlan(rate=Rate(9.0, MINUTE), per_day=2),
    )

    async def conversation(call, hands, server):
        asked = [await call(key=f"mock-key-{number}") for number in (1, 1, 2, 2, 3, 3, 3)]
        return [*asked, await call(key="mock-key-4")]

    answers = talk(name, conversation, keys=keys)
    assert statuses(answers) == [200, 429, 200, 429, 200, 200, 429, 401]
    assert [told(answers[at], "requests", "limit") for at in (1, 3, 6)] == ["1", "9", "9"]


@pytest.mark.no_cover
def test_a_keys_day_ends_at_midnight_utc(name):
    async def conversation(call, hands, server):
        answers = [await call() for _ in range(3)]
        answers.append(await call(key="key-b"))
        for moved in (6 * HOUR - 1, 2):
            hands.moved += moved
            answers.append(await call())
        return answers

    answers = talk(name, conversation, rate=Rate(100.0, MINUTE), per_day=2)
    assert statuses(answers) == [200, 200, 429, 200, 429, 200]
    signal = heard(answers[2])
    assert signal.retry_after == 6 * HOUR
    if name == "openai":
        assert (
            "on requests per day (RPD): Limit 2, Used 2, Requested 1. Please try again in 6h0m0s." in answers[2].message
        )
        assert signal.outcome is Outcome.QUOTA_EXHAUSTED
    else:
        assert "rate limit of 2 requests per day" in answers[2].message
        assert signal.outcome is Outcome.RATE_LIMITED  # it says so with the wait alone


def test_a_step_changes_calls_and_tokens(name):
    async def conversation(call, hands, server):
        before = await call()
        hands.moved += 10.0
        return before, await call()

    plan = {"rate": Rate(60.0, MINUTE), "tokens": Rate(600.0, MINUTE), "steps": (Step(0.5, 10.0),)}
    before, after = talk(name, conversation, **plan)
    assert [told(before, counted, "limit") for counted in ("requests", "tokens")] == ["60", "600"]
    assert [told(after, counted, "limit") for counted in ("requests", "tokens")] == ["30", "300"]


def test_calls_at_a_time_can_be_the_limit(name):
    async def conversation(call, hands, server):
        return await asyncio.gather(*(call(key="key-a") for _ in range(3))), await call()

    async def main():
        plan = MockPlan(latency=0.3, algorithm="concurrency", at_once=2)  # real time: the calls must overlap
        async with MockServer(plan, providers=(name,)) as server:
            return await conversation(Caller(name, server), None, server)

    together, after = asyncio.run(main())
    assert sorted(statuses(together)) == [200, 200, 429]
    assert after.status_code == 200


OUTCOMES = {
    "rate_limited": (Outcome.RATE_LIMITED, 1.0),
    "quota": (Outcome.SPEND, None),
    "unauthorized": (Outcome.AUTH, None),
    "forbidden": (Outcome.AUTH, None),
    "invalid": (Outcome.INVALID, None),
    "not_found": (Outcome.INVALID, None),
    "too_large": (Outcome.TOO_LARGE, None),
    "server_error": (Outcome.TRANSIENT, None),
    "unavailable": (Outcome.OVERLOADED, None),
    "overloaded": (Outcome.OVERLOADED, None),
}


def test_every_trouble_of_all_mocks_is_known(name):
    assert set(TROUBLES) <= set(OUTCOMES)


@pytest.mark.no_cover
@pytest.mark.parametrize("trouble", OUTCOMES)
def test_headgate_reads_every_refusal_from_the_clients_own_error(name, trouble):
    async def conversation(call, hands, server):
        server.services[name].faults.add(Fault(trouble=trouble))
        return await call()

    signal = heard(talk(name, conversation))
    assert (signal.outcome, signal.retry_after) == OUTCOMES[trouble]
    assert signal.dialect == name


@pytest.mark.parametrize(("unit", "floor"), [("calls", 30.0), ("tokens", 15.0)])
def test_headgate_reads_the_floor_and_the_limits_of_a_real_refusal(name, unit, floor):
    plan = {"calls": {"rate": Rate(2.0, MINUTE)}, "tokens": {"tokens": Rate(20.0, MINUTE)}}[unit]

    async def conversation(call, hands, server):
        prompt = name == "openai"  # which counts what may come back, and not the prompt too
        return [await call(max_tokens=most + prompt) for most in (MOST, MOST, 4)][-1]

    signal = heard(talk(name, conversation, **plan))
    assert (signal.outcome, signal.retry_after) == (Outcome.RATE_LIMITED, floor)
    limits = {limit.dimension: limit for limit in signal.limits}
    hit = limits["requests" if unit == "calls" else "tokens"]
    assert (hit.limit, hit.remaining, hit.window) == (2.0 if unit == "calls" else 20.0, 0.0, MINUTE)


def test_headgate_reads_an_error_inside_a_started_stream(name):
    paths = {"openai": "/chat/completions", "anthropic": "/v1/messages"}
    headers = {"Authorization": "Bearer k", "anthropic-version": "2023-06-01"}

    async def conversation(call, hands, server):
        server.services[name].faults.add(Fault(trouble="overloaded", drop="midway"))
        asked = {"model": "m", "max_tokens": 99, "messages": SHORT, "stream": True}
        url = server.base_url(name) + paths[name]
        async with aiohttp.ClientSession() as session, session.post(url, json=asked, headers=headers) as response:
            return response.status, dict(response.headers), await response.text()

    status, headers_told, body = talk(name, conversation)
    outcome = read(status, headers_told, body, wall=0.0).outcome
    assert (status, outcome) == (200, Outcome.OVERLOADED if name == "anthropic" else Outcome.TRANSIENT)


def test_the_truth_counts_tokens_and_ids_and_names_no_key(name):
    async def conversation(call, hands, server):
        async with call.client("a-secret-key") as client:
            endpoint = client.chat.completions if name == "openai" else client.messages
            for item in ("one", "two", "two"):
                asked = {"model": "m", "max_tokens": MOST, "messages": SHORT}
                await endpoint.create(**asked, extra_headers={"Idempotency-Key": item})
        return server.truth()

    truth = talk(name, conversation)
    assert "a-secret-key" not in str(truth)
    told_by_desk = truth["providers"][name]
    assert (told_by_desk["answered"], told_by_desk["tokens_in"], told_by_desk["tokens_out"]) == (3, 3, 3 * MOST)
    assert (told_by_desk["ids_done"], told_by_desk["ids_done_twice"]) == (2, 1)
