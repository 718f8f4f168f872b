"""What the gates of many keys have in common: their settings, and the policies that follow from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .circuit_breaker import Breaker, BreakerSettings, CircuitPolicy
from .concurrency import ConcurrencyPolicy, InFlight
from .controller import Controller
from .cooldown import ExponentialCooldown, FixedCooldown, HoldPolicy
from .pacer import Pacer
from .policy import PolicyList
from .quota import Quota, QuotaPolicy

FASTEST = 1e12
"""Calls a second; no key gets more, so that numbers stay numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConfig:
    controller: Callable[[], Controller]
    burst: float = 4.0
    least: float = 0.01
    most: float = FASTEST
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    quotas: tuple[Quota, ...] = ()
    dimensions: frozenset[str] = field(init=False)
    """What the quotas are counted in."""
    cooldown: FixedCooldown | ExponentialCooldown | None = None
    """How long to pause after a 429; None is as long as the server says."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimensions", frozenset(quota.dimension for quota in self.quotas))


def local_policies(config: GateConfig, controller: Controller, breaker: Breaker, in_flight: InFlight) -> PolicyList:
    """Enforce what the controller concludes, within what the config allows."""
    pacer = Pacer(controller, config.burst, config.least, config.most)
    return PolicyList(
        circuit=CircuitPolicy(breaker, pacer),
        hold=HoldPolicy(controller, config.cooldown, pacer),
        bounds=(ConcurrencyPolicy(controller, in_flight),),
        pacer=pacer,
        quotas=QuotaPolicy(config.quotas, in_flight) if config.quotas else None,
    )
