"""Crossref: GET /works, no key (or one that pays), offset pages, errors in plain text but for bad requests."""

from __future__ import annotations

from typing import Any

from ..reply import Reply
from .contract import Asked, InvalidRequestError, ProviderApi
from .pages import FIRST_YEAR, PAGES, WebPage, pages

PER_PAGE = 1000
REACH = 10_000
"""The largest offset."""
_NAMES = """
    DOI URL title abstract author container-title issued published is-referenced-by-count references-count score type
    publisher volume issue page ISSN"""
FIELDS = frozenset(_NAMES.split())
_POOL = {"x-rate-limit-limit": "1", "x-rate-limit-interval": "1s", "x-api-pool": "public"}

_ERRORS: dict[str, tuple[int, Any]] = {
    "rate_limited": (429, "Too Many Requests"),
    "quota": (429, "Too Many Requests"),
    "unauthorized": (401, "Unauthorized"),
    "forbidden": (403, "Forbidden"),
    "server_error": (500, "Internal Server Error"),
    "unavailable": (503, "Service Unavailable"),
}


class Crossref(ProviderApi):
    name = "crossref"
    site = "crossref"
    method, path = "GET", "/works"
    keyless = True

    def key_of(self, asked: Asked) -> str:
        return asked.headers.get("Crossref-Plus-API-Token", "").removeprefix("Bearer ").strip()

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        if trouble == "invalid":
            failure = {"type": "parameter-not-allowed", "value": "mock", "message": why or "This is not supported"}
            return Reply(400, {"status": "failed", "message-type": "validation-failure", "message": [failure]})
        status, body = _ERRORS[trouble]
        return Reply(status, body, dict(_POOL) if status == 429 else {})

    def answer(self, asked: Asked) -> dict[str, Any]:
        query = asked.query.get("query", "")
        rows = asked.whole_number("rows", 20, 0, PER_PAGE)
        offset = asked.whole_number("offset", 0, 0, REACH)
        fields = [each for each in asked.query.get("select", "").split(",") if each]
        if unknown := [each for each in fields if each not in FIELDS]:
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
