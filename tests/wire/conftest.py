"""Real answers as vendors send them, shared by the tests that read them and those that damage them."""

from __future__ import annotations

import json

import pytest

WALL = 1_789_997_400.0
"""2026-09-21, 13:30 UTC: 2,600 s before the epoch resets below."""


def openai_message(limit: int = 30000, used: int = 15532, requested: int = 14655, sign: str = "TPM") -> str:
    per = {"TPM": "tokens per min", "RPD": "requests per day"}[sign]
    return (
        f"Rate limit reached for gpt-4o in organization org-x on {per} ({sign}): Limit {limit}, Used {used}, "
        f"Requested {requested}. Please try again in 374ms. Visit https://platform.openai.com/account/rate-limits."
    )


GEMINI = {
    "error": {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [
                    {
                        "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_input_token_count",
                        "quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier",
                        "quotaDimensions": {"location": "global", "model": "gemini-2.5-flash"},
                        "quotaValue": "250000",
                    }
                ],
            },
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "26s"},
        ],
    }
}
GOOGLE_SEARCH_MESSAGE = (
    "Quota exceeded for quota metric 'Queries' and limit 'Queries per day' of service "
    "'customsearch.googleapis.com' for consumer 'project_number:1'."
)
SHOPIFY = {
    "data": None,
    "errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}],
    "extensions": {
        "cost": {
            "requestedQueryCost": 202,
            "throttleStatus": {"maximumAvailable": 1000.0, "currentlyAvailable": 118, "restoreRate": 50.0},
        }
    },
}

ANSWERS: dict[str, tuple[int, dict[str, str], object]] = {
    "openai": (
        200,
        {
            "x-ratelimit-limit-requests": "5000",
            "x-ratelimit-limit-tokens": "160000",
            "x-ratelimit-remaining-requests": "4999",
            "x-ratelimit-remaining-tokens": "159976",
            "x-ratelimit-reset-requests": "12ms",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        None,
    ),
    "openai 429": (
        429,
        {},
        {"error": {"message": openai_message(), "type": "tokens", "param": None, "code": "rate_limit_exceeded"}},
    ),
    "azure": (
        429,
        {
            "retry-after": "1",
            "retry-after-ms": "0",
            "x-ratelimit-type": "Tokens",
            "x-ratelimit-limit-tokens": "5000",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-tokens": "0",
            "x-ratelimit-renewalperiod-tokens": "60",
            "x-ratelimit-renewalperiod-requests": "60",
        },
        {
            "error": {
                "code": "429",
                "message": "Requests to the ChatCompletions_Create Operation under Azure OpenAI API have exceeded "
                "token rate limit of your current OpenAI S0 pricing tier. Please retry after 6 seconds.",
            }
        },
    ),
    "anthropic": (
        200,
        {
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "49",
            "anthropic-ratelimit-requests-reset": "2026-09-21T13:30:12Z",
            "anthropic-ratelimit-tokens-limit": "40000",
            "anthropic-ratelimit-tokens-remaining": "39000",
            "anthropic-ratelimit-tokens-reset": "2026-09-21T13:30:12Z",
            "anthropic-ratelimit-input-tokens-limit": "30000",
            "anthropic-ratelimit-input-tokens-remaining": "30000",
            "anthropic-ratelimit-input-tokens-reset": "2026-09-21T13:30:00Z",
            "anthropic-ratelimit-output-tokens-limit": "10000",
            "anthropic-ratelimit-output-tokens-remaining": "9000",
            "anthropic-ratelimit-output-tokens-reset": "2026-09-21T13:30:06Z",
        },
        None,
    ),
    "anthropic 429": (
        429,
        {"retry-after": "12", "anthropic-ratelimit-requests-reset": "2026-09-27T12:05:00Z"},
        {
            "type": "error",
            "error": {
                "type": "rate_limit_error",
                "message": "This request would exceed your organization's rate limit of 30,000 input tokens per minute",
            },
            "request_id": "req_1",
        },
    ),
    "anthropic spend": (
        429,
        {},
        {
            "type": "error",
            "error": {
                "type": "rate_limit_error",
                "message": "Your organization has reached its enforced spend limit.",
                "details": {"error_code": "enforced_spend_limit_reached"},
            },
            "request_id": "req_1",
        },
    ),
    "anthropic unified": (
        429,
        {
            "retry-after": "60",
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-reset": "1790004600",
            "anthropic-ratelimit-unified-representative-claim": "five_hour",
            "anthropic-ratelimit-unified-5h-status": "rejected",
            "anthropic-ratelimit-unified-5h-reset": "1790004600",
            "anthropic-ratelimit-unified-5h-utilization": "1.0",
            "anthropic-ratelimit-unified-7d-status": "allowed",
            "anthropic-ratelimit-unified-7d-reset": "1790400000",
            "anthropic-ratelimit-unified-7d-utilization": "0.42",
        },
        {"type": "error", "error": {"type": "rate_limit_error", "message": "This request would exceed your limit."}},
    ),
    "anthropic 529": (
        529,
        {},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ),
    "anthropic stream": (
        200,
        {"content-type": "text/event-stream"},
        'event: message_start\ndata: {"type":"message_start"}\n\n'
        'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
    ),
    "gemini": (429, {}, GEMINI),
    "mistral": (
        200,
        {
            "x-ratelimit-limit-tokens-minute": "5000000",
            "x-ratelimit-remaining-tokens-minute": "4999911",
            "x-ratelimit-tokens-query-cost": "52",
            "x-ratelimit-limit-req-minute": "720",
            "x-ratelimit-remaining-req-minute": "717",
        },
        None,
    ),
    "mistral 429": (
        429,
        {},
        {
            "object": "error",
            "message": "Rate limit exceeded",
            "type": "rate_limited",
            "param": None,
            "code": "1300",
            "raw_status_code": 429,
        },
    ),
    "groq": (
        200,
        {
            "x-ratelimit-limit-requests": "14400",
            "x-ratelimit-remaining-requests": "14370",
            "x-ratelimit-reset-requests": "2m59.56s",
            "x-ratelimit-limit-tokens": "18000",
            "x-ratelimit-remaining-tokens": "17997",
            "x-ratelimit-reset-tokens": "7.66s",
        },
        None,
    ),
    "groq 498": (
        498,
        {"x-groq-region": "us"},
        {"error": {"message": "Flex tier capacity exceeded", "type": "capacity", "code": "capacity_exceeded"}},
    ),
    "groq 413": (
        413,
        {},
        {
            "error": {
                "message": "Request too large for model `llama` in organization `org_1` service tier `on_demand` on "
                "tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your message size",
                "type": "tokens",
                "code": "rate_limit_exceeded",
            }
        },
    ),
    "openrouter": (429, {"X-RateLimit-Limit": "50", "X-RateLimit-Reset": "1790000000000"}, None),
    "openrouter in the body": (
        429,
        {},
        {
            "error": {
                "message": "Rate limit exceeded: free-models-per-day. ",
                "code": 429,
                "metadata": {
                    "headers": {
                        "X-RateLimit-Limit": "50",
                        "X-RateLimit-Remaining": "0",
                        "X-RateLimit-Reset": "1790000000000",
                    }
                },
            }
        },
    ),
    "openrouter in a 200": (200, {}, {"error": {"code": 502, "message": "Provider returned error"}}),
    "tavily 429": (429, {"retry-after": "45"}, {"detail": {"error": "Your request has been blocked"}}),
    "tavily 432": (432, {}, {"detail": {"error": "This request exceeds your plan's set usage limit."}}),
    "tavily 433": (433, {}, {"detail": {"error": "This request exceeds the pay-as-you-go limit."}}),
    "google search 429": (
        429,
        {},
        {
            "error": {
                "code": 429,
                "message": GOOGLE_SEARCH_MESSAGE,
                "errors": [{"message": "...", "domain": "global", "reason": "rateLimitExceeded"}],
                "status": "RESOURCE_EXHAUSTED",
            }
        },
    ),
    "google search 403": (
        403,
        {},
        {
            "error": {
                "code": 403,
                "message": "Daily Limit Exceeded",
                "errors": [
                    {"domain": "usageLimits", "reason": "dailyLimitExceeded", "message": "Daily Limit Exceeded"}
                ],
            }
        },
    ),
    "semantic scholar": (429, {}, {"message": "Too Many Requests. Please wait and try again.", "code": "429"}),
    "github": (
        403,
        {
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-used": "5000",
            "x-ratelimit-reset": "1790000000",
            "x-ratelimit-resource": "core",
        },
        {"message": "API rate limit exceeded for user ID 1.", "documentation_url": "https://docs.github.com/rest"},
    ),
    "github secondary": (
        403,
        {
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": "4321",
            "x-ratelimit-reset": "1790000000",
            "x-ratelimit-resource": "core",
        },
        {"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."},
    ),
    "reddit": (
        200,
        {"X-Ratelimit-Used": "6", "X-Ratelimit-Remaining": "594.0", "X-Ratelimit-Reset": "318"},
        None,
    ),
    "slack": (429, {"Retry-After": "30"}, {"ok": False, "error": "ratelimited"}),
    "slack 200": (200, {}, {"ok": False, "error": "ratelimited"}),
    "discord": (
        429,
        {
            "Retry-After": "65",
            "X-RateLimit-Limit": "10",
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": "1470173023.123",
            "X-RateLimit-Reset-After": "64.57",
            "X-RateLimit-Bucket": "abcd1234",
            "X-RateLimit-Scope": "user",
        },
        {"message": "You are being rate limited.", "retry_after": 64.57, "global": False},
    ),
    "shopify": (429, {"X-Shopify-Shop-Api-Call-Limit": "32/40", "Retry-After": "2.0"}, None),
    "shopify graphql": (200, {}, SHOPIFY),
    "stripe": (
        429,
        {"Stripe-Rate-Limited-Reason": "endpoint-concurrency", "Stripe-Should-Retry": "true"},
        {"error": {"type": "invalid_request_error", "code": "rate_limit"}},
    ),
    "stripe lock": (
        429,
        {"Stripe-Should-Retry": "true"},
        {"error": {"type": "invalid_request_error", "code": "lock_timeout"}},
    ),
    "cloudflare": (
        429,
        {
            "Ratelimit": '"default";r=0;t=30',
            "Ratelimit-Policy": '"burst";q=100;w=60',
            "retry-after": "31",
            "cf-ray": "8a",
        },
        None,
    ),
    "cloudflare edge": (429, {"cf-ray": "8a-FRA", "server": "cloudflare"}, "<!doctype html><title>Error 1015</title>"),
    "ietf policies": (200, {"RateLimit-Policy": '"permin";q=50;w=60,"perhr";q=1000;w=3600'}, None),
    "ietf bytes": (
        200,
        {"RateLimit-Policy": '"peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:'},
        None,
    ),
    "ietf": (200, {"RateLimit": '"default";r=50;t=30'}, None),
    "ietf one field": (200, {"RateLimit": "limit=100, remaining=50, reset=5"}, None),
    "ietf older": (200, {"RateLimit-Limit": "100", "RateLimit-Remaining": "50", "RateLimit-Reset": "5"}, None),
    "ietf listed": (
        200,
        {"X-RateLimit-Limit": "100, 100;window=60, 10000;window=86400", "X-RateLimit-Remaining": "42"},
        None,
    ),
    "ietf problem": (
        429,
        {"RateLimit": '"permin";r=3;t=7,"perhr";r=9;t=1800', "content-type": "application/problem+json"},
        {
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "violated-policies": ["permin"],
        },
    ),
    "gitlab": (
        429,
        {
            "RateLimit-Limit": "60",
            "RateLimit-Remaining": "0",
            "RateLimit-Reset": "1790000000",
            "RateLimit-Observed": "67",
            "RateLimit-Name": "throttle_authenticated_web",
        },
        None,
    ),
    "rfc 9110 seconds": (503, {"Retry-After": "120"}, None),
    "rfc 9110 date": (
        503,
        {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT", "Date": "Fri, 31 Dec 1999 23:59:29 GMT"},
        None,
    ),
}


@pytest.fixture(scope="session")
def wall() -> float:
    return WALL


@pytest.fixture(scope="session")
def answers() -> dict[str, tuple[int, dict[str, str], object]]:
    return ANSWERS


@pytest.fixture(scope="session")
def encoded() -> list[tuple[int, dict[str, str], str | None]]:
    """The same answers with their bodies as they travel: text."""
    return [
        (status, headers, body if body is None or isinstance(body, str) else json.dumps(body))
        for status, headers, body in ANSWERS.values()
    ]
