"""How long to wait before sending again.

    retry          1      2      3      4 ...         with Retry-After 30
    wait within  0..0.2  0..0.4  0..0.8  0..1.6 s      30..33 s

Full jitter (anything between nothing and the ceiling) spreads a crowd best. What the
server asks for is a floor: it is applied last, chance may only add to it, and no
ceiling of ours cuts it short.
"""

from __future__ import annotations

from .decision import LONGEST_WAIT

FLOOR_JITTER = 0.1
"""By what share a floor may be overstayed, so that all callers that were told the same do not come back at once."""

MOST_FLOOR_JITTER = 5.0
"""And by how many seconds at most: an hour's rest does not need six minutes of spreading."""

_MOST_DOUBLINGS = 1023


def delay(
    attempt: int,
    draw: float,
    *,
    base: float = 0.2,
    max_delay: float = 5.0,
    floor: float = 0.0,
    floor_jitter: float = FLOOR_JITTER,
) -> float:
    """Seconds to wait after attempt number ``attempt`` (from 1) failed; ``draw`` is uniform in [0, 1).

    Never below ``floor``, and above ``max_delay`` only for a floor's sake.
    """
    ceiling = min(max_delay, base * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS), LONGEST_WAIT)
    return max(draw * ceiling, above(floor, draw, floor_jitter))


def above(floor: float, draw: float, jitter: float = FLOOR_JITTER) -> float:
    """A wait at or a little above ``floor``, within [0, 31 days]. A floor that is no time (negative, NaN) is none."""
    if not floor > 0.0:
        return 0.0
    return min(floor + draw * min(floor * jitter, MOST_FLOOR_JITTER), LONGEST_WAIT)
