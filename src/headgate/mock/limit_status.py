"""The state of a quota at one instant: what ways of counting say of themselves, and dialects put into words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """The state of a quota at one instant. Times are seconds from then; ``None`` is for what cannot be known."""

    limit: float
    window: float | None
    used: float
    remaining: float
    reset: float | None
    """Until nothing of it is used."""
    retry: float | None
    """Until the next call would be let through; 0 when it would be now."""
    burst: float
    """What it lets through at once when nothing of it is used."""
    relief: float | None
    """As ``reset``, but of a log only until its oldest call leaves."""
