"""What a desk is told of a key beforehand, and what a member may do of it when it is on its own."""

from __future__ import annotations

from dataclasses import replace

from ..config import RateLimitConfig
from ..core.bucket import Quota
from ..core.decision import LONGEST_WAIT
from ..core.gate_policy import GatePolicy
from ..core.sharing.visit import Terms

LEAST = 1e-9
"""Calls a second; nothing is divided by less."""
AT_ONCE = 0.1
"""How much of a known limit may go at once, at most, where others cannot be asked."""


def terms_of(policy: GatePolicy, rate: float) -> Terms:
    """What is known beforehand. A large limit on requests bounds the pace; all others are kept by their windows."""
    most, burst = policy.most, policy.burst
    limits: list[tuple[str, float, float, float]] = []
    for quota in policy.quotas:
        if quota.dimension == "requests" and not quota.all_at_once:
            most, burst = min(most, quota.refill), min(burst, quota.burst)
        else:
            limits.append((quota.dimension, quota.amount, quota.window, quota.burst))
    return Terms(
        rate=min(rate, most),
        burst=burst,
        most=most,
        probes=policy.breaker.half_open_probes,
        probe_for=policy.breaker.cool_off,
        limits=tuple(sorted(limits)),
    )


def policy_alone(config: RateLimitConfig, rate: float, members: int) -> GatePolicy:
    """The settings of a gate that may use one of ``members`` shares of everything."""
    share = max(rate / members, LEAST)
    least = min(config.min_rps, share)
    paced = replace(config, initial_rps=share, max_rps=share, min_rps=least, limits={}, burst={}, overrides={})
    policy = paced.gate_policy()
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
