"""What a dialect is: three functions of where the limits stand, and how it words a wait, a share and a time.

Every dialect speaks to the mock and to the lab alike. The mock has one limit, the lab any number of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..quota import Standing
from ..reply import Reply

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
ROUNDING = 1e-9
TICK = 1e-6
"""A time that is longer by this much is so by rounding only."""
RETRY_WHEN_UNKNOWN = 1.0
"""What a server that cannot know tells its callers to wait."""

Standings: TypeAlias = Sequence[tuple[str, Standing]]
"""Where each limit stands, in the scenario's order, and what it counts: ``calls`` or ``tokens``. Never empty."""


@dataclass(frozen=True, slots=True)
class Dialect:
    announce: Callable[[Standings, float], dict[str, str]]
    """The fields of every answer, a refusal's too; the second argument is the wall clock."""
    refuse: Callable[[str, Standing, float], Reply]
    """What a refusal says beside that, by the limit that was hit: what it counts, where it stands, the wall clock."""
    overloaded: Reply


OUT_OF_SERVICE = Reply(503, {"error": "service unavailable"})


def says_nothing(standings: Standings, wall: float) -> dict[str, str]:
    return {}


def told_per(period: float, standing: Standing) -> tuple[int, int, int]:
    """Limit, remaining and used, told for ``period`` seconds whatever window the quota is counted over."""
    scale = period / standing.window if standing.window else 1.0
    limit = int(standing.limit * scale + ROUNDING)
    remaining = 0 if standing.retry != 0 else min(limit, int(standing.remaining + ROUNDING))
    return limit, remaining, limit - remaining


def told_at_once(standing: Standing) -> tuple[int, int, int]:
    """Limit, remaining and used of what it lets through at once."""
    limit, remaining = int(standing.burst), int(standing.remaining + ROUNDING)
    return limit, remaining, limit - remaining


def requests_and_tokens(standings: Standings) -> Iterator[tuple[str, Standing]]:
    """The first limit of calls and the first of tokens, as chat APIs name them; the scenario's first goes first."""
    seen = ""
    for unit, standing in standings:
        if unit != seen:
            yield ("requests" if unit == "calls" else unit), standing
            if seen:
                return
            seen = unit


def wait_of(standing: Standing) -> float:
    """Seconds until the refused call may come back."""
    return RETRY_WHEN_UNKNOWN if standing.retry is None else standing.retry


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
