"""Tavily Extract's own: addresses in, texts out, twenty to a call, and half a success."""

import pytest

from headgate.errors import ConfigError


def test_it_asks_as_tavily_wants_to_be_asked(run, switch, settings):
    async def scenario(world):
        await world.provider("tavily_extract").search(
            "https://example.org/a  https://example.org/b", extract_depth="basic"
        )
        return world.asked("tavily_extract")[0]

    asked = run(scenario)
    assert (asked.method, asked.path, asked.bearer) == ("POST", "/tavily/extract", settings.key)
    assert asked.body == {"urls": ["https://example.org/a", "https://example.org/b"], "extract_depth": "basic"}


def test_its_results_are_typed(run, switch):
    async def scenario(world):
        return await world.provider("tavily_extract").search("https://example.org/a")

    (result,) = run(scenario)
    assert (result.url, result.title, result.provider) == (
        "https://example.org/a",
        "https://example.org/a",
        "tavily_extract",
    )
    assert result.content.endswith("It is made up, and says so.")


def test_many_addresses_take_several_calls_and_those_that_fail_are_named(run, switch):
    urls = [f"https://example.org/{number}" for number in range(44)] + ["https://example.org/missing"]

    async def scenario(world):
        extraction = await world.provider("tavily_extract").extract(urls)
        return extraction, [len(asked.body["urls"]) for asked in world.asked("tavily_extract")]

    extraction, sizes = run(scenario)
    assert [result.url for result in extraction.results] == urls[:44]
    assert extraction.failed == {"https://example.org/missing": "Failed to fetch url"}
    assert sizes == [20, 20, 5]


def test_addresses_that_fail_make_room_for_others(run, switch):
    query = " ".join(["https://example.org/missing/1", "https://example.org/a", "https://example.org/b"])

    async def scenario(world):
        return [found.url for found in await world.provider("tavily_extract").search(query, max_results=2)]

    assert run(scenario) == ["https://example.org/a", "https://example.org/b"]


def test_more_addresses_than_one_extraction_takes_are_refused(run):
    async def scenario(world):
        with pytest.raises(ConfigError, match="201 URLs"):
            await world.provider("tavily_extract").extract(["https://example.org/"] * 201)

    run(scenario)
