"""A known limit that many share is kept in every window, whatever comes back or is charged later."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.distributed.grants import SLICES, SharedQuota


def fullest(starts, window):
    """What the fullest window holds of (instant, amount) pairs."""
    starts = sorted(starts)
    most = total = 0.0
    first = 0
    for at, amount in starts:
        total += amount
        while starts[first][0] <= at - window + 1e-9:
            total -= starts[first][1]
            first += 1
        most = max(most, total)
    return most


class TestTaking:
    def test_a_burst_at_once_and_the_rest_over_the_window(self):
        quota = SharedQuota("tokens", 600.0, 60.0, 60.0, 0.0)
        assert quota.ready_at(60.0, 0.0) == 0.0
        quota.take(60.0, 0.0, 0.0)
        assert quota.ready_at(9.0, 0.0) == pytest.approx(1.0)

    def test_where_the_burst_is_all_the_window_alone_decides(self):
        quota = SharedQuota("tokens", 5.0, 60.0, 5.0, 0.0)
        for at in range(5):
            assert quota.ready_at(1.0, at) == at
            quota.take(1.0, at, at)
        assert quota.ready_at(1.0, 10.0) == 60.0

    def test_a_call_counts_until_a_window_after_its_start(self):
        quota = SharedQuota("tokens", 5.0, 60.0, 5.0, 0.0)
        quota.take(5.0, 0.0, 20.0)
        assert quota.ready_at(1.0, 70.0) == 80.0

    def test_what_comes_back_can_be_taken_again(self):
        quota = SharedQuota("tokens", 100.0, 60.0, 100.0, 0.0)
        quota.take(100.0, 1.0, 1.0)
        quota.give_back(70.0, 1.0, 5.0)
        assert quota.ready_at(70.0, 5.0) == 5.0
        assert quota.ready_at(71.0, 5.0) == 61.0

    def test_what_has_left_the_window_frees_nothing_of_what_came_later(self):
        quota = SharedQuota("tokens", 100.0, 60.0, 100.0, 0.0)
        quota.take(40.0, 0.0, 0.0)
        quota.take(100.0, 61.0, 61.0)
        assert quota.ready_at(0.0, 61.5) == 61.5  # forgets what is over
        quota.give_back(40.0, 0.0, 62.0)
        assert quota.ready_at(1.0, 62.0) == 121.0

    def test_what_a_member_dates_before_it_was_taken_comes_back_too(self):
        """A member knows when it asked; a slow store takes for it a moment later."""
        quota = SharedQuota("requests", 20.0, 86_400.0, 20.0, 0.0)
        quota.take(1.0, 10.06, 10.06)
        quota.give_back(1.0, 10.0, 10.1)
        assert quota.ready_at(20.0, 10.1) == 10.1

    def test_what_was_used_beyond_the_reservation_counts_from_now(self):
        quota = SharedQuota("tokens", 100.0, 60.0, 100.0, 0.0)
        quota.take(50.0, 0.0, 0.0)
        quota.give_back(-50.0, 0.0, 30.0)
        assert quota.ready_at(1.0, 30.0) == 60.0
        assert quota.ready_at(51.0, 60.0) == 90.0

    def test_a_limit_that_is_put_otherwise_knows_what_was_spent(self):
        before, after = SharedQuota("tokens", 100.0, 60.0, 100.0, 0.0), SharedQuota("tokens", 80.0, 60.0, 80.0, 0.0)
        before.take(70.0, 0.0, 0.0)
        after.go_on_from(before)
        assert after.ready_at(10.0, 1.0) == 1.0
        assert after.ready_at(11.0, 1.0) == 60.0

    def test_it_is_the_same_after_being_put_away(self):
        quota = SharedQuota("tokens", 600.0, 60.0, 60.0, 0.0)
        quota.take(33.3, 0.1, 0.2)
        again = SharedQuota.from_state(quota.to_state())
        assert again.to_state() == quota.to_state()
        assert again.ready_at(60.0, 0.3) == quota.ready_at(60.0, 0.3)


@pytest.mark.no_cover
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(5.0, 60.0, 5.0), (600.0, 60.0, 60.0), (1000.0, 1.0, 100.0)]))
def test_no_window_ever_lets_more_start(seed, limit):
    """Calls of all sizes, started up to a while after they were taken for, some refunded: as a coordinator does."""
    dice = random.Random(seed)
    amount, window, burst = limit
    quota, now, started = SharedQuota("tokens", *limit, 1000.0), 1000.0, []
    for _ in range(400):
        now += dice.expovariate(20 / window)
        cost = dice.choice([1.0, dice.uniform(0.0, burst), dice.uniform(0.0, amount)])
        ready_at = quota.ready_at(cost, now)
        assert ready_at >= now
        if ready_at > now and dice.random() < 0.5:
            now = ready_at
        if quota.ready_at(cost, now) <= now:
            starts_at = now + dice.choice([0.0, dice.uniform(0.0, window / 4)])
            quota.take(cost, now, starts_at)
            used = cost if dice.random() < 0.7 else cost * dice.random()
            if used < cost and dice.random() < 0.5:
                quota.give_back(cost - used, now, now)
            started.append((starts_at, used))
        assert len(quota.spent) <= 2 * SLICES
    assert fullest(started, window) <= amount * (1 + 1e-9), f"seed {seed}"
