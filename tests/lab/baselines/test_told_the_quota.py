"""The two that are told the quota: a fixed pace at half of it, and the cookbook."""

import pytest

from headgate.lab.baselines import BASELINES


def controllers(name, setup):
    [(controllers, _)] = BASELINES[name].make(setup)
    return controllers


def test_half_of_the_quota_is_shared_out_by_process_and_key(setup):
    pace, _ = controllers("fixed-half", setup(keys=2, processes=2))
    assert pace.on_send(0.0) == 0.0
    assert pace.on_send(0.0) == pytest.approx(1 / (40.0 / 2 / 2 / 2))


def test_a_fixed_pace_makes_up_for_two_slots_and_no_more(setup):
    [pace] = controllers("fixed-half", setup())
    assert pace.on_send(0.0) == 0.0
    assert [pace.on_send(9.0) for _ in range(4)] == [0.0, 0.0, 0.0, pytest.approx(0.05)]


def test_the_cookbook_spends_the_quota_evenly(setup):
    [cookbook] = controllers("cookbook", setup())
    assert cookbook.on_send(0.0) == 0.0
    assert cookbook.on_send(0.0) == pytest.approx(1 / 40)


def test_the_cookbook_rests_15_s_after_a_429_and_then_sends_what_it_saved(setup):
    [cookbook] = controllers("cookbook", setup())
    cookbook.on_response(1.0, 429, 0.1, None)
    assert cookbook.on_send(1.0) == 15.0
    assert sum(cookbook.on_send(16.0) == 0.0 for _ in range(1000)) == 1 + 16 * 40


def test_the_cookbook_never_looks_more_than_a_thousand_times_a_second(setup):
    [cookbook] = controllers("cookbook", setup())
    assert cookbook.on_send(0.0) == 0.0
    assert cookbook.on_send(1 / 40 - 1e-5) == 0.001
