"""The mock of search engines: Tavily, Google, Perplexity."""

from __future__ import annotations

from typing import Any

from ..api import Reply
from .provider_api import PAGES, InvalidRequestError, MockRequest, ProviderApi, page, pages

# ---------------------------------------------------------------------- tavily

TAVILY_MOST_RESULTS = 20
TAVILY_MOST_URLS = 20
TAVILY_DEPTHS = ("basic", "advanced", "fast", "ultra-fast")
TAVILY_TOPICS = ("general", "news", "finance")

TAVILY_ERRORS = {
    "rate_limited": (429, "Your request has been blocked due to excessive requests. Please reduce rate of requests."),
    "quota": (432, "This request exceeds your plan's set usage limit. Please upgrade your plan."),
    "pay_as_you_go": (433, "This request exceeds the pay-as-you-go limit. You can raise it on the dashboard."),
    "unauthorized": (401, "Unauthorized: missing or invalid API key."),
    "forbidden": (403, "Forbidden: this key may not use this endpoint."),
    "invalid": (400, "Bad request."),
    "server_error": (500, "Internal Server Error"),
    "unavailable": (503, "Service Unavailable"),
}


class Tavily(ProviderApi):
    """POST /search, a bearer key, and its own 432 and 433 for money."""

    name = "tavily"
    site = "tavily"
    method, path = "POST", "/search"

    def key_of(self, asked: MockRequest) -> str:
        return asked.bearer

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        status, words = TAVILY_ERRORS[trouble]
        headers = {"retry-after": str(retry_after)} if trouble == "rate_limited" else {}
        return Reply(status, {"detail": {"error": why or words}}, headers)

    def answer(self, asked: MockRequest) -> dict[str, Any]:
        fields = asked.fields()
        query = fields.get("query")
        if not isinstance(query, str) or not query.strip():
            raise InvalidRequestError("Query is missing.")
        for name, known in (("search_depth", TAVILY_DEPTHS), ("topic", TAVILY_TOPICS)):
            if fields.get(name, known[0]) not in known:
                raise InvalidRequestError(f"Invalid {name}. Must be one of {', '.join(known)}.")
        wanted = asked.whole_number("max_results", 5, 0, TAVILY_MOST_RESULTS)
        results: list[dict[str, Any]] = []
        for found in pages(query, 0, wanted):
            raw = found.text if fields.get("include_raw_content") else None
            result = {"url": found.url, "title": found.title, "content": found.summary, "score": found.score}
            results.append(result | {"raw_content": raw})
            if fields.get("topic") == "news":
                results[-1]["published_date"] = found.published
        return {
            "query": query,
            "follow_up_questions": None,
            "answer": f"In short: {query}." if fields.get("include_answer") else None,
            "images": [],
            "results": results,
            "response_time": 0.04,
            "request_id": "mock-0000",
        }


class TavilyExtract(Tavily):
    """POST /extract. Pages under /missing cannot be fetched, so that half a success can be practised."""

    name = "tavily_extract"
    path = "/extract"

    def answer(self, asked: MockRequest) -> dict[str, Any]:
        urls = asked.fields().get("urls")
        urls = [urls] if isinstance(urls, str) else urls
        if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
            raise InvalidRequestError("No URLs provided.")
        if len(urls) > TAVILY_MOST_URLS:
            raise InvalidRequestError(f"Max {TAVILY_MOST_URLS} URLs are allowed.")
        good = [url for url in urls if "/missing" not in url]
        return {
            "results": [
                {"url": url, "title": None, "raw_content": page(url, index).text, "images": []}
                for index, url in enumerate(good)
            ],
            "failed_results": [{"url": url, "error": "Failed to fetch url"} for url in urls if url not in good],
            "response_time": 0.04,
            "request_id": "mock-0000",
        }


# ---------------------------------------------------------------------- google

GOOGLE_PER_PAGE = 10
GOOGLE_REACH = 100

GOOGLE_QUOTA = (
    "Quota exceeded for quota metric 'Queries' and limit '{limit}' of service 'customsearch.googleapis.com' "
    "for consumer 'project_number:000000000000'."
)
GOOGLE_ERRORS = {
    "rate_limited": (429, GOOGLE_QUOTA.format(limit="Queries per minute per user"), "rateLimitExceeded"),
    "quota": (429, GOOGLE_QUOTA.format(limit="Queries per day"), "rateLimitExceeded"),
    "daily_limit": (403, "Daily Limit Exceeded", "dailyLimitExceeded"),
    "unauthorized": (400, "API key not valid. Please pass a valid API key.", "badRequest"),
    "forbidden": (403, "Method doesn't allow unregistered callers. Please use API Key.", "forbidden"),
    "invalid": (400, "Request contains an invalid argument.", "badRequest"),
    "server_error": (500, "Internal error encountered.", "backendError"),
    "unavailable": (503, "The service is currently unavailable.", "backendError"),
}
GOOGLE_STATUSES = {
    "rate_limited": "RESOURCE_EXHAUSTED",
    "quota": "RESOURCE_EXHAUSTED",
    "unauthorized": "INVALID_ARGUMENT",
    "forbidden": "PERMISSION_DENIED",
    "invalid": "INVALID_ARGUMENT",
    "server_error": "INTERNAL",
    "unavailable": "UNAVAILABLE",
}
GOOGLE_BAD_KEY = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "API_KEY_INVALID",
    "domain": "googleapis.com",
    "metadata": {"service": "customsearch.googleapis.com"},
}


class Google(ProviderApi):
    """Programmable Search: GET /customsearch/v1, the key in the query, ten results a page, a hundred in all."""

    name = "google"
    site = "google"
    method, path = "GET", "/customsearch/v1"

    def key_of(self, asked: MockRequest) -> str:
        return asked.query.get("key", "")

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        code, words, reason = GOOGLE_ERRORS[trouble]
        message = why or words
        domain = "usageLimits" if trouble == "daily_limit" else "global"
        error: dict[str, Any] = {"code": code, "message": message}
        error["errors"] = [{"message": message, "domain": domain, "reason": reason}]
        if trouble in GOOGLE_STATUSES:
            error["status"] = GOOGLE_STATUSES[trouble]
        if trouble == "unauthorized":
            error["details"] = [GOOGLE_BAD_KEY]
        return Reply(code, {"error": error})

    def answer(self, asked: MockRequest) -> dict[str, Any]:
        query = asked.query.get("q", "")
        if not query or not asked.query.get("cx"):
            raise InvalidRequestError("Request contains an invalid argument.")
        count = asked.whole_number("num", GOOGLE_PER_PAGE, 1, GOOGLE_PER_PAGE)
        start = asked.whole_number("start", 1, 1, GOOGLE_REACH)
        if start + count - 1 > GOOGLE_REACH:
            raise InvalidRequestError("Request contains an invalid argument.")
        found = pages(query, start - 1, count)
        common = {"searchTerms": query, "totalResults": str(PAGES), "cx": asked.query["cx"]}
        queries = {"request": [common | {"count": len(found), "startIndex": start}]}
        if start + count <= GOOGLE_REACH:
            queries["nextPage"] = [common | {"count": GOOGLE_PER_PAGE, "startIndex": start + count}]
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


# ---------------------------------------------------------------------- perplexity

PERPLEXITY_MOST_RESULTS = 20

PERPLEXITY_ERRORS = {
    "rate_limited": (429, "request_rate_limit_exceeded", "Request rate limit exceeded, please try again later."),
    "quota": (
        401,
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "unauthorized": (401, "invalid_api_key", "Invalid API key provided. You can find your API key in the settings."),
    "forbidden": (403, "forbidden", "This key may not use this endpoint."),
    "invalid": (400, "invalid_request", "The request is invalid."),
    "server_error": (500, "internal_server_error", "Internal server error."),
    "unavailable": (503, "service_unavailable", "The service is unavailable."),
}


class Perplexity(ProviderApi):
    """POST /search, a bearer key, up to twenty results, no word about when to come back."""

    name = "perplexity"
    site = "perplexity"
    method, path = "POST", "/search"

    def key_of(self, asked: MockRequest) -> str:
        return asked.bearer

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        status, kind, words = PERPLEXITY_ERRORS[trouble]
        return Reply(status, {"error": {"message": why or words, "type": kind, "code": status}})

    def answer(self, asked: MockRequest) -> dict[str, Any]:
        query = asked.fields().get("query")
        if not isinstance(query, str) or not query.strip():
            raise InvalidRequestError("query must be a non-empty string.")
        wanted = asked.whole_number("max_results", 10, 1, PERPLEXITY_MOST_RESULTS)
        return {
            "id": "mock-0000",
            "results": [
                {
                    "title": found.title,
                    "url": found.url,
                    "snippet": found.text,
                    "date": found.published,
                    "last_updated": found.published,
                }
                for found in pages(query, 0, wanted)
            ],
            "server_time": None,
        }
