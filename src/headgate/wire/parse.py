"""Read one answer: status, headers and body become one ``Signal``.

Three parts are read, and each may correct the one before it::

    status   429                        how it ended, as HTTP has it
    headers  retry-after, ratelimit     what is left, and when to come back
    body     {"error": {...}}           why: a dead key, a spent day, a call that can never fit

How a call ended, by its status alone::

    2xx 3xx   ok                 401 403        auth          408 425 5xx 0   transient
    429       rate_limited       402            key_dead      503 529         overloaded
    432 433   quota_exhausted    413            too_large     other 4xx       invalid

0 means that there was no answer at all. A body corrects a status only where vendors are known to mean that
(``CORRECTIONS``), and a good status only by naming a known error: money that comes back with time makes a 402 a quota,
and Google sends its quotas as 403. Two outcomes are known by their codes alone: ``spend`` (the account has no credit or
has reached a limit on spending: 429, 402 or 400) and ``capacity`` (a cheaper tier is full: 429, or Groq's 498). A value
that is not a status is invalid: it says nothing about the server.

Nearly all answers are good ones that say nothing about limits: for these ``read`` ends at its first question. The
dialects of the vendors are loaded with the first other one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.decision import LONGEST_WAIT, Outcome
from ..core.signal import SILENT, SUBSCRIPTION, Limit, Signal
from ..formatting import redact
from .error_body import OUTCOME_OF, REFUSED_CONTENT, ErrorDetails, code_text, may_hold_error, open_body
from .headers import RateLimitHeaders, scan_headers
from .limits import MOST_LIMITS, limits_of
from .responses import body_behind, facts_of, outcome_of_class, response_behind
from .retry_after import Arrival
from .urls import host_key

if TYPE_CHECKING:
    from .dialect import Dialect

_NOTHING = SILENT[Outcome.OK]

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


def read(
    status: int,
    headers: Headers | None = None,
    body: bytes | str | Mapping[str, object] | None = None,
    *,
    wall: float,
    url: str | None = None,
    tier: str = "",
) -> Signal:
    """What the answer says about its limits. ``wall`` is the Unix time it came in.

    ``tier`` is the service tier that the request asked for, where that is known: a refusal of "flex" that names no
    limit says that the tier is full.

    Never raises, and its work is bounded for any input; every wait and every reset lies within [0, 31 days].
    Where nothing can be read, the status alone decides.
    """
    try:
        signal = read_strictly(status, headers, body, wall, url)
        return _of_flex(signal, status) if tier == FLEX else signal
    except Exception:
        return SILENT[outcome_of_status(status)]


def _of_flex(signal: Signal, status: object) -> Signal:
    """The same for a request on the cheaper tier, whose refusals mean that it is full unless they name a limit."""
    is_full = status == GROQ_FULL or (signal.outcome is Outcome.OVERLOADED and signal.dialect == "gemini")
    if signal.outcome is Outcome.RATE_LIMITED and signal.reason not in _LIMIT_CODES:
        is_full = not any(limit.remaining == 0 for limit in signal.limits)
    return replace(signal, outcome=Outcome.CAPACITY) if is_full else signal


def read_strictly(status: object, headers: object, body: object, wall: object, url: object) -> Signal:
    """``read`` without its safety net: only a mapping that itself raises can make it raise."""
    outcome = outcome_of_status(status)
    fine = outcome is Outcome.OK
    limits = scan_headers(headers, only_limits=fine)
    reads_body = body is not None and (not fine or may_hold_error(body))
    if fine and not limits.has_limits and not reads_body:
        return _NOTHING
    return _classify(
        status, outcome, limits, body if reads_body else None, Arrival(wall, limits.marks.get("date")), url
    )


def signal_of(
    answer: object,
    status_code: int | None,
    headers: Headers | None,
    body: Any,
    retry_after: float | None,
    wall: float,
) -> Signal:
    """What was learned from a response, an exception or the bare facts, as one signal.

    An exception says most by the response behind it. Without one it may name its ``outcome`` itself,
    with the ``retry_after`` it was told.
    """
    if answer is not None and not isinstance(answer, (Signal, BaseException)):
        signal = _of_response(answer, wall)
    elif isinstance(answer, Signal):
        signal = answer
    elif isinstance(answer, BaseException):
        signal = _of_exception(answer, wall)
        if retry_after is None and isinstance(getattr(answer, "outcome", None), Outcome):
            retry_after = getattr(answer, "retry_after", None)
    elif status_code is not None:
        signal = read(status_code, headers, body, wall=wall)
    else:
        raise TypeError("report() needs a response, an exception or status_code=")
    if retry_after is not None and retry_after > 0:
        signal = replace(signal, retry_after=min(max(retry_after, signal.retry_after or 0.0), LONGEST_WAIT))
    return signal


def _of_exception(error: BaseException, wall: float) -> Signal:
    response, body = response_behind(error), body_behind(error)
    if response is not None:
        return _of_response(response, wall, body)
    named = getattr(error, "outcome", None)
    if not isinstance(named, Outcome):
        signal = _NOTHING if body is None else read(200, None, body, wall=wall)
        if signal.outcome is not Outcome.OK:
            return signal
        named = outcome_of_exception(error)
    return SILENT[named]


def _of_response(response: object, wall: float, parsed: Mapping[str, object] | None = None) -> Signal:
    status, headers, body = facts_of(response)
    return read(status, headers, body or parsed, wall=wall, tier=getattr(response, "requested_tier", ""))


GROQ_FULL = 498
"""Groq's status for a tier that is full; elsewhere it means other things, so a code or the tier must say so too."""
LONGEST_URL = 2048
"""Characters of an address that may tell the vendor."""

CORRECTIONS: dict[int, frozenset[Outcome]] = {
    400: frozenset((Outcome.TOO_LARGE, Outcome.KEY_DEAD, Outcome.AUTH, Outcome.QUOTA_EXHAUSTED, Outcome.SPEND)),
    401: frozenset((Outcome.KEY_DEAD, Outcome.SPEND)),
    403: frozenset((Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.KEY_DEAD, Outcome.SPEND, Outcome.INVALID)),
    429: frozenset((Outcome.KEY_DEAD, Outcome.QUOTA_EXHAUSTED, Outcome.SPEND, Outcome.CAPACITY, Outcome.TOO_LARGE)),
    GROQ_FULL: frozenset((Outcome.CAPACITY,)),
    500: frozenset((Outcome.OVERLOADED,)),
}
"""By status, the outcomes to which a body may correct it. 500 stands for every 5xx; no other status is corrected."""

LONGEST_ACCOUNT = 80
_SCOPES = (("anthropic-organization-id", "openai-organization"), ("anthropic-workspace-id", "openai-project"))
"""Headers that name whose limits these are: an organisation, and a part of it."""
_STRIPE_REASON = "stripe-rate-limited-reason"
_LOCKED = (409, 423)
FLEX = "flex"
"""The service tier that is cheaper, or wider, and may be full."""
_LIMIT_CODES = ("rate_limit_exceeded", "rate_limit_error", "tokens", "requests", "429", "slow_down")
"""Codes of refusals that are about a limit."""
_RESTING = (
    Outcome.RATE_LIMITED,
    Outcome.QUOTA_EXHAUSTED,
    Outcome.OVERLOADED,
    Outcome.CAPACITY,
    Outcome.TRANSIENT,
)
_LIMITED = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED)


def _classify(
    status: object, outcome: Outcome, headers: RateLimitHeaders, body: object, arrival: Arrival, url: object
) -> Signal:
    """The signal of an answer that says something: about its limits, or about what went wrong.

    ``body`` is None where it need not be read; ``url`` is the address the answer came from, where that is known.
    """
    from .dialects import by_host, by_pace, read_error, read_hidden_error, recognise  # loaded with the first of these

    is_fine = outcome is Outcome.OK
    opened = None if body is None else open_body(body)
    details = None
    if opened is not None:
        details = read_hidden_error(opened, arrival) if is_fine else read_error(opened, arrival)
    if details is None and not is_fine:
        details = ErrorDetails()
    host = by_host(host_key(url)) if isinstance(url, str) and len(url) <= LONGEST_URL else None
    dialect = host or recognise(headers, details, status, body)
    limits = limits_of(headers, dialect, arrival) if headers.budgets or headers.marks else []
    if host is None and limits:
        dialect = by_pace(dialect, limits)
    if details is not None:
        return _error_signal(status, outcome, headers, details, limits, dialect, arrival)
    if not limits:
        return SILENT[Outcome.OK]
    return Signal(outcome=outcome, limits=tuple(limits), dialect=dialect.name, account=_account(headers))


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
    hints = []
    for text, milliseconds in headers.retries:
        if (hint := arrival.until(text, milliseconds=milliseconds)) is not None:
            hints.append(hint)
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
        account=_account(headers),
        is_forbidden=status == 403 and outcome is Outcome.AUTH and details.outcome is None,
        is_unknown_model=details.is_unknown_model and outcome is Outcome.INVALID,
        is_refused_content=details.reason in REFUSED_CONTENT and outcome is Outcome.INVALID,
    )


def _account(headers: RateLimitHeaders) -> tuple[str, ...]:
    """The organisation, and the project or workspace in it, that the answer names."""
    marks = headers.marks
    if not marks:
        return ()
    names = [next((marks[mark] for mark in scope if mark in marks), "")[:LONGEST_ACCOUNT] for scope in _SCOPES]
    return tuple(name for name in names if name and name.isprintable())


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
        if said is Outcome.SPEND:
            return said
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
    else:
        hints = hints + [
            one.reset for one in limits if one.dimension == SUBSCRIPTION and one.reset and not one.remaining
        ]
    if hints:
        return max(hints)
    if resets and (not dialect.reset_when_full or outcome is Outcome.QUOTA_EXHAUSTED):
        return max(resets)
    return dialect.silent_pause


def _resets_of_spent(limits: list[Limit]) -> list[float]:
    """When the budgets that are used up are whole again; a single one that does not say what is left is one."""
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


def vendor_of(url: str) -> str:
    """The dialect of an address; empty where that is not known."""
    from .dialects import by_host

    known = by_host(host_key(url))
    return "" if known is None else known.name


def has_own_tiers(vendor: str) -> bool:
    """Whether the service tiers of this vendor's models have limits of their own; not, where that is not known."""
    from .dialects import BY_NAME

    return vendor in BY_NAME and BY_NAME[vendor].has_own_tiers


def vendor_in(headers: object) -> str:
    """The dialect of the limits in an answer's headers; empty where it has none."""
    from .dialects import recognise

    limits = scan_headers(headers, only_limits=True)
    return recognise(limits, None, 200, None).name if limits.has_limits else ""


# ---------------------------------------------------------------------- by status and exception alone

_BY_STATUS = {
    0: Outcome.TRANSIENT,
    401: Outcome.AUTH,
    402: Outcome.KEY_DEAD,
    403: Outcome.AUTH,
    408: Outcome.TRANSIENT,
    413: Outcome.TOO_LARGE,
    425: Outcome.TRANSIENT,
    429: Outcome.RATE_LIMITED,
    432: Outcome.QUOTA_EXHAUSTED,  # Tavily: the plan's limit
    433: Outcome.QUOTA_EXHAUSTED,  # Tavily: the pay-as-you-go limit
    503: Outcome.OVERLOADED,
    529: Outcome.OVERLOADED,
}


def outcome_of_status(status: object) -> Outcome:
    """The table at the top. Never raises."""
    if type(status) is not int and (not isinstance(status, int) or isinstance(status, bool)):
        return Outcome.INVALID
    if 100 <= status <= 399:
        return Outcome.OK
    known = _BY_STATUS.get(status)
    if known is not None:
        return known
    return Outcome.TRANSIENT if 500 <= status <= 599 else Outcome.INVALID


def outcome_of_exception(exc: BaseException) -> Outcome:
    """What an exception says about the server it came from.

    One that carries an answer counts as that answer. Timeouts and lost connections are transient,
    whichever library raised them: they are known by the names of their classes, so none is imported.
    All others, a ``ValueError`` in the caller's code or a cancellation, say nothing about the server,
    yet the call may have been sent: ``invalid``, which teaches nothing and refunds nothing.
    """
    answer = response_behind(exc)
    if answer is not None:
        return outcome_of_status(facts_of(answer)[0])
    return outcome_of_class(exc) or Outcome.INVALID
