"""Crossref: the works with a DOI, free and without a key.

It asks clients to identify themselves (``mailto``), and serves those from a better pool; a key (Metadata Plus) is
a paid service. Its 429 has no Retry-After.
"""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from typing import Any

from .base import Question, Request, SearchProvider
from .results import Json, Page, SearchResult, inner, number, objects, text, web_address

PER_PAGE = 100
"""The API allows 1000; a page of those is megabytes."""
FIELDS = "DOI,URL,title,abstract,author,container-title,issued,is-referenced-by-count,score,type"
LONGEST_SNIPPET = 300

_TAGS = re.compile(r"<[^<>]{0,200}>")
_SPACES = re.compile(r"\s+")


class CrossrefProvider(SearchProvider):
    """Options are its own: ``mailto``, ``filter``, ``sort``, ``order``, ..."""

    name = "crossref"
    address = "https://api.crossref.org"
    key_variable = "CROSSREF_PLUS_API_KEY"
    needs_key = False
    most_results = 1000

    def signed(self, request: Request, key: str) -> Request:
        return request.with_header("Crossref-Plus-API-Token", f"Bearer {key}")

    def ask(self, question: Question) -> Request:
        query = {
            "select": FIELDS,
            **{name: str(value) for name, value in question.options.items()},
            "query": question.query,
            "offset": str(question.start),
            "rows": str(min(question.wanted, PER_PAGE)),
        }
        return Request(path="/works", query=query)

    def read(self, answer: Json, question: Question) -> Page:
        works = list(objects(inner(answer, "message", "items")))
        following = question.start + len(works)
        more = following < (number(inner(answer, "message", "total-results")) or 0)
        return Page([self._work(work) for work in works], following if works and more else None)

    def _work(self, work: Json) -> SearchResult:
        abstract = _plain(work.get("abstract"))
        return SearchResult(
            title=_plain(_first(work.get("title"))),
            url=web_address(work.get("URL")),
            provider=self.name,
            snippet=abstract[:LONGEST_SNIPPET],
            content=abstract or None,
            score=number(work.get("score")),
            published_at=_date(inner(work, "issued", "date-parts")),
            extra={
                "authors": [_name(author) for author in objects(work.get("author"))],
                "venue": _plain(_first(work.get("container-title"))),
                "citations": number(work.get("is-referenced-by-count")),
                "doi": text(work.get("DOI")),
                "type": text(work.get("type")),
            },
        )


def _first(value: object) -> Any:
    return value[0] if isinstance(value, list) and value else None


def _plain(value: object) -> str:
    """Titles and abstracts have tags, and entities for some characters."""
    return _SPACES.sub(" ", text(html.unescape(_TAGS.sub(" ", text(value)))))


def _name(author: Json) -> str:
    parts = (text(author.get("given")), text(author.get("family")) or text(author.get("name")))
    return " ".join(part for part in parts if part)


def _date(parts: object) -> datetime | None:
    """``[[2021, 5, 17]]``, of which the day, or the month and the day, may be missing."""
    first = _first(parts)
    known = [part for part in first if isinstance(part, int)] if isinstance(first, list) else []
    if not known:
        return None
    year, month, day = [*known, 1, 1][:3]
    try:
        return datetime(year, month, day, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
