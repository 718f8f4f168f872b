"""The bounds of an adaptive controller; everything else it finds out."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptivePolicy:
    """Calls a second: where to begin, and what the learned pace never leaves."""

    initial: float = 2.0
    least: float = 0.01
    most: float = inf

    def __post_init__(self) -> None:
        if not 0.0 < self.least < inf:
            raise ValueError(f"least must be above 0 and finite, not {self.least!r}")
        if not self.most >= self.least:
            raise ValueError(f"most must be at least least={self.least!r}, not {self.most!r}")
        if not 0.0 < self.initial < inf:
            raise ValueError(f"initial must be above 0 and finite, not {self.initial!r}")
