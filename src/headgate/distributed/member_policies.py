"""The policies of a member's gate while it does without the coordinator: local ones, and what the coordinator is told.

Its pacer counts what starts, so that the coordinator can be told. An operator's limit spaces this process's calls, with
and without the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..config import RateLimitConfig
from ..core.circuit_breaker import Breaker, CircuitPolicy
from ..core.concurrency import ConcurrencyPolicy, InFlight
from ..core.controller import Controller
from ..core.cooldown import HoldPolicy
from ..core.decision import INSTANT, LONGEST_WAIT, Refuse, RefuseReason, Wait, WaitReason
from ..core.gate_config import GateConfig
from ..core.pacer import Pacer
from ..core.policy import Cost, Demand, Limits, PolicyList, QueueDemand, requests_of
from ..core.quota import Quota, QuotaPolicy
from ..core.ticket import Ticket
from .lease import LEAST_RATE
from .protocol import QuotaTerms
from .solo import SoloCircuit, SoloController, SoloHold

AT_ONCE = 0.1
"""How much of a known limit may go at once, at most, where others cannot be asked."""


class CeilingPolicy:
    """An operator's limit on a shared key is for this process: no call sooner after the last one than it allows."""

    __slots__ = ("ceiling",)

    def __init__(self) -> None:
        self.ceiling: float | None = None

    def set_ceiling(self, ceiling: float | None) -> None:
        self.ceiling = ceiling

    def check(self, now: float, demand: Demand) -> Wait | None:
        if self.ceiling is None:
            return None
        may_at = demand.last_sent_at + (demand.requests_ahead + requests_of(demand.cost)) / self.ceiling
        return None if may_at <= now + INSTANT else Wait(WaitReason.CEILING, may_at)

    def may_object(self) -> bool:
        return self.ceiling is not None


class StoreLostPolicy:
    """Refuse everything while the store cannot be reached, where that was chosen."""

    __slots__ = ("store",)

    def __init__(self) -> None:
        self.store = ""
        """The store that is lost; empty: none is."""

    def check(self, now: float, demand: Demand) -> Refuse | None:
        return Refuse(RefuseReason.STORE_LOST, subject=self.store) if self.store else None

    def may_object(self) -> bool:
        return bool(self.store)


class MemberPacer(Pacer):
    """A local pacer that counts what starts without the coordinator."""

    __slots__ = ("_count", "_queue_changed", "is_share", "lost_store")

    def __init__(
        self,
        limits: Limits,
        config: GateConfig,
        queue_changed: Callable[[QueueDemand | None, float], None],
        count: Callable[[Cost], None],
        now: float,
        *,
        is_share: bool,
    ) -> None:
        super().__init__(limits, config.burst, config.least, config.most)
        self.rate, self.tokens, self.filled_at = limits.rate, 0.0, now
        self._count, self._queue_changed = count, queue_changed
        self.is_share = is_share
        """Whether its rate is this member's share of the last that was known."""
        self.lost_store = ""

    def try_take(self, now: float) -> bool:
        if not super().try_take(now):
            return False
        self._count(1)
        return True

    def admit(self, ticket: Ticket, now: float) -> None:
        super().admit(ticket, now)
        self._count(ticket.cost)

    def on_queue(self, queue: QueueDemand | None, now: float) -> None:
        super().on_queue(queue, now)
        self._queue_changed(queue, now)

    def set_ceiling(self, ceiling: float | None) -> None:
        """Which ``CeilingPolicy`` keeps."""

    @property
    def learned_rate(self) -> float:
        return self.rate if self.is_share else super().learned_rate

    def to_state(self) -> None:  # type: ignore[override]
        """What is known of a shared key lies in its store."""


class MemberPolicies:
    """Makes the lists that a member's gate goes by without the coordinator."""

    def __init__(
        self,
        breaker: Breaker,
        in_flight: InFlight,
        queue_changed: Callable[[QueueDemand | None, float], None],
        count: Callable[[Cost], None],
    ) -> None:
        self._breaker, self._in_flight = breaker, in_flight
        self._queue_changed, self._count = queue_changed, count
        self.ceiling, self.store_lost = CeilingPolicy(), StoreLostPolicy()

    def solo(self, config: GateConfig, controller: SoloController, now: float) -> PolicyList:
        """No other member is there: what the leader concludes counts at once."""
        pacer = MemberPacer(controller, config, self._queue_changed, self._count, now, is_share=False)
        circuit, hold = SoloCircuit(self._breaker, pacer, controller), SoloHold(controller, config.cooldown, pacer)
        return self._list(config, controller, circuit, hold, pacer)

    def share(self, config: GateConfig, controller: Controller, known_until: float, now: float) -> PolicyList:
        """The store is lost: this member's share of what is known, with every pause that is known."""
        pacer = MemberPacer(controller, config, self._queue_changed, self._count, now, is_share=True)
        circuit, hold = CircuitPolicy(self._breaker, pacer), HoldPolicy(controller, config.cooldown, pacer)
        if known_until > now:
            hold.keep_until(known_until)
        return self._list(config, controller, circuit, hold, pacer)

    def _list(
        self, config: GateConfig, controller: Controller, circuit: CircuitPolicy, hold: HoldPolicy, pacer: MemberPacer
    ) -> PolicyList:
        bounds = (self.store_lost, ConcurrencyPolicy(controller, self._in_flight), self.ceiling)
        return PolicyList(circuit, hold, bounds, pacer, QuotaPolicy(config.quotas) if config.quotas else None)


# ------------------------------------------------------------------ what is known beforehand, and a share of it


def terms_of(policy: GateConfig, rate: float) -> QuotaTerms:
    """What is known beforehand. A large limit on requests bounds the pace; all others are kept by their windows."""
    most, burst = policy.most, policy.burst
    limits: list[tuple[str, float, float, float]] = []
    for quota in policy.quotas:
        if quota.dimension == "requests" and not quota.all_at_once:
            most, burst = min(most, quota.refill), min(burst, quota.burst)
        else:
            limits.append((quota.dimension, quota.amount, quota.window, quota.burst))
    return QuotaTerms(
        rate=min(rate, most),
        burst=burst,
        most=most,
        probes=policy.breaker.half_open_probes,
        probe_for=policy.breaker.cool_off,
        limits=tuple(sorted(limits)),
    )


def share_config(config: RateLimitConfig, rate: float, members: int) -> GateConfig:
    """The settings of a gate that may use one of ``members`` shares of everything."""
    share = max(rate / members, LEAST_RATE)
    least = min(config.min_rps, share)
    paced = replace(config, initial_rps=share, max_rps=share, min_rps=least, limits={}, burst={}, overrides={})
    policy = paced.gate_config()
    quotas = tuple(_share_of(quota, members) for quota in config.quotas())
    return replace(policy, quotas=quotas, burst=max(1.0, policy.burst / members))


def _share_of(quota: Quota, members: int) -> Quota:
    """As much in a longer window, so that what fits into the whole fits into a share; little of it at once.

    One that does not pace stays as it is; the gate takes from it what is not this member's.
    """
    if not quota.paces:
        return quota
    window = min(quota.window * members, LONGEST_WAIT)
    return replace(quota, window=window, burst=min(quota.burst, AT_ONCE * quota.amount) / members)
