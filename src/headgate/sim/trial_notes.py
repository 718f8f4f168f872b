"""What is written down of a trial: at one instant, and of one key."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

PROVIDER = "mock-api"


@dataclass(frozen=True, slots=True)
class KeySample:
    """One key at one instant."""

    learned: float = 0.0
    """Calls a second."""
    state: str = "closed"
    """The circuit: closed, open or half_open."""
    reason: str = ""
    """Why a call with this key would wait."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What an onlooker saw at one instant, in seconds since the trial began."""

    at: float
    keys: tuple[KeySample, ...]
    waiting: int
    """Workers that neither have a call on its way nor are finished."""
    done: int

    @property
    def learned(self) -> float:
        """Calls a second, of all keys together."""
        return math.fsum(key.learned for key in self.keys)

    @property
    def state(self) -> str:
        """The circuit that is not closed, if one is not."""
        return next((key.state for key in self.keys if key.state != "closed"), "closed")


@dataclass(slots=True)
class KeyBook:
    """What happened to the calls of one key."""

    label: str
    done_at: list[float] = field(default_factory=list)
    refused_at: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    rests: int = 0

    @property
    def gate(self) -> str:
        """What the limiter knows it by."""
        return f"{PROVIDER}/{self.label}"
