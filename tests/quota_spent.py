"""What the calls under a key have spent of its last known limit: the one place where tests look into a gate for it."""

from __future__ import annotations

from headgate.core.quota import QuotaPolicy
from headgate.limiter import AdaptiveRateLimiter


def quota_spent(limiter: AdaptiveRateLimiter, key: str) -> float:
    policies = limiter._registry.entries[key].gate.policies.in_order
    (quotas,) = (policy for policy in policies if isinstance(policy, QuotaPolicy))
    return sum(spent for _, _, spent in quotas.all[-1].spent)
