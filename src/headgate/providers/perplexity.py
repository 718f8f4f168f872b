"""Perplexity's search: ranked pages with their text, up to 20 a query. It never sends Retry-After."""

from __future__ import annotations

from .base import Question, Request, SearchProvider
from .results import Json, Page, SearchResult, instant, objects, text, web_address

LONGEST_SNIPPET = 300
"""Characters; Perplexity's snippet is most of the page."""


class PerplexityProvider(SearchProvider):
    """Options are Perplexity's own: ``max_tokens_per_page``, ``search_domain_filter``, ``country``, ..."""

    name = "perplexity"
    address = "https://api.perplexity.ai"
    key_variable = "PERPLEXITY_API_KEY"
    most_results = 20

    def ask(self, question: Question) -> Request:
        body = {**question.options, "query": question.query, "max_results": question.wanted}
        return Request(method="POST", path="/search", body=body)

    def read(self, answer: Json, question: Question) -> Page:
        return Page(
            [
                SearchResult(
                    title=text(found.get("title")),
                    url=web_address(found.get("url")),
                    provider=self.name,
                    snippet=text(found.get("snippet"))[:LONGEST_SNIPPET],
                    content=text(found.get("snippet")) or None,
                    published_at=instant(found.get("date")),
                    extra={"last_updated_at": instant(found.get("last_updated"))},
                )
                for found in objects(answer.get("results"))
            ]
        )
