"""How code hosts, other platforms and search APIs state their quotas: each vendor has its own names."""

from __future__ import annotations

import math
from typing import Any

from ..api import Reply
from ..providers.papers import SemanticScholar
from ..providers.provider_api import ProviderApi
from ..providers.search_engines import Google, Perplexity, Tavily
from ..quota import LimitStatus
from .dialect import (
    DAY,
    HOUR,
    MINUTE,
    OUT_OF_SERVICE,
    TICK,
    Dialect,
    LimitStatuses,
    ietf_fields,
    says_nothing,
    seconds_left,
    told_at_once,
    told_per,
    wait_of,
    whole_seconds,
)

TEN_MINUTES = 10 * MINUTE
_EDGE_PAGE = (
    "<!doctype html>\n<title>Error 1015</title>\n<p>You are being rate limited, or the server is not there.</p>\n"
)


def reddit_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    """The limit itself is not told; it is what was used and what is left."""
    _, status = statuses[0]
    _, remaining, used = told_per(TEN_MINUTES, status)
    return {
        "X-Ratelimit-Used": str(used),
        "X-Ratelimit-Remaining": f"{remaining:.1f}",
        "X-Ratelimit-Reset": str(seconds_left(status.reset)),
    }


def refuse_as_reddit(unit: str, status: LimitStatus, wall: float) -> Reply:
    return Reply(429, {"message": "Too Many Requests", "error": 429})


def refuse_as_slack(unit: str, status: LimitStatus, wall: float) -> Reply:
    return Reply(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": str(whole_seconds(status.retry))})


def discord_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    _, status = statuses[0]
    limit, remaining, _ = told_at_once(status)
    reset = _to_the_millisecond(status.reset or 0.0)
    return {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(remaining),
        "X-RateLimit-Reset": f"{wall + reset:.3f}",
        "X-RateLimit-Reset-After": f"{reset:.3f}",
        "X-RateLimit-Bucket": "mock1234",
    }


def refuse_as_discord(unit: str, status: LimitStatus, wall: float) -> Reply:
    wait = _to_the_millisecond(wait_of(status))
    headers = {"Retry-After": str(whole_seconds(wait)), "X-RateLimit-Scope": "user"}
    return Reply(429, {"message": "You are being rate limited.", "retry_after": wait, "global": False}, headers)


def _to_the_millisecond(seconds: float) -> float:
    return math.ceil(seconds * 1000 - TICK) / 1000


def shopify_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    limit, _, used = told_at_once(statuses[0][1])
    return {"X-Shopify-Shop-Api-Call-Limit": f"{used}/{limit}"}


def refuse_as_shopify(unit: str, status: LimitStatus, wall: float) -> Reply:
    per_second = status.limit / status.window if status.window else status.limit
    message = f"Exceeded {per_second:g} calls per second for api client. Reduce request rates to resume service."
    return Reply(429, {"errors": message}, {"Retry-After": f"{whole_seconds(status.retry):.1f}"})


def refuse_as_stripe(unit: str, status: LimitStatus, wall: float) -> Reply:
    reason = "global-rate" if status.window else "global-concurrency"
    error = {"type": "invalid_request_error", "code": "rate_limit", "message": "Too many requests hit the API."}
    return Reply(429, {"error": error}, {"Stripe-Rate-Limited-Reason": reason, "Stripe-Should-Retry": "true"})


def refuse_as_cloudflare(unit: str, status: LimitStatus, wall: float) -> Reply:
    error = {"code": 971, "message": "Please wait and consider throttling your request speed"}
    body = {"success": False, "errors": [error], "messages": [], "result": None}
    return Reply(429, body, {"Retry-After": str(whole_seconds(status.retry))})


REDDIT = Dialect(reddit_fields, refuse_as_reddit, OUT_OF_SERVICE)
SLACK = Dialect(says_nothing, refuse_as_slack, Reply(503, {"ok": False, "error": "service_unavailable"}))
DISCORD = Dialect(discord_fields, refuse_as_discord, OUT_OF_SERVICE)
SHOPIFY = Dialect(shopify_fields, refuse_as_shopify, OUT_OF_SERVICE)
STRIPE = Dialect(
    says_nothing, refuse_as_stripe, Reply(503, {"error": {"type": "api_error", "message": "Service unavailable."}})
)
CLOUDFLARE = Dialect(ietf_fields, refuse_as_cloudflare, Reply(503, _EDGE_PAGE, {"cf-ray": "mock"}))

# ---------------------------------------------------------------------- GitHub and GitLab, whose resets are instants

_DOCUMENTATION = "https://docs.github.com/rest"
PRIMARY = 10
"""A primary limit that is never reached is this many times the secondary one."""


def _epoch(wall: float, seconds: float | None) -> str:
    return str(math.ceil(wall + (seconds or 0.0) - TICK))


def github_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    _, status = statuses[0]
    return _github_fields(*told_per(HOUR, status), _epoch(wall, status.reset))


def far_from_the_primary_limit(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    limit, used = PRIMARY * told_per(HOUR, statuses[0][1])[0], math.ceil(statuses[0][1].used)
    return _github_fields(limit, limit - used, used, _epoch(wall, HOUR))


def _github_fields(limit: int, remaining: int, used: int, reset: str) -> dict[str, str]:
    return {
        "x-ratelimit-limit": str(limit),
        "x-ratelimit-remaining": str(remaining),
        "x-ratelimit-used": str(used),
        "x-ratelimit-reset": reset,
        "x-ratelimit-resource": "core",
    }


def refuse_as_github(unit: str, status: LimitStatus, wall: float) -> Reply:
    return Reply(429, {"message": "API rate limit exceeded for user ID 1.", "documentation_url": _DOCUMENTATION})


def refuse_as_secondary(unit: str, status: LimitStatus, wall: float) -> Reply:
    message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
    return Reply(403, {"message": message, "documentation_url": _DOCUMENTATION})


def gitlab_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    _, status = statuses[0]
    limit, remaining, used = told_at_once(status)
    return {
        "RateLimit-Limit": str(limit),
        "RateLimit-Observed": str(used),
        "RateLimit-Remaining": str(remaining),
        "RateLimit-Reset": _epoch(wall, status.reset),
        "RateLimit-Name": "throttle_authenticated_api",
    }


def refuse_as_gitlab(unit: str, status: LimitStatus, wall: float) -> Reply:
    return Reply(429, "Retry later\n", {"Retry-After": str(whole_seconds(status.retry))})


GITHUB = Dialect(github_fields, refuse_as_github, OUT_OF_SERVICE)
GITHUB_SECONDARY = Dialect(far_from_the_primary_limit, refuse_as_secondary, OUT_OF_SERVICE)
GITLAB = Dialect(gitlab_fields, refuse_as_gitlab, OUT_OF_SERVICE)

# ---------------------------------------------------------------------- search APIs
# In the words that their mocks use too: nothing is announced, and most refusals say no more than 429.


def _spoken_by(api: ProviderApi) -> Dialect:
    def refuse(unit: str, status: LimitStatus, wall: float) -> Reply:
        return api.refuse("rate_limited", retry_after=whole_seconds(status.retry))

    return Dialect(says_nothing, refuse, api.refuse("unavailable"))


TAVILY = _spoken_by(Tavily())
PERPLEXITY = _spoken_by(Perplexity())
SEMANTIC_SCHOLAR = _spoken_by(SemanticScholar())

# ---------------------------------------------------------------------- Google
# No header states a limit, the body of a refusal does, and only there a day differs from a minute.

_RPC = "type.googleapis.com/google.rpc"
_SEARCH = Google()


def refuse_as_gemini(unit: str, status: LimitStatus, wall: float, model: str = "mock-model") -> Reply:
    per, period = ("Day", DAY) if (status.window or 0.0) >= DAY else ("Minute", MINUTE)
    metric, quota = ("requests", "Requests") if unit == "calls" else ("input_token_count", "InputTokens")
    violation = {
        "quotaMetric": f"generativelanguage.googleapis.com/generate_content_free_tier_{metric}",
        "quotaId": f"Generate{'' if unit == 'calls' else 'Content'}{quota}PerModelPer{per}-FreeTier",
        "quotaDimensions": {"location": "global", "model": model},
        "quotaValue": str(told_per(period, status)[0]),
    }
    details: list[dict[str, Any]] = [
        {"@type": f"{_RPC}.QuotaFailure", "violations": [violation]},
        {"@type": f"{_RPC}.RetryInfo", "retryDelay": f"{whole_seconds(status.retry)}s"},
    ]
    message = "You exceeded your current quota, please check your plan and billing details."
    return Reply(429, {"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}})


def refuse_as_google_search(unit: str, status: LimitStatus, wall: float) -> Reply:
    return _SEARCH.refuse("quota" if (status.window or 0.0) >= DAY else "rate_limited")


GEMINI = Dialect(
    says_nothing,
    refuse_as_gemini,
    Reply(503, {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}),
)
GOOGLE_SEARCH = Dialect(says_nothing, refuse_as_google_search, _SEARCH.refuse("unavailable"))
