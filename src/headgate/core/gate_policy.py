"""What the gates of many keys have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .breaker import BreakerPolicy
from .bucket import Quota
from .control.protocol import Controller
from .cooldown import ExponentialCooldown, FixedCooldown

FASTEST = 1e12
"""Calls a second; nobody gets more, so that numbers stay numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    controller: Callable[[], Controller]
    burst: float = 4.0
    least: float = 0.01
    most: float = FASTEST
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    quotas: tuple[Quota, ...] = ()
    dimensions: frozenset[str] = field(init=False)
    """What the quotas are counted in."""
    cooldown: FixedCooldown | ExponentialCooldown | None = None
    """How long to pause after a 429; None is as long as the server says."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimensions", frozenset(quota.dimension for quota in self.quotas))
