"""Error bodies with a shape of their own, each in a few lines.

Slack             {"ok": false, "error": "ratelimited"}                      also with 200
Discord           {"message": ..., "retry_after": 64.57, "global": false}
Shopify GraphQL   {"errors": [{"extensions": {"code": "THROTTLED"}}],
                   "extensions": {"cost": {"throttleStatus": {...}}}}        with 200
Mistral           {"object": "error", "type": "rate_limited", "code": "1300"}
GitHub            {"message": "You have exceeded a secondary rate limit...", "documentation_url": ...}
Semantic Scholar  {"message": "Too Many Requests...", "code": "429"}
Tavily            {"detail": {"error": ...}}                                 its status says all
RFC 9457          {"type": ".../quota-exceeded", "violated-policies": [...]}
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...core.decision import Outcome
from ...core.signal import Limit
from ..arrival import Arrival
from ..bodies import MOST_ENTRIES, Json, objects
from ..complaint import Complaint, status_in, word
from ..fields import LARGEST_COUNT
from ..times import seconds_of, within_bounds
from ..vocabulary import heaviest

_SECONDARY_LIMIT = "You have exceeded a secondary rate limit"
_LAST_SEGMENT = re.compile(r"[#/:]([a-z-]{1,64})\Z")


def slack(body: Json, arrival: Arrival) -> Complaint | None:
    error = body.get("error")
    if body.get("ok") is not False or not isinstance(error, str):
        return None
    return Complaint(outcome=heaviest(error) or Outcome.INVALID, reason=word(error), dialect="slack")


def discord(body: Json, arrival: Arrival) -> Complaint | None:
    floor = seconds_of(body.get("retry_after"), now=arrival.now)
    if floor is None or "global" not in body:
        return None
    return Complaint(
        outcome=Outcome.RATE_LIMITED,
        reason=word(body.get("code")),
        floor=floor,
        scope="global" if body["global"] is True else None,
        dialect="discord",
    )


def shopify(body: Json, arrival: Arrival) -> Complaint | None:
    codes = [
        extensions.get("code")
        for error in objects(body.get("errors"))
        if isinstance(extensions := error.get("extensions"), Mapping)
    ]
    outcome = heaviest(*codes)
    extensions = body.get("extensions")
    cost = extensions.get("cost") if isinstance(extensions, Mapping) else None
    state = cost.get("throttleStatus") if isinstance(cost, Mapping) else None
    if not isinstance(state, Mapping) or not isinstance(cost, Mapping):
        return Complaint(outcome=outcome, reason=word(codes[0])) if outcome is not None else None
    complaint = Complaint(outcome=outcome, reason=word(codes[0]) if codes else "", dialect="shopify")
    whole, left, pace = (_count(state.get(key)) for key in ("maximumAvailable", "currentlyAvailable", "restoreRate"))
    asked = _count(cost.get("requestedQueryCost"))
    if whole is None or left is None:
        return complaint
    complaint.limits = (
        Limit(
            dimension="cost",
            limit=whole,
            remaining=left,
            reset=within_bounds((whole - left) / pace) if pace else None,
            window=whole / pace if pace and whole else None,
            name="graphql",
        ),
    )
    if outcome is Outcome.RATE_LIMITED and asked is not None:
        if asked > whole:
            complaint.outcome = Outcome.TOO_LARGE
        elif pace:
            complaint.floor = within_bounds((asked - left) / pace)
    return complaint


def problem(body: Json, arrival: Arrival) -> Complaint | None:
    """RFC 9457 with the problem types of the RateLimit draft. The policies it names are those that were hit."""
    kind = body.get("type")
    found = _LAST_SEGMENT.search(kind[-128:]) if isinstance(kind, str) else None
    outcome = heaviest(found[1]) if found else None
    if found is None or outcome is None:
        return None
    policies = body.get("violated-policies")
    names = [word(name) for name in policies[:MOST_ENTRIES]] if isinstance(policies, list) else []
    return Complaint(
        outcome=outcome,
        reason=found[1],
        limits=tuple(Limit(remaining=0.0, name=name) for name in names if name),
        dialect="ietf",
    )


def github(body: Json, arrival: Arrival) -> Complaint | None:
    message, link = body.get("message"), body.get("documentation_url")
    secondary = isinstance(message, str) and message.startswith(_SECONDARY_LIMIT)
    if secondary or (isinstance(link, str) and link[-64:].endswith("secondary-rate-limits")):
        return Complaint(outcome=Outcome.RATE_LIMITED, reason="secondary_rate_limit", dialect="github")
    return None


def flat(body: Json, arrival: Arrival) -> Complaint | None:
    """Mistral, Semantic Scholar and all who put their code at the top."""
    code, kind, message = body.get("code"), body.get("type"), body.get("message")
    outcome = heaviest(code, kind)
    if outcome is None and status_in(code) is None:
        return None
    mistral = body.get("object") == "error"
    return Complaint(
        outcome=outcome,
        reason=word(kind if mistral else code) or word(kind),
        dialect="mistral" if mistral else "semantic-scholar" if code == "429" and message and not kind else "",
        status=status_in(code) if isinstance(message, str) else None,
    )


def named(body: Json, arrival: Arrival) -> Complaint | None:
    """``{"error": "rate_limited"}``: nothing but a code."""
    error = body.get("error")
    outcome = heaviest(error)
    return None if outcome is None else Complaint(outcome=outcome, reason=word(error))


def _count(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_COUNT:
        return None
    return float(value)
