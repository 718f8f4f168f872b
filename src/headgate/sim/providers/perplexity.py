"""Perplexity's search: POST /search, a bearer key, up to twenty results, no word about when to come back."""

from __future__ import annotations

from typing import Any

from ..reply import Reply
from .contract import Asked, InvalidRequestError, ProviderApi
from .pages import pages

MOST_RESULTS = 20

_ERRORS = {
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
    name = "perplexity"
    site = "perplexity"
    method, path = "POST", "/search"

    def key_of(self, asked: Asked) -> str:
        return asked.bearer

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        status, kind, words = _ERRORS[trouble]
        return Reply(status, {"error": {"message": why or words, "type": kind, "code": status}})

    def answer(self, asked: Asked) -> dict[str, Any]:
        query = asked.fields().get("query")
        if not isinstance(query, str) or not query.strip():
            raise InvalidRequestError("query must be a non-empty string.")
        wanted = asked.whole_number("max_results", 10, 1, MOST_RESULTS)
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
