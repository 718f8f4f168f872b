"""Tavily Extract: the text of pages whose addresses are known, 20 to a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from .base import Question, SearchProvider
from .results import Json, Page, SearchResult, objects, text, web_address
from .tavily import TavilyProvider
from .transport import Request

PER_CALL = 20


@dataclass(frozen=True, slots=True)
class Extraction:
    results: list[SearchResult]
    failed: dict[str, str]
    """The addresses that could not be read, and why."""


class TavilyExtractProvider(SearchProvider):
    """Its query is one or more addresses, with spaces between. Options: ``extract_depth``, ``format``, ..."""

    name = "tavily_extract"
    address = TavilyProvider.address
    key_variable = TavilyProvider.key_variable
    most_results = 200

    async def extract(self, urls: Sequence[str], **options: Any) -> Extraction:
        """The text of these pages, and which of them could not be had."""
        if len(urls) > self.most_results:
            raise ConfigError(
                f"{self.name}: {len(urls)} addresses are too many for one call; at most {self.most_results}"
            )
        results: list[SearchResult] = []
        failed: dict[str, str] = {}
        async for page in self.pages(" ".join(urls), max_results=len(urls), **options):
            results += page.results
            failed |= page.failed
        return Extraction(results, failed)

    def ask(self, question: Question) -> Request:
        return Request(method="POST", path="/extract", body={**question.options, "urls": _batch(question)})

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
        following = question.start + len(_batch(question))
        return Page(results, following if following < len(question.query.split()) else None, failed)


def _batch(question: Question) -> list[str]:
    return question.query.split()[question.start : question.start + min(question.wanted, PER_CALL)]
