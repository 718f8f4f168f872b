"""Facts about what happened, in the order it happened: the one thing that logs, metrics and pages read.

An event names a key, never a credential. With the same seed and the same answers on a
virtual clock, two runs give the same events.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened to one key."""

    at: float
    """On the limiter's clock."""
    kind: str
    """rate_changed, circuit_changed, held, refused, key_evicted or cannot_learn."""
    key: str
    reason: str
    rate: float
    """The pace after it, in calls a second."""
    state: str
    """The circuit after it: closed, open or half_open."""
