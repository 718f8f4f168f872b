"""Limits of the primary target held a second set of keys at another vendor, and a vendor at an IPv6 address."""

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.endpoints import TargetConfig, unlimited_elsewhere
from headgate.config import read_limits
from headgate.resilience.fallback import read_fallbacks

FALLBACKS = [
    "to=groq,model=a,keys=env:FIRST",
    "to=groq,model=b,keys=env:SECOND",
    "to=http://[::1]:8000/v1,model=c",
]


@pytest.mark.parametrize(
    ("key", "is_limited"),
    [
        ("openai", True),
        ("openai/gpt-4o", True),
        ("openai(1)/gpt-4o", True),
        ("groq/a", False),
        ("groq(2)/b", False),
        ("groq(2)/b/key-1", False),
        ("[::1]:8000", False),
        ("[::1]:8000/c", False),
    ],
)
def test_limits_hold_at_the_primary_target_alone(key, is_limited):
    known = RateLimitConfig(limits=read_limits("requests=60/min"))
    config = unlimited_elsewhere(TargetConfig(to="openai"), read_fallbacks(FALLBACKS), known)
    assert AdaptiveRateLimiter(config).has_limits(key) is is_limited
