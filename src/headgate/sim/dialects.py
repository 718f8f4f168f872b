"""How a mock API speaks of its quota: the header fields and error bodies of real vendors.

| dialect     | every answer                          | a refusal (429)         | an outage |
|-------------|---------------------------------------|-------------------------|-----------|
| none        | -                                     | a bare message          | 503       |
| retry-after | -                                     | Retry-After, in seconds | 503       |
| ietf        | RateLimit, RateLimit-Policy           | and Retry-After         | 503       |
| openai      | x-ratelimit-*-requests, per minute    | the wait in words       | 503       |
| anthropic   | anthropic-ratelimit-*, per minute     | and retry-after         | 529       |
| github      | x-ratelimit-*, per hour, epoch resets | the same, remaining 0   | 503       |

OpenAI and Anthropic always speak of a minute and GitHub of an hour, so a quota of 50/s
is announced as 3000 or 180000. What they say is left is never more than really is: of
a bucket that holds 50, at most 50.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from .quota import Standing

MINUTE, HOUR = 60.0, 3600.0
ROUNDING = 1e-9
RETRY_WHEN_UNKNOWN = 1.0
"""What a server that cannot know tells its callers to wait."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Dialect:
    announce: Callable[[Standing, float], dict[str, str]]
    """The fields of every answer; the second argument is the wall clock."""
    refuse: Callable[[Standing], Reply]
    overloaded: Reply


def whole_seconds(seconds: float | None) -> int:
    """Up to the next whole second and at least one, as servers write Retry-After."""
    return max(1, math.ceil((RETRY_WHEN_UNKNOWN if seconds is None else seconds) - 1e-6))


def go_duration(seconds: float) -> str:
    """``12ms``, ``1.5s`` or ``6m0s``, as Go programs print durations."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 3), MINUTE)
    return f"{minutes:.0f}m{rest:g}s" if minutes else f"{rest:g}s"


def told_per(period: float, standing: Standing) -> tuple[int, int, int]:
    """Limit, remaining and used, told for ``period`` seconds whatever window the quota is counted over."""
    scale = period / standing.window if standing.window else 1.0
    limit = int(standing.limit * scale)
    remaining = 0 if standing.retry != 0 else min(limit, int(standing.remaining + ROUNDING))
    return limit, remaining, limit - remaining


def says_nothing(standing: Standing, wall: float) -> dict[str, str]:
    return {}


def ietf_fields(standing: Standing, wall: float) -> dict[str, str]:
    if standing.window is None:
        return {"RateLimit-Policy": f'"default";q={int(standing.limit)};qu="concurrent-requests"'}
    return {
        "RateLimit-Policy": f'"default";q={int(standing.limit)};w={whole_seconds(standing.window)}',
        "RateLimit": f'"default";r={int(standing.remaining)};t={whole_seconds(standing.reset)}',
    }


def openai_fields(standing: Standing, wall: float) -> dict[str, str]:
    limit, remaining, _ = told_per(MINUTE, standing)
    return {
        "x-ratelimit-limit-requests": str(limit),
        "x-ratelimit-remaining-requests": str(remaining),
        "x-ratelimit-reset-requests": go_duration(standing.reset or 0.0),
    }


def anthropic_fields(standing: Standing, wall: float) -> dict[str, str]:
    limit, remaining, _ = told_per(MINUTE, standing)
    reset = datetime.fromtimestamp(math.ceil(wall + (standing.reset or 0.0)), UTC)
    return {
        "anthropic-ratelimit-requests-limit": str(limit),
        "anthropic-ratelimit-requests-remaining": str(remaining),
        "anthropic-ratelimit-requests-reset": reset.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def github_fields(standing: Standing, wall: float) -> dict[str, str]:
    limit, remaining, used = told_per(HOUR, standing)
    return {
        "x-ratelimit-limit": str(limit),
        "x-ratelimit-remaining": str(remaining),
        "x-ratelimit-used": str(used),
        "x-ratelimit-reset": str(math.ceil(wall + (standing.reset or 0.0))),
        "x-ratelimit-resource": "core",
    }


def refuse_barely(standing: Standing) -> Reply:
    return Reply(429, {"error": "too many requests"})


def refuse_with_retry_after(standing: Standing) -> Reply:
    return Reply(429, {"error": "too many requests"}, {"Retry-After": str(whole_seconds(standing.retry))})


def refuse_as_ietf(standing: Standing) -> Reply:
    problem = {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "violated-policies": ["default"],
    }
    retry_after = {"Retry-After": str(whole_seconds(standing.retry))}
    return Reply(429, problem, retry_after, "application/problem+json")


def refuse_as_openai(standing: Standing) -> Reply:
    limit, _, used = told_per(MINUTE, standing)
    wait = go_duration(RETRY_WHEN_UNKNOWN if standing.retry is None else standing.retry)
    message = (
        f"Rate limit reached for mock-model in organization org-mock on requests per min (RPM): "
        f"Limit {limit}, Used {used}, Requested 1. Please try again in {wait}."
    )
    return Reply(429, {"error": {"message": message, "type": "requests", "param": None, "code": "rate_limit_exceeded"}})


def refuse_as_anthropic(standing: Standing) -> Reply:
    limit, _, _ = told_per(MINUTE, standing)
    message = f"This request would exceed your organization's rate limit of {limit:,} requests per minute."
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": message}, "request_id": "req_mock"}
    return Reply(429, body, {"retry-after": str(whole_seconds(standing.retry))})


def refuse_as_github(standing: Standing) -> Reply:
    return Reply(
        429, {"message": "API rate limit exceeded for user ID 1.", "documentation_url": "https://docs.github.com/rest"}
    )


OUT_OF_SERVICE = Reply(503, {"error": "service unavailable"})

DIALECTS: dict[str, Dialect] = {
    "none": Dialect(says_nothing, refuse_barely, OUT_OF_SERVICE),
    "retry-after": Dialect(says_nothing, refuse_with_retry_after, OUT_OF_SERVICE),
    "ietf": Dialect(ietf_fields, refuse_as_ietf, OUT_OF_SERVICE),
    "openai": Dialect(
        openai_fields,
        refuse_as_openai,
        Reply(503, {"error": {"message": "The engine is currently overloaded.", "type": "server_error", "code": None}}),
    ),
    "anthropic": Dialect(
        anthropic_fields,
        refuse_as_anthropic,
        Reply(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    ),
    "github": Dialect(github_fields, refuse_as_github, OUT_OF_SERVICE),
}
