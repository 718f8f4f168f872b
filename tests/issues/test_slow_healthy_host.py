"""``aimd`` took a healthy host that answers in three seconds for a slow one, and fell to the floor."""

import random

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.lab.virtual_time import VirtualClock


def rates(latencies, **settings):
    """The rate after each of these answers, to calls made one after the other."""
    clock = VirtualClock()
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="aimd", **settings), clock=clock)
    for latency in latencies:
        permit = limiter.acquire("api")
        clock.advance(latency)
        permit.report(status_code=200, latency=latency)
        yield limiter.key_status("api").rate


@pytest.mark.parametrize("latency", [3.0, 30.0])
def test_a_host_that_is_always_slow_is_not_taken_for_sick(latency):
    seen = list(rates([latency] * 200))
    assert min(seen) > 0.05
    assert seen[-1] > 20.0


def test_a_host_whose_answers_vary_is_not_either():
    draw = random.Random(1)
    seen = list(rates([draw.uniform(2.4, 3.6) for _ in range(300)]))
    assert seen[-1] > 10.0


def test_answers_that_take_twice_as_long_as_of_late_halve_the_rate():
    *_, before, after = rates([3.0] * 50 + [6.1])
    assert after == before / 2


def test_a_fast_host_is_not_cut_for_taking_a_few_milliseconds_more():
    draw = random.Random(1)
    seen = list(rates([draw.lognormvariate(-3.0, 1.0) for _ in range(300)]))
    assert seen == sorted(seen)


def test_the_target_starts_at_the_configured_one_and_moves_by_a_fifth():
    seen = list(rates([0.5, 1.5, 1.1, 1.2], latency_target=1.0))  # the target is 1.0, 1.0, 1.1, 1.1
    assert seen == [2.25, 2.25, 2.5, 2.5]
    assert list(rates([2.0, 2.0, 2.3], latency_target=1.0)) == [1.0, 1.0, 1.0]
