"""What a batch asks of gates and credentials: a pause on request, and one credential and no other."""

from __future__ import annotations

import pytest

from headgate import AdaptiveRateLimiter, CostTooLargeError, CredentialCoordinator, Outcome, RateLimitConfig, Signal
from headgate.lab.virtual_time import VirtualClock


def limiter(clock, **settings):
    config = {"strategy": "fixed", "initial_rps": 10.0, "token_bucket_capacity": 100.0, **settings}
    return AdaptiveRateLimiter(RateLimitConfig(**config), clock=clock)


def test_a_pause_lets_nothing_start_and_a_shorter_one_shortens_nothing():
    clock = VirtualClock()
    gate = limiter(clock)
    gate.pause("api", 10.0)
    gate.pause("api", 1.0)
    clock.advance(9.9)
    assert gate.try_acquire("api") is None
    assert gate.key_status("api").waits_for == "floor"
    clock.advance(0.1)
    assert gate.try_acquire("api") is not None


def test_a_full_tier_is_told_as_that_and_not_as_a_rate_limit():
    clock = VirtualClock()
    gate = limiter(clock)
    gate.acquire("api/flex").report(Signal(outcome=Outcome.CAPACITY))
    assert gate.try_acquire("api/flex") is None
    assert gate.key_status("api/flex").waits_for == "capacity"
    assert "the service tier is full" in (gate.key_status("api/flex").reason or "")
    gate.pause("api/flex", 100.0)
    assert gate.key_status("api/flex").waits_for == "floor"


def test_after_a_pause_there_is_no_burst_and_half_of_the_pace_at_first():
    clock = VirtualClock()
    gate = limiter(clock)
    gate.pause("api", 20.0)
    clock.advance(20.0)
    assert [gate.try_acquire("api") is not None for _ in range(3)] == [True, False, False]
    clock.advance(0.1)
    assert gate.try_acquire("api") is None
    clock.advance(0.1)
    assert gate.try_acquire("api") is not None


def test_a_pause_of_one_key_leaves_others_alone():
    gate = limiter(VirtualClock())
    gate.pause("a", 60.0)
    assert gate.try_acquire("b") is not None


def test_a_cost_that_can_never_fit_is_found_without_taking_anything():
    gate = limiter(VirtualClock(), limits={"tokens": "1000/min"})
    gate.check("api", {"tokens": 1000})
    with pytest.raises(CostTooLargeError, match="above the limit of 1,000"):
        gate.check("api", {"tokens": 1001})
    assert gate.snapshot().total == 0


def test_one_credential_and_no_other():
    clock = VirtualClock()
    keys = CredentialCoordinator(["secret-a", "secret-b"], at_once=None, clock=clock)
    assert keys.labels == ("key-1", "key-2")
    assert keys.try_acquire("key-2", only=True).label == "key-2"
    keys.park("key-2", 30.0)
    assert keys.try_acquire("key-2", only=True) is None
    assert keys.try_acquire("key-2").label == "key-1"
    assert (keys.back_in("key-1"), keys.back_in("key-2")) == (0.0, 30.0)
    clock.advance(30.0)
    assert keys.back_in("key-2") == 0.0
    assert keys.try_acquire("key-2", only=True).label == "key-2"
    keys.retire("key-2")
    assert keys.back_in("key-2") is None
