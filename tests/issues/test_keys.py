"""Keys that stayed, went or were misjudged when they should not have been."""

from __future__ import annotations

import pytest

from headgate import AdaptiveRateLimiter, ConfigError, Controller, RateLimitConfig, Signal
from headgate.core.decision import Outcome
from headgate.core.policy import Ticket
from headgate.lab.virtual_time import VirtualClock


class Plain(Controller):
    """A strategy of one's own, which cannot be packed."""

    def __init__(self, config: RateLimitConfig) -> None:
        self.rate = 5.0

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        return 0.0


def settle(limiter: AdaptiveRateLimiter, clock: VirtualClock, seconds: float) -> None:
    clock.advance(seconds)
    for _ in range(20):
        clock.advance(0.02)
        limiter.snapshot()


def test_keys_of_a_strategy_of_ones_own_are_forgotten_too() -> None:
    clock = VirtualClock(100.0)
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy=Plain), clock=clock)
    for number in range(100):
        limiter.acquire(f"key {number}").report(status_code=200)
    settle(limiter, clock, 300)
    assert limiter.snapshot().keys == []


def test_permits_that_are_out_do_not_keep_other_keys_from_being_forgotten() -> None:
    clock = VirtualClock(100.0)
    limiter = AdaptiveRateLimiter(clock=clock)
    held = [limiter.acquire(f"held {number}") for number in range(70)]
    for number in range(200):
        limiter.acquire(f"key {number}").report(status_code=200)
    settle(limiter, clock, 30)
    settle(limiter, clock, 300)
    assert sorted(entry.key for entry in limiter.snapshot(top=1000).keys) == sorted(permit.key for permit in held)


def test_a_limiter_that_is_switched_off_refuses_no_key() -> None:
    limiter = AdaptiveRateLimiter(RateLimitConfig(enabled=False, max_keys=2), clock=VirtualClock(100.0))
    for key in ("a", "b", "c", "d"):
        for _ in range(50):
            limiter.acquire(key).report(status_code=429)
    assert len(limiter.snapshot().keys) == 2


def test_a_known_limit_outlives_its_key() -> None:
    clock = VirtualClock(100.0)
    config = RateLimitConfig(strategy="fixed", initial_rps=1e6, limits={"tokens": "1000/hour"}, burst={"tokens": 1000})
    limiter = AdaptiveRateLimiter(config, clock=clock)
    limiter.acquire("api", cost={"tokens": 1000}).report(status_code=200)
    settle(limiter, clock, 2000)
    assert limiter.try_acquire("api", cost={"tokens": 1}) is None
    settle(limiter, clock, 1700)
    assert limiter.try_acquire("api", cost={"tokens": 1000}) is not None


def test_twenty_thousand_calls_in_flight_are_all_heard() -> None:
    clock = VirtualClock(100.0)
    limiter = AdaptiveRateLimiter(
        RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=1e6), clock=clock
    )
    permits = [limiter.acquire("api") for _ in range(8000)]
    for _ in range(3):
        permits += [limiter.acquire("api") for _ in range(12_000)]
        clock.advance(1.0)
        for permit in permits[:12_000]:
            permit.report(status_code=200, latency=1.0)
        del permits[:12_000]
    assert limiter.snapshot().keys[0].in_flight == len(permits) == 8000
    assert limiter._registry.entries["api"].gate.answers == 36_000


def test_asking_without_waiting_also_lets_go_of_what_is_never_ended() -> None:
    limiter = AdaptiveRateLimiter(
        RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=1e6), clock=VirtualClock(100.0)
    )
    for _ in range(100_000):
        limiter.try_acquire("api")
    assert limiter.snapshot().keys[0].in_flight <= 60_000


def test_a_scope_names_a_part_of_a_key_and_not_a_piece_of_a_word() -> None:
    limiter = AdaptiveRateLimiter(clock=VirtualClock(100.0))
    permit = limiter.acquire("org", also=["user-uploads"])
    permit.report(Signal(outcome=Outcome.RATE_LIMITED, retry_after=30.0, scope="user"))
    assert [entry.key for entry in limiter.snapshot().keys if entry.not_before_ms] == ["org"]


def test_the_real_cost_is_settled_under_every_key() -> None:
    config = RateLimitConfig(strategy="fixed", initial_rps=1e6, limits={"tokens": "6000/min"})
    limiter = AdaptiveRateLimiter(config, clock=VirtualClock(100.0))
    limiter.acquire("org", cost={"tokens": 600}, also=["model"]).report(status_code=200, cost={"tokens": 10})
    for key in ("org", "model"):  # of the 600 that may go at once 10 are gone
        assert limiter.try_acquire(key, cost={"tokens": 590}) is not None
        assert limiter.try_acquire(key, cost={"tokens": 1}) is None


@pytest.mark.parametrize("cost", [-5, {"tokens": -1.0}, {"tokens": "x"}, "x"])
def test_a_senseless_real_cost_is_refused_by_name(cost: object) -> None:
    limiter = AdaptiveRateLimiter(clock=VirtualClock(100.0))
    with pytest.raises(ConfigError, match="cost="):
        limiter.acquire("api").report(status_code=200, cost=cost)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["//[::1] ", "api www.ü.de"])
def test_a_key_whose_name_would_be_spelt_otherwise_again_is_still_shown_when_idle(key: str) -> None:
    clock = VirtualClock(100.0)
    limiter = AdaptiveRateLimiter(RateLimitConfig(group_subdomains=True), clock=clock)
    limiter.acquire(key).report(status_code=200)
    names = limiter.recent_keys(10)
    clock.advance(60.0)
    assert [shown.key for shown in limiter.snapshot().keys] == names
    assert [shown.key for shown in limiter.key_statuses(names)] == names
