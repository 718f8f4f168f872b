"""What is written down for every server: the IETF's RateLimit fields and problem types, and customs older than they.

RFC 9457   {"type": ".../quota-exceeded", "violated-policies": [...]}
a custom   {"type": "rate_limited", "code": "1300"}, {"error": "rate_limited"}
"""

from __future__ import annotations

import re

from ...core.signal import Limit
from ..dialect import Dialect
from ..error_body import MOST_ENTRIES, ErrorDetails, Json, code_text, outcome_of_codes, status_in
from ..retry_after import Arrival

_LAST_SEGMENT = r"[#/:]([a-z-]{1,64})\Z"


def read_problem(body: Json, arrival: Arrival) -> ErrorDetails | None:
    """RFC 9457 with the problem types of the RateLimit draft. The policies it names are those that were hit."""
    kind = body.get("type")
    found = re.search(_LAST_SEGMENT, kind[-128:]) if isinstance(kind, str) else None
    outcome = outcome_of_codes(found[1]) if found else None
    if found is None or outcome is None:
        return None
    policies = body.get("violated-policies")
    names = [code_text(name) for name in policies[:MOST_ENTRIES]] if isinstance(policies, list) else []
    return ErrorDetails(
        outcome=outcome,
        reason=found[1],
        limits=tuple(Limit(remaining=0.0, name=name) for name in names if name),
        dialect="ietf",
    )


def read_flat_error(body: Json, arrival: Arrival) -> ErrorDetails | None:
    """Mistral, Semantic Scholar and all that put their code at the top."""
    code, kind, message = body.get("code"), body.get("type"), body.get("message")
    outcome = outcome_of_codes(code, kind)
    if outcome is None and status_in(code) is None:
        return None
    mistral = body.get("object") == "error"
    return ErrorDetails(
        outcome=outcome,
        reason=code_text(kind if mistral else code) or code_text(kind),
        dialect="mistral" if mistral else "semantic-scholar" if code == "429" and message and not kind else "",
        status=status_in(code) if isinstance(message, str) else None,
    )


def read_bare_code(body: Json, arrival: Arrival) -> ErrorDetails | None:
    """``{"error": "rate_limited"}``: nothing but a code."""
    error = body.get("error")
    outcome = outcome_of_codes(error)
    return None if outcome is None else ErrorDetails(outcome=outcome, reason=code_text(error))


IETF = Dialect(
    name="ietf",
    title="IETF RateLimit fields",
    reads={"ratelimit": True, "ratelimit-policy": True},
    read_error=read_problem,
)
X_RATELIMIT = Dialect(name="x-ratelimit", title="X-RateLimit headers", read_error=read_bare_code, hides_errors=True)
RFC_9110 = Dialect(name="rfc9110", title="plain HTTP", reads={"date": False, "age": False})
