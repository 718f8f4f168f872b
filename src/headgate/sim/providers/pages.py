"""The small web that the mocks search: the same question always finds the same pages, in the same order.

Tavily, Google and Perplexity find the same pages, each with its own words about them, so
that whoever merges their answers has something to merge.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PAGES = 130
"""How many pages there are about anything; more than every API gives at once."""
LONGEST_SLUG = 60
FIRST_YEAR = 2018

_ASPECTS = ("an introduction", "a survey", "in practice", "the numbers", "a critique", "the history", "open questions")


@dataclass(frozen=True, slots=True)
class WebPage:
    title: str
    url: str
    summary: str
    text: str
    score: float
    published: str
    """An ISO date."""


def page(query: str, index: int) -> WebPage:
    slug = re.sub(r"[^a-z0-9]+", "-", query.lower())[:LONGEST_SLUG].strip("-") or "anything"
    aspect = _ASPECTS[index % len(_ASPECTS)]
    summary = f"Page {index + 1} on {query}: {aspect}."
    return WebPage(
        title=f"{query}: {aspect} ({index + 1})",
        url=f"https://example.org/{slug}/{index + 1}",
        summary=summary,
        text=f"{summary} It is made up, and says so.",
        score=round(0.99 - 0.007 * index, 4),
        published=f"{FIRST_YEAR + index % 8}-{1 + index % 12:02}-{1 + index % 28:02}",
    )


def pages(query: str, start: int, count: int) -> list[WebPage]:
    return [page(query, index) for index in range(start, min(start + count, PAGES))]
