"""Google: Gemini, Programmable Search and their kin. No headers; the body speaks.

    {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
               "details": [QuotaFailure{violations}, RetryInfo{retryDelay}, ErrorInfo{reason}],   newer
               "errors": [{"reason": "rateLimitExceeded"}]}}                                      older

What matters is whether the limit is counted by the day. Its name says so (``PerDay`` in a
quota's id, "per day" in the limit's quoted name), while codes and delays do not: the
daily cap, too, says ``rateLimitExceeded`` and "try again in 26s". Days end at midnight
Pacific.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...core.decision import Outcome
from ...core.signal import Limit
from ..arrival import Arrival
from ..bodies import MOST_ENTRIES, Json, objects
from ..complaint import LONGEST_WORD, Complaint, status_in, word
from ..dates import next_midnight_pacific
from ..names import WINDOWS
from ..times import duration, number, within_bounds
from ..vocabulary import heaviest

LONGEST_MESSAGE = 1024

_LIMIT_NAME = re.compile(r"limit '([^']{1,120})'")
_DAILY_REASONS = frozenset(("dailyLimitExceeded", "quotaExceeded"))


def google(body: Json, arrival: Arrival) -> Complaint | None:
    error = body.get("error")
    if not isinstance(error, Mapping) or not _is_google(error):
        return None
    details = list(objects(error.get("details")))
    reasons = [entry.get("reason") for entry in (*objects(error.get("errors")), *details)]
    violations = [each for detail in details for each in objects(detail.get("violations"))][:MOST_ENTRIES]
    limit_names = _limit_names(error, details, violations)
    complaint = Complaint(
        outcome=heaviest(*reasons, error.get("status")),
        reason=next((word(reason) for reason in reasons if reason), word(error.get("status"))),
        limits=tuple(_limit(each) for each in violations if each.get("quotaId")),
        scope=_model(violations),
        dialect="gemini" if "details" in error and "errors" not in error else "google",
        status=status_in(error.get("code")),
    )
    if "customsearch.googleapis.com" in _message(error):
        complaint.dialect = "google-search"
    limited = complaint.outcome in (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED)
    if limited and (any(_is_daily(name) for name in limit_names) or not _DAILY_REASONS.isdisjoint(map(word, reasons))):
        complaint.outcome = Outcome.QUOTA_EXHAUSTED
        complaint.floor = within_bounds(next_midnight_pacific(arrival.now) - arrival.now)
    else:
        complaint.floor = max((found for each in details if (found := _delay(each)) is not None), default=None)
    return complaint


def _is_google(error: Json) -> bool:
    return isinstance(error.get("status"), str) or any("reason" in entry for entry in objects(error.get("errors")))


def _message(error: Json) -> str:
    message = error.get("message")
    return message[:LONGEST_MESSAGE] if isinstance(message, str) else ""


def _limit_names(error: Json, details: list[Json], violations: list[Json]) -> list[str]:
    """Names of the limits that were hit: a quota's id, or what the one fixed sentence quotes."""
    names = [word(each.get("quotaId")) for each in violations]
    metadata = [each.get("metadata") for each in details]
    names += [word(each.get("quota_limit")) for each in metadata if isinstance(each, Mapping)]
    quoted = _LIMIT_NAME.search(_message(error))
    return [*names, quoted[1]] if quoted else names


def _is_daily(name: str) -> bool:
    return "PerDay" in name or "per day" in name.lower()


def _limit(violation: Json) -> Limit:
    name = word(violation.get("quotaId"))
    window = next((span for unit, span in WINDOWS.items() if f"per{unit}" in name.lower()), None)
    return Limit(
        dimension="tokens" if "token" in name.lower() else "requests",
        limit=number(word(violation.get("quotaValue"))),
        remaining=0.0,
        window=window,
        name=name,
    )


def _model(violations: list[Json]) -> str | None:
    for violation in violations:
        dimensions = violation.get("quotaDimensions")
        if isinstance(dimensions, Mapping) and (model := word(dimensions.get("model"))):
            return model[:LONGEST_WORD]
    return None


def _delay(detail: Json) -> float | None:
    delay = detail.get("retryDelay")
    seconds = duration(delay) if isinstance(delay, str) else None
    return None if seconds is None else within_bounds(seconds)
