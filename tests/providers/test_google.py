"""Google's own: the key in the query, ten to a page, and days that end at midnight Pacific."""

import time
from datetime import UTC, datetime

import pytest

from headgate.credentials import Credential, CredentialCoordinator
from headgate.errors import ConfigError, RateLimitError
from headgate.mock.api import MockPlan
from headgate.providers import GoogleProvider
from headgate.units import Rate
from headgate.wire.retry_after import next_midnight_pacific


def test_it_asks_as_google_wants_to_be_asked(run, switch, settings):
    async def scenario(world):
        await world.provider("google").search("gates", max_results=7, lr="lang_de")
        return world.asked("google")[0]

    asked = run(scenario)
    assert (asked.method, asked.path) == ("GET", "/google/customsearch/v1")
    expected = {"key": settings.key, "cx": "engine", "q": "gates", "num": "7", "start": "1", "lr": "lang_de"}
    assert dict(asked.query) == expected


def test_its_results_are_typed(run, switch):
    async def scenario(world):
        return (await world.provider("google").search("gates", max_results=1))[0]

    result = run(scenario)
    assert (result.title, result.url) == ("gates: an introduction (1)", "https://example.org/gates/1")
    assert (result.snippet, result.provider) == ("Page 1 on gates: an introduction.", "google")
    assert result.published_at == datetime(2018, 1, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(("wanted", "nums"), [(25, ["10", "10", "5"]), (1000, ["10"] * 10)])
def test_it_pages_up_to_a_hundred(run, switch, wanted, nums):
    async def scenario(world):
        results = await world.provider("google").search("gates", max_results=wanted)
        return results, [asked.query["num"] for asked in world.asked("google")]

    results, asked = run(scenario)
    assert asked == nums
    assert [result.url for result in results] == [
        f"https://example.org/gates/{index + 1}" for index in range(min(wanted, 100))
    ]


def test_a_page_beyond_the_hundredth_result_is_not_asked_for_though_google_names_one(run, switch):
    async def scenario(world):
        items = [{"title": "one", "link": "https://example.org/1"}]
        world.fault("google", status=200, body={"items": items, "queries": {"nextPage": [{"startIndex": 101}]}})
        results = await world.provider("google").search("gates", max_results=100)
        return len(results), world.calls("google")

    assert run(scenario) == (1, 1)


@pytest.mark.parametrize(("trouble", "status"), [("quota", 429), ("daily_limit", 403)])
def test_a_daily_quota_parks_the_key_until_midnight_pacific_and_the_others_go_on(run, switch, trouble, status):
    async def scenario(world):
        keys = CredentialCoordinator(
            [Credential("spent", "spent-key-00"), Credential("fresh", "fresh-key-00")], at_once=None, provider="google"
        )
        google = world.provider("google", credentials=keys)
        world.fault("google", times=9, trouble=trouble, key="spent-key-00")
        for _ in range(3):
            assert await google.search("gates")
        wall = time.time()
        return (
            [asked.query["key"] for asked in world.asked("google")],
            keys.states(),
            next_midnight_pacific(wall) - wall,
        )

    used, states, until_midnight = run(scenario)
    assert used.count("spent-key-00") == 1
    assert used.count("fresh-key-00") == 3
    (spent,) = [state for state in states if state.label == "spent"]
    assert spent.state == "resting"
    assert spent.back_in == pytest.approx(until_midnight, rel=0.2, abs=60.0)
    assert spent.back_in >= until_midnight - 60.0


def test_a_daily_quota_by_the_mocks_own_count(run, switch):
    async def scenario(world):
        keys = CredentialCoordinator(["one-key-00000", "two-key-00000"], at_once=None, provider="google")
        google = world.provider("google", credentials=keys)
        found = [len(await google.search("gates", max_results=1)) for _ in range(4)]
        with pytest.raises(RateLimitError):
            await google.search("gates")
        return found, keys.get_quarantine_count()

    assert run(scenario, MockPlan(rate=Rate(10_000.0), latency=0.0, per_day=2)) == ([1, 1, 1, 1], 2)


def test_a_daily_quota_on_the_only_key_says_when_to_come_back(run, switch):
    async def scenario(world):
        world.fault("google", times=9, trouble="quota")
        with pytest.raises(RateLimitError) as failure:
            await world.search("google")
        wall = time.time()
        return failure.value, world.calls("google"), next_midnight_pacific(wall) - wall

    error, calls, until_midnight = run(scenario)
    assert (error.status_code, calls) == (429, 1)
    assert error.retry_after == pytest.approx(until_midnight, abs=60.0)


def test_a_quota_of_a_minute_is_only_a_rate_limit(run, switch):
    async def scenario(world):
        world.fault("google", trouble="rate_limited")
        return len(await world.search("google")), world.calls("google")

    assert run(scenario) == (3, 2)


def test_it_needs_an_engine():
    with pytest.raises(ConfigError, match="engine_id"):
        GoogleProvider("a-key")
