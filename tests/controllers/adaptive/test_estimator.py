"""The measurement between two refusals: what it reads, and what a silence in it is worth."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest

from headgate.controllers.adaptive.estimator import FIRST_DEPTH, QuotaEstimator

pytestmark = pytest.mark.no_cover


def meter_from(at=10.0, *, silence=0.0, excused=False):
    estimator = QuotaEstimator(excused=excused)
    estimator.restart(100, at)
    estimator.silence = silence
    return estimator


def test_between_two_refusals_a_quota_is_what_was_let_in_by_the_seconds():
    assert meter_from().quota(499.5, 20.0, None, False) == pytest.approx(50.0)


def test_fewer_than_four_calls_measure_nothing():
    assert meter_from().quota(3.9, 20.0, None, False) is None
    assert meter_from().quota(4.0, 20.0, None, False) == pytest.approx(0.45)


def test_a_short_silence_is_made_up_for_and_a_long_one_is_lost():
    assert meter_from(silence=0.3).quota(499.5, 20.0, None, False) == pytest.approx(50.0)
    assert meter_from(silence=2.3).quota(399.5, 20.0, None, False) == pytest.approx(50.0), "2 of 10 s brought nothing"


@pytest.mark.parametrize(("known", "quota"), [(50.0, 50.0), (40.0, 45.0), (70.0, 56.25)])
def test_with_a_silence_what_is_known_moves_no_further_than_into_the_interval(known, quota):
    """450 calls in 10 s of which 2 were silent: between 45/s and 56.25/s."""
    assert meter_from(silence=2.0).quota(449.5, 20.0, known, True) == pytest.approx(quota)


def test_without_a_silence_the_measurement_counts_whatever_was_known():
    assert meter_from().quota(449.5, 20.0, 50.0, True) == pytest.approx(45.0)


def test_a_refusal_at_rest_moves_what_is_known_a_third_of_the_way_to_the_low_end():
    assert meter_from(silence=2.0).quota(449.5, 20.0, 50.0, False) == pytest.approx(50.0 - 0.3 * 5.0)


def test_a_measurement_far_below_what_is_known_is_no_accident_of_a_silence():
    assert meter_from(silence=2.3).quota(399.5, 20.0, 100.0, False) == pytest.approx(50.0)


def test_a_fall_that_a_lost_silence_explains_is_excused_once():
    """40 calls in 2 s of which 1 was silent: 20/s to 40/s, and 40/s is known."""
    estimator = meter_from(silence=1.0)
    assert estimator.quota(39.5, 12.0, 40.0, False) == pytest.approx(40.0)
    assert (estimator.depth, estimator.excused) == (0.0, True)
    assert meter_from(silence=1.0, excused=True).quota(39.5, 12.0, 40.0, False) == pytest.approx(40.0 / 1.3)


def test_what_nothing_has_shown_to_be_made_up_for_is_not_caught_up_with():
    estimator = meter_from(silence=1.0)
    assert (estimator.accrued(20.0), estimator.surely_accrued(20.0)) == (pytest.approx(9.3), pytest.approx(9.0))
    estimator.depth = 1.0
    assert estimator.surely_accrued(20.0) == pytest.approx(10.0)


def test_as_much_at_another_pace_is_exact_and_at_the_same_pace_or_with_a_silence_it_is_not():
    estimator = meter_from(10.0)
    assert not estimator.is_exact(40.0, 20.0, pace=4.8), "the first has nothing to agree with"
    assert estimator.is_exact(40.2, 20.0, pace=4.4)
    assert not estimator.is_exact(40.2, 20.0, pace=4.4)
    assert not estimator.is_exact(44.0, 20.0, pace=4.9), "another number"
    estimator.silence = 2.0
    assert not estimator.is_exact(44.0, 20.0, pace=5.5)


def test_as_much_three_times_over_is_exact_whatever_silence_it_holds():
    estimator = meter_from(10.0)
    estimator.silence = 5.0
    assert not estimator.is_exact(40.0, 20.0, pace=8.0)
    assert not estimator.is_exact(40.2, 20.0, pace=7.0)
    assert estimator.is_exact(39.9, 20.0, pace=6.0)


def test_a_silence_is_doubtful_until_something_has_shown_what_it_is_worth():
    estimator = meter_from(10.0)
    assert not estimator.is_doubtful(20.0)
    estimator.silence = 5.0
    assert estimator.is_doubtful(20.0)
    estimator.depth = 0.5
    assert not estimator.is_doubtful(20.0)


def test_a_silence_that_was_all_made_up_for_teaches_how_deep_the_server_is():
    estimator = meter_from(silence=2.0)
    estimator.quota(499.5, 20.0, 50.0, True)
    assert estimator.depth == 2.0
    estimator.silence = 2.0
    assert estimator.lost == 0.0


def test_a_silence_that_was_lost_teaches_that_it_is_shallow():
    estimator = meter_from(silence=2.0)
    estimator.quota(399.5, 20.0, 50.0, True)
    assert estimator.depth == pytest.approx(0.5 * FIRST_DEPTH)


def test_half_of_a_silence_made_up_for_moves_the_depth_half_the_way_there():
    estimator = meter_from(silence=2.0)
    estimator.quota(449.5, 20.0, 50.0, True)
    assert estimator.depth == pytest.approx((FIRST_DEPTH + 1.0) / 2.0)


def test_a_measurement_without_a_silence_says_nothing_about_the_depth():
    estimator = meter_from()
    estimator.quota(449.5, 20.0, 50.0, True)
    assert estimator.depth == FIRST_DEPTH


def test_what_is_forgotten_starts_with_the_next_refusal():
    estimator = meter_from(silence=2.0)
    estimator.forget()
    assert (estimator.started, estimator.silence) == (False, 0.0)
    estimator.restart(7, 30.0)
    assert (estimator.started, estimator.span(35.0), estimator.accrued(35.0)) == (True, 5.0, 5.0)


def test_two_calls_of_one_instant_divide():
    assert meter_from().quota(5.0, 10.0, None, False) > 1e6
    assert meter_from(silence=9.0).quota(5.0, 10.0, 50.0, True) > 0.0


# -- where too little was let in ------------------------------------------------------------------


def test_a_handful_of_calls_tell_what_the_quota_is_at_most():
    assert meter_from().most(2.0, 20.0) == pytest.approx(0.3), "a call more would have been let in"


def test_a_moment_tells_nothing_of_the_kind_nor_does_a_server_that_counts_tokens():
    assert meter_from().most(2.0, 10.9) == inf
    assert QuotaEstimator().most(2.0, 20.0) == inf
    assert meter_from().most(0.0, 20.0) == inf, "nothing gets in any more, whatever the quota is"
    in_tokens = meter_from()
    in_tokens.sizes = SimpleNamespace(tokens_are_counted=True)
    assert in_tokens.counts_tokens
    assert in_tokens.most(2.0, 20.0) == inf


def test_a_look_that_ends_since_nothing_is_left_moves_what_was_known_a_part_of_the_way():
    assert meter_from().after_spent(12.0, 20.0, 1.0, 1.2) == pytest.approx(1.06)
    assert meter_from().after_spent(10.0, 20.0, 1.0, 1.2) == pytest.approx(1.006), "leaning to the pace of the look"
