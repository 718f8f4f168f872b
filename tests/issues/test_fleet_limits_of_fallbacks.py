"""Limits that a cluster's job was given held its fallbacks too, though they are those of its primary target."""

from headgate import AdaptiveRateLimiter
from headgate.fleet.settings import RowSettings


def test_limits_are_those_of_the_primary_target():
    settings = RowSettings(
        to="openai", limits="requests=60/min", fallback=["to=groq,model=llama-3.3-70b-versatile", "gpt-4o-mini"]
    )
    limiter = AdaptiveRateLimiter(settings.limit_config())
    assert limiter.has_limits("openai/gpt-4o")
    assert limiter.has_limits("openai/gpt-4o-mini")
    assert not limiter.has_limits("groq/llama-3.3-70b-versatile")
