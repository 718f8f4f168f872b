"""Judge an answer that went wrong, or whose body says so.

A body corrects a status only where vendors are known to mean that (``CORRECTIONS``), and
a good status only by naming a known error. The floor is the longest of the explicit
hints; without one it is the reset of the budget that is used up, where a reset means that.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.decision import Outcome
from ..core.signal import Limit, Signal
from .arrival import Arrival
from .bodies import open_body
from .complaint import Complaint, word
from .headers import Spoken
from .limits import MOST_LIMITS, limits_of
from .redaction import redact
from .speakers import by_convention, by_headers, by_pace
from .status import outcome_of_status
from .vendors import complaint_about_good_answer, complaint_of
from .vocabulary import OUTCOME_OF

SECONDARY_LIMIT_PAUSE = 60.0
"""GitHub's own advice where it refuses and says nothing: at least a minute."""

CORRECTIONS: dict[int, frozenset[Outcome]] = {
    400: frozenset((Outcome.TOO_LARGE, Outcome.KEY_DEAD, Outcome.AUTH, Outcome.QUOTA_EXHAUSTED)),
    401: frozenset((Outcome.KEY_DEAD,)),
    403: frozenset((Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.KEY_DEAD, Outcome.INVALID)),
    429: frozenset((Outcome.KEY_DEAD, Outcome.QUOTA_EXHAUSTED, Outcome.TOO_LARGE)),
    500: frozenset((Outcome.OVERLOADED,)),
}
"""By status, what a body may make of it. 500 stands for every 5xx; all others are what they are."""

_LOCKED = (409, 423)
_RESTING = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.OVERLOADED, Outcome.TRANSIENT)
_LIMITED = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED)
_REFILL_DIALECTS = ("openai", "groq", "anthropic")
"""Their resets tell when a budget is whole again, not when the next call passes."""


def judge(
    status: object, outcome: Outcome, spoken: Spoken, body: object, arrival: Arrival, at_home: str
) -> Signal | None:
    """The signal of an answer with something wrong in it; None when nothing is, after all.

    ``at_home`` is the dialect of the address the answer came from, where that is known.
    """
    fine = outcome is Outcome.OK
    opened = open_body(body)
    reader = complaint_about_good_answer if fine else complaint_of
    complaint = reader(opened, arrival) if opened is not None else None
    if complaint is None:
        if fine:
            return None
        complaint = Complaint()
    dialect = at_home or _speaker(status, spoken, complaint, body)
    limits = limits_of(spoken, dialect, arrival)
    return _judged(status, outcome, spoken, complaint, limits, at_home or by_pace(dialect, limits), arrival)


def _speaker(status: object, spoken: Spoken, complaint: Complaint, body: object) -> str:
    known = by_headers(spoken) or complaint.dialect
    if known:
        return known
    if status in (432, 433):  # nobody else sends them
        return "tavily"
    if "cf-ray" in spoken.marks and isinstance(body, str | bytes) and body[:64].lstrip()[:1] in ("<", b"<"):
        return "cloudflare"  # its edge answers with a page
    return by_convention(spoken)


def _judged(
    status: object,
    outcome: Outcome,
    spoken: Spoken,
    complaint: Complaint,
    limits: list[Limit],
    dialect: str,
    arrival: Arrival,
) -> Signal:
    limits = _merged(limits, complaint.limits)
    hints = [hint for text, ms in spoken.retries if (hint := arrival.until(text, milliseconds=ms)) is not None]
    spent = [limit for limit in limits if limit.remaining == 0]
    stripe_reason = word(spoken.marks.get("stripe-rate-limited-reason"))
    outcome = _corrected(status, outcome, complaint, spoken, bool(hints or spent))
    if stripe_reason:
        outcome = Outcome.RATE_LIMITED if status == 429 else outcome
        if stripe_reason.endswith("concurrency"):
            limits.append(Limit(dimension="concurrency", remaining=0.0, name=stripe_reason))
    limited = outcome in _LIMITED
    reason = complaint.reason or stripe_reason
    return Signal(
        outcome=outcome,
        retry_after=_floor(outcome, hints, complaint, limits, dialect) if outcome in _RESTING else None,
        limits=tuple(limits[:MOST_LIMITS]),
        scope=_scope(spoken, complaint, dialect, stripe_reason, bool(spent)) if limited else None,
        dialect=dialect,
        reason=reason if reason in OUTCOME_OF else redact(reason),
        is_forbidden=status == 403 and outcome is Outcome.AUTH and complaint.outcome is None,
    )


def _corrected(status: object, outcome: Outcome, complaint: Complaint, spoken: Spoken, when_known: bool) -> Outcome:
    """The status's outcome, unless the body or the headers know better. ``when_known``: told when to come back."""
    said = complaint.outcome
    if outcome is Outcome.OK:
        inside = outcome_of_status(complaint.status) if complaint.status is not None else outcome
        return said or inside
    if status == 402:
        # Money does not come back with time: a dead key, unless the answer tells when it will be good again.
        quota = said is not Outcome.KEY_DEAD and (when_known or said in _LIMITED)
        return Outcome.QUOTA_EXHAUSTED if quota else outcome
    locked = complaint.reason == "lock_timeout" and "stripe-rate-limited-reason" not in spoken.marks
    if status == 429 and locked:
        return Outcome.TRANSIENT  # somebody else holds the object; nothing was limited
    if status in _LOCKED:
        again = locked or bool(spoken.retries) or spoken.marks.get("stripe-should-retry") == "true"
        return Outcome.TRANSIENT if again else outcome
    family = min(status, 500) if isinstance(status, int) else 0
    if said is not None and said in CORRECTIONS.get(family, ()):
        return said
    if status == 403 and said is None and when_known:
        return Outcome.RATE_LIMITED  # a refusal that says when to come back is a limit
    return outcome


def _floor(
    outcome: Outcome, hints: list[float], complaint: Complaint, limits: list[Limit], dialect: str
) -> float | None:
    if complaint.floor is not None:
        hints = [*hints, complaint.floor]
    if outcome not in _LIMITED:
        return max(hints, default=None)
    alone = len(limits) == 1
    resets = [
        limit.reset
        for limit in limits
        if limit.reset is not None and (limit.remaining == 0 or (alone and limit.remaining is None))
    ]
    if dialect == "azure-openai":
        hints = hints + resets
    if hints:
        return max(hints)
    if dialect not in _REFILL_DIALECTS or outcome is Outcome.QUOTA_EXHAUSTED:
        floor = max(resets, default=None)
        if floor is not None:
            return floor
    return SECONDARY_LIMIT_PAUSE if dialect == "github" else None


def _merged(limits: list[Limit], complained: tuple[Limit, ...]) -> list[Limit]:
    """What the headers say, and what only the body says. A budget both name is the one that was hit."""
    merged = list(limits)
    for theirs in complained:
        at = next((i for i, ours in enumerate(merged) if ours.name and ours.name == theirs.name), None)
        if at is not None:
            merged[at] = replace(merged[at], remaining=theirs.remaining)
        elif theirs.limit is None or all(ours.dimension != theirs.dimension or ours.limit is None for ours in limits):
            merged.append(theirs)
    return merged


def _scope(spoken: Spoken, complaint: Complaint, dialect: str, stripe_reason: str, spent: bool) -> str | None:
    """Who must rest, where the answer says so."""
    if complaint.scope:
        return complaint.scope
    marks = spoken.marks
    if dialect == "discord":
        if word(marks.get("x-ratelimit-scope")) == "global" or word(marks.get("x-ratelimit-global")) == "true":
            return "global"
        return word(marks.get("x-ratelimit-bucket") or marks.get("x-ratelimit-scope")) or None
    if dialect == "github" and spent:
        return word(marks.get("x-ratelimit-resource")) or None
    return stripe_reason.partition("-")[0] or None
