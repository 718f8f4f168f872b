"""Tavily: a web search made for language models. At most 20 results a query; 432 and 433 mean the money is used up."""

from __future__ import annotations

from .base import Question, SearchProvider
from .results import Json, Page, SearchResult, instant, number, objects, text, web_address
from .transport import Request


class TavilyProvider(SearchProvider):
    """Options are Tavily's own: ``search_depth``, ``topic``, ``include_raw_content``, ``include_domains``, ..."""

    name = "tavily"
    address = "https://api.tavily.com"
    key_variable = "TAVILY_API_KEY"
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
                    snippet=text(found.get("content")),
                    content=text(found.get("raw_content")) or None,
                    score=number(found.get("score")),
                    published_at=instant(found.get("published_date")),
                )
                for found in objects(answer.get("results"))
            ]
        )
