"""Google Programmable Search: GET /customsearch/v1, the key in the query, ten results a page, a hundred in all."""

from __future__ import annotations

from typing import Any

from ..reply import Reply
from .contract import Asked, InvalidRequestError, ProviderApi
from .pages import PAGES, pages

PER_PAGE = 10
MOST_RESULTS = 100

_QUOTA = (
    "Quota exceeded for quota metric 'Queries' and limit '{limit}' of service 'customsearch.googleapis.com' "
    "for consumer 'project_number:000000000000'."
)
_ERRORS = {
    "rate_limited": (429, _QUOTA.format(limit="Queries per minute per user"), "rateLimitExceeded"),
    "quota": (429, _QUOTA.format(limit="Queries per day"), "rateLimitExceeded"),
    "daily_limit": (403, "Daily Limit Exceeded", "dailyLimitExceeded"),
    "unauthorized": (400, "API key not valid. Please pass a valid API key.", "badRequest"),
    "forbidden": (403, "Method doesn't allow unregistered callers. Please use API Key.", "forbidden"),
    "invalid": (400, "Request contains an invalid argument.", "badRequest"),
    "server_error": (500, "Internal error encountered.", "backendError"),
    "unavailable": (503, "The service is currently unavailable.", "backendError"),
}
_STATUSES = {
    "rate_limited": "RESOURCE_EXHAUSTED",
    "quota": "RESOURCE_EXHAUSTED",
    "unauthorized": "INVALID_ARGUMENT",
    "forbidden": "PERMISSION_DENIED",
    "invalid": "INVALID_ARGUMENT",
    "server_error": "INTERNAL",
    "unavailable": "UNAVAILABLE",
}
_BAD_KEY = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "API_KEY_INVALID",
    "domain": "googleapis.com",
    "metadata": {"service": "customsearch.googleapis.com"},
}


class Google(ProviderApi):
    name = "google"
    site = "google"
    method, path = "GET", "/customsearch/v1"

    def key_of(self, asked: Asked) -> str:
        return asked.query.get("key", "")

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        code, words, reason = _ERRORS[trouble]
        message = why or words
        domain = "usageLimits" if trouble == "daily_limit" else "global"
        error: dict[str, Any] = {"code": code, "message": message}
        error["errors"] = [{"message": message, "domain": domain, "reason": reason}]
        if trouble in _STATUSES:
            error["status"] = _STATUSES[trouble]
        if trouble == "unauthorized":
            error["details"] = [_BAD_KEY]
        return Reply(code, {"error": error})

    def answer(self, asked: Asked) -> dict[str, Any]:
        query = asked.query.get("q", "")
        if not query or not asked.query.get("cx"):
            raise InvalidRequestError("Request contains an invalid argument.")
        count = asked.whole_number("num", PER_PAGE, 1, PER_PAGE)
        start = asked.whole_number("start", 1, 1, MOST_RESULTS)
        if start + count - 1 > MOST_RESULTS:
            raise InvalidRequestError("Request contains an invalid argument.")
        found = pages(query, start - 1, count)
        common = {"searchTerms": query, "totalResults": str(PAGES), "cx": asked.query["cx"]}
        queries = {"request": [common | {"count": len(found), "startIndex": start}]}
        if start + count <= MOST_RESULTS:
            queries["nextPage"] = [common | {"count": PER_PAGE, "startIndex": start + count}]
        return {
            "kind": "customsearch#search",
            "url": {
                "type": "application/json",
                "template": "https://www.googleapis.com/customsearch/v1?q={searchTerms}",
            },
            "queries": queries,
            "searchInformation": {"searchTime": 0.04, "totalResults": str(PAGES)},
            "items": [
                {
                    "kind": "customsearch#result",
                    "title": each.title,
                    "link": each.url,
                    "displayLink": "example.org",
                    "snippet": each.summary,
                    "pagemap": {"metatags": [{"article:published_time": f"{each.published}T08:00:00Z"}]},
                }
                for each in found
            ],
        }
