"""The mock API over real loopback sockets, with a clock of the test's own."""

import asyncio
import json
import time
from datetime import datetime

import aiohttp
import pytest

from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.units import Outage, Rate, Step


class HandClock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def talk(plan, dialect, conversation):
    """Run ``conversation(get, clock)`` against a server; ``get`` returns (status, headers, body)."""

    async def main():
        clock = HandClock()
        async with MockServer(plan, dialect=dialect, clock=clock) as server, aiohttp.ClientSession() as session:

            async def get(path="/v1/x", **kwargs):
                method = kwargs.pop("method", "GET")
                async with session.request(method, server.url + path, **kwargs) as response:
                    text = await response.text()
                    is_json = "json" in response.content_type
                    return response.status, response.headers, json.loads(text) if is_json else text

            return await conversation(get, clock)

    return asyncio.run(main())


TWO_A_MINUTE = MockPlan(rate=Rate(2.0, 60.0), latency=0.0)


def refusal_in(dialect, plan=TWO_A_MINUTE):
    async def conversation(get, clock):
        answers = [await get() for _ in range(3)]
        assert [status for status, _, _ in answers] == [200, 200, 429]
        return answers[0], answers[2]

    return talk(plan, dialect, conversation)


def test_none_says_nothing_but_429():
    _, (_, headers, body) = refusal_in("none")
    assert body == {"error": "too many requests"}
    assert not [name for name in headers if "limit" in name.lower() or "retry" in name.lower()]


def test_retry_after_is_whole_seconds_rounded_up():
    _, (_, headers, _) = refusal_in("retry-after", MockPlan(rate=Rate(2.0, 4.2), latency=0.0))
    assert headers["Retry-After"] == "3"


def test_ietf_fields_and_problem_body():
    (_, first, _), (_, headers, body) = refusal_in("ietf")
    assert first["RateLimit-Policy"] == '"default";q=2;w=60'
    assert first["RateLimit"] == '"default";r=1;t=30'
    assert headers["RateLimit"] == '"default";r=0;t=60'
    assert headers["Retry-After"] == "30"
    assert headers["Content-Type"].startswith("application/problem+json")
    assert body["violated-policies"] == ["default"]


def test_openai_speaks_of_a_minute_and_says_the_wait_in_words():
    (_, first, _), (_, headers, body) = refusal_in("openai")
    assert first["x-ratelimit-limit-requests"] == "2"
    assert first["x-ratelimit-remaining-requests"] == "1"
    assert first["x-ratelimit-reset-requests"] == "30s"
    assert headers["x-ratelimit-reset-requests"] == "1m0s"
    assert body["error"]["code"] == "rate_limit_exceeded"
    assert "Please try again in 30s." in body["error"]["message"]
    (_, first, _), _ = refusal_in("openai", MockPlan(rate=Rate(10.0), burst=2, latency=0.0))
    assert first["x-ratelimit-limit-requests"] == "600"
    assert first["x-ratelimit-remaining-requests"] == "1"
    assert first["x-ratelimit-reset-requests"] == "100ms"


@pytest.mark.parametrize("algorithm", ["bucket", "window", "log"])
@pytest.mark.parametrize(
    ("dialect", "field"),
    [
        ("openai", "x-ratelimit-remaining-requests"),
        ("anthropic", "anthropic-ratelimit-requests-remaining"),
        ("github", "x-ratelimit-remaining"),
    ],
)
def test_no_more_is_said_to_be_left_than_really_is(algorithm, dialect, field):
    async def conversation(get, clock):
        return [(status, headers[field]) for status, headers, _ in [await get() for _ in range(4)]]

    plan = MockPlan(rate=Rate(3.0, 10.0), algorithm=algorithm, latency=0.0)
    assert talk(plan, dialect, conversation) == [(200, "2"), (200, "1"), (200, "0"), (429, "0")]


def test_anthropic_resets_are_instants():
    before = time.time()
    (_, first, _), (_, headers, body) = refusal_in("anthropic")
    reset = datetime.fromisoformat(first["anthropic-ratelimit-requests-reset"]).timestamp()
    assert before + 30 <= reset <= time.time() + 31
    assert first["anthropic-ratelimit-requests-remaining"] == "1"
    assert headers["retry-after"] == "30"
    assert body["error"]["type"] == "rate_limit_error"


def test_github_speaks_of_an_hour_and_resets_are_epoch_seconds():
    before = time.time()
    (_, first, _), (_, headers, body) = refusal_in("github")
    assert (first["x-ratelimit-limit"], first["x-ratelimit-remaining"], first["x-ratelimit-used"]) == (
        "120",
        "1",
        "119",
    )
    assert headers["x-ratelimit-remaining"] == "0"
    assert before + 60 <= int(headers["x-ratelimit-reset"]) <= time.time() + 61
    assert "rate limit exceeded" in body["message"]


@pytest.mark.parametrize(("dialect", "status"), [("none", 503), ("openai", 503), ("anthropic", 529)])
def test_an_outage_fails_and_ends(dialect, status):
    async def conversation(get, clock):
        seen = []
        for now in (100.0, 102.0, 104.9, 105.0):
            clock.now = now
            seen.append((await get())[0])
        return seen

    plan = MockPlan(latency=0.0, outages=(Outage(2.0, 3.0),))
    assert talk(plan, dialect, conversation) == [200, status, status, 200]


def test_a_step_is_felt_and_told():
    async def conversation(get, clock):
        _, before, _ = await get()
        clock.now += 10.0
        _, after, _ = await get()
        return before["RateLimit-Policy"], after["RateLimit-Policy"], (await get("/_truth"))[2]

    plan = MockPlan(rate=Rate(50.0), latency=0.0, steps=(Step(0.5, 10.0),))
    before, after, truth = talk(plan, "ietf", conversation)
    assert before == '"default";q=50;w=1'
    assert after == '"default";q=25;w=1'
    assert truth["quota_per_second"] == 25.0
    assert truth["allowed_so_far"] == pytest.approx(500.0)


def test_concurrency_is_counted_over_calls_in_flight():
    async def conversation(get, clock):
        answers = await asyncio.gather(*(get() for _ in range(5)))
        return sorted(status for status, _, _ in answers), (await get("/_truth"))[2]

    plan = MockPlan(algorithm="concurrency", at_once=3, latency=2.0)
    statuses, truth = talk(plan, "ietf", conversation)
    assert statuses == [200, 200, 200, 429, 429]
    assert truth["most_in_flight"] == 3
    assert truth["in_flight"] == 0


def test_a_caller_that_hangs_up_is_not_counted_as_answered():
    async def conversation(get, clock):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(get(headers={"Idempotency-Key": "7"}), 1.0)
        for _ in range(2000):
            truth = (await get("/_truth"))[2]
            if truth["in_flight"] == 0:
                return truth
            await asyncio.sleep(0.01)  # the socket tells the server when it likes
        return truth

    truth = talk(MockPlan(latency=30.0), "none", conversation)
    assert (truth["admitted"], truth["answered"], truth["ids_done"], truth["in_flight"]) == (1, 0, 0, 0)


def test_any_method_and_path_under_v1_is_the_api():
    async def conversation(get, clock):
        posted = await get("/v1/chat/completions", method="POST", json={"model": "m"})
        return posted, await get("/elsewhere")

    (status, _, body), (lost, _, advice) = talk(MockPlan(latency=0.0), "none", conversation)
    assert (status, body["path"]) == (200, "/v1/chat/completions")
    assert lost == 404
    assert "/v1/" in advice["error"]


def test_it_explains_itself_in_text_and_in_json():
    async def conversation(get, clock):
        return (await get("/"))[2], (await get("/", headers={"Accept": "application/json"}))[2]

    text, fields = talk(MockPlan(), "openai", conversation)
    assert "/_truth" in text
    assert fields["headers"] == "openai"


def test_an_unknown_dialect_is_refused():
    with pytest.raises(ValueError, match="openai"):
        MockServer(MockPlan(), dialect="klingon")


def test_every_key_has_a_quota_of_its_own_and_calls_need_one():
    keys = tuple(MockPlan(rate=Rate(amount, 60.0)) for amount in (2.0, 1.0))

    async def conversation(get, clock):
        def call(key):
            return get(headers={"Authorization": f"Bearer {key}", "Idempotency-Key": key})

        assert (await get())[0] == 401
        assert [(await call("mock-key-1"))[0] for _ in range(3)] == [200, 200, 429]
        assert [(await call("mock-key-2"))[0] for _ in range(2)] == [200, 429]
        status, _, body = await call("mock-key-3")
        assert (status, body["error"]) == (401, "send a key: Authorization: Bearer mock-key-1")
        _, _, truth = await get("/_truth")
        assert [key["admitted"] for key in truth["keys"]] == [2, 1]
        assert (truth["asked"], truth["rate_limited"], truth["ids_done"], truth["ids_done_twice"]) == (5, 2, 2, 1)
        _, _, page = await get("/")
        assert "2 keys with a quota each" in page

    talk(MockPlan(latency=0.0, keys=keys), "none", conversation)
