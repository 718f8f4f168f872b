"""Semantic Scholar's own: a key in a header or none at all, offset pages, and a code that is a string."""

from datetime import UTC, datetime


def test_it_asks_as_semantic_scholar_wants_to_be_asked(run, switch, settings):
    async def scenario(world):
        await world.provider("semantic_scholar").search("gates", max_results=7, year="2020-")
        return world.asked("semantic_scholar")[0]

    asked = run(scenario)
    assert (asked.method, asked.path) == ("GET", "/semantic_scholar/graph/v1/paper/search")
    assert asked.headers["x-api-key"] == settings.key
    assert (asked.query["query"], asked.query["offset"], asked.query["limit"], asked.query["year"]) == (
        "gates",
        "0",
        "7",
        "2020-",
    )


def test_it_works_without_a_key(run, switch):
    async def scenario(world):
        results = await world.provider("semantic_scholar", api_key=None).search("gates", max_results=2)
        return results, "x-api-key" in world.asked("semantic_scholar")[0].headers

    results, carried = run(scenario)
    assert len(results) == 2
    assert not carried


def test_its_results_are_typed(run, switch):
    async def scenario(world):
        return await world.provider("semantic_scholar").search("gates", max_results=2)

    first, second = run(scenario)
    assert first.url == f"https://www.semanticscholar.org/paper/{0:040x}"
    assert first.snippet == "Page 1 on gates: an introduction."
    assert first.content is None  # some papers have no abstract
    assert second.content == "Page 2 on gates: a survey. It is made up, and says so."
    assert first.published_at == datetime(2018, 1, 1, tzinfo=UTC)  # of its year
    assert second.published_at == datetime(2019, 2, 2, tzinfo=UTC)
    assert second.extra == {
        "authors": ["A. Author 1"],
        "venue": "Journal of Mock Results",
        "citations": 387.0,
        "doi": "10.5555/mock.1",
        "pdf": "",
    }


def test_it_pages_until_there_is_no_more(run, switch):
    async def scenario(world):
        results = await world.provider("semantic_scholar").search("gates", max_results=500)
        asked = [(each.query["offset"], each.query["limit"]) for each in world.asked("semantic_scholar")]
        return len({result.url for result in results}), asked

    assert run(scenario) == (130, [("0", "100"), ("100", "100")])


def test_a_429_whose_code_is_a_string_is_asked_again(run, switch):
    body = {"message": "Too Many Requests. Please wait and try again.", "code": "429"}

    async def scenario(world):
        world.fault("semantic_scholar", status=429, body=body)
        return len(await world.search("semantic_scholar")), world.calls("semantic_scholar")

    assert run(scenario) == (3, 2)
