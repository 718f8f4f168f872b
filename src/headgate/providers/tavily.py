"""Tavily: a web search for language models, and the text of known pages (Extract).

At most 20 results a query; 432 and 433 mean that the plan's credits are used up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from .base import Question, Request, SearchProvider
from .results import Json, Page, SearchResult, instant, number, objects, text, web_address

EXTRACTED_PER_CALL = 20


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


@dataclass(frozen=True, slots=True)
class Extraction:
    results: list[SearchResult]
    failed: dict[str, str]
    """The addresses that could not be read, and why."""


class TavilyExtractProvider(SearchProvider):
    """The text of pages. The query is one or more addresses, separated by spaces.

    Options: ``extract_depth``, ``format``, ...
    """

    name = "tavily_extract"
    address = TavilyProvider.address
    key_variable = TavilyProvider.key_variable
    most_results = 200

    async def extract(self, urls: Sequence[str], **options: Any) -> Extraction:
        """The text of these pages, and which of them could not be read."""
        if len(urls) > self.most_results:
            raise ConfigError(
                f"{self.name}: {len(urls)} URLs are too many for one extraction; the limit is {self.most_results}"
            )
        results: list[SearchResult] = []
        failed: dict[str, str] = {}
        async for page in self.pages(" ".join(urls), max_results=len(urls), **options):
            results += page.results
            failed |= page.failed
        return Extraction(results, failed)

    def ask(self, question: Question) -> Request:
        return Request(method="POST", path="/extract", body={**question.options, "urls": _urls_of_call(question)})

    def read(self, answer: Json, question: Question) -> Page:
        results = [
            SearchResult(
                title=text(found.get("title")) or text(found.get("url")),
                url=web_address(found.get("url")),
                provider=self.name,
                content=text(found.get("raw_content")),
            )
            for found in objects(answer.get("results"))
        ]
        failed = {text(entry.get("url")): text(entry.get("error")) for entry in objects(answer.get("failed_results"))}
        following = question.start + len(_urls_of_call(question))
        return Page(results, following if following < len(question.query.split()) else None, failed)


def _urls_of_call(question: Question) -> list[str]:
    return question.query.split()[question.start : question.start + min(question.wanted, EXTRACTED_PER_CALL)]
