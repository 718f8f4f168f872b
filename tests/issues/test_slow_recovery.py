"""A recovery ramp whose cut pace gave fewer than five results a window never recovered, whatever a rerun set."""

import json

import pytest

from headgate import RecoveryRateLimiter
from headgate.core.recovery_ramp import SMALLEST_MULTIPLIER

HOUR = 3600.0


def drain(ramp, seconds, *, now=0.0, fails=lambda at: False):
    """Calls that leave as the ramp lets them, and end at once; returns how many did, and when it was over."""
    calls, end = 0, now + seconds
    while now < end and ramp.is_in_recovery_period(now):
        wait = ramp.should_wait(now)
        if wait:
            now += wait
            continue
        ramp.record_result(not fails(now), now)
        calls += 1
    return calls, now


def cut_to_the_floor(**settings):
    """A ramp whose server has failed for as long as it took."""
    ramp = RecoveryRateLimiter(**settings)
    ramp.start_recovery_period(1.0)
    now = 1.0
    while ramp.rate_multiplier > SMALLEST_MULTIPLIER:
        for _ in range(5):
            ramp.record_result(False, now)
        now = ramp.backoff_until
    return ramp, now


@pytest.mark.parametrize("target", [0.5, 0.01])
def test_a_slow_ramp_recovers(target):
    ramp, now = cut_to_the_floor(initial_rate=target / 4, target_rate=target, ramp_duration=300.0)
    calls, ended_at = drain(ramp, 400 / target, now=now)
    assert not ramp.is_in_recovery_period(ended_at)
    assert ramp.current_rate(ended_at) == target
    assert calls <= 3 * 5 + 1 + 300.0 * target


def test_failures_among_the_last_results_keep_it_slow():
    ramp, now = cut_to_the_floor(initial_rate=0.1, target_rate=0.5)
    calls = iter(range(10**9))
    drain(ramp, 24 * HOUR, now=now, fails=lambda at: next(calls) % 4 == 0)
    assert ramp.rate_multiplier == SMALLEST_MULTIPLIER


def test_a_few_old_failures_do_not_cut_it():
    """Downward the error window still counts: five results in an hour are no rate."""
    ramp = RecoveryRateLimiter(initial_rate=0.001, target_rate=0.01, ramp_duration=24 * HOUR)
    ramp.start_recovery_period(1.0)
    drain(ramp, HOUR, now=1.0, fails=lambda at: True)
    assert ramp.rate_multiplier == 1.0


def test_other_settings_take_up_the_progress():
    before = RecoveryRateLimiter(initial_rate=5.0, target_rate=20.0, ramp_duration=300.0)
    before.start_recovery_period(1000.0)
    after = RecoveryRateLimiter(initial_rate=10.0, target_rate=50.0, ramp_duration=1000.0)
    after.go_on(json.loads(json.dumps(before.to_state())), 1150.0)
    assert (after.initial_rate, after.target_rate, after.ramp_duration) == (10.0, 50.0, 1000.0)
    assert after.current_rate(1150.0) == pytest.approx(30.0)
    assert after.current_rate(1150.0 + 500.0) == pytest.approx(50.0)


def test_a_cut_is_part_of_the_progress():
    before, now = cut_to_the_floor(initial_rate=5.0, target_rate=20.0)
    after = RecoveryRateLimiter(initial_rate=1.0, target_rate=2.0)
    after.go_on(before.to_state(), now)
    assert (after.rate_multiplier, after.target_rate) == (SMALLEST_MULTIPLIER, 2.0)
