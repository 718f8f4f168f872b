"""Caps on calls in flight: found by the depth of refusals, tried for more, followed down, let go when wrong."""

from __future__ import annotations

import pytest

from headgate.core.control.adaptive.concurrency import KEPT, TO_JUDGE, ConcurrencyCap, Verdict
from headgate.core.control.adaptive.growth import BUDGET


def capped(at=16):
    cap = ConcurrencyCap()
    for _ in range(4):
        if not cap.on:
            cap.suspect(at, at - 1, 0, 100, 1.0)
    assert cap.cap == at
    return cap


def misses(cap, times):
    """Refusals at depths that were fine, each of them news."""
    first = cap.cut_seq + 1
    return [cap.refused(seq, seq, 40.0, 1.5, 2.0) for seq in range(first, first + times)]


def test_three_refusals_at_one_depth_are_a_cap():
    cap = ConcurrencyCap()
    assert [cap.suspect(16, 15, 0, 100, 1.0) for _ in range(3)] == [Verdict.NOT_MINE, Verdict.NOT_MINE, Verdict.MINE]
    assert (cap.on, cap.cap) == (True, 16)


def test_refusals_at_many_depths_are_a_quota():
    cap = ConcurrencyCap()
    verdicts = [cap.suspect(depth, 40, 0, 100, 1.0) for depth in (16, 30, 9, 16, 22, 16)]
    assert set(verdicts) == {Verdict.NOT_MINE}


def test_a_depth_beyond_which_calls_are_let_in_is_no_cap():
    cap = ConcurrencyCap()
    assert {cap.suspect(16, 20, 0, 100, 1.0) for _ in range(6)} == {Verdict.NOT_MINE}


def test_a_quota_measured_to_the_digit_rules_a_cap_out():
    cap = ConcurrencyCap()
    assert {cap.suspect(16, 15, 1, 100, 1.0) for _ in range(6)} == {Verdict.NOT_MINE}


def with_let_in(by_depth):
    cap = ConcurrencyCap()
    for depth, calls in by_depth.items():
        for _ in range(calls):
            cap.served(depth)
    return cap


@pytest.mark.parametrize(
    ("let_in", "verdict"),
    [
        ({0: 20, 1: 20}, Verdict.MINE),
        ({0: 20, 1: 20, 2: 2}, Verdict.MINE),
        ({0: 20, 1: 20, 2: 6}, Verdict.NOT_MINE),  # a quota refuses at any depth and lets in at any
        ({0: 20, 1: 20, 9: 6}, Verdict.NOT_MINE),
        ({0: 5, 1: 5}, Verdict.NOT_MINE),  # too little to tell
    ],
)
def test_two_at_a_time_is_a_cap_when_next_to_none_was_let_in_as_deep(let_in, verdict):
    cap = with_let_in(let_in)
    assert [cap.suspect(2, 9, 0, 100, 1.0) for _ in range(4)] == [Verdict.NOT_MINE] * 3 + [verdict]


def test_refusals_with_nothing_in_flight_are_no_cap():
    cap = with_let_in({0: 40})
    assert {cap.suspect(0, 0, 0, 100, 1.0) for _ in range(6)} == {Verdict.NOT_MINE}


def test_what_was_let_in_long_ago_is_forgotten_by_halves():
    cap = with_let_in({0: 1000})
    assert sum(cap.let_in) <= 128.0


# -- more -----------------------------------------------------------------------------------------


def grown(cap, seconds):
    cap.grow(seconds, cap.cap, cap.cut_seq, 0.1)
    return cap.cap


def test_tries_double_while_they_succeed():
    cap = capped()
    assert [grown(cap, 3.1), grown(cap, 3.1), grown(cap, 0.6), grown(cap, 0.6)] == [17, 19, 23, 31]


def test_nothing_more_is_tried_before_the_period_is_over_or_while_the_cap_is_not_used():
    cap = capped()
    assert grown(cap, 2.9) == 16
    cap.grow(60.0, 9, 100, 0.1)
    assert cap.cap == 16


def test_a_try_that_is_refused_goes_back_and_the_next_comes_later():
    cap = capped()
    assert grown(cap, 3.1) == 17
    assert cap.refused(cap.cut_seq + 1, 500, 40.0, 1.5, 2.0) is Verdict.MINE
    assert (cap.cap, cap.period) == (16, pytest.approx(4.8))
    assert grown(cap, 4.7) == 16
    assert grown(cap, 0.2) == 17


def test_tries_that_fail_become_as_rare_as_the_budget_of_refusals_asks_for_and_no_rarer():
    cap = capped()
    for _ in range(20):
        grown(cap, cap.period + 0.1)
        cap.refused(cap.cut_seq + 1, cap.cut_seq + 1, 40.0, 1.5, 2.0)
    assert cap.period == pytest.approx(1.5 / (BUDGET * 40.0))


# -- less -----------------------------------------------------------------------------------------


def test_a_cap_that_fell_is_followed_by_one_and_then_by_quarters():
    cap, seen = capped(40), []
    for _ in range(4):
        misses(cap, 1)
        seen.append(cap.cap)
    assert seen == [39, 29, 21, 15]


def test_refusals_of_calls_sent_before_the_last_cut_change_nothing():
    cap = capped()
    assert cap.refused(100, 100, 40.0, 1.5, 2.0) is Verdict.MINE
    assert (cap.cap, cap.misses) == (16, 0)


def test_a_cap_refused_five_times_where_it_was_fine_is_let_go_and_rested():
    cap = capped()
    assert misses(cap, 5) == [Verdict.MINE] * 4 + [Verdict.LET_GO]
    assert not cap.on
    assert {cap.suspect(16, 15, 0, 200, 61.9) for _ in range(6)} == {Verdict.NOT_MINE}
    assert [cap.suspect(16, 15, 0, 200, 62.1) for _ in range(3)][-1] is Verdict.MINE


def test_the_rest_doubles_with_each_mistake():
    cap = capped()
    misses(cap, 5)
    assert cap.rest_until == 2.0 + 60.0
    for _ in range(3):
        cap.suspect(16, 15, 0, cap.cut_seq, 100.0)
    misses(cap, 5)
    assert cap.rest_until == 2.0 + 120.0


def test_a_try_that_succeeds_forgives_all_misses_and_one_that_is_refused_forgives_one():
    cap = capped()
    misses(cap, 2)
    grown(cap, 3.1)
    cap.refused(cap.cut_seq + 1, cap.cut_seq + 1, 40.0, 1.5, 2.0)
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


def test_a_cap_of_two_at_a_time_is_found(lab):
    world = lab.World(lab.AtOnce(2), service=0.4)
    world.run(120)
    tally = world.run(240)
    assert world.controller.cap == 2
    assert world.controller.why() == "keeping to 2 calls at a time"
    assert tally.served >= 0.96 * 2 / (0.4 + 0.04) * 120
    assert tally.refused_share <= 0.02


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


def test_a_cap_that_goes_on_being_refused_was_none():
    """Answers that always take equally long make a quota look like a cap; held as one, it refuses for ever."""
    room = ConcurrencyCap()
    for number in range(KEPT):
        room.suspect(9, 9, 0, number, 0.0)
    assert room.on
    verdicts = []
    for seq in range(30, 2000, 30):  # one refused in thirty, each after the last change
        room.cap, room.fine = 10, 9
        verdicts.append(room.refused(seq, seq, 20.0, 1.5, float(seq)))
        if not room.on:
            break
    assert verdicts[-1] is Verdict.LET_GO
    assert len(verdicts) == TO_JUDGE
