"""Reddit, Slack, Discord, Shopify, Stripe and Cloudflare: each has words that nobody else uses."""

from __future__ import annotations

import math

from ..quota import Standing
from ..reply import Reply
from .contract import (
    MINUTE,
    OUT_OF_SERVICE,
    TICK,
    Dialect,
    Standings,
    says_nothing,
    seconds_left,
    told_at_once,
    told_per,
    wait_of,
    whole_seconds,
)
from .standards import ietf_fields

TEN_MINUTES = 10 * MINUTE
_EDGE_PAGE = (
    "<!doctype html>\n<title>Error 1015</title>\n<p>You are being rate limited, or the server is not there.</p>\n"
)


def reddit_fields(standings: Standings, wall: float) -> dict[str, str]:
    """The limit itself is not told; it is what was used and what is left."""
    _, standing = standings[0]
    _, remaining, used = told_per(TEN_MINUTES, standing)
    return {
        "X-Ratelimit-Used": str(used),
        "X-Ratelimit-Remaining": f"{remaining:.1f}",
        "X-Ratelimit-Reset": str(seconds_left(standing.reset)),
    }


def refuse_as_reddit(unit: str, standing: Standing, wall: float) -> Reply:
    return Reply(429, {"message": "Too Many Requests", "error": 429})


def refuse_as_slack(unit: str, standing: Standing, wall: float) -> Reply:
    return Reply(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": str(whole_seconds(standing.retry))})


def discord_fields(standings: Standings, wall: float) -> dict[str, str]:
    _, standing = standings[0]
    limit, remaining, _ = told_at_once(standing)
    reset = _to_the_millisecond(standing.reset or 0.0)
    return {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(remaining),
        "X-RateLimit-Reset": f"{wall + reset:.3f}",
        "X-RateLimit-Reset-After": f"{reset:.3f}",
        "X-RateLimit-Bucket": "mock1234",
    }


def refuse_as_discord(unit: str, standing: Standing, wall: float) -> Reply:
    wait = _to_the_millisecond(wait_of(standing))
    headers = {"Retry-After": str(whole_seconds(wait)), "X-RateLimit-Scope": "user"}
    return Reply(429, {"message": "You are being rate limited.", "retry_after": wait, "global": False}, headers)


def _to_the_millisecond(seconds: float) -> float:
    return math.ceil(seconds * 1000 - TICK) / 1000


def shopify_fields(standings: Standings, wall: float) -> dict[str, str]:
    limit, _, used = told_at_once(standings[0][1])
    return {"X-Shopify-Shop-Api-Call-Limit": f"{used}/{limit}"}


def refuse_as_shopify(unit: str, standing: Standing, wall: float) -> Reply:
    per_second = standing.limit / standing.window if standing.window else standing.limit
    message = f"Exceeded {per_second:g} calls per second for api client. Reduce request rates to resume service."
    return Reply(429, {"errors": message}, {"Retry-After": f"{whole_seconds(standing.retry):.1f}"})


def refuse_as_stripe(unit: str, standing: Standing, wall: float) -> Reply:
    reason = "global-rate" if standing.window else "global-concurrency"
    error = {"type": "invalid_request_error", "code": "rate_limit", "message": "Too many requests hit the API."}
    return Reply(429, {"error": error}, {"Stripe-Rate-Limited-Reason": reason, "Stripe-Should-Retry": "true"})


def refuse_as_cloudflare(unit: str, standing: Standing, wall: float) -> Reply:
    error = {"code": 971, "message": "Please wait and consider throttling your request speed"}
    body = {"success": False, "errors": [error], "messages": [], "result": None}
    return Reply(429, body, {"Retry-After": str(whole_seconds(standing.retry))})


REDDIT = Dialect(reddit_fields, refuse_as_reddit, OUT_OF_SERVICE)
SLACK = Dialect(says_nothing, refuse_as_slack, Reply(503, {"ok": False, "error": "service_unavailable"}))
DISCORD = Dialect(discord_fields, refuse_as_discord, OUT_OF_SERVICE)
SHOPIFY = Dialect(shopify_fields, refuse_as_shopify, OUT_OF_SERVICE)
STRIPE = Dialect(
    says_nothing, refuse_as_stripe, Reply(503, {"error": {"type": "api_error", "message": "Service unavailable."}})
)
CLOUDFLARE = Dialect(ietf_fields, refuse_as_cloudflare, Reply(503, _EDGE_PAGE, {"cf-ray": "mock"}))
