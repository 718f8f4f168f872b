"""A credential in a key reaches no error, event, repr or snapshot."""

from __future__ import annotations

import pytest

from headgate import AdaptiveRateLimiter, CircuitOpenError, ConfigError, Event, Feedback, RateLimitConfig
from headgate.lab.virtual_time import VirtualClock

SECRET = "sk-zq41-SECRET"


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        (f"https://user:{SECRET}@api.example.com/v1", "api.example.com"),
        (f"https://api.example.com/v1?key={SECRET}", "api.example.com"),
        (f"//user:{SECRET}@api.example.com/v1", "api.example.com"),
        (f"user:{SECRET}@api.example.com", "api.example.com"),
        (f"user:{SECRET}@api.example.com:8080/v1", "api.example.com:8080/v1"),
        (f"api.example.com/v1?key={SECRET}", "api.example.com/v1"),
    ],
)
def test_a_key_is_filed_without_its_credentials(spelling: str, name: str) -> None:
    told: list[Event] = []
    limiter = AdaptiveRateLimiter(clock=VirtualClock(100.0), on_event=told.append)
    permit = limiter.acquire(spelling)
    permit.report(status_code=500)
    for _ in range(3):
        limiter.acquire(spelling).report(status_code=500)
    limiter.feedback(spelling, Feedback(status_code=500))
    with pytest.raises(CircuitOpenError) as refusal:
        limiter.acquire(spelling)
    assert permit.key == name
    seen = [repr(told), repr(permit), repr(limiter.snapshot()), str(refusal.value), repr(refusal.value)]
    assert not any(SECRET in text for text in seen)


def test_a_key_that_is_refused_is_not_shown() -> None:
    limiter = AdaptiveRateLimiter()
    with pytest.raises(ConfigError) as refusal:
        limiter.acquire(f"https://user:{SECRET}@example.com/" + "x" * 2000)
    assert SECRET not in str(refusal.value)


def test_an_override_that_is_refused_is_not_shown() -> None:
    with pytest.raises(ConfigError) as refusal:
        RateLimitConfig(overrides={f"https://user:{SECRET}@example.com/": 3})  # type: ignore[dict-item]
    assert SECRET not in str(refusal.value)
