"""Google Programmable Search: ten results a page, a hundred in all, and a daily quota that ends at midnight Pacific.

A used-up day arrives as 403 or 429, with the same message as a used-up minute; they differ in the name of the limit,
and the key rests until the day ends.
"""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError
from .base import Question, Request, SearchProvider
from .results import Json, Page, SearchResult, inner, instant, objects, position, text, web_address

PER_PAGE = 10


class GoogleProvider(SearchProvider):
    """``engine_id`` is the search engine's ``cx``. Options are Google's own: ``lr``, ``gl``, ``dateRestrict``, ..."""

    name = "google"
    address = "https://www.googleapis.com"
    key_variable = "GOOGLE_API_KEY"
    most_results = 100

    def __init__(self, api_key: str | None = None, engine_id: str = "", **settings: Any) -> None:
        if not engine_id:
            raise ConfigError("google: engine_id must be the id (cx) of a Programmable Search Engine")
        super().__init__(api_key, **settings)
        self.engine_id = engine_id

    def signed(self, request: Request, key: str) -> Request:
        return request.with_query("key", key)

    def ask(self, question: Question) -> Request:
        query = {
            **{name: str(value) for name, value in question.options.items()},
            "cx": self.engine_id,
            "q": question.query,
            "num": str(min(question.wanted, PER_PAGE)),
            "start": str(question.start + 1),
        }
        return Request(path="/customsearch/v1", query=query)

    def read(self, answer: Json, question: Question) -> Page:
        results = [
            SearchResult(
                title=text(item.get("title")),
                url=web_address(item.get("link")),
                provider=self.name,
                snippet=text(item.get("snippet")),
                published_at=_published(item),
            )
            for item in objects(answer.get("items"))
        ]
        following = position(next(objects(inner(answer, "queries", "nextPage")), {}).get("startIndex"))
        return Page(results, following - 1 if following else None)  # Google counts from 1


def _published(item: Json) -> Any:
    tags = next(objects(inner(item, "pagemap", "metatags")), {})
    return instant(tags.get("article:published_time"))
