"""Caps on calls in flight: found by the depth of refusals, tried for more, followed down, let go when wrong."""

from __future__ import annotations

import pytest

from headgate.controllers.adaptive.concurrency import (
    FIRST_SHARE,
    TO_JUDGE,
    TRIAL,
    TRIAL_CALLS,
    TRY_CALLS,
    ConcurrencyCap,
    Refusal,
    Verdict,
)
from headgate.controllers.adaptive.pace_curve import BUDGET
from headgate.lab.experiment import decision_text

pytestmark = pytest.mark.no_cover


def refuse(cap, seq, latest, throughput, cost, now, *, floor=0.0, depth=10**9, trip=0.0, latency=0.0):
    return cap.refused(Refusal(seq, latest, depth, throughput, cost, floor, trip, latency), now)


def capped(at=16):
    cap = ConcurrencyCap()
    for _ in range(4):
        if not cap.on:
            cap.suspect(at, at - 1, 0, 100, 1.0)
    assert cap.cap == at
    cap.trial = 0
    return cap


def misses(cap, times):
    """Refusals at depths that were fine, each of them news."""
    first = cap.cut_seq + 1
    return [refuse(cap, seq, seq, 40.0, 1.5, 2.0) for seq in range(first, first + times)]


def test_two_refusals_at_one_depth_are_a_cap_on_trial():
    cap = ConcurrencyCap()
    assert [cap.suspect(16, 15, 0, 100, 1.0) for _ in range(2)] == [Verdict.NOT_MINE, Verdict.MINE]
    assert (cap.on, cap.cap, cap.trial) == (True, 16, TRIAL)


def test_a_cap_on_trial_may_be_one_less_and_is_none_when_refused_again():
    cap = ConcurrencyCap()
    cap.suspect(16, 15, 0, 100, 1.0)
    cap.suspect(16, 15, 0, 100, 1.0)
    assert refuse(cap, 101, 105, 40.0, 1.5, 2.0) is Verdict.MINE
    assert cap.cap == 15
    assert refuse(cap, 106, 110, 40.0, 1.5, 2.0) is Verdict.NOT_MINE
    assert not cap.on


def test_a_trial_takes_a_period_and_a_number_of_calls():
    cap = ConcurrencyCap()
    cap.suspect(16, 15, 0, 100, 1.0)
    cap.suspect(16, 15, 0, 100, 1.0)
    cap.grow(10.0, 16, 100 + TRIAL_CALLS - 1, 0.1)
    assert (cap.cap, cap.trial) == (16, TRIAL)
    cap.grow(0.1, 16, 100 + TRIAL_CALLS, 0.1)
    assert (cap.cap, cap.trial) == (17, 0)


def test_refusals_at_many_depths_are_a_quota():
    cap = ConcurrencyCap()
    verdicts = [cap.suspect(depth, 40, 0, 100, 1.0) for depth in (16, 30, 9, 16, 22, 16)]
    assert set(verdicts) == {Verdict.NOT_MINE}


def test_a_depth_beyond_which_calls_are_let_in_is_no_cap():
    cap = ConcurrencyCap()
    assert {cap.suspect(16, 21, 0, 100, 1.0) for _ in range(6)} == {Verdict.NOT_MINE}


def test_a_probe_that_is_refused_with_far_fewer_in_flight_speaks_against_a_cap():
    """A log is full whatever is in flight; searches at one pace are refused at one depth, as answers take as long."""
    quota, cap = ConcurrencyCap(), ConcurrencyCap()
    for one, probed_at in ((quota, 40), (cap, 90)):
        one.suspect(100, 99, 0, 100, 1.0)
        one.refuse_shallower(probed_at)
        one.suspect(100, 99, 0, 300, 5.0)
    assert (quota.on, cap.on) == (False, True)


def test_a_quota_measured_to_the_digit_rules_a_cap_out():
    cap = ConcurrencyCap()
    assert {cap.suspect(16, 15, 1, 100, 1.0) for _ in range(6)} == {Verdict.NOT_MINE}


@pytest.mark.parametrize("depth", [0, 1])
def test_equal_depths_that_happen_to_every_quota_are_no_cap(depth):
    cap = ConcurrencyCap()
    assert {cap.suspect(depth, depth, 0, 100, 1.0) for _ in range(6)} == {Verdict.NOT_MINE}


@pytest.mark.parametrize(("deepest", "verdict"), [(1, Verdict.MINE), (2, Verdict.MINE), (3, Verdict.NOT_MINE)])
def test_a_cap_of_two_is_one_only_if_nothing_deeper_is_let_in(deepest, verdict):
    cap = ConcurrencyCap()
    cap.suspect(2, deepest, 0, 100, 1.0)
    assert cap.suspect(2, deepest, 0, 120, 2.0) is verdict


# -- more -----------------------------------------------------------------------------------------


def grown(cap, seconds, calls=0, trip=0.01):
    """The cap after so many seconds at it, in which so many calls left."""
    cap.grow(seconds, cap.cap, cap.cut_seq + calls, trip)
    return cap.cap


def test_tries_double_while_they_succeed():
    cap = capped()
    assert [grown(cap, 3.1), *(grown(cap, 0.6, 2 * TRY_CALLS) for _ in range(3))] == [17, 19, 23, 31]


def test_a_try_succeeds_after_some_calls_and_not_before():
    cap = capped()
    assert [grown(cap, 3.1), grown(cap, 0.6, TRY_CALLS - 1), grown(cap, 0.1, 2 * TRY_CALLS)] == [17, 17, 19]


def test_a_first_try_takes_longer_where_answers_under_way_hide_that_the_server_is_full():
    cap = capped()
    grown(cap, 3.1)
    assert grown(cap, 1.0, 20, trip=0.1) == 17
    assert grown(cap, 9.0, 8 * TRY_CALLS, trip=0.1) == 19


def test_a_try_goes_on_for_a_period_where_the_cap_refused_what_was_fine():
    cap = capped()
    misses(cap, 1)
    assert [grown(cap, 3.1), grown(cap, 2.9, 100), grown(cap, 0.2, 100)] == [16, 16, 18]


def test_the_depth_at_which_a_try_is_refused_tells_the_cap():
    cap = capped()
    grown(cap, 3.1)
    for _ in range(3):
        grown(cap, 0.6, 2 * TRY_CALLS)
    assert (cap.fine, cap.cap) == (23, 31)
    refuse(cap, cap.cut_seq + 5, 500, 40.0, 1.5, 2.0, depth=28, trip=0.01)
    assert (cap.fine, cap.cap, cap.too_deep) == (27, 27, 0)


def test_the_call_that_leaves_as_a_try_begins_may_be_refused_in_place_of_the_next():
    cap = capped()
    cap.grow(3.1, 16, 200, 0.01)
    assert cap.cap == 17
    refuse(cap, 200, 201, 40.0, 1.5, 2.0, depth=15)
    assert cap.cap == 16


def test_a_silence_costs_less_where_answers_take_long():
    periods = []
    for latency in (0.05, 5.0):
        cap = capped()
        grown(cap, 3.1)
        refuse(cap, cap.cut_seq + 1, 500, 4000.0, 1.5, 2.0, floor=1.0, latency=latency)
        periods.append(cap.period)
    assert periods[0] > 2.0 * periods[1]


def test_nothing_more_is_tried_before_the_period_is_over_or_while_the_cap_is_not_used():
    cap = capped()
    assert grown(cap, 2.9) == 16
    cap.grow(60.0, 9, 100, 0.1)
    assert cap.cap == 16


def test_a_try_that_is_refused_goes_back_and_the_next_comes_later():
    cap = capped()
    assert grown(cap, 3.1) == 17
    assert refuse(cap, cap.cut_seq + 1, 500, 40.0, 1.5, 2.0) is Verdict.MINE
    assert (cap.cap, cap.period) == (16, pytest.approx(8.203125))
    assert grown(cap, 8.1) == 16
    assert grown(cap, 0.2) == 17


def test_tries_that_fail_become_as_rare_as_the_budget_of_refusals_asks_for_and_no_rarer():
    cap = capped()
    for _ in range(20):
        grown(cap, cap.period + 0.1)
        refuse(cap, cap.cut_seq + 1, cap.cut_seq + 1, 40.0, 1.5, 2.0)
    assert cap.period == pytest.approx(1.5 / (BUDGET * 40.0))


def test_where_calls_are_few_the_first_try_that_fails_is_paid_for_at_once():
    cap = capped()
    grown(cap, 3.1)
    refuse(cap, cap.cut_seq + 1, cap.cut_seq + 1, 4.0, 1.5, 2.0)
    assert cap.period == pytest.approx(FIRST_SHARE * 1.5 / (BUDGET * 4.0))


# -- less -----------------------------------------------------------------------------------------


def test_a_cap_that_fell_is_followed_by_one_and_then_ever_faster():
    cap, seen = capped(40), []
    for _ in range(3):
        misses(cap, 1)
        seen.append(cap.cap)
    assert seen == [39, 35, 28]


def test_a_cap_that_fell_is_found_between_what_is_fine_and_what_was_refused():
    cap = capped(40)
    misses(cap, 2)
    assert (cap.fine, cap.too_deep) == (35, 39)
    assert [grown(cap, 0.6, 2 * TRY_CALLS) for _ in range(3)] == [37, 37, 37]
    assert (cap.fine, cap.too_deep) == (37, 0)


def test_refusals_long_after_each_other_are_of_others_who_share_it():
    cap = capped(40)
    misses(cap, 1)
    refuse(cap, cap.cut_seq + 50, cap.cut_seq + 50, 40.0, 1.5, 2.0)
    assert (cap.fine, cap.too_deep) == (35, 0)


def test_what_grew_far_and_refuses_it_at_once_was_a_bucket():
    cap = capped()
    grown(cap, 3.1)
    for _ in range(3):
        grown(cap, 0.6, 2 * TRY_CALLS)
    refuse(cap, cap.cut_seq + 5, cap.cut_seq + 5, 40.0, 1.5, 2.0, depth=28)
    assert misses(cap, 2) == [Verdict.MINE, Verdict.LET_GO]


def test_a_trial_refused_far_below_the_cap_is_over():
    cap = ConcurrencyCap()
    cap.suspect(40, 39, 0, 100, 1.0)
    cap.suspect(40, 39, 0, 100, 1.0)
    assert refuse(cap, 101, 105, 40.0, 1.5, 2.0, depth=20) is Verdict.NOT_MINE


def test_refusals_of_calls_sent_before_the_last_cut_change_nothing():
    cap = capped()
    assert refuse(cap, 100, 100, 40.0, 1.5, 2.0) is Verdict.MINE
    assert (cap.cap, cap.misses) == (16, 0)


def test_a_cap_refused_again_and_again_where_it_was_fine_is_let_go_and_rested():
    cap = capped()
    assert misses(cap, 5) == [Verdict.MINE] * 4 + [Verdict.LET_GO]
    assert not cap.on
    assert {cap.suspect(16, 15, 0, 200, 61.9) for _ in range(6)} == {Verdict.NOT_MINE}
    assert [cap.suspect(16, 15, 0, 200, 62.1) for _ in range(2)][-1] is Verdict.MINE


def test_the_rest_doubles_with_each_mistake():
    cap = capped()
    misses(cap, 5)
    assert cap.rest_until == 2.0 + 60.0
    for _ in range(2):
        cap.suspect(16, 15, 0, cap.cut_seq, 100.0)
    cap.trial = 0
    misses(cap, 5)
    assert cap.rest_until == 2.0 + 120.0


def test_a_try_that_succeeds_forgives_all_misses_and_one_that_is_refused_forgives_one():
    cap = capped()
    misses(cap, 2)
    grown(cap, 3.1)
    refuse(cap, cap.cut_seq + 1, cap.cut_seq + 1, 40.0, 1.5, 2.0)
    assert cap.misses == 1
    grown(cap, cap.period + 0.1)
    grown(cap, cap.period + 0.1)
    assert cap.misses == 0


def test_what_shrinks_below_a_quarter_of_what_was_found_was_no_cap():
    cap = capped()
    cap.cap = cap.fine = 4
    assert misses(cap, 1) == [Verdict.LET_GO]


def test_a_cap_of_one_that_refuses_was_no_cap():
    cap = capped(4)
    assert misses(cap, 4)[-1] is Verdict.LET_GO


# -- in a world -----------------------------------------------------------------------------------


def test_a_cap_with_slow_answers_is_kept_though_every_try_for_more_is_refused(lab):
    for seed in range(4):
        told = []
        world = lab.World(lab.AtOnce(6), service=1.8, seed=seed)
        world.controller.listen(
            lambda now, event, told=told: told.append(decision_text(event)) if event.kind == "mode" else None
        )
        world.run(120)
        tally = world.run(900)
        assert told == ["always refused with 6 in flight: a concurrency cap, staying below it"], f"seed {seed}"
        assert tally.served >= 0.96 * 6 / (1.8 + 0.04) * 780, f"seed {seed}"


def test_a_cap_that_falls_to_half_and_rises_to_triple_is_followed(lab):
    server = lab.AtOnce(16)
    world = lab.World(server, service=0.4)
    world.run(60)
    server.amount = 8
    world.run(80)
    assert 7 <= world.controller.cap <= 9
    server.amount = 24
    world.run(260)
    assert 22 <= world.controller.cap <= 26


def refused_once_in_thirty(trying):
    """What is made of a cap of 9 that is refused once in thirty calls, each time after the last change."""
    cap, verdicts = capped(9), []
    for seq in range(130, 3000, 30):
        cap.cap, cap.fine, cap.misses = 10 if trying else 9, 9, 0
        verdicts.append(refuse(cap, seq, seq, 20.0, 1.5, float(seq)))
        if not cap.on:
            break
    return verdicts


def test_a_cap_that_goes_on_being_refused_where_it_was_fine_was_none():
    """Answers that always take equally long make a quota look like a cap; held as one, it refuses for ever."""
    verdicts = refused_once_in_thirty(trying=False)
    assert verdicts[-1] is Verdict.LET_GO
    assert len(verdicts) == TO_JUDGE


def test_refusals_of_tries_never_let_a_cap_go():
    assert set(refused_once_in_thirty(trying=True)) == {Verdict.MINE}


def test_a_cap_of_two_is_found_by_the_first_volley_and_the_refusal_after_it(lab):
    for seed in range(4):
        world = lab.World(lab.AtOnce(2), service=0.3, seed=seed)
        world.run(12)
        cap = world.controller.models.concurrency
        assert (cap.on, cap.found) == (True, 2), f"seed {seed}"


def test_a_cap_that_doubles_is_used_soon(lab):
    server = lab.AtOnce(8)
    world = lab.World(server, service=0.5)
    world.run(120)
    assert world.controller.models.concurrency.cap in (8, 9)
    server.amount = 16
    world.run(180)
    assert world.controller.models.concurrency.fine >= 14


def test_a_deep_cap_is_less_than_what_was_seen_by_the_answers_under_way_and_a_shallow_one_is_not():
    deep, shallow = capped(74), capped(4)
    deep.allow_for(5.0)
    shallow.allow_for(5.0)
    assert (deep.cap, deep.found, shallow.cap) == (70, 70, 4)
