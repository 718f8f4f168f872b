"""The pace between two refusals: searches, the curve around a measured quota, and when it looks for more."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headgate.controllers.adaptive.pace_curve import (
    BUDGET,
    GUESSED,
    LATER,
    LOG_SHARE,
    LONGEST_PERIOD,
    MOST_SLOW,
    PENALTY_BUDGET,
    SEARCH_BUDGET,
    SETTLED_LATER,
    SHORTEST_PERIOD,
    SLOW_SEARCH_BUDGET,
    PaceCurve,
    doubled,
    search_doubling,
)

pytestmark = pytest.mark.no_cover


def measured(quota=50.0, times=1, **known):
    """A curve that measured the same quota a few times."""
    curve = PaceCurve(quota=quota)
    for name, value in known.items():
        setattr(curve, name, value)
    for _ in range(times):
        curve.learn(quota, rough=False)
    return curve


# -- searching ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pace", "seconds"), [(10.0, 0.25), (80.0, 0.25), (160.0, 0.5), (800.0, 2.5), (1.0, 1.0), (0.1, 10.0)]
)
def test_a_search_doubles_in_a_quarter_of_a_second_slower_when_fast_and_not_before_a_call_was_made(pace, seconds):
    assert search_doubling(pace) == pytest.approx(seconds)


@pytest.mark.parametrize(("latency", "seconds"), [(0.0005, 0.25), (0.005, 1.25), (0.01, 2.5), (3.0, 2.5)])
def test_a_fast_search_goes_on_faster_where_answers_are_quick(latency, seconds):
    assert search_doubling(800.0, latency) == pytest.approx(seconds)


def test_a_slow_search_grows_by_half_a_doubling_with_each_call():
    assert doubled(0.1, 12.0, search_doubling(0.1), sent_lately=0, at_least=2.0) == pytest.approx(0.1 * 2**0.5)
    assert doubled(2.0, 0.6, search_doubling(2.0), sent_lately=9, at_least=2.0) == pytest.approx(4.0)


def test_a_search_never_goes_beyond_twice_what_is_really_sent():
    assert doubled(10.0, 0.4, 0.4, sent_lately=100, at_least=4.0) == pytest.approx(20.0)
    assert doubled(10.0, 0.4, 0.4, sent_lately=6, at_least=4.0) == pytest.approx(12.0)
    assert doubled(10.0, 0.4, 0.4, sent_lately=0, at_least=4.0) == 10.0


def test_a_quota_that_grew_is_searched_slower_where_calls_are_rare_or_refusals_punished():
    assert measured(50.0).seek_doubling(1.0) == 0.65
    assert measured(2.0).seek_doubling(1.0) == 6.0
    assert 1.0 < measured(50.0, penalty=0.5).seek_doubling(1.0) < 10.0
    assert measured(50.0, penalty=30.0).seek_doubling(1.0) == 10.0


@pytest.mark.parametrize(("sought", "seconds"), [(10.0, 60.0), (90.0, 30.0), (150.0, 30.0)])
def test_a_window_that_grew_is_searched_over_windows(sought, seconds):
    assert measured(10.0, window=60.0).seek_doubling(sought) == seconds


# -- the curve ------------------------------------------------------------------------------------


def test_before_a_quick_look_the_pace_goes_from_one_percent_below_to_one_above_in_a_period():
    curve = measured()
    assert curve.quick
    assert curve.start() == pytest.approx(49.5)
    assert curve.cruise(0.0, curve.period / 2.0) == pytest.approx(50.0)
    assert curve.cruise(0.0, curve.period / 2.0) == pytest.approx(50.5)


def test_without_a_quick_look_it_goes_from_three_percent_below_and_creeps_on():
    curve = measured(slow_for=4)
    assert not curve.quick
    assert curve.start() == pytest.approx(48.5)
    assert curve.cruise(0.0, curve.period) == pytest.approx(50.0)
    assert curve.cruise(0.0, curve.period) == pytest.approx(51.5)
    assert curve.cruise(0.0, curve.period) == pytest.approx(62.0)


@pytest.mark.parametrize(("window", "below"), [(0.0, 45.0), (60.0, 47.5)])
def test_around_a_guess_it_swings_wider(window, below):
    curve = PaceCurve(quota=50.0)
    curve.window = window
    curve.guess(50.0)
    assert curve.start() == pytest.approx(below)


@pytest.mark.parametrize(
    ("quota", "trip", "rough", "excess"),
    [(50.0, 0.1, False, 0.15), (50.0, 0.1, True, 0.2), (100.0, 0.1, False, 0.1), (1000.0, 0.1, False, 0.03)],
)
def test_a_look_goes_so_far_above_that_about_one_call_is_at_risk(quota, trip, rough, excess):
    curve = measured(quota)
    curve.rough = rough
    assert curve.excess(trip) == pytest.approx(excess)


# -- the period and its budget --------------------------------------------------------------------


def periods(curve, times):
    for _ in range(times):
        curve.learn(curve.quota, rough=False)
        yield curve.period


@pytest.mark.parametrize(("quota", "part"), [(50.0, 1.0), (12.0, 0.7)])
def test_once_measurements_agree_looks_cost_what_the_budget_allows_and_less_where_calls_are_few(quota, part):
    curve = measured(quota, times=20)
    mean = sum(periods(curve, 100)) / 100
    assert curve.cost / (quota * mean) == pytest.approx(part * BUDGET / 1.075, rel=0.02)


def test_where_too_many_were_refused_so_far_the_looks_at_a_slow_quota_wait():
    usual, overspent, fast = measured(1.0, times=20), measured(1.0, times=20), measured(50.0, times=20)
    overspent.overspent = fast.overspent = True
    assert sum(periods(overspent, 100)) == pytest.approx(SETTLED_LATER * sum(periods(usual, 100)), rel=0.02)
    unsettled = measured(1.0, times=20)
    before, unsettled.overspent, unsettled.exact = unsettled.period, True, 0
    unsettled.learn(1.05, False)
    assert unsettled.period == pytest.approx(LATER * before / 1.05, rel=0.3)
    assert sum(periods(fast, 100)) == pytest.approx(sum(periods(measured(50.0, times=20), 100)), rel=0.02)


def test_however_fast_looks_are_seconds_apart():
    assert min(periods(measured(5000.0, times=20), 100)) >= SHORTEST_PERIOD


def test_periods_are_spread_evenly_above_what_is_affordable_and_no_two_are_the_same():
    curve = measured(times=20)
    affordable = curve.cost / (BUDGET * 50.0)
    seen = list(periods(curve, 50))
    assert min(seen) == pytest.approx(0.95 * affordable, rel=0.02)
    assert max(seen) == pytest.approx(1.2 * affordable, rel=0.02)
    assert sum(seen) / 50 == pytest.approx(1.075 * affordable, rel=0.02)
    assert all(abs(later / earlier - 1.0) > 0.05 for earlier, later in pairwise(seen))


def test_a_measurement_that_moved_is_looked_at_again_soon():
    curve = measured(times=20)
    before = curve.period
    curve.learn(60.0, rough=False)
    assert curve.agreed == 0
    assert curve.period <= 1.2 * max(3.0, before / 4.0)


def test_measurements_within_two_percent_are_the_same_number_and_within_fifteen_agree():
    curve = PaceCurve(quota=50.0)
    curve.learn(50.5, rough=False)
    assert (curve.agreed, curve.exact) == (1, 1)
    curve.learn(55.0, rough=False)
    assert (curve.agreed, curve.exact) == (2, 0)


def test_a_quota_of_a_call_in_minutes_is_still_looked_at_every_twenty_minutes():
    assert measured(0.01, times=30).period <= LONGEST_PERIOD


def test_a_refusal_that_shuts_a_window_or_is_punished_makes_the_period_longer():
    assert measured(window=60.0).period >= 0.8 * 60.0
    assert measured(penalty=7.0).period >= 0.8 * 7.0 / PENALTY_BUDGET


def test_a_guess_is_looked_at_as_soon_as_the_search_budget_allows_or_after_a_few_calls():
    curve = measured(times=20)
    curve.guess(50.0)
    assert curve.rough
    assert curve.period == SHORTEST_PERIOD
    curve.guess(0.5)
    assert curve.period == pytest.approx(GUESSED / 0.5)
    curve.cost = 0.25
    curve.guess(0.5)
    assert curve.period == pytest.approx(0.25 / (SLOW_SEARCH_BUDGET * 0.5))
    curve.guess(5.0)
    assert curve.period == pytest.approx(0.25 / (SEARCH_BUDGET * 5.0))


def test_a_log_that_is_known_is_looked_at_less_often():
    plain, log = measured(times=20), measured(times=20)
    log.log, log.log_calls = 10.0, 500.0
    assert sum(periods(plain, 50)) == pytest.approx(LOG_SHARE * sum(periods(log, 50)), rel=0.02)


def test_what_a_look_costs_is_remembered():
    curve = PaceCurve(quota=50.0)
    curve.refused = 5
    curve.count_cost()
    assert curve.cost == pytest.approx(1.5 + 0.3 * 3.5)
    curve.cost, curve.refused = 1.5, 0
    curve.count_cost()
    assert curve.cost == pytest.approx(1.35), "an episode costs one refusal at least"


# -- what a refusal is worth ----------------------------------------------------------------------


def test_a_measurement_leans_a_fifth_of_the_way_to_the_pace_that_was_refused():
    curve = measured()
    assert curve.leaned(50.0, 55.0) == pytest.approx(51.0)
    assert curve.leaned(50.0, 500.0) == pytest.approx(52.0), "a pace far above says no more than one a fifth above"
    assert curve.leaned(50.0, 40.0) == 50.0


def test_it_leans_further_where_little_accrues_in_advance():
    assert measured(slow_for=4).leaned(50.0, 55.0) == pytest.approx(53.0)


def test_a_measurement_without_time_spent_below_the_quota_is_exact():
    assert measured().leaned(49.0, 55.0) == 49.0


def test_looks_that_told_little_are_left_out_for_longer_and_longer():
    curve, left_out = measured(), []
    for _ in range(5):
        curve.looked(surplus=3.0)
        left_out.append(curve.slow_for)
    assert left_out == [2, 4, 8, 16, MOST_SLOW]
    curve.looked(surplus=1.0)
    curve.looked(surplus=3.0)
    assert curve.slow_for == 2, "one that told enough makes up for them"


def test_each_period_without_a_quick_look_counts_until_one_is_tried_again():
    curve = measured(slow_for=2)
    assert not curve.quick
    curve.learn(50.0, rough=False)
    assert curve.quick


def test_a_shared_quota_is_left_by_more_than_a_fifth_at_a_refusal_and_grown_from_there():
    curve = measured()
    curve.sharing.on = True
    assert not curve.quick
    assert curve.start() == pytest.approx(39.0)
    assert 39.0 < curve.cruise(39.0, 1.0) < 40.0


# -- a quota that fell ----------------------------------------------------------------------------


def learned(curve, *quotas):
    """The last period, with the same factor each time."""
    for quota in quotas:
        curve.learn(quota, rough=False)
    return curve


def test_a_quota_that_fell_is_looked_at_more_often_until_it_stays_for_sixteen_measurements():
    usual = learned(PaceCurve(), *[30.0] * 8)._affordable()
    curve = learned(PaceCurve(), *[80.0] * 8, *[30.0] * 8)
    assert curve._affordable() == pytest.approx(usual / 1.6, rel=0.05)
    learned(curve, *[30.0] * 12)
    assert curve._affordable() == pytest.approx(usual, rel=0.05)


def test_a_quota_that_fell_by_a_little_or_came_back_is_looked_at_as_usual():
    little = learned(PaceCurve(), *[80.0] * 8, *[60.0] * 8)
    assert little._affordable() == pytest.approx(learned(PaceCurve(), *[60.0] * 8)._affordable())
    back = learned(PaceCurve(), *[80.0] * 8, *[30.0] * 4, *[75.0] * 4, *[78.0] * 4)
    assert back.fallen_for == 0
