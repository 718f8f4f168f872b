"""Google: no header speaks of limits, the body of a refusal does, and only there a day differs from a minute."""

from __future__ import annotations

from typing import Any

from ..providers.google import Google
from ..quota import Standing
from ..reply import Reply
from .contract import DAY, MINUTE, Dialect, says_nothing, told_per, whole_seconds

_RPC = "type.googleapis.com/google.rpc"
_SEARCH = Google()


def refuse_as_gemini(unit: str, standing: Standing, wall: float) -> Reply:
    per, period = ("Day", DAY) if (standing.window or 0.0) >= DAY else ("Minute", MINUTE)
    metric, quota = ("input_token_count", "InputTokens") if unit == "tokens" else ("requests", "Requests")
    violation = {
        "quotaMetric": f"generativelanguage.googleapis.com/generate_content_free_tier_{metric}",
        "quotaId": f"Generate{'Content' if unit == 'tokens' else ''}{quota}PerModelPer{per}-FreeTier",
        "quotaDimensions": {"location": "global", "model": "mock-model"},
        "quotaValue": str(told_per(period, standing)[0]),
    }
    details: list[dict[str, Any]] = [
        {"@type": f"{_RPC}.QuotaFailure", "violations": [violation]},
        {"@type": f"{_RPC}.RetryInfo", "retryDelay": f"{whole_seconds(standing.retry)}s"},
    ]
    message = "You exceeded your current quota, please check your plan and billing details."
    return Reply(429, {"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}})


def refuse_as_google_search(unit: str, standing: Standing, wall: float) -> Reply:
    return _SEARCH.refuse("quota" if (standing.window or 0.0) >= DAY else "rate_limited")


GEMINI = Dialect(
    says_nothing,
    refuse_as_gemini,
    Reply(503, {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}),
)
GOOGLE_SEARCH = Dialect(says_nothing, refuse_as_google_search, _SEARCH.refuse("unavailable"))
