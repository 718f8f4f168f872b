"""OpenAI's errors: one object with a message, a type, a parameter and a code.

| trouble      | status | type                  | code                  |
|--------------|--------|-----------------------|-----------------------|
| unauthorized | 401    | invalid_request_error | invalid_api_key       |
| forbidden    | 403    | request_forbidden     | unsupported_country.. |
| invalid      | 400    | invalid_request_error |                       |
| too_long     | 400    | invalid_request_error | context_length_exc..  |
| not_found    | 404    | invalid_request_error | model_not_found       |
| too_large    | 413    | invalid_request_error | request_too_large     |
| rate_limited | 429    | requests or tokens    | rate_limit_exceeded   |
| daily        | 429    | requests              | rate_limit_exceeded   |
| quota        | 429    | insufficient_quota    | insufficient_quota    |
| spend        | 429    | insufficient_quota    | organization_spend_.. |
| capacity     | 429    | resource_unavailable  | resource_unavailable  |
| server_error | 500    | server_error          |                       |
| unavailable  | 503    | server_error          |                       |
| overloaded   | 503    | server_error          |                       |

The numbers of a limit are told in the message: ``Limit 30000, Used 15532, Requested 14655``.
"""

from __future__ import annotations

import math

from ..api import Reply
from ..dialects.dialect import DAY, HOUR, MINUTE, ROUNDING, go_duration, wait_of
from ..quota import LimitStatus
from .language_api import Refusal, RejectedError

_LEARN = "Visit https://platform.openai.com/account/rate-limits to learn more."
_REQUEST = "invalid_request_error"
_ERRORS: dict[str, tuple[int, str, str, str | None]] = {
    "unauthorized": (401, "Incorrect API key provided.", _REQUEST, "invalid_api_key"),
    "forbidden": (
        403,
        "Country, region, or territory not supported",
        "request_forbidden",
        "unsupported_country_region_territory",
    ),
    "invalid": (400, "The request is not valid.", _REQUEST, None),
    "too_long": (400, "Your input exceeds the context window of this model.", _REQUEST, "context_length_exceeded"),
    "not_found": (404, "The model `mock` does not exist or you do not have access to it.", _REQUEST, "model_not_found"),
    "too_large": (413, "The request body is too large.", _REQUEST, "request_too_large"),
    "quota": (
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
        "insufficient_quota",
    ),
    "spend": (
        429,
        "Your organization has reached its spend limit; raise it in the billing settings.",
        "insufficient_quota",
        "organization_spend_limit_exceeded",
    ),
    "capacity": (429, "Resource Unavailable", "resource_unavailable", "resource_unavailable"),
    "server_error": (500, "The server had an error while processing your request.", "server_error", None),
    "unavailable": (503, "The service is temporarily unavailable.", "server_error", None),
    "overloaded": (503, "The engine is currently overloaded, please try again later", "server_error", None),
}


def error(trouble: str, why: str = "", param: str | None = None) -> Reply:
    status, words, kind, code = _ERRORS[trouble]
    return Reply(status, {"error": {"message": why or words, "type": kind, "param": param, "code": code}})


def reject(why: str, param: str | None = None, trouble: str = "invalid") -> RejectedError:
    return RejectedError(error(trouble, why, param))


def limit_reached(refusal: Refusal, model: str) -> Reply:
    """A 429, even where the call can never fit: the numbers tell."""
    status, per = refusal.status, DAY if refusal.trouble == "daily" else MINUTE
    limit, used = _told(status, per)
    counted = "tokens" if refusal.unit == "tokens" else "requests"
    sign = f"{counted[0].upper()}P{'D' if per == DAY else 'M'}"
    what = f"{counted} per {'day' if per == DAY else 'min'} ({sign})"
    where = f"for {model} in organization org-mock on {what}: Limit {limit}"
    if refusal.trouble == "too_large":
        message = (
            f"Request too large {where}, Requested {refusal.requested}. "
            "The input or output tokens must be reduced in order to run successfully."
        )
    else:
        message = (
            f"Rate limit reached {where}, Used {used}, Requested {refusal.requested}. "
            f"Please try again in {_wait(wait_of(status))}."
        )
    told = {"message": f"{message} {_LEARN}", "type": counted, "param": None, "code": "rate_limit_exceeded"}
    return Reply(429, {"error": told})


def _told(status: LimitStatus, per: float) -> tuple[int, int]:
    """Limit and used, told for so many seconds; what is left is never more than really is."""
    limit = int(status.limit * (per / status.window if status.window else 1.0) + ROUNDING)
    return limit, max(0, limit - int(status.remaining + ROUNDING))


def _wait(seconds: float) -> str:
    """Never a moment too short, and from an hour on with the hours."""
    seconds = math.ceil(seconds * 1000 - ROUNDING) / 1000
    hours, rest = divmod(seconds, HOUR)
    if not hours:
        return go_duration(seconds)
    minutes, rest = divmod(rest, MINUTE)
    return f"{hours:.0f}h{minutes:.0f}m{round(rest, 3):g}s"
