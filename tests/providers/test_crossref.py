"""Crossref's own: no key or one that pays, offset pages, abstracts with tags, dates with holes."""

from datetime import UTC, datetime

import pytest

from headgate.providers import CrossrefProvider, Question

PAPER = {
    "DOI": "10.5555/12345678",
    "URL": "https://doi.org/10.5555/12345678",
    "title": ["Gates &amp; <i>weirs</i>\n of the 19th century"],
    "abstract": "<jats:title>Abstract</jats:title><jats:p>Water &lt; land.</jats:p>",
    "author": [{"given": "Josiah", "family": "Carberry"}, {"name": "The Weir Group"}],
    "container-title": ["Journal of Psychoceramics"],
    "issued": {"date-parts": [[1898, 5]]},
    "is-referenced-by-count": 12,
    "score": 31.5,
    "type": "journal-article",
}


def only(work):
    answer = {"status": "ok", "message": {"total-results": 1, "items": [work]}}
    page = CrossrefProvider().read(answer, Question("gates", 5))
    assert page.next_start is None
    return page.results[0]


def test_it_asks_as_crossref_wants_to_be_asked(run, switch):
    async def scenario(world):
        await world.provider("crossref", api_key=None).search("gates", max_results=7, mailto="me@example.org")
        return world.asked("crossref")[0]

    asked = run(scenario)
    assert (asked.method, asked.path) == ("GET", "/crossref/works")
    assert "Crossref-Plus-API-Token" not in asked.headers
    assert (asked.query["query"], asked.query["offset"], asked.query["rows"]) == ("gates", "0", "7")
    assert asked.query["mailto"] == "me@example.org"
    assert "DOI" in asked.query["select"].split(",")


def test_paying_callers_are_known_by_their_token(run, switch, settings):
    async def scenario(world):
        await world.search("crossref")
        return world.asked("crossref")[0].headers["Crossref-Plus-API-Token"]

    assert run(scenario) == f"Bearer {settings.key}"


def test_its_results_are_typed():
    found = only(PAPER)
    assert found.title == "Gates & weirs of the 19th century"
    assert found.url == "https://doi.org/10.5555/12345678"
    assert found.snippet == found.content == "Abstract Water < land."
    assert found.score == 31.5
    assert found.published_at == datetime(1898, 5, 1, tzinfo=UTC)
    assert found.extra == {
        "authors": ["Josiah Carberry", "The Weir Group"],
        "venue": "Journal of Psychoceramics",
        "citations": 12.0,
        "doi": "10.5555/12345678",
        "type": "journal-article",
    }


@pytest.mark.parametrize(
    ("parts", "meant"),
    [
        ([[2021, 5, 17]], datetime(2021, 5, 17, tzinfo=UTC)),
        ([[2021]], datetime(2021, 1, 1, tzinfo=UTC)),
        ([[None]], None),
        ([[2021, 13]], None),
        ([[10**30]], None),
        ([], None),
        (None, None),
    ],
)
def test_a_date_may_have_holes(parts, meant):
    assert only(PAPER | {"issued": {"date-parts": parts}}).published_at == meant


def test_it_pages_until_there_is_no_more(run, switch):
    async def scenario(world):
        results = await world.provider("crossref").search("gates", max_results=500)
        asked = [(each.query["offset"], each.query["rows"]) for each in world.asked("crossref")]
        return len({result.url for result in results}), asked

    assert run(scenario) == (130, [("0", "100"), ("100", "100")])
