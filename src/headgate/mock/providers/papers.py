"""The mock of indexes of papers: Semantic Scholar, Crossref."""

from __future__ import annotations

from typing import Any

from ..api import Reply
from .provider_api import FIRST_YEAR, PAGES, InvalidRequestError, MockRequest, ProviderApi, WebPage, pages

# ---------------------------------------------------------------------- semantic scholar

SCHOLAR_PER_PAGE = 100
SCHOLAR_REACH = 1000
"""Offset and limit together."""
SCHOLAR_FIELDS = frozenset(
    [
        "paperId",
        "externalIds",
        "url",
        "title",
        "abstract",
        "venue",
        "publicationVenue",
        "year",
        "referenceCount",
        "citationCount",
        "influentialCitationCount",
        "isOpenAccess",
        "openAccessPdf",
        "fieldsOfStudy",
        "s2FieldsOfStudy",
        "publicationTypes",
        "publicationDate",
        "journal",
        "authors",
        "tldr",
    ]
)

SCHOLAR_ERRORS: dict[str, tuple[int, dict[str, str]]] = {
    "rate_limited": (
        429,
        {
            "message": "Too Many Requests. Please wait and try again or apply for a key for higher rate limits.",
            "code": "429",
        },
    ),
    "quota": (429, {"message": "Limit Exceeded"}),
    "unauthorized": (403, {"message": "Forbidden"}),
    "forbidden": (403, {"message": "Forbidden"}),
    "server_error": (500, {"message": "Internal Server Error"}),
    "unavailable": (503, {"message": "Service Unavailable"}),
}


class SemanticScholar(ProviderApi):
    """GET /graph/v1/paper/search, an optional x-api-key, offset pages, errors of three shapes."""

    name = "semantic_scholar"
    site = "semantic_scholar"
    method, path = "GET", "/graph/v1/paper/search"
    keyless = True

    def key_of(self, asked: MockRequest) -> str:
        return asked.headers.get("x-api-key", "")

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        if trouble == "invalid":
            return Reply(400, {"error": why or "Unrecognized or unsupported fields: [mock]"})
        status, body = SCHOLAR_ERRORS[trouble]
        return Reply(status, dict(body))

    def answer(self, asked: MockRequest) -> dict[str, Any]:
        query = asked.query.get("query", "")
        if not query:
            raise InvalidRequestError("Missing required query parameter: 'query'")
        limit = asked.whole_number("limit", SCHOLAR_PER_PAGE, 1, SCHOLAR_PER_PAGE)
        offset = asked.whole_number("offset", 0, 0, SCHOLAR_REACH)
        if offset + limit > SCHOLAR_REACH:
            raise InvalidRequestError("Requested data for this limit and/or offset is not available")
        fields = [each for each in asked.query.get("fields", "paperId,title").split(",") if each]
        unknown = [each for each in fields if each not in SCHOLAR_FIELDS]
        if unknown:
            raise InvalidRequestError(f"Unrecognized or unsupported fields: [{', '.join(unknown)}]")
        found = [_paper(query, offset + index, each) for index, each in enumerate(pages(query, offset, limit))]
        body: dict[str, Any] = {"total": PAGES, "offset": offset}
        if offset + limit < PAGES:
            body["next"] = offset + limit
        return body | {"data": [{name: each[name] for name in ("paperId", *fields) if name in each} for each in found]}


def _paper(query: str, index: int, about: WebPage) -> dict[str, Any]:
    paper_id = f"{index:040x}"
    return {
        "paperId": paper_id,
        "externalIds": {"DOI": f"10.5555/mock.{index}"},
        "url": f"https://www.semanticscholar.org/paper/{paper_id}",
        "title": about.title,
        "abstract": about.text if index % 5 else None,
        "venue": "Journal of Mock Results",
        "year": FIRST_YEAR + index % 8,
        "citationCount": 3 * (PAGES - index),
        "isOpenAccess": index % 2 == 0,
        "openAccessPdf": {"url": f"{about.url}.pdf", "status": "GREEN"} if index % 2 == 0 else None,
        "publicationDate": about.published if index % 3 else None,
        "authors": [{"authorId": str(index), "name": f"A. Author {index}"}],
        "tldr": {"model": "tldr@v2.0.0", "text": about.summary},
    }


# ---------------------------------------------------------------------- crossref

CROSSREF_PER_PAGE = 1000
CROSSREF_REACH = 10_000
"""The largest offset."""
CROSSREF_FIELDS = frozenset(
    [
        "DOI",
        "URL",
        "title",
        "abstract",
        "author",
        "container-title",
        "issued",
        "published",
        "is-referenced-by-count",
        "references-count",
        "score",
        "type",
        "publisher",
        "volume",
        "issue",
        "page",
        "ISSN",
    ]
)
CROSSREF_POOL = {"x-rate-limit-limit": "1", "x-rate-limit-interval": "1s", "x-api-pool": "public"}

CROSSREF_ERRORS: dict[str, tuple[int, Any]] = {
    "rate_limited": (429, "Too Many Requests"),
    "quota": (429, "Too Many Requests"),
    "unauthorized": (401, "Unauthorized"),
    "forbidden": (403, "Forbidden"),
    "server_error": (500, "Internal Server Error"),
    "unavailable": (503, "Service Unavailable"),
}


class Crossref(ProviderApi):
    """GET /works, no key (or one that pays), offset pages, errors in plain text but for bad requests."""

    name = "crossref"
    site = "crossref"
    method, path = "GET", "/works"
    keyless = True

    def key_of(self, asked: MockRequest) -> str:
        return asked.headers.get("Crossref-Plus-API-Token", "").removeprefix("Bearer ").strip()

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        if trouble == "invalid":
            failure = {"type": "parameter-not-allowed", "value": "mock", "message": why or "This is not supported"}
            return Reply(400, {"status": "failed", "message-type": "validation-failure", "message": [failure]})
        status, body = CROSSREF_ERRORS[trouble]
        return Reply(status, body, dict(CROSSREF_POOL) if status == 429 else {})

    def answer(self, asked: MockRequest) -> dict[str, Any]:
        query = asked.query.get("query", "")
        rows = asked.whole_number("rows", 20, 0, CROSSREF_PER_PAGE)
        offset = asked.whole_number("offset", 0, 0, CROSSREF_REACH)
        fields = [each for each in asked.query.get("select", "").split(",") if each]
        if unknown := [each for each in fields if each not in CROSSREF_FIELDS]:
            raise InvalidRequestError(f"Select {unknown[0]} specified but there is no such element")
        found = [_work(offset + index, each) for index, each in enumerate(pages(query or "anything", offset, rows))]
        return {
            "status": "ok",
            "message-type": "work-list",
            "message-version": "1.0.0",
            "message": {
                "facets": {},
                "total-results": PAGES,
                "items": [{name: each[name] for name in (fields or each) if name in each} for each in found],
                "items-per-page": rows,
                "query": {"start-index": offset, "search-terms": query or None},
            },
        }


def _work(index: int, about: WebPage) -> dict[str, Any]:
    """The same works that the mock of Semantic Scholar knows; a real one leaves out what it does not have."""
    doi = f"10.5555/mock.{index}"
    work: dict[str, Any] = {
        "DOI": doi,
        "URL": f"https://doi.org/{doi}",
        "title": [about.title],
        "author": [{"given": "A.", "family": f"Author {index}", "sequence": "first", "affiliation": []}],
        "container-title": ["Journal of Mock Results"],
        "issued": {"date-parts": [[FIRST_YEAR + index % 8, *((index % 12 + 1,) if index % 2 else ())]]},
        "is-referenced-by-count": 2 * (PAGES - index),
        "score": round(40 - 0.1 * index, 2),
        "type": "journal-article",
    }
    return work | ({"abstract": f"<jats:p>{about.text}</jats:p>"} if index % 3 else {})
