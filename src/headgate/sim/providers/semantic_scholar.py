"""Semantic Scholar: GET /graph/v1/paper/search, an optional x-api-key, offset pages, errors of three shapes."""

from __future__ import annotations

from typing import Any

from ..reply import Reply
from .contract import Asked, InvalidRequestError, ProviderApi
from .pages import FIRST_YEAR, PAGES, WebPage, pages

PER_PAGE = 100
REACH = 1000
"""Offset and limit together."""
_NAMES = """
    paperId externalIds url title abstract venue publicationVenue year referenceCount citationCount
    influentialCitationCount isOpenAccess openAccessPdf fieldsOfStudy s2FieldsOfStudy publicationTypes
    publicationDate journal authors tldr"""
FIELDS = frozenset(_NAMES.split())

_ERRORS: dict[str, tuple[int, dict[str, str]]] = {
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
    name = "semantic_scholar"
    site = "semantic_scholar"
    method, path = "GET", "/graph/v1/paper/search"
    keyless = True

    def key_of(self, asked: Asked) -> str:
        return asked.headers.get("x-api-key", "")

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        if trouble == "invalid":
            return Reply(400, {"error": why or "Unrecognized or unsupported fields: [mock]"})
        status, body = _ERRORS[trouble]
        return Reply(status, dict(body))

    def answer(self, asked: Asked) -> dict[str, Any]:
        query = asked.query.get("query", "")
        if not query:
            raise InvalidRequestError("Missing required query parameter: 'query'")
        limit = asked.whole_number("limit", PER_PAGE, 1, PER_PAGE)
        offset = asked.whole_number("offset", 0, 0, REACH)
        if offset + limit > REACH:
            raise InvalidRequestError("Requested data for this limit and/or offset is not available")
        fields = [each for each in asked.query.get("fields", "paperId,title").split(",") if each]
        unknown = [each for each in fields if each not in FIELDS]
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
