"""Make a signal of an answer that says something: about its limits, or about what went wrong.

A body corrects a status only where vendors are known to mean that (``CORRECTIONS``), and
a good status only by naming a known error. The floor is the longest of the explicit
hints; without one it is the reset of the budget that is used up, where a reset means that.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.decision import Outcome
from ..core.signal import SILENT, Limit, Signal
from .dialect import Dialect
from .dialects import by_host, by_pace, read_error, read_hidden_error, recognise
from .error_body import OUTCOME_OF, ErrorDetails, code_text, open_body
from .headers import RateLimitHeaders
from .limits import MOST_LIMITS, limits_of
from .parse import outcome_of_status
from .redact import redact
from .retry_after import Arrival
from .urls import host_key

LONGEST_URL = 2048
"""Characters of an address that may tell the vendor."""

CORRECTIONS: dict[int, frozenset[Outcome]] = {
    400: frozenset((Outcome.TOO_LARGE, Outcome.KEY_DEAD, Outcome.AUTH, Outcome.QUOTA_EXHAUSTED)),
    401: frozenset((Outcome.KEY_DEAD,)),
    403: frozenset((Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.KEY_DEAD, Outcome.INVALID)),
    429: frozenset((Outcome.KEY_DEAD, Outcome.QUOTA_EXHAUSTED, Outcome.TOO_LARGE)),
    500: frozenset((Outcome.OVERLOADED,)),
}
"""By status, what a body may make of it. 500 stands for every 5xx; all others are what they are."""

_STRIPE_REASON = "stripe-rate-limited-reason"
_LOCKED = (409, 423)
_RESTING = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.OVERLOADED, Outcome.TRANSIENT)
_LIMITED = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED)


def classify(
    status: object, outcome: Outcome, headers: RateLimitHeaders, body: object, arrival: Arrival, url: object
) -> Signal:
    """The signal of an answer that says something: about its limits, or about what went wrong.

    ``body`` is None where it need not be read; ``url`` is the address the answer came from, where that is known.
    """
    host = by_host(host_key(url)) if isinstance(url, str) and len(url) <= LONGEST_URL else None
    details = _error_details(outcome, body, arrival)
    dialect = host or recognise(headers, details, status, body)
    limits = limits_of(headers, dialect, arrival)
    if host is None:
        dialect = by_pace(dialect, limits)
    if details is not None:
        return _error_signal(status, outcome, headers, details, limits, dialect, arrival)
    return Signal(outcome=outcome, limits=tuple(limits), dialect=dialect.name) if limits else SILENT[Outcome.OK]


def _error_details(outcome: Outcome, body: object, arrival: Arrival) -> ErrorDetails | None:
    """What the body says is wrong; None when nothing is."""
    is_fine = outcome is Outcome.OK
    opened = None if body is None else open_body(body)
    if opened is not None:
        found = read_hidden_error(opened, arrival) if is_fine else read_error(opened, arrival)
        if found is not None:
            return found
    return None if is_fine else ErrorDetails()


def _error_signal(
    status: object,
    outcome: Outcome,
    headers: RateLimitHeaders,
    details: ErrorDetails,
    limits: list[Limit],
    dialect: Dialect,
    arrival: Arrival,
) -> Signal:
    if details.limits:
        limits = _merged(limits, details.limits)
    hints = [hint for text, ms in headers.retries if (hint := arrival.until(text, milliseconds=ms)) is not None]
    spent = bool(limits) and any(limit.remaining == 0 for limit in limits)
    stripe_reason = code_text(headers.marks[_STRIPE_REASON]) if _STRIPE_REASON in headers.marks else ""
    outcome = _corrected(status, outcome, details, headers, bool(hints) or spent)
    if stripe_reason:
        outcome = Outcome.RATE_LIMITED if status == 429 else outcome
        if stripe_reason.endswith("concurrency"):
            limits = [*limits, Limit(dimension="concurrency", remaining=0.0, name=stripe_reason)]
    reason = details.reason or stripe_reason
    return Signal(
        outcome=outcome,
        retry_after=_floor(outcome, hints, details, limits, dialect) if outcome in _RESTING else None,
        limits=tuple(limits[:MOST_LIMITS]),
        scope=_scope(headers, details, dialect, stripe_reason, spent) if outcome in _LIMITED else None,
        dialect=dialect.name,
        reason=reason if not reason or reason in OUTCOME_OF else redact(reason),
        is_forbidden=status == 403 and outcome is Outcome.AUTH and details.outcome is None,
    )


def _corrected(
    status: object, outcome: Outcome, details: ErrorDetails, headers: RateLimitHeaders, when_known: bool
) -> Outcome:
    """The status's outcome, unless the body or the headers know better. ``when_known``: told when to come back."""
    said = details.outcome
    if outcome is Outcome.OK:
        inside = outcome_of_status(details.status) if details.status is not None else outcome
        return said or inside
    if status == 402:
        # Money does not come back with time: a dead key, unless the answer tells when it will be good again.
        quota = said is not Outcome.KEY_DEAD and (when_known or said in _LIMITED)
        return Outcome.QUOTA_EXHAUSTED if quota else outcome
    locked = details.reason == "lock_timeout" and _STRIPE_REASON not in headers.marks
    if status == 429 and locked:
        return Outcome.TRANSIENT  # another call holds the object; nothing was limited
    if status in _LOCKED:
        again = locked or bool(headers.retries) or headers.marks.get("stripe-should-retry") == "true"
        return Outcome.TRANSIENT if again else outcome
    family = min(status, 500) if isinstance(status, int) else 0
    if said is not None and said in CORRECTIONS.get(family, ()):
        return said
    if status == 403 and said is None and when_known:
        return Outcome.RATE_LIMITED  # a refusal that says when to come back is a limit
    return outcome


def _floor(
    outcome: Outcome, hints: list[float], details: ErrorDetails, limits: list[Limit], dialect: Dialect
) -> float | None:
    """Seconds that nothing may start, as the answer has it."""
    if details.floor is not None:
        hints = [*hints, details.floor]
    if outcome not in _LIMITED:
        return max(hints, default=None)
    resets = _resets_of_spent(limits) if limits else []
    if dialect.reset_when_free:
        hints = hints + resets
    if hints:
        return max(hints)
    if resets and (not dialect.reset_when_full or outcome is Outcome.QUOTA_EXHAUSTED):
        return max(resets)
    return dialect.silent_pause


def _resets_of_spent(limits: list[Limit]) -> list[float]:
    """When the budgets that are used up are whole again; one that stands alone and says nothing of what is left is."""
    alone = len(limits) == 1
    return [
        limit.reset
        for limit in limits
        if limit.reset is not None and (limit.remaining == 0 or (alone and limit.remaining is None))
    ]


def _merged(limits: list[Limit], in_body: tuple[Limit, ...]) -> list[Limit]:
    """What the headers say, and what only the body says. A budget both name is the one that was hit."""
    merged = list(limits)
    for theirs in in_body:
        at = next((i for i, ours in enumerate(merged) if ours.name and ours.name == theirs.name), None)
        if at is not None:
            merged[at] = replace(merged[at], remaining=theirs.remaining)
        elif theirs.limit is None or all(ours.dimension != theirs.dimension or ours.limit is None for ours in limits):
            merged.append(theirs)
    return merged


def _scope(
    headers: RateLimitHeaders, details: ErrorDetails, dialect: Dialect, stripe_reason: str, spent: bool
) -> str | None:
    """What the refusal holds for, where the answer says so."""
    if details.scope:
        return details.scope
    scope = dialect.scope(headers, spent) if dialect.scope else None
    return scope or stripe_reason.partition("-")[0] or None
