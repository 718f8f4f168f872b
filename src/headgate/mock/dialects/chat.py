"""Vendors of language models, which count calls and tokens side by side.

| dialect      | limits per          | a reset is                 |
|--------------|---------------------|----------------------------|
| openai       | minute              | a Go duration              |
| azure-openai | its renewal period  | whole seconds              |
| anthropic    | minute              | a date, RFC 3339           |
| mistral      | minute              | not told                   |
| groq         | day; tokens: minute | a Go duration              |
| openrouter   | as they are         | an instant in milliseconds |
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from ..api import Reply
from ..quota import LimitStatus
from .dialect import (
    DAY,
    HOUR,
    MINUTE,
    OUT_OF_SERVICE,
    TICK,
    Dialect,
    LimitStatuses,
    go_duration,
    requests_and_tokens,
    seconds_left,
    told_at_once,
    told_per,
    wait_of,
    whole_seconds,
)

THOUSAND = 1000
"""Anthropic tells the tokens that are left to the nearest thousand."""


# -- OpenAI, and Azure's copy of it ---------------------------------------------------------------


def openai_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    fields = {}
    for counted, status in requests_and_tokens(statuses):
        limit, remaining, _ = told_per(MINUTE, status)
        fields[f"x-ratelimit-limit-{counted}"] = str(limit)
        fields[f"x-ratelimit-remaining-{counted}"] = str(remaining)
        fields[f"x-ratelimit-reset-{counted}"] = go_duration(status.reset or 0.0)
    return fields


def refuse_as_openai(unit: str, status: LimitStatus, wall: float) -> Reply:
    counted, sign = ("tokens", "TPM") if unit == "tokens" else ("requests", "RPM")
    limit, _, used = told_per(MINUTE, status)
    message = (
        f"Rate limit reached for mock-model in organization org-mock on {counted} per min ({sign}): "
        f"Limit {limit}, Used {used}, Requested 1. Please try again in {go_duration(wait_of(status))}."
    )
    return Reply(429, {"error": {"message": message, "type": counted, "param": None, "code": "rate_limit_exceeded"}})


def azure_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    fields = {}
    for counted, status in requests_and_tokens(statuses):
        period = whole_seconds(status.window or MINUTE)
        limit, remaining, _ = told_per(period, status)
        fields[f"x-ratelimit-limit-{counted}"] = str(limit)
        fields[f"x-ratelimit-remaining-{counted}"] = str(remaining)
        fields[f"x-ratelimit-reset-{counted}"] = str(seconds_left(status.reset))
        fields[f"x-ratelimit-renewalperiod-{counted}"] = str(period)
    return fields


def refuse_as_azure(unit: str, status: LimitStatus, wall: float) -> Reply:
    wait, what = whole_seconds(status.retry), "request" if unit == "calls" else "token"
    message = (
        f"Requests to the ChatCompletions_Create Operation under Azure OpenAI API have exceeded {what} rate limit of "
        f"your current OpenAI S0 pricing tier. Please retry after {wait} second{'s' if wait > 1 else ''}."
    )
    headers = {
        "retry-after": str(wait),
        "retry-after-ms": str(math.ceil(1000 * wait_of(status) - TICK)),
        "x-ratelimit-type": f"{what}s".capitalize(),
    }
    return Reply(429, {"error": {"code": "429", "message": message}}, headers)


OPENAI = Dialect(
    openai_fields,
    refuse_as_openai,
    Reply(503, {"error": {"message": "The engine is currently overloaded.", "type": "server_error", "code": None}}),
)
AZURE_OPENAI = Dialect(
    azure_fields,
    refuse_as_azure,
    Reply(503, {"error": {"code": "503", "message": "The service is temporarily unable to process your request."}}),
)


# -- Anthropic ------------------------------------------------------------------------------------


def anthropic_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    fields = {}
    for counted, status in requests_and_tokens(statuses):
        limit, remaining, _ = told_per(MINUTE, status)
        counted = counted.replace("_", "-")
        if counted != "requests":
            remaining = round(remaining / THOUSAND) * THOUSAND
        reset = datetime.fromtimestamp(math.ceil(wall + (status.reset or 0.0) - TICK), UTC)
        fields[f"anthropic-ratelimit-{counted}-limit"] = str(limit)
        fields[f"anthropic-ratelimit-{counted}-remaining"] = str(remaining)
        fields[f"anthropic-ratelimit-{counted}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
    return fields


def refuse_as_anthropic(unit: str, status: LimitStatus, wall: float) -> Reply:
    limit, _, _ = told_per(MINUTE, status)
    counted = "tokens" if unit == "tokens" else "requests"
    message = f"This request would exceed your organization's rate limit of {limit:,} {counted} per minute."
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": message}, "request_id": "req_mock"}
    return Reply(429, body, {"retry-after": str(whole_seconds(status.retry))})


PLAN_WINDOWS = {5 * HOUR: ("5h", "five_hour"), 7 * DAY: ("7d", "seven_day")}
WARNS_FROM = 0.8
"""The share of a plan's window from which on its status is a warning."""


def unified_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    """What Anthropic tells subscriptions: what is used of the windows of their plan, by the limit on calls."""
    _, status = statuses[0]
    name, claim = PLAN_WINDOWS.get(status.window or 0.0, PLAN_WINDOWS[5 * HOUR])
    used = min(1.0, status.used / status.limit)
    state = "rejected" if status.retry != 0 else "allowed_warning" if used >= WARNS_FROM else "allowed"
    reset, unified = str(math.ceil(wall + (status.reset or 0.0) - TICK)), "anthropic-ratelimit-unified"
    return {
        f"{unified}-status": state,
        f"{unified}-reset": reset,
        f"{unified}-representative-claim": claim,
        f"{unified}-{name}-status": state,
        f"{unified}-{name}-reset": reset,
        f"{unified}-{name}-utilization": f"{used:.4f}",
    }


ANTHROPIC = Dialect(
    anthropic_fields,
    refuse_as_anthropic,
    Reply(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
)


ANTHROPIC_SUBSCRIPTION = Dialect(unified_fields, refuse_as_anthropic, ANTHROPIC.overloaded)


# -- Mistral --------------------------------------------------------------------------------------


def mistral_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    fields = {}
    for counted, status in requests_and_tokens(statuses):
        limit, remaining, _ = told_per(MINUTE, status)
        what = "req" if counted == "requests" else counted
        fields[f"x-ratelimit-limit-{what}-minute"] = str(limit)
        fields[f"x-ratelimit-remaining-{what}-minute"] = str(remaining)
    return fields


def refuse_as_mistral(unit: str, status: LimitStatus, wall: float) -> Reply:
    body = {"object": "error", "message": "Rate limit exceeded", "type": "rate_limited", "param": None, "code": "1300"}
    return Reply(429, body | {"raw_status_code": 429})


MISTRAL = Dialect(mistral_fields, refuse_as_mistral, OUT_OF_SERVICE)


# -- Groq -----------------------------------------------------------------------------------------


def groq_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    fields = {"x-groq-region": "mock"}
    for counted, status in requests_and_tokens(statuses):
        limit, remaining, reset = _per_day(status) if counted == "requests" else _per_minute(status)
        fields[f"x-ratelimit-limit-{counted}"] = str(limit)
        fields[f"x-ratelimit-remaining-{counted}"] = str(remaining)
        fields[f"x-ratelimit-reset-{counted}"] = go_duration(reset)
    return fields


def _per_minute(status: LimitStatus) -> tuple[int, int, float]:
    limit, remaining, _ = told_per(MINUTE, status)
    return limit, remaining, status.reset or 0.0


def _per_day(status: LimitStatus) -> tuple[int, int, float]:
    """Of calls only the day's limit is told. A quota of less than a day is what a whole day of it would allow."""
    limit, remaining, _ = told_per(DAY, status)
    if _is_daily(status):
        return limit, remaining, status.reset or 0.0
    used = min(limit, math.ceil(status.used - TICK))
    return limit, limit - used, used * DAY / max(limit, 1)


def _is_daily(status: LimitStatus) -> bool:
    return (status.window or 0.0) >= DAY


def refuse_as_groq(unit: str, status: LimitStatus, wall: float) -> Reply:
    """Groq has limits per minute too, which it states only when they are hit."""
    counted, daily = ("tokens" if unit == "tokens" else "requests"), _is_daily(status)
    limit, _, used = told_per(DAY if daily else MINUTE, status)
    sign = f"{counted[0].upper()}P{'D' if daily else 'M'}"
    message = (
        f"Rate limit reached for model `mock-model` in organization `org_mock` service tier `on_demand` on {counted} "
        f"per {'day' if daily else 'minute'} ({sign}): Limit {limit}, Used {used}, Requested 1. "
        f"Please try again in {go_duration(wait_of(status))}."
    )
    body = {"error": {"message": message, "type": counted, "code": "rate_limit_exceeded"}}
    return Reply(429, body, {"retry-after": str(whole_seconds(status.retry))})


GROQ = Dialect(groq_fields, refuse_as_groq, OUT_OF_SERVICE)


# -- OpenRouter -----------------------------------------------------------------------------------


def openrouter_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    return _openrouter_fields(statuses[0][1], wall)


def _openrouter_fields(status: LimitStatus, wall: float) -> dict[str, str]:
    reset = math.ceil(1000 * (wall + (status.reset or 0.0)) - TICK)
    return {"X-RateLimit-Limit": str(told_at_once(status)[0]), "X-RateLimit-Reset": str(reset)}


def refuse_as_openrouter(unit: str, status: LimitStatus, wall: float) -> Reply:
    message = f"Rate limit exceeded: free-models-per-{'day' if _is_daily(status) else 'min'}. "
    repeated = _openrouter_fields(status, wall) | {"X-RateLimit-Remaining": "0"}
    return Reply(429, {"error": {"message": message, "code": 429, "metadata": {"headers": repeated}}})


OPENROUTER = Dialect(
    openrouter_fields,
    refuse_as_openrouter,
    Reply(200, {"error": {"code": 503, "message": "Provider returned error"}}),
)
