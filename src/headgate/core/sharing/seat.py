"""What the desk knows of one member."""

from __future__ import annotations

from typing import Any

ASKING = 0.25
"""Whoever asked within so many seconds is counted when a lease is divided."""
TERM = 1.0
"""Permits and slots of a member that was not seen for so many seconds are nobody's any more."""
LIVE = 3.0
"""... and after so many it does not count any more."""
KEPT = 30.0
"""Whoever comes back within so many seconds is known: a visit that is sent again is heard once."""


class Seat:
    """What the desk knows of one member."""

    __slots__ = (
        "asked_at",
        "era",
        "first",
        "flying",
        "gone",
        "granted",
        "granted_to",
        "hungry_at",
        "number",
        "probe",
        "seen_at",
        "solo",
        "span",
    )

    def __init__(self, now: float) -> None:
        self.seen_at = now
        self.number = 0
        """Of its last visit, of the last that was granted anything, and what that was:"""
        self.granted_to = 0
        self.granted = 0
        self.first = 0.0
        self.era = 0
        self.probe = False
        self.flying = 0
        self.gone = False
        self.asked_at = -ASKING
        self.span = 0.0
        self.solo = False
        self.hungry_at = 0.0
        """Since when it is short of something; 0 if it is not."""

    def to_state(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_state(cls, state: list[Any]) -> Seat:
        seat = cls(0.0)
        for name, value in zip(cls.__slots__, state, strict=True):
            setattr(seat, name, value)
        return seat
