"""Whatever JSON a server sends, reading it neither raises nor brings anything but typed results."""

from datetime import UTC, datetime
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.providers import PROVIDERS, Page, Question, SearchResult
from headgate.providers.results import instant, number, position, text

pytestmark = pytest.mark.no_cover

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(10**400)
WORDS = """
    results items data queries nextPage startIndex next failed_results url link title content raw_content score
    published_date snippet pagemap metatags article:published_time date last_updated abstract tldr text year
    publicationDate authors name venue citationCount externalIds DOI openAccessPdf error message total-results URL
    author given family issued date-parts container-title"""
NAMES = st.sampled_from(WORDS.split())
JSON = st.recursive(
    LEAVES, lambda inside: st.lists(inside, max_size=4) | st.dictionaries(NAMES, inside, max_size=6), max_leaves=30
)
ANSWERS = st.dictionaries(NAMES, JSON, max_size=6)


@cache
def provider(name):
    return PROVIDERS[name]("a-key", **({"engine_id": "engine"} if name == "google" else {}))


@given(ANSWERS)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_json_is_read_by_every_provider(answer):
    for name in PROVIDERS:
        page = provider(name).read(answer, Question("https://example.org/", 10))
        assert isinstance(page, Page)
        assert page.next_start is None or page.next_start >= 0
        for result in page.results:
            assert isinstance(result, SearchResult)
            assert result.provider == name
            assert not result.url or result.url.lower().startswith("http")
            assert result.published_at is None or result.published_at.tzinfo is UTC


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2024-03-05", datetime(2024, 3, 5, tzinfo=UTC)),
        ("2024-03-05T08:00:00Z", datetime(2024, 3, 5, 8, tzinfo=UTC)),
        ("2024-03-05T08:00:00+02:00", datetime(2024, 3, 5, 6, tzinfo=UTC)),
        ("Tue, 05 Mar 2024 08:00:00 GMT", datetime(2024, 3, 5, 8, tzinfo=UTC)),
        ("0001-01-01T00:00:00+14:00", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (20240305, None),
    ],
)
def test_dates_are_read_in_every_spelling_that_is_met(written, meant):
    assert instant(written) == meant


def test_numbers_and_places_are_numbers():
    assert [number(value) for value in (1, 0.5, True, "1", float("nan"), float("inf"), 10**400)] == [1.0, 0.5] + [
        None
    ] * 5
    assert [position(value) for value in (0, 5, True, -1, 1.0, "1")] == [0, 5, None, None, None, None]
    assert text(" a\tb\n\x00c ") == "a\tb\nc"
