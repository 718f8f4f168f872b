"""What a dialect is: how one vendor states its limits, as far as it differs from all others.

Knowing the vendor changes little, and only where vendors mean different things by the same words: how long a window
is, what a reset says, what to do when nothing is said. All of it is optional. A vendor that sends standard headers
needs a name, a title and its hosts; one with headers of its own lists them in ``marks`` and turns them into limits in
``read_limits``; one with error bodies of its own reads them in ``read_error``.

Dialects that belong to no vendor are here too: the IETF's RateLimit fields and problem types, and older conventions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..core.signal import Limit
from .error_body import MOST_ENTRIES, UNKNOWN_MODEL, ErrorDetails, Json, code_text, outcome_of_codes, status_in
from .headers import Budget, RateLimitHeaders
from .retry_after import Arrival

ErrorReader = Callable[[Json, Arrival], ErrorDetails | None]
"""What the body of an error says, or None where its shape is another vendor's. Codes are turned into an outcome by
``error_body.outcome_of_codes``; a wait that the body asks for is ``ErrorDetails.floor``."""

LimitReader = Callable[[Mapping[str, str], Arrival], list[Limit]]
"""The budgets that the values of ``marks`` and ``reads``, by lower-case name, state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    name: str
    """What a ``Signal`` calls it."""
    title: str
    """What people call it."""

    hosts: tuple[str, ...] = ()
    """Hosts whose answers are in this dialect, with all of their subdomains."""
    marks: Mapping[str, bool] = field(default_factory=dict)
    """Headers that only this vendor sends; True where the header alone says something about limits."""
    reads: Mapping[str, bool] = field(default_factory=dict)
    """Further headers to read, which do not identify the vendor; True as above."""
    owns_budget: Callable[[Budget], bool] | None = None
    """Whether the name of a budget is one that only this vendor uses."""
    statuses: tuple[int, ...] = ()
    """Statuses of errors that only this vendor sends."""
    page_mark: str = ""
    """A header which, beside an error whose body is a page of HTML, tells that this vendor's edge has answered."""

    read_limits: LimitReader | None = None
    """Reads the vendor's own headers. Customary ones (``x-ratelimit-remaining-tokens``, ``ratelimit-reset``: the table
    in ``headers.py``) are understood without it. A header that says when to come back becomes the ``reset`` of a
    ``Limit``: after a refusal the wait is the longest reset of those with nothing ``remaining``, unless Retry-After or
    the body says how long."""

    windows: Mapping[str, float] = field(default_factory=dict)
    """Seconds, by budget: what the vendor documents and does not say in its headers."""
    resource_windows: Mapping[str, float] = field(default_factory=dict)
    """The same by the value of ``x-ratelimit-resource``."""
    implies_window: bool = False
    """Budgets of requests are buckets by the minute or the day, which shows in how fast they refill."""
    reset_when_full: bool = False
    """A reset says when a budget is whole again, not when the next call passes."""
    reset_when_free: bool = False
    """A reset says when the next call passes; without one an empty budget takes its renewal period."""
    has_own_tiers: bool = False
    """Service tiers of a model have limits of their own; elsewhere they share the model's."""
    silent_pause: float | None = None
    """Seconds to pause after a refusal that says nothing about when to come back."""
    scope: Callable[[RateLimitHeaders, bool], str | None] | None = None
    """What a refusal holds for; True: a budget is used up."""

    read_error: ErrorReader | None = None
    """Reads the vendor's error bodies. Vendors of one family share a reader."""
    hides_errors: bool = False
    """Errors may be in the body of a successful answer, in a shape that cannot be data."""


UNKNOWN = Dialect(name="", title="")

# ---------------------------------------------------------------------- the standards, and conventions older than they

#   RFC 9457        {"type": ".../quota-exceeded", "violated-policies": [...]}
#   a convention    {"type": "rate_limited", "code": "1300"}, {"error": "rate_limited"}

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
    """Mistral, Semantic Scholar and others whose code is at the top level."""
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
        is_unknown_model=kind in UNKNOWN_MODEL,
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
