"""Tavily's own: its request, its fields, and the two ways in which its money runs out."""

from datetime import UTC, datetime

import pytest

from headgate.credentials import Credential, CredentialCoordinator
from headgate.errors import RateLimitError


def test_it_asks_as_tavily_wants_to_be_asked(run, switch, settings):
    async def scenario(world):
        await world.provider("tavily").search("gates", max_results=7, search_depth="advanced")
        return world.asked("tavily")[0]

    asked = run(scenario)
    assert (asked.method, asked.path) == ("POST", "/tavily/search")
    assert asked.bearer == settings.key
    assert asked.body == {"query": "gates", "max_results": 7, "search_depth": "advanced"}


def test_its_results_are_typed(run, switch):
    async def scenario(world):
        return await world.provider("tavily").search("gates", max_results=2, topic="news", include_raw_content=True)

    first, second = run(scenario)
    assert (first.title, first.url) == ("gates: an introduction (1)", "https://example.org/gates/1")
    assert first.provider == "tavily"
    assert first.snippet == "Page 1 on gates: an introduction."
    assert first.content == "Page 1 on gates: an introduction. It is made up, and says so."
    assert first.published_at == datetime(2018, 1, 1, tzinfo=UTC)
    assert first.score > second.score


def test_more_than_it_has_brings_what_it_has(run, switch):
    async def scenario(world):
        return len(await world.provider("tavily").search("gates", max_results=500)), world.calls("tavily")

    assert run(scenario) == (20, 1)


@pytest.mark.parametrize(("trouble", "status"), [("quota", 432), ("pay_as_you_go", 433)])
def test_money_that_is_used_up_parks_the_key_and_the_others_go_on(run, switch, trouble, status):
    async def scenario(world):
        keys = CredentialCoordinator(
            [Credential("poor", "poor-key-000"), Credential("rich", "rich-key-000")], at_once=None, provider="tavily"
        )
        tavily = world.provider("tavily", credentials=keys)
        world.fault("tavily", times=9, trouble=trouble, key="poor-key-000")
        for _ in range(3):
            assert await tavily.search("gates")
        return [asked.bearer for asked in world.asked("tavily")], {state.label: state.state for state in keys.states()}

    bearers, states = run(scenario)
    assert bearers.count("poor-key-000") == 1
    assert bearers.count("rich-key-000") == 3
    assert states == {"poor": "resting", "rich": "free"}


@pytest.mark.parametrize(("trouble", "status"), [("quota", 432), ("pay_as_you_go", 433)])
def test_money_that_is_used_up_on_the_only_key_is_a_rate_limit_error(run, switch, trouble, status):
    async def scenario(world):
        world.fault("tavily", times=9, trouble=trouble)
        with pytest.raises(RateLimitError, match=r"usage limit|pay-as-you-go") as failure:
            await world.search("tavily")
        return failure.value.status_code, world.calls("tavily")

    assert run(scenario) == (status, 1)
