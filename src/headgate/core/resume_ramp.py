"""Come back gently: after a pause every caller passes the same short ramp.

    1.0 |            ........
        |       .
        | .                     share of the pace that may be used
        +------------------> time since the pause ended

The ramp fits the pause. Under a second, pacing alone is enough; after an outage it takes
a share of the outage's length, since what comes back after ten seconds is more fragile
than what hiccuped for one. It ends at the full pace, without a cliff.
"""

from __future__ import annotations

from dataclasses import dataclass

from .decision import NEVER

SHORTEST_PAUSE = 1.0
"""A pause below this needs no ramp."""
MOST_OF_AN_OUTAGE = 15.0
"""An outage longer than this is treated as one of this length."""


@dataclass(slots=True)
class ResumeRamp:
    starts_at: float = NEVER
    lasts: float = 0.0
    least: float = 1.0

    @property
    def ends_at(self) -> float:
        return self.starts_at + self.lasts

    def share(self, now: float) -> float:
        """Which share of the pace may be used now, within (0, 1]."""
        if now >= self.starts_at + self.lasts:
            return 1.0
        return self.least + (1.0 - self.least) * max(0.0, now - self.starts_at) / self.lasts


NO_RAMP = ResumeRamp()
"""At the full pace."""


def gentler_ramp(one: ResumeRamp, other: ResumeRamp) -> ResumeRamp:
    """Where two ramps meet: from the later start, the longer way, and up from no higher than either."""
    starts_at = max(one.starts_at, other.starts_at)
    if one.ends_at < starts_at or not one.lasts:
        return other
    ends_at = max(one.ends_at, starts_at + other.lasts)
    return ResumeRamp(starts_at, ends_at - starts_at, min(one.share(starts_at), other.share(starts_at)))


def after_outage(down: float, now: float) -> ResumeRamp:
    """The circuit closed after ``down`` seconds: start at a quarter to nearly all of the pace, by its length."""
    if down < SHORTEST_PAUSE:
        return ResumeRamp()
    return ResumeRamp(now, 0.4 * min(down, MOST_OF_AN_OUTAGE), max(0.25, 1.0 - 0.05 * down))


def after_pause(pause: float, until: float) -> ResumeRamp:
    """The server asked for a pause that ends at ``until``: half of the pace at first, for a tenth of the pause."""
    if pause < SHORTEST_PAUSE:
        return ResumeRamp()
    return ResumeRamp(until, min(0.1 * pause, 3.0), 0.5)
