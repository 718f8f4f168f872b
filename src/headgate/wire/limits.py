"""Turn what headers say of each budget into a ``Limit``, by each dialect's own meaning of the words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.decision import LONGEST_WAIT
from ..core.signal import Limit
from .headers import Budget, RateLimitHeaders
from .ietf_fields import LARGEST_COUNT, LONGEST_BUDGET_NAME, quotas, structured_limits
from .retry_after import Arrival, duration, number

if TYPE_CHECKING:
    from .dialect import Dialect

MOST_LIMITS = 16
"""Budgets that one answer may state."""

_MINUTE, _DAY = 60.0, 86400.0
_NAMES = ("x-ratelimit-bucket", "x-ratelimit-resource", "ratelimit-name")


def limits_of(headers: RateLimitHeaders, dialect: Dialect, arrival: Arrival) -> list[Limit]:
    """Every budget that the headers state; none when the answer comes out of a cache, for its numbers are old."""
    marks = headers.marks
    if "age" in marks and number(marks["age"]):
        return []
    found: list[Limit] = []
    for budget in headers.budgets.values():
        allowed = budget.parts.get("limit", "")
        if "," in allowed or ";" in allowed:
            found.extend(_listed(budget, headers, dialect, arrival))
        else:
            limit = _limit(budget, headers, dialect, arrival)
            if limit is not None:
                found.append(limit)
        if len(found) >= MOST_LIMITS:
            break
    if "ratelimit" in marks or "ratelimit-policy" in marks:
        found = _joined(found, structured_limits(marks.get("ratelimit"), marks.get("ratelimit-policy")))
    if dialect.read_limits is not None:
        found += dialect.read_limits(marks, arrival)
    return found[:MOST_LIMITS]


def _limit(budget: Budget, headers: RateLimitHeaders, dialect: Dialect, arrival: Arrival) -> Limit | None:
    parts = budget.parts
    limit = count_of(parts.get("limit"))
    remaining = _lowest(parts.get("remaining"))
    if limit is None and remaining is None:
        return None
    if limit is None and remaining is not None and "used" in parts:
        used = count_of(parts["used"])
        limit = None if used is None else used + remaining
    reset = _reset(parts, arrival)
    return Limit(
        dimension=budget.meaning.dimension,
        limit=limit,
        remaining=remaining,
        reset=_span(parts.get("renewal", "")) if dialect.reset_when_free and remaining == 0 and not reset else reset,
        window=_window(budget, headers, dialect, limit, remaining, reset),
        name=_name(budget, headers),
    )


def _joined(plain: list[Limit], structured: list[Limit]) -> list[Limit]:
    """``RateLimit-Limit: 50`` beside ``RateLimit-Policy: "default";q=50;w=1``: one budget, and its window."""
    joined = []
    for limit in plain:
        policy = next((each for each in structured if each.remaining is None and _same_budget(each, limit)), None)
        if limit.window is None and limit.remaining is not None and policy is not None and policy.window:
            structured = [each for each in structured if each is not policy]
            limit = replace(limit, window=policy.window, name=policy.name)
        joined.append(limit)
    return joined + structured


def _same_budget(policy: Limit, limit: Limit) -> bool:
    return policy.limit == limit.limit and policy.dimension == limit.dimension


def _listed(budget: Budget, headers: RateLimitHeaders, dialect: Dialect, arrival: Arrival) -> list[Limit]:
    """``100, 100;window=60, 10000;window=86400``: what is left and the reset belong to the first."""
    pairs = quotas(budget.parts["limit"])
    if not pairs:
        return []
    first, window = pairs[0]
    window = window or next((each for limit, each in pairs if limit == first and each), None)
    others = {(limit, each) for limit, each in pairs if each and (limit, each) != (first, window)}
    name = _name(budget, headers)
    mine = Limit(
        dimension=budget.meaning.dimension,
        limit=first,
        remaining=_lowest(budget.parts.get("remaining")),
        reset=_reset(budget.parts, arrival),
        window=window or _window(budget, headers, dialect, None, None, None),
        name=name,
    )
    return [mine] + [
        Limit(dimension=mine.dimension, limit=limit, window=each, name=name) for limit, each in sorted(others)
    ]


def _reset(parts: dict[str, str], arrival: Arrival) -> float | None:
    """``reset-after`` needs no clock, so it goes before the same news as an instant."""
    text = parts.get("reset_after") or parts.get("reset")
    if text:
        return arrival.until(text)
    text = parts.get("reset_after_ms") or parts.get("reset_ms")
    return arrival.until(text, milliseconds=True) if text else None


def _window(
    budget: Budget,
    headers: RateLimitHeaders,
    dialect: Dialect,
    limit: float | None,
    remaining: float | None,
    reset: float | None,
) -> float | None:
    if budget.meaning.window is not None:
        return budget.meaning.window
    for part in ("renewal", "interval"):
        if part in budget.parts:
            return _span(budget.parts[part])
    what = budget.meaning.budget
    if what == "requests" and dialect.implies_window:
        implied = implied_window(limit, remaining, reset)
        if implied is not None:
            return implied
    if dialect.resource_windows:
        by_resource = dialect.resource_windows.get(headers.marks.get("x-ratelimit-resource", ""))
        if by_resource is not None:
            return by_resource
    window = dialect.windows.get(what)
    # A budget that takes longer to be whole than its window is counted over something else.
    return None if window is not None and reset is not None and reset > window else window


def implied_window(limit: float | None, remaining: float | None, reset: float | None) -> float | None:
    """The window that a bucket's own numbers imply: ``reset`` is the time in which what was used comes back.

    4,999 of 5,000 left and whole in 12 ms is 5,000 a minute; 14,370 of 14,400 and 2m59s is a day. Vendors that are read
    this way count calls by the minute or the day and by nothing else: 588 of 600 left and 40 s to go is
    no hour, but a window that is not a bucket.
    """
    if limit is None or remaining is None or not reset or remaining >= limit:
        return None
    window = reset * limit / (limit - remaining)
    return next((span for span in (_MINUTE, _DAY) if span / 2 <= window <= span * 2), None)


def _span(text: str) -> float | None:
    """``1s``, or a number of seconds."""
    seconds = number(text)
    if seconds is None:
        seconds = duration(text.strip())
    return min(seconds, LONGEST_WAIT) if seconds else None


def _name(budget: Budget, headers: RateLimitHeaders) -> str:
    """The server's own name, where it is more than what is counted."""
    meaning = budget.meaning
    if meaning.budget == "":
        for mark in _NAMES:
            if mark in headers.marks:
                return headers.marks[mark][:LONGEST_BUDGET_NAME]
    return "" if meaning.budget.replace("-", "_") == meaning.dimension else meaning.budget[:LONGEST_BUDGET_NAME]


def count_of(text: str | None) -> float | None:
    """A limit or a remainder as headers write it, within bounds."""
    found = number(text) if text else None
    return LARGEST_COUNT if found is not None and found > LARGEST_COUNT else found


def _lowest(text: str | None) -> float | None:
    if text is None or "," not in text:
        return count_of(text)
    return min((count for piece in text.split(",") if (count := count_of(piece)) is not None), default=None)
