"""Tavily: POST /search and POST /extract, a bearer key, and its own 432 and 433 for money."""

from __future__ import annotations

from typing import Any

from ..reply import Reply
from .contract import Asked, InvalidRequestError, ProviderApi
from .pages import page, pages

MOST_RESULTS = 20
MOST_URLS = 20
DEPTHS = ("basic", "advanced", "fast", "ultra-fast")
TOPICS = ("general", "news", "finance")

_ERRORS = {
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
    name = "tavily"
    site = "tavily"
    method, path = "POST", "/search"

    def key_of(self, asked: Asked) -> str:
        return asked.bearer

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        status, words = _ERRORS[trouble]
        headers = {"retry-after": str(retry_after)} if trouble == "rate_limited" else {}
        return Reply(status, {"detail": {"error": why or words}}, headers)

    def answer(self, asked: Asked) -> dict[str, Any]:
        fields = asked.fields()
        query = fields.get("query")
        if not isinstance(query, str) or not query.strip():
            raise InvalidRequestError("Query is missing.")
        for name, known in (("search_depth", DEPTHS), ("topic", TOPICS)):
            if fields.get(name, known[0]) not in known:
                raise InvalidRequestError(f"Invalid {name}. Must be one of {', '.join(known)}.")
        wanted = asked.whole_number("max_results", 5, 0, MOST_RESULTS)
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
    """Pages under /missing cannot be fetched, so that half a success can be practised."""

    name = "tavily_extract"
    path = "/extract"

    def answer(self, asked: Asked) -> dict[str, Any]:
        urls = asked.fields().get("urls")
        urls = [urls] if isinstance(urls, str) else urls
        if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
            raise InvalidRequestError("No URLs provided.")
        if len(urls) > MOST_URLS:
            raise InvalidRequestError(f"Max {MOST_URLS} URLs are allowed.")
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
