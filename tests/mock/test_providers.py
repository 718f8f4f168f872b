"""The search APIs as the mock speaks them, over real loopback sockets."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace

import aiohttp
import pytest

from headgate.core.decision import Outcome
from headgate.mock.api import MockPlan
from headgate.mock.providers import PROVIDER_APIS
from headgate.mock.providers.provider_api import TROUBLES, Fault
from headgate.mock.server import MockServer
from headgate.units import Outage, Rate
from headgate.wire import read

NAMES = tuple(PROVIDER_APIS)
NOON_PACIFIC = 1_790_000_000.0 - 1_790_000_000.0 % 86_400 + 20 * 3600  # 13:00 in summer, 12:00 in winter
AT_ONCE = MockPlan(rate=Rate(1000.0), latency=0.0)

QUESTIONS = {
    "tavily": {"json": {"query": "gates", "max_results": 3}},
    "tavily_extract": {"json": {"urls": ["https://example.org/a"]}},
    "google": {"params": {"cx": "engine", "q": "gates", "num": "3"}},
    "perplexity": {"json": {"query": "gates", "max_results": 3}},
    "semantic_scholar": {"params": {"query": "gates", "limit": "3", "fields": "title,url"}},
    "crossref": {"params": {"query": "gates", "rows": "3", "select": "DOI,title"}},
}


def with_key(name, question, key):
    question = {**question, "params": dict(question.get("params", {})), "headers": {}}
    if name == "google":
        question["params"]["key"] = key
    elif name == "semantic_scholar":
        question["headers"]["x-api-key"] = key
    elif name == "crossref":
        question["headers"]["Crossref-Plus-API-Token"] = f"Bearer {key}"
    else:
        question["headers"]["Authorization"] = f"Bearer {key}"
    return question


def talk(conversation, plan=AT_ONCE, providers=NAMES, **settings):
    """Run ``conversation(call, server)``; ``call(name)`` asks that API once."""

    async def main():
        async with MockServer(plan, providers=providers, **settings) as server, aiohttp.ClientSession() as session:

            async def call(name, key="key-a", question=None, base=None):
                api = PROVIDER_APIS[name]
                asked = question or QUESTIONS[name]
                url = (server.base_url(name) if base is None else base) + api.path
                asked = with_key(name, asked, key) if key else asked
                async with session.request(api.method, url, allow_redirects=False, **asked) as response:
                    raw = await response.read()
                    body = json.loads(raw) if "json" in response.content_type else raw.decode()
                    return SimpleNamespace(status=response.status, headers=response.headers, body=body)

            return await conversation(call, server)

    return asyncio.run(main())


@pytest.mark.parametrize("name", NAMES)
def test_a_good_question_gets_results(name):
    async def conversation(call, server):
        return await call(name)

    answer = talk(conversation)
    assert answer.status == 200
    found = answer.body.get("message", answer.body)
    assert found.get("results") or found.get("items") or found.get("data")


def test_the_same_question_always_finds_the_same_pages_everywhere():
    async def conversation(call, server):
        web = [await call(name) for name in ("tavily", "google", "perplexity", "tavily")]
        return [[each.get("url") or each["link"] for each in a.body.get("results") or a.body["items"]] for a in web]

    found = talk(conversation)
    assert found[0] == found[1] == found[2] == found[3]
    assert found[0][0] == "https://example.org/gates/1"


@pytest.mark.parametrize("name", NAMES)
def test_what_the_api_does_not_take_is_a_400_in_its_own_words(name):
    bad = {
        "tavily": {"json": {"query": "x", "max_results": 21}},
        "tavily_extract": {"json": {"urls": ["https://example.org"] * 21}},
        "google": {"params": {"q": "no engine"}},
        "perplexity": {"json": {"query": " "}},
        "semantic_scholar": {"params": {"query": "x", "fields": "title,bad"}},
        "crossref": {"params": {"query": "x", "select": "title,bad"}},
    }

    async def conversation(call, server):
        return await call(name, question=bad[name])

    answer = talk(conversation)
    assert answer.status == 400
    assert read(400, {}, answer.body, wall=0.0).outcome is Outcome.INVALID


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["", "revoked-key"])
def test_a_missing_or_revoked_key_is_refused_as_the_real_one_does(name, key):
    async def conversation(call, server):
        return await call(name, key=key)

    answer = talk(conversation)
    if PROVIDER_APIS[name].keyless and not key:
        assert answer.status == 200  # it answers all the world
    else:
        assert read(answer.status, {}, answer.body, wall=0.0).outcome is Outcome.AUTH


@pytest.mark.parametrize("name", NAMES)
def test_every_key_has_a_rate_of_its_own(name):
    async def conversation(call, server):
        return [(await call(name, key=key)).status for key in ("key-a", "key-a", "key-a", "key-b")]

    assert talk(conversation, MockPlan(rate=Rate(2.0, 60.0), latency=0.0)) == [200, 200, 429, 200]


def test_only_tavily_says_when_to_come_back():
    async def conversation(call, server):
        return {name: [await call(name) for _ in range(2)][-1].headers.get("Retry-After") for name in NAMES}

    told = talk(conversation, MockPlan(rate=Rate(1.0, 60.0), latency=0.0))
    assert told == dict.fromkeys(NAMES) | {"tavily": "60", "tavily_extract": "60"}


@pytest.mark.parametrize("name", NAMES)
def test_a_keys_day_ends_at_midnight_pacific(name):
    wall = [NOON_PACIFIC]

    async def conversation(call, server):
        spent = [await call(name) for _ in range(3)]
        other = await call(name, key="key-b")
        wall[0] += 86_400.0
        return spent, other, await call(name)

    spent, other, tomorrow = talk(conversation, replace(AT_ONCE, per_day=2), wall=lambda: wall[0])
    refused = read(spent[2].status, {}, spent[2].body, wall=NOON_PACIFIC)
    assert [each.status for each in spent[:2]] == [200, 200]
    assert spent[2].status == {"tavily": 432, "tavily_extract": 432, "perplexity": 401}.get(name, 429)
    assert refused.outcome in (Outcome.QUOTA_EXHAUSTED, Outcome.KEY_DEAD, Outcome.SPEND, Outcome.RATE_LIMITED)
    assert (other.status, tomorrow.status) == (200, 200)


@pytest.mark.parametrize("name", NAMES)
def test_an_outage_is_told_in_its_own_words(name):
    async def conversation(call, server):
        return await call(name)

    answer = talk(conversation, MockPlan(latency=0.0, outages=(Outage(0.0, 60.0),)))
    assert answer.status == 503
    assert answer.body == PROVIDER_APIS[name].refuse("unavailable").body


OUTCOMES = {
    "rate_limited": {Outcome.RATE_LIMITED},
    "quota": {Outcome.QUOTA_EXHAUSTED, Outcome.KEY_DEAD, Outcome.SPEND, Outcome.RATE_LIMITED},
    "unauthorized": {Outcome.AUTH},
    "forbidden": {Outcome.AUTH},
    "invalid": {Outcome.INVALID},
    "server_error": {Outcome.TRANSIENT, Outcome.OVERLOADED},
    "unavailable": {Outcome.OVERLOADED},
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_every_trouble_is_what_the_wire_takes_it_for(name, trouble):
    reply = PROVIDER_APIS[name].refuse(trouble)
    assert read(reply.status, reply.headers, reply.body, wall=0.0).outcome in OUTCOMES[trouble]


@pytest.mark.parametrize("name", NAMES)
def test_a_script_is_acted_out_in_order_and_then_all_is_well(name):
    async def conversation(call, server):
        faults = server.services[name].faults
        faults.add(Fault(trouble="server_error"), times=2)
        faults.add(Fault(status=418, body={"short": "stout"}, headers={"X-Pot": "tea"}))
        return [await call(name) for _ in range(4)]

    answers = talk(conversation)
    assert [each.status for each in answers] == [500, 500, 418, 200]
    assert (answers[2].body, answers[2].headers["X-Pot"]) == ({"short": "stout"}, "tea")


def test_a_fault_can_be_meant_for_one_key():
    async def conversation(call, server):
        server.services["tavily"].faults.add(Fault(trouble="pay_as_you_go", key="key-b"))
        return [(await call("tavily", key=key)).status for key in ("key-a", "key-b", "key-b")]

    assert talk(conversation) == [200, 433, 200]


@pytest.mark.parametrize("drop", ["before", "midway"])
def test_it_can_hang_up(drop):
    async def conversation(call, server):
        server.services["google"].faults.add(Fault(drop=drop), times=2)  # aiohttp asks again for a GET that got nothing
        with pytest.raises(aiohttp.ClientError):
            await call("google")
        server.services["google"].faults.clear()
        return (await call("google")).status

    assert talk(conversation) == 200


def test_faults_can_be_scripted_from_outside():
    async def conversation(call, server):
        async with aiohttp.ClientSession() as session:
            told = {"provider": "tavily", "trouble": "rate_limited", "times": 2, "headers": {"retry-after": "7"}}
            async with session.post(f"{server.url}/_faults", json=told) as response:
                assert (response.status, await response.json()) == (200, {"faults_waiting": 2})
            for bad, said in (
                ({"provider": "nobody"}, "provider must be one of tavily,"),
                ({"trouble": "rate_limited"}, "provider must be one of tavily,"),
                ({"provider": "tavily", "trouble": "love"}, "has no trouble 'love'"),
                ([], "expected a JSON object"),
                ({"provider": "google", "x": 1}, "unknown field 'x'; known are provider, times, trouble, status"),
                ({"provider": ["google"]}, "provider must be one of tavily,"),
            ):
                async with session.post(f"{server.url}/_faults", json=bad) as response:
                    assert response.status == 400
                    assert said in (await response.json())["error"]
        return [await call("tavily") for _ in range(3)]

    answers = talk(conversation)
    assert [(each.status, each.headers.get("retry-after")) for each in answers] == [(429, "7"), (429, "7"), (200, None)]


def test_google_pages_end_at_a_hundred():
    async def conversation(call, server):
        pages = []
        for start in ("1", "91", "92"):
            question = {"params": {"cx": "e", "q": "gates", "start": start}}
            pages.append(await call("google", question=question))
        return pages

    first, last, beyond = talk(conversation)
    assert first.body["queries"]["nextPage"][0]["startIndex"] == 11
    assert "nextPage" not in last.body["queries"]
    assert beyond.status == 400


def test_semantic_scholar_says_where_the_next_page_begins_until_the_last():
    async def conversation(call, server):
        questions = [{"params": {"query": "gates", "limit": "100", "offset": offset}} for offset in ("0", "100", "950")]
        return [await call("semantic_scholar", question=question) for question in questions]

    first, last, beyond = talk(conversation)
    assert (first.body["total"], first.body["next"], len(first.body["data"])) == (130, 100, 100)
    assert "next" not in last.body
    assert len(last.body["data"]) == 30
    assert beyond.status == 400


def test_an_api_that_is_alone_has_its_real_paths_at_the_root_too():
    async def conversation(call, server):
        return [(await call(name, base=server.url)).status for name in ("tavily", "tavily_extract")]

    assert talk(conversation, providers=("tavily", "tavily_extract")) == [200, 200]


def test_the_truth_counts_each_api_and_names_no_key():
    async def conversation(call, server):
        await call("google", key="a-secret-key")
        await call("google", key="revoked")
        async with aiohttp.ClientSession() as session, session.get(f"{server.url}/_truth") as response:
            return await response.text()

    told = talk(conversation)
    assert "a-secret-key" not in told
    counts = json.loads(told)["providers"]["google"]
    assert (counts["asked"], counts["answered"], counts["refused"], counts["keys"]) == (2, 1, 1, 1)


def test_it_explains_where_each_api_is():
    async def conversation(call, server):
        async with aiohttp.ClientSession() as session, session.get(server.url) as response:
            return await response.text(), server.base_url("google")

    page, base = talk(conversation)
    assert f"{base}/customsearch/v1" in page


@pytest.mark.parametrize(
    "bad", [{"drop": "now"}, {"delay": -1.0}, {"delay": float("nan")}, {"status": 99}], ids=lambda bad: next(iter(bad))
)
def test_a_fault_out_of_range_is_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Fault(**bad)


def test_an_unknown_provider_is_refused():
    with pytest.raises(ValueError, match="tavily"):
        MockServer(AT_ONCE, providers=("altavista",))
