"""Semantic Scholar: papers, a hundred to a page. Without a key, all clients share one small budget."""

from __future__ import annotations

from .base import Question, Request, SearchProvider
from .results import Json, Page, SearchResult, inner, instant, number, objects, position, text, web_address

PER_PAGE = 100
FIELDS = "title,url,abstract,year,publicationDate,authors,venue,citationCount,externalIds,openAccessPdf,tldr"


class SemanticScholarProvider(SearchProvider):
    """Options are its own: ``year``, ``fieldsOfStudy``, ``openAccessPdf``, ``minCitationCount``, ..."""

    name = "semantic_scholar"
    address = "https://api.semanticscholar.org"
    key_variable = "SEMANTIC_SCHOLAR_API_KEY"
    needs_key = False
    most_results = 1000

    def signed(self, request: Request, key: str) -> Request:
        return request.with_header("x-api-key", key)

    def ask(self, question: Question) -> Request:
        query = {
            "fields": FIELDS,
            **{name: str(value) for name, value in question.options.items()},
            "query": question.query,
            "offset": str(question.start),
            "limit": str(min(question.wanted, PER_PAGE)),
        }
        return Request(path="/graph/v1/paper/search", query=query)

    def read(self, answer: Json, question: Question) -> Page:
        return Page([self._paper(paper) for paper in objects(answer.get("data"))], position(answer.get("next")))

    def _paper(self, paper: Json) -> SearchResult:
        abstract = text(paper.get("abstract"))
        return SearchResult(
            title=text(paper.get("title")),
            url=web_address(paper.get("url")),
            provider=self.name,
            snippet=text(inner(paper, "tldr", "text")) or abstract,
            content=abstract or None,
            published_at=instant(paper.get("publicationDate")) or instant(f"{paper.get('year')}-01-01"),
            extra={
                "authors": [text(author.get("name")) for author in objects(paper.get("authors"))],
                "venue": text(paper.get("venue")),
                "citations": number(paper.get("citationCount")),
                "doi": text(inner(paper, "externalIds", "DOI")),
                "pdf": web_address(inner(paper, "openAccessPdf", "url")),
            },
        )
