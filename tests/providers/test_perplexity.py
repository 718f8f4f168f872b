"""Perplexity's own: its request, its long snippets, and a quota that means the key is dead."""

from datetime import UTC, datetime

import pytest

from headgate.errors import AuthenticationError


def test_it_asks_as_perplexity_wants_to_be_asked(run, switch, settings):
    async def scenario(world):
        await world.provider("perplexity").search("gates", max_results=7, country="DE")
        return world.asked("perplexity")[0]

    asked = run(scenario)
    assert (asked.method, asked.path, asked.bearer) == ("POST", "/perplexity/search", settings.key)
    assert asked.body == {"query": "gates", "max_results": 7, "country": "DE"}


def test_its_results_are_typed(run, switch):
    async def scenario(world):
        return (await world.provider("perplexity").search("gates", max_results=1))[0]

    result = run(scenario)
    assert (result.title, result.url) == ("gates: an introduction (1)", "https://example.org/gates/1")
    assert result.content.startswith(result.snippet)
    assert result.published_at == result.extra["last_updated_at"] == datetime(2018, 1, 1, tzinfo=UTC)


def test_more_than_it_has_brings_what_it_has(run, switch):
    async def scenario(world):
        return len(await world.provider("perplexity").search("gates", max_results=500)), world.calls("perplexity")

    assert run(scenario) == (20, 1)


def test_a_used_up_balance_is_a_dead_key(run, switch):
    async def scenario(world):
        world.fault("perplexity", times=9, trouble="quota")
        with pytest.raises(AuthenticationError, match="spend"):
            await world.search("perplexity")
        return world.calls("perplexity")

    assert run(scenario) == 1
