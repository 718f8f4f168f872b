"""Windows that turn at fixed times, blocks that teach, and penalties that look like windows."""

from __future__ import annotations

import pytest

from headgate.controllers.adaptive.call_history import CallHistory
from headgate.controllers.adaptive.pace_curve import PaceCurve
from headgate.controllers.adaptive.window import Block, WindowPhase, usual_length

pytestmark = pytest.mark.no_cover

MANY_A_SECOND = 1e6
"""A quota of which so many calls are lost by being late that turns are probed for as often as may be."""


def turns_at(*instants, error=0.5):
    turns = WindowPhase()
    for at in instants:
        turns.saw(at, error)
    return turns


def test_two_equal_distances_make_a_lattice():
    assert turns_at(0.0, 60.0).sure == 0
    turns = turns_at(0.0, 60.0, 120.0)
    assert (turns.sure, turns.spacing) == (1, 60.0)


def test_turns_in_which_nothing_was_refused_are_not_seen_and_do_not_break_the_lattice():
    turns = turns_at(0.0, 67.0, 268.3)
    assert turns.sure == 1
    assert turns.spacing == pytest.approx(67.1), "three of them tell the spacing three times as well"
    assert turns.spacing_error == pytest.approx(1.0 / 3.0)


@pytest.mark.parametrize(
    ("low", "high", "length"), [(8.9, 10.6, 10.0), (10.0, 14.0, 0.0), (9.0, 16.0, 0.0), (95.0, 130.0, 120.0)]
)
def test_a_length_is_taken_for_a_usual_one_if_it_is_the_only_one_that_it_can_be(low, high, length):
    assert usual_length(low, high) == length


def test_turns_about_a_usual_length_apart_are_that_length_apart():
    turns = turns_at(0.0, 60.4)
    assert (turns.spacing, turns.spacing_error) == (60.0, 1.0)
    assert turns_at(0.0, 60.4, 120.7).sure == 1


def test_a_distance_that_does_not_fit_begins_anew():
    turns = turns_at(0.0, 60.0, 120.0, 155.0)
    assert (turns.sure, turns.spacing) == (0, 35.0)


def test_two_turns_of_one_instant_tell_no_spacing():
    assert turns_at(0.0, 0.0).spacing == 0.0


def test_one_waits_for_the_next_turn_instead_of_probing_for_it():
    turns = turns_at(0.0, 60.0, 120.0)
    assert turns.hold(172.0, 172.0, 0.2, MANY_A_SECOND) == pytest.approx(180.0 - 1.8 - 172.0), (
        "until 3 % of the spacing before it"
    )


def test_of_a_turn_that_is_far_away_a_good_half_is_waited_for_without_a_probe():
    assert turns_at(0.0, 60.0, 120.0).hold(155.0, 155.0, 0.2, MANY_A_SECOND) == pytest.approx(0.6 * (25.0 - 1.8))


def test_halfway_between_two_turns_a_probe_asks_whether_only_every_second_one_was_seen():
    turns = turns_at(0.0, 60.0, 120.0)
    assert turns.hold(130.0, 130.0, 0.2, MANY_A_SECOND) == pytest.approx(0.6 * (20.0 + 1.8))
    assert turns.hold(150.0, 150.0, 0.2, MANY_A_SECOND) == pytest.approx(1.8)
    assert turns.hold(152.0, 152.0, 0.2, MANY_A_SECOND) > 8.0, "none: wait for the whole one"


def test_a_turn_that_is_due_is_probed_for_at_once_and_one_that_is_late_soon():
    turns = turns_at(0.0, 60.0, 120.0)
    assert turns.hold(179.0, 179.0, 0.2, MANY_A_SECOND) == 0.2
    assert turns.hold(180.5, 180.5, 0.2, MANY_A_SECOND) == 0.2
    assert turns.hold(181.5, 181.5, 0.2, MANY_A_SECOND) == pytest.approx(0.525)
    assert turns.hold(183.0, 179.9, 0.2, MANY_A_SECOND) == pytest.approx(1.05), "it has turned since the call left"


def test_where_few_calls_are_lost_by_being_late_a_turn_is_probed_for_less_often():
    turns = turns_at(0.0, 60.0, 120.0)
    assert turns.hold(180.5, 180.5, 0.2, 100.0) == pytest.approx((16.0 * 2.5 / 100.0) ** 0.5), "2.5 s in doubt"
    assert turns.hold(180.5, 180.5, 0.2, 1.0) == pytest.approx(2.5), "no longer than that"


def test_a_turn_that_did_not_come_is_given_up_for_the_next_one():
    assert turns_at(0.0, 60.0, 120.0).hold(184.0, 184.0, 0.2, MANY_A_SECOND) > 8.0


def test_a_turn_that_was_seen_more_sharply_before_is_kept_where_turns_are_known():
    turns = turns_at(0.0, 60.0, 120.0)
    turns.known = True
    turns.saw(182.0, 3.0)
    assert (turns.last_at, turns.last_error) == (180.0, 0.5)


def test_one_distance_that_is_nearly_a_usual_length_makes_it_likely():
    assert turns_at(0.0, 60.4).is_likely
    assert not turns_at(0.0, 61.0, error=4.0).is_likely, "it may be by chance"
    assert not turns_at(0.0, 43.0).is_likely


def certain(at=120.0, error=0.5, spacing=60.0):
    turns = WindowPhase()
    turns.know(at, error, spacing)
    return turns


def test_a_turn_that_is_certain_is_waited_for_however_far_away_and_until_it_is_over():
    assert certain().hold(130.0, 130.0, 0.2, MANY_A_SECOND) == pytest.approx(50.5)
    assert certain(error=20.0).hold(122.0, 110.0, 0.2, MANY_A_SECOND) == 60.0, "no longer than it is"
    assert certain().hold(181.0, 179.9, 0.2, MANY_A_SECOND) == pytest.approx(0.35), "it has just turned"


def test_the_last_turn_before_an_instant_may_lie_before_the_one_that_was_seen():
    assert certain().turn_before(119.0) == (60.0, 0.5)
    assert certain().turn_before(185.0) == (180.0, 0.5)


def steadily(rate, *, until):
    history = CallHistory()
    for tick in range(int(until * 10) + 1):
        history.sends.mark(tick / 10, int(rate * tick / 10))
    return history


@pytest.mark.parametrize(
    ("at", "known", "calls"),
    [(150.0, 2.0, 62.6), (150.0, 0.5, 59.4), (150.0, 1.0, 60), (120.2, 1.0, 0), (179.8, 1.0, 0)],
    ids=["fell", "grew", "as known", "just after a turn", "just before one"],
)
def test_a_window_holds_what_was_let_in_since_its_last_turn(at, known, calls):
    """2 calls a second, refused 30 s after a turn: 60 of them, give or take the one at the turn."""
    quota = certain().quota(int(2 * at), at, steadily(2.0, until=at), known)
    assert quota * 60.0 == pytest.approx(calls, abs=0.1)


@pytest.mark.parametrize(("quota", "fits"), [(1.0, True), (1.15, True), (1.3, False)])
def test_a_refusal_is_due_where_about_all_was_let_in_since_the_last_turn(quota, fits):
    """60 calls since the turn."""
    assert certain().fits(300, 150.0, steadily(2.0, until=150.0), quota) is fits
    assert not WindowPhase().fits(300, 150.0, steadily(2.0, until=150.0), quota)


def test_nothing_is_counted_where_turns_are_not_known():
    assert WindowPhase().quota(300, 150.0, steadily(2.0, until=150.0), 1.0) == 0.0


@pytest.mark.parametrize(("quota", "more"), [(1.1, False), (0.95, True)])
def test_a_window_holds_more_if_more_was_let_in_since_its_last_turn(quota, more):
    curve = PaceCurve(quota=quota, window=60.0)
    assert certain().holds_more(curve, steadily(2.0, until=150.0), 150.0) is more
    assert not WindowPhase().holds_more(curve, steadily(2.0, until=150.0), 150.0)


# -- holding --------------------------------------------------------------------------------------


def blocked(seq, at, *, window=0.0, told=False):
    block = Block()
    block.enter(seq, at, told, at + 0.05, window)
    return block


@pytest.mark.parametrize(("seq", "hold"), [(5, 1.0), (39, 1.0), (40, 0.2), (500, 0.2)])
def test_the_first_hold_is_a_second_when_refused_after_a_handful_of_calls(seq, hold):
    assert blocked(seq, 10.0).hold(10.05, 0.05, PaceCurve(), 0.0) == hold


@pytest.mark.parametrize(("now", "hold"), [(12.0, 1.2), (14.0, 2.4), (40.0, 8.0)])
def test_holds_grow_with_the_block_and_are_never_longer_than_eight_seconds(now, hold):
    assert blocked(500, 10.0).hold(now, 0.05, PaceCurve(), 0.0) == pytest.approx(hold)


@pytest.mark.parametrize(("calls", "hold"), [(60, 30.0), (500, 18.8), (5000, 8.0)])
def test_of_a_slow_quota_they_grow_on_as_it_is_worth_to_lose_calls_if_fewer_are_refused(calls, hold):
    assert blocked(calls, 10.0).hold(110.0, 0.05, PaceCurve(), 0.0) == pytest.approx(hold, abs=0.1)


def test_after_next_to_no_calls_a_hold_is_a_little_longer_than_the_block_so_far():
    assert blocked(9, 100.0).hold(102.0, 0.05, PaceCurve(), 0.0) == pytest.approx(1.25 * 2.0)


@pytest.mark.parametrize(("calls", "rate"), [(10, 0.525), (30, 0.0)])
def test_too_few_calls_since_the_last_block_are_noticed_once_its_window_is_over(calls, rate):
    block = blocked(500, 10.0)
    assert block.rate_if_too_few(calls, 30.0, PaceCurve(quota=2.0)) == pytest.approx(rate)
    assert block.rate_if_too_few(calls, 30.0, PaceCurve(quota=2.0, window=30.0)) == 0.0


def test_the_first_hold_of_another_block_is_a_part_of_the_last_one():
    block = blocked(500, 10.0)
    block.ended_at = 30.0
    block.enter(700, 40.0, False, 40.05, 0.0)
    assert block.hold(40.05, 0.05, PaceCurve(), 0.0) == pytest.approx(3.0)


def test_a_hold_is_two_trips_and_two_calls_of_a_slow_quota_at_least():
    curve = PaceCurve()
    assert blocked(500, 10.0).hold(10.05, 0.4, curve, 0.0) == 0.8
    curve.sought_from = 0.5
    assert blocked(500, 10.0).hold(10.05, 0.05, curve, 0.0) == 4.0


def test_once_turns_are_known_a_block_holds_for_the_next_one():
    block = blocked(500, 170.0)
    for at in (0.0, 60.0, 120.0):
        block.window_phase.saw(at, 0.5)
    assert block.hold(172.0, 0.05, PaceCurve(quota=10.0), 0.0) == pytest.approx(6.2)
    assert block.hold(172.0, 0.05, PaceCurve(quota=10.0), 9.0) == 9.0, "the server knows better"


def test_a_block_within_the_window_of_the_last_lesson_goes_on_from_where_it_began():
    block = taught(told=True)
    began_at = block.began_at
    block.enter(900, 25.0, True, 25.05, 14.4)
    assert block.began_at == began_at
    block.enter(900, 50.0, True, 50.05, 14.4)
    assert block.began_at == 50.0


@pytest.mark.parametrize(
    ("in_a_row", "window", "known", "shut"),
    [(2, 60.0, False, False), (3, 0.0, False, True), (1, 60.0, True, True), (1, 1.0, True, False)],
)
def test_three_refusals_in_a_row_shut_a_key_and_one_of_a_window_whose_turns_are_known(in_a_row, window, known, shut):
    block = Block()
    if known:
        block.window_phase.know(0.0, 0.1, window)
    assert block.is_shut(in_a_row, window) is shut


# -- learning -------------------------------------------------------------------------------------


def evenly(rate):
    return lambda since, until: rate * (until - since)


def taught(*, told, curve=None):
    """A first block, from 10 s to 20 s, after 200 calls."""
    block = Block()
    block.enter(200, 10.0, told, 10.05, 0.0)
    if not told:
        block.probe_refused(19.8)
    block.probe(201, 20.0)
    block.teach(curve or PaceCurve(), 200.0, evenly(20.0), sought=False)
    return block


def again(block, curve, calls, *, at=50.0, until=60.0, told=True, sought=False):
    """Another block; returns the quota it teaches."""
    block.enter(900, at, told, at + 0.05, curve.window)
    if not told:
        block.probe_refused(until - 0.2)
    block.probe(901, until)
    return block.teach(curve, calls, evenly(20.0), sought)[0]


@pytest.mark.parametrize(
    ("length", "holds", "told", "calls", "lesson"),
    [
        (0.3, 5, False, 100.0, False),  # an empty bucket
        (0.5, 1, False, 100.0, False),
        (0.5, 2, False, 100.0, True),
        (1.5, 1, False, 100.0, True),
        (1.5, 0, False, 100.0, False),
        (1.5, 0, True, 100.0, True),
        (1.5, 1, False, 5.0, False),  # after next to no calls: who knows why
        (11.0, 1, False, 5.0, True),
    ],
)
def test_a_block_teaches_when_it_was_long_and_its_cause_is_plain(length, holds, told, calls, lesson):
    block = blocked(500, 10.0, told=told)
    block.holds = holds
    block.probe(501, 10.0 + length)
    assert block.is_lesson(lambda since, until: calls) is lesson


def test_calls_let_in_before_the_last_block_ended_are_not_the_cause_of_the_next():
    block = blocked(500, 10.0, told=False)
    block.holds, block.ended_at = 1, 9.5
    block.probe(501, 12.0)
    assert not block.is_lesson(lambda since, until: 40.0 if since < 9.5 else 3.0)


def test_a_first_block_teaches_a_window_of_about_its_length_and_the_average_as_quota():
    curve = PaceCurve()
    block = taught(told=False, curve=curve)
    assert curve.window == 20.0, "19.9 s give or take: a usual length"
    assert curve.penalty == 0.0
    assert block.last_rate == pytest.approx(200.0 / 20.0)


@pytest.mark.parametrize(("until", "window"), [(61.5, 20.0 * 0.97), (321.5, 20.0 * 0.97)])
def test_short_blocks_that_happen_to_be_a_usual_length_apart_are_no_window_of_it(until, window):
    curve = PaceCurve()
    block = taught(told=False, curve=curve)
    again(block, curve, 200.0, at=until - 1.5, until=until, told=False)
    assert curve.window == pytest.approx(window)


def test_of_a_short_first_block_the_slow_start_before_it_is_half_forgiven():
    block, curve = Block(), PaceCurve()
    block.enter(200, 40.0, True, 40.05, 0.0)
    block.probe(201, 50.0)
    quota, first = block.teach(curve, 200.0, evenly(20.0), sought=False)
    assert first
    assert quota == pytest.approx((200.0 / 49.5 * 20.0) ** 0.5)


def test_told_equal_waits_whose_rates_differ_are_a_penalty_and_no_window():
    curve = PaceCurve()
    block = taught(told=True, curve=curve)
    assert again(block, curve, calls=600.0) == pytest.approx(15.0)
    assert (curve.penalty, curve.window) == (10.0, 0.0)


def test_told_equal_waits_at_the_same_rate_are_a_window():
    curve = PaceCurve()
    block = taught(told=True, curve=curve)
    again(block, curve, calls=410.0)
    assert curve.penalty == 0.0
    assert curve.window >= 9.0


def test_waits_that_differ_are_a_window_whatever_the_rates():
    curve = PaceCurve()
    block = taught(told=True, curve=curve)
    again(block, curve, calls=600.0, until=57.0)
    assert curve.penalty == 0.0


@pytest.mark.parametrize(("sought", "quota"), [(False, 410.0 / 40.0), (True, 20.0)])
def test_a_block_that_ends_a_search_is_measured_by_the_window_that_was_full(sought, quota):
    curve = PaceCurve()
    block = taught(told=True, curve=curve)
    assert again(block, curve, calls=410.0, sought=sought) == pytest.approx(quota)


def test_what_was_let_in_long_ago_says_nothing_about_a_window():
    curve = PaceCurve()
    block = taught(told=True, curve=curve)
    assert again(block, curve, calls=0.0, at=500.0, until=505.0) == pytest.approx(20.0)


def test_turns_on_a_lattice_give_the_window_its_length():
    curve = PaceCurve()
    block = taught(told=True, curve=curve)
    for turn in (2, 3):
        again(block, curve, calls=600.0, at=60.0 * turn - 45.0, until=60.0 * turn - 40.0)
    assert block.window_phase.sure == 1
    assert curve.window == pytest.approx(60.0)


def test_a_window_of_a_minute_is_kept_step_with(lab):
    world = lab.World(lab.FixedWindow(600, 60, phase=20.0))
    world.run(600)
    search = world.controller.models.search
    assert search.block.window_phase.spacing == 60.0
    assert search.curve.window == 60.0
    assert search.curve.quota == pytest.approx(10.0, rel=0.02)


def test_a_block_of_the_same_window_is_not_waited_out_as_if_nothing_had_been_let_in():
    """One probe in 105 s, after a minute in which 150 calls were let in."""
    curve, block = PaceCurve(quota=3.0), Block()
    block.enter(113, 29.0, False, 29.05, 0.0)
    block.reopened_at, block.reopened_seq = 71.0, 114
    assert block.hold(113.0, 0.05, curve, 0.0) <= 30.0
