"""What a dialect is, and those that are standards: Retry-After, and the RateLimit fields of the IETF's drafts.

A dialect is three functions of where the limits are, with the words for a wait, a share and a time. The mock and the
lab use the same ones; the mock has one limit, the lab any number of them.

    Retry-After: 3
    RateLimit-Limit: 50   RateLimit-Remaining: 12   RateLimit-Reset: 1   RateLimit-Policy: "default";q=50;w=1
    X-RateLimit-Limit: 50, 50;window=1, 600;window=60   X-RateLimit-Remaining: 12   X-RateLimit-Reset: 1
    RateLimit: limit=50, remaining=12, reset=1          RateLimit-Policy: 50;w=1
    RateLimit: "default";r=12;t=1                       RateLimit-Policy: "default";q=50;w=1

The first of these tells what fits at once, the others the rate with its window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import TypeAlias

from ..api import Reply
from ..quota import LimitStatus

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
ROUNDING = 1e-9
TICK = 1e-6
"""A time that is longer by this much is so by rounding only."""
RETRY_WHEN_UNKNOWN = 1.0
"""What a server that cannot know tells its callers to wait."""

LimitStatuses: TypeAlias = Sequence[tuple[str, LimitStatus]]
"""The state of each limit, in the scenario's order, and what it counts: ``calls`` or ``tokens``. Never empty."""


@dataclass(frozen=True, slots=True)
class Dialect:
    announce: Callable[[LimitStatuses, float], dict[str, str]]
    """The fields of every answer, a refusal's too; the second argument is the wall clock."""
    refuse: Callable[[str, LimitStatus, float], Reply]
    """What a refusal says beside that, by the limit that was hit: what it counts, its state, the wall clock."""
    overloaded: Reply


OUT_OF_SERVICE = Reply(503, {"error": "service unavailable"})


def says_nothing(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    return {}


def told_per(period: float, status: LimitStatus) -> tuple[int, int, int]:
    """Limit, remaining and used, told for ``period`` seconds whatever window the quota is counted over."""
    scale = period / status.window if status.window else 1.0
    limit = int(status.limit * scale + ROUNDING)
    remaining = 0 if status.retry != 0 else min(limit, int(status.remaining + ROUNDING))
    return limit, remaining, limit - remaining


def told_at_once(status: LimitStatus) -> tuple[int, int, int]:
    """Limit, remaining and used of what it lets through at once."""
    limit, remaining = int(status.burst), int(status.remaining + ROUNDING)
    return limit, remaining, limit - remaining


def requests_and_tokens(statuses: LimitStatuses) -> Iterator[tuple[str, LimitStatus]]:
    """The first limit of calls and the first of each kind of tokens, as chat APIs name them, in their order."""
    seen = set()
    for unit, status in statuses:
        if unit not in seen:
            seen.add(unit)
            yield ("requests" if unit == "calls" else unit), status


def wait_of(status: LimitStatus) -> float:
    """Seconds until the refused call may come back."""
    return RETRY_WHEN_UNKNOWN if status.retry is None else status.retry


def whole_seconds(seconds: float | None) -> int:
    """Up to the next whole second and at least one, as servers write Retry-After."""
    return max(1, math.ceil((RETRY_WHEN_UNKNOWN if seconds is None else seconds) - TICK))


def seconds_left(seconds: float | None) -> int:
    """Up to the next whole second; 0 for now, and for what cannot be known."""
    return math.ceil(max(0.0, (seconds or 0.0) - TICK))


def go_duration(seconds: float) -> str:
    """``12ms``, ``1.5s`` or ``6m0s``, as Go programs print durations."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 3), MINUTE)
    return f"{minutes:.0f}m{rest:g}s" if minutes else f"{rest:g}s"


# -- the standards

_MESSAGE = {"error": "too many requests"}


def _of_calls(statuses: LimitStatuses) -> list[LimitStatus]:
    return [status for unit, status in statuses if unit == "calls"]


def ratelimit_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    _, status = statuses[0]
    size = status.burst
    fills_in = size * status.window / status.limit if status.window else 0.0
    return {
        "RateLimit-Limit": str(int(size)),
        "RateLimit-Policy": f'"default";q={int(size)};w={math.ceil(fills_in)}',
        "RateLimit-Remaining": str(int(status.remaining + ROUNDING)),
        "RateLimit-Reset": str(math.ceil(status.relief or 0.0)),
    }


def listed_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    """What is left and the reset belong to the first limit; all are in the list."""
    of_calls = _of_calls(statuses)
    if not of_calls:
        return {}
    policies = [f"{int(each.limit)};window={whole_seconds(each.window)}" for each in of_calls if each.window]
    first = of_calls[0]
    return {
        "X-RateLimit-Limit": ", ".join([str(int(first.limit)), *policies]),
        "X-RateLimit-Remaining": str(int(first.remaining + ROUNDING)),
        "X-RateLimit-Reset": str(seconds_left(first.reset)),
    }


def one_field(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    of_calls = [status for status in _of_calls(statuses) if status.window]
    if not of_calls:
        return {}
    limit, remaining, _ = told_per(of_calls[0].window or 0.0, of_calls[0])
    return {
        "RateLimit": f"limit={limit}, remaining={remaining}, reset={seconds_left(of_calls[0].reset)}",
        "RateLimit-Policy": ", ".join(f"{int(each.limit)};w={whole_seconds(each.window)}" for each in of_calls),
    }


def ietf_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    of_calls = _of_calls(statuses)
    policies, states = [], []
    for number, status in enumerate(of_calls, 1):
        name = "default" if len(of_calls) == 1 else f"limit-{number}"
        if status.window is None:
            policies.append(f'"{name}";q={int(status.limit)};qu="concurrent-requests"')
        else:
            policies.append(f'"{name}";q={int(status.limit)};w={whole_seconds(status.window)}')
            states.append(f'"{name}";r={int(status.remaining + ROUNDING)};t={whole_seconds(status.reset)}')
    fields = {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(states)}
    return {name: value for name, value in fields.items() if value}


def refuse_barely(unit: str, status: LimitStatus, wall: float) -> Reply:
    return Reply(429, _MESSAGE)


def refuse_with_retry_after(unit: str, status: LimitStatus, wall: float) -> Reply:
    return Reply(429, _MESSAGE, {"Retry-After": str(whole_seconds(status.retry))})


def refuse_until_a_date(unit: str, status: LimitStatus, wall: float) -> Reply:
    until = math.ceil(wall + wait_of(status) - TICK)
    dates = {"Date": formatdate(int(wall), usegmt=True), "Retry-After": formatdate(until, usegmt=True)}
    return Reply(429, _MESSAGE, dates)


def refuse_as_ietf(unit: str, status: LimitStatus, wall: float) -> Reply:
    problem = {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "violated-policies": ["default"],
    }
    return Reply(429, problem, {"Retry-After": str(whole_seconds(status.retry))}, "application/problem+json")


NONE = Dialect(says_nothing, refuse_barely, OUT_OF_SERVICE)
RETRY_AFTER = Dialect(says_nothing, refuse_with_retry_after, OUT_OF_SERVICE)
RETRY_AFTER_DATE = Dialect(says_nothing, refuse_until_a_date, OUT_OF_SERVICE)
RATELIMIT = Dialect(ratelimit_fields, refuse_barely, OUT_OF_SERVICE)
X_RATELIMIT = Dialect(listed_fields, refuse_barely, OUT_OF_SERVICE)
IETF_ONE_FIELD = Dialect(one_field, refuse_with_retry_after, OUT_OF_SERVICE)
IETF = Dialect(ietf_fields, refuse_as_ietf, OUT_OF_SERVICE)
