"""What is written down for every server: Retry-After, and the RateLimit fields of the IETF's drafts, old and new.

    Retry-After: 3
    RateLimit-Limit: 50   RateLimit-Remaining: 12   RateLimit-Reset: 1   RateLimit-Policy: "default";q=50;w=1
    X-RateLimit-Limit: 50, 50;window=1, 600;window=60   X-RateLimit-Remaining: 12   X-RateLimit-Reset: 1
    RateLimit: limit=50, remaining=12, reset=1          RateLimit-Policy: 50;w=1
    RateLimit: "default";r=12;t=1                       RateLimit-Policy: "default";q=50;w=1

The first of these tells what fits at once, the others the rate with its window.
"""

from __future__ import annotations

import math
from email.utils import formatdate

from ..api import Reply
from ..quota import LimitStatus
from .dialect import (
    OUT_OF_SERVICE,
    TICK,
    Dialect,
    LimitStatuses,
    says_nothing,
    seconds_left,
    told_per,
    wait_of,
    whole_seconds,
)

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
        "RateLimit-Remaining": str(int(status.remaining)),
        "RateLimit-Reset": str(math.ceil(status.relief or 0.0)),
    }


def listed_fields(statuses: LimitStatuses, wall: float) -> dict[str, str]:
    """What is left and the reset speak of the first limit; all are in the list."""
    of_calls = _of_calls(statuses)
    if not of_calls:
        return {}
    policies = [f"{int(each.limit)};window={whole_seconds(each.window)}" for each in of_calls if each.window]
    first = of_calls[0]
    return {
        "X-RateLimit-Limit": ", ".join([str(int(first.limit)), *policies]),
        "X-RateLimit-Remaining": str(int(first.remaining)),
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
            states.append(f'"{name}";r={int(status.remaining)};t={whole_seconds(status.reset)}')
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
