"""What a dialect is: three functions of where the limits stand, and how it words a wait, a share and a time.

Every dialect speaks to the mock and to the lab alike. The mock has one limit, the lab any number of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
"""Where each limit stands, in the scenario's order, and what it counts: ``calls`` or ``tokens``. Never empty."""


@dataclass(frozen=True, slots=True)
class Dialect:
    announce: Callable[[LimitStatuses, float], dict[str, str]]
    """The fields of every answer, a refusal's too; the second argument is the wall clock."""
    refuse: Callable[[str, LimitStatus, float], Reply]
    """What a refusal says beside that, by the limit that was hit: what it counts, where it stands, the wall clock."""
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
    """The first limit of calls and the first of tokens, as chat APIs name them; the scenario's first goes first."""
    seen = ""
    for unit, status in statuses:
        if unit != seen:
            yield ("requests" if unit == "calls" else unit), status
            if seen:
                return
            seen = unit


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
