"""Google: Gemini, Programmable Search and their kin. No headers; the body says it all.

    {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
               "details": [QuotaFailure{violations}, RetryInfo{retryDelay}, ErrorInfo{reason}],   newer
               "errors": [{"reason": "rateLimitExceeded"}]}}                                      older

What matters is whether the limit is counted by the day. Its name says so (``PerDay`` in a
quota's id, "per day" in the limit's quoted name), while codes and delays do not: the
daily cap, too, says ``rateLimitExceeded`` and "try again in 26s". Days end at midnight
Pacific. A 402 says that the prepaid credit is used up; a 404, "models/NAME is not found", that there is no such model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...core.decision import Outcome
from ...core.signal import Limit
from ..dialect import Dialect
from ..error_body import LONGEST_CODE, MOST_ENTRIES, ErrorDetails, Json, code_text, objects, outcome_of_codes, status_in
from ..headers import WINDOWS
from ..retry_after import Arrival, duration, next_midnight_pacific, number, within_bounds

LONGEST_MESSAGE = 1024

_COUNTED = {"inputtoken": "input_tokens", "outputtoken": "output_tokens", "token": "tokens"}
_LIMIT_NAME = r"limit '([^']{1,120})'"
_UNKNOWN_MODEL = r"models/\S{1,120} is not found"
_DAILY_REASONS = frozenset(("dailyLimitExceeded", "quotaExceeded"))


def read_error(body: Json, arrival: Arrival) -> ErrorDetails | None:
    error = body.get("error")
    if not isinstance(error, Mapping) or not _is_google(error):
        return None
    details = list(objects(error.get("details")))
    reasons = [entry.get("reason") for entry in (*objects(error.get("errors")), *details)]
    violations = [each for detail in details for each in objects(detail.get("violations"))][:MOST_ENTRIES]
    limit_names = _limit_names(error, details, violations)
    found = ErrorDetails(
        outcome=outcome_of_codes(*reasons, error.get("status")),
        reason=next((code_text(reason) for reason in reasons if reason), code_text(error.get("status"))),
        limits=tuple(_limit(each) for each in violations if each.get("quotaId")),
        scope=_model(violations),
        dialect="gemini" if "details" in error and "errors" not in error else "google",
        status=status_in(error.get("code")),
    )
    if found.status == 402 and error.get("status") == "RESOURCE_EXHAUSTED":
        found.outcome = Outcome.SPEND
    found.is_unknown_model = found.status == 404 and bool(re.match(_UNKNOWN_MODEL, _message(error)))
    if "customsearch.googleapis.com" in _message(error):
        found.dialect = "google-search"
    limited = found.outcome in (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED)
    daily = any(map(_is_daily, limit_names)) or not _DAILY_REASONS.isdisjoint(map(code_text, reasons))
    if limited and daily:
        found.outcome = Outcome.QUOTA_EXHAUSTED
        found.floor = within_bounds(next_midnight_pacific(arrival.now) - arrival.now)
    else:
        found.floor = max((delay for each in details if (delay := _delay(each)) is not None), default=None)
    return found


def _is_google(error: Json) -> bool:
    return isinstance(error.get("status"), str) or any("reason" in entry for entry in objects(error.get("errors")))


def _message(error: Json) -> str:
    message = error.get("message")
    return message[:LONGEST_MESSAGE] if isinstance(message, str) else ""


def _limit_names(error: Json, details: list[Json], violations: list[Json]) -> list[str]:
    """Names of the limits that were hit: a quota's id, or what the one fixed sentence quotes."""
    names = [code_text(each.get("quotaId")) for each in violations]
    metadata = [each.get("metadata") for each in details]
    names += [code_text(each.get("quota_limit")) for each in metadata if isinstance(each, Mapping)]
    quoted = re.search(_LIMIT_NAME, _message(error))
    return [*names, quoted[1]] if quoted else names


def _is_daily(name: str) -> bool:
    return "PerDay" in name or "per day" in name.lower()


def _limit(violation: Json) -> Limit:
    name = code_text(violation.get("quotaId"))
    window = next((span for unit, span in WINDOWS.items() if f"per{unit}" in name.lower()), None)
    return Limit(
        dimension=next((what for word, what in _COUNTED.items() if word in name.lower()), "requests"),
        limit=number(code_text(violation.get("quotaValue"))),
        remaining=0.0,
        window=window,
        name=name,
    )


def _model(violations: list[Json]) -> str | None:
    for violation in violations:
        dimensions = violation.get("quotaDimensions")
        if isinstance(dimensions, Mapping) and (model := code_text(dimensions.get("model"))):
            return model[:LONGEST_CODE]
    return None


def _delay(detail: Json) -> float | None:
    delay = detail.get("retryDelay")
    seconds = duration(delay) if isinstance(delay, str) else None
    return None if seconds is None else within_bounds(seconds)


GEMINI = Dialect(
    name="gemini",
    title="Google Gemini",
    hosts=("generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
    read_error=read_error,
    hides_errors=True,
)
GOOGLE = Dialect(name="google", title="Google", read_error=read_error, hides_errors=True)
GOOGLE_SEARCH = Dialect(
    name="google-search",
    title="Google Programmable Search",
    hosts=("customsearch.googleapis.com", "www.googleapis.com"),
    read_error=read_error,
    hides_errors=True,
)
