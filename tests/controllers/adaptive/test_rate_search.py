"""From refusal to refusal: what the search for a quota does at each of its turning points."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headgate.controllers.adaptive.rate_search import ECHOES, RateSearch
from headgate.controllers.adaptive.state import Phase
from headgate.controllers.adaptive.trace import Step
from headgate.core.policy import Ticket

pytestmark = pytest.mark.no_cover


def sent(search, calls, until):
    """Calls up to number ``calls`` have left by ``until``."""
    search.history.sends.mark(until, calls)


def cruising(*, quota=50.0, calls=500, at=10.0, window=0.0):
    """A seeker that measured a quota, was refused at 0 s and has sent so many calls since."""
    search = RateSearch.start(quota, quota, 0.0)
    search.curve.learn(quota, rough=False)
    search.curve.learn(quota, rough=False)
    search.curve.window = window
    search.estimator.restart(0, 0.0)
    search.cruise_from(0)
    sent(search, calls, at)
    return search


def refuse(search, seq, sent_at, *, latest=None, floor=0.0, now=None):
    """The answer to call ``seq`` is a refusal; returns the slots to skip."""
    gate = SimpleNamespace(seq=latest or seq)
    ticket = Ticket(gate, seq, sent_at, 3)
    search.note(ticket, 0.05, 0.0)
    now = sent_at + 0.05 if now is None else now
    if search.phase is Phase.BLOCK:
        return search.refused_blocked(ticket, floor, now)
    return search.refused(ticket, floor, now)


# -- cruising -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("behind", "faster"), [(0, 0.0), (3, 0.0), (9, 2.0), (60, 5.0)])
def test_what_a_silence_left_behind_is_caught_up_by_a_tenth_of_the_pace_at_most(behind, faster):
    search = cruising(calls=500 - behind)
    plain = cruising(calls=500).curve.cruise(50.0, 0.1)
    search.grow(0.1, 10.0, 500 - behind)
    assert search.pace == pytest.approx(plain + faster)


def test_a_silence_that_is_known_to_be_lost_is_not_caught_up():
    search = cruising(calls=400)
    search.estimator.silence, search.estimator.depth = 2.0, 0.0
    plain = cruising(calls=500).curve.cruise(50.0, 0.1)
    search.grow(0.1, 10.0, 400)
    assert search.pace == pytest.approx(plain)


def test_after_a_period_it_looks_above_and_a_refusal_there_confirms_the_quota():
    search = cruising()
    search.grow(search.curve.period, 10.0, 500)
    assert search.phase is Phase.PROBE
    assert search.pace == pytest.approx(57.5)
    sent(search, 512, 10.2)
    assert refuse(search, 512, 10.2) == 2.0
    assert search.phase is Phase.CRUISE
    assert search.curve.quota == pytest.approx(50.0, rel=0.03)
    assert search.pace < 51.0


def test_a_look_that_goes_through_becomes_a_search_and_a_refusal_ends_it():
    search = cruising()
    search.grow(search.curve.period, 10.0, 500)
    sent(search, 580, 11.4)
    search.grow(0.1, 11.4, 580)
    assert (search.phase, search.curve.sought_from) == (Phase.CLIMB, 50.0)
    before = search.pace
    search.grow(0.3, 11.7, 600)
    assert search.pace > 1.2 * before
    sent(search, 640, 12.2)
    refuse(search, 640, 12.2)
    assert search.phase is Phase.CRUISE
    assert search.curve.rough
    assert search.curve.quota >= 50.0


def test_a_curve_that_creeps_proves_growth_without_a_look():
    search = cruising()
    search.curve.slow_for = 4
    for step in range(1000):
        search.grow(0.1, 10.0 + 0.1 * step, 500 + 5 * step)
        if search.phase is not Phase.CRUISE:
            break
    assert search.phase is Phase.CLIMB


def test_a_refusal_after_next_to_no_calls_measures_nothing_and_gives_up_a_little():
    search = cruising(calls=3, at=0.05)
    search.cut_seq = -1000
    refuse(search, 3, 0.05)
    assert 44.0 < search.curve.quota < 50.0


def test_a_shared_quota_is_where_we_were_refused_and_a_part_of_it_is_left_to_others():
    search = cruising()
    search.curve.sharing.on = True
    search.pace = 40.0
    refuse(search, 500, 10.0)
    assert search.curve.quota == 40.0
    assert search.pace == pytest.approx(31.2)


def test_a_crowd_of_refusals_right_after_yielding_cuts_a_shared_quota_no_deeper_than_yielding_again():
    search = cruising()
    search.curve.sharing.on = True
    refuse(search, 500, 10.0)
    pace = search.pace
    for seq in (503, 504):
        refuse(search, seq, 10.1)
    assert search.pace == pytest.approx(0.78 * pace)
    other = cruising()
    for seq in (500, 503, 504):
        refuse(other, seq, 10.0)
    assert other.pace < 0.5 * 50.0, "a quota of our own has fallen by the share that is refused"


@pytest.mark.parametrize(("pace", "rough", "judged"), [(50.0, True, False), (0.5, False, False), (0.5, True, True)])
def test_a_guess_at_a_slow_quota_is_measured_eight_calls_after_the_cut(pace, rough, judged):
    search = cruising(quota=pace, calls=500, at=500.0 / pace)
    refuse(search, 500, 500.0 / pace)
    search.curve.rough = rough
    sent(search, 508, 508.5 / pace)
    cut_seq = search.cut_seq
    refuse(search, 508, 508.5 / pace)
    assert (search.cut_seq > cut_seq) is judged


def test_searches_upwards_say_nothing_of_others_where_single_calls_are_let_in():
    search = cruising()
    search.burst.most = 1.0
    for now in (10.0, 18.0, 26.0):
        search.phase = Phase.PROBE
        search._climb(now)
    assert not search.curve.sharing.on


def test_the_third_search_upwards_that_finds_no_more_goes_on_as_one_of_several_clients():
    search, steps = cruising(), []
    search.trace.listener = lambda now, event: steps.append(event.step)
    for now in (10.0, 18.0, 26.0):
        search.phase = Phase.PROBE
        search._climb(now)
    assert search.phase is Phase.CRUISE
    assert steps == [Step.CLIMBING, Step.CLIMBING, Step.SHARED]


@pytest.mark.parametrize(("window", "compared"), [(0.0, 1), (0.2, 1), (1.0, 0)])
def test_a_measurement_of_few_windows_says_nothing_about_sharing(window, compared):
    search = cruising()
    search.curve.window, search.curve.age = window, 10.0
    refuse(search, 500, 10.0)
    assert len(search.curve.sharing.measures) == compared


# -- right after a cut ----------------------------------------------------------------------------


def test_a_single_refusal_right_after_a_cut_changes_nothing():
    search = cruising()
    refuse(search, 500, 10.0)
    before = search.pace, search.curve.quota
    assert refuse(search, 503, 10.06) == 0.0
    assert (search.pace, search.curve.quota) == before


def test_half_refused_right_after_a_cut_cuts_by_half():
    search = cruising()
    refuse(search, 500, 10.0)
    for seq in (502, 504, 506):
        refuse(search, seq, 10.0 + 0.02 * (seq - 500), latest=506)
    assert search.curve.rough
    assert 20.0 < search.curve.quota < 35.0


# -- windows --------------------------------------------------------------------------------------


def test_refusals_inside_a_window_that_is_full_are_the_same_news_up_to_a_bound():
    search = cruising(quota=10.0, calls=600, at=60.0, window=60.0)
    skips = []
    for n in range(ECHOES + 1):
        seq = 600 + 20 * n
        sent(search, seq, 60.0 + n)
        skips.append(refuse(search, seq, 60.0 + n))
        assert search.phase is Phase.CRUISE
    assert skips == [3.0] * ECHOES + [2.0]


def test_a_window_in_search_is_measured_over_its_length():
    search = cruising(quota=10.0, calls=600, at=60.0, window=60.0)
    search.phase, search.curve.sought_from, search.pace = Phase.CLIMB, 10.0, 30.0
    sent(search, 1800, 120.0)
    refuse(search, 1800, 120.0)
    assert search.curve.quota == pytest.approx(20.0, rel=0.01)
    assert not search.curve.rough


def test_a_search_that_fills_a_window_is_measured_by_that_window():
    search = cruising(quota=10.0, calls=1000, at=100.0, window=60.0)
    search.block.last_length = 30.0
    search.phase, search.curve.sought_from, search.pace = Phase.CLIMB, 10.0, 45.0
    search.growth_probe.begin(1000, 100.0)
    sent(search, 1900, 120.0)
    refuse(search, 1900, 120.0, floor=40.0)
    assert search.phase is Phase.BLOCK
    assert search.curve.quota > 15.0, "even if the block that follows is too short to teach"
    probe(search, 1901, 160.1)
    search.resume(1901, 160.2)
    assert search.phase is Phase.CRUISE
    assert search.curve.quota == pytest.approx(900 / 60, rel=0.05)


def test_once_the_turns_are_known_one_refusal_is_enough_to_wait_for_the_next():
    search = cruising(quota=10.0, calls=600, at=55.0, window=60.0)
    for at in (-120.0, -60.0, 0.0):
        search.block.window_phase.saw(at, 0.5)
    sent(search, 620, 56.0)
    refuse(search, 620, 56.0)
    assert search.phase is Phase.BLOCK
    assert search.floor_until == pytest.approx(60.0 - 1.8, abs=0.1)


# -- blocks ---------------------------------------------------------------------------------------


def test_three_refused_in_a_row_are_a_block_and_two_are_not():
    search = cruising()
    refuse(search, 500, 10.0)
    refuse(search, 501, 10.02)
    assert search.phase is Phase.CRUISE
    refuse(search, 502, 10.04)
    assert search.phase is Phase.BLOCK
    assert search.floor_until > 10.2


@pytest.mark.parametrize(("floor", "phase"), [(1.0, Phase.CRUISE), (2.0, Phase.BLOCK)])
def test_told_to_wait_two_seconds_is_a_block_and_one_is_only_a_hold(floor, phase):
    search = cruising()
    refuse(search, 500, 10.0, floor=floor)
    assert search.phase is phase
    assert search.floor_until == pytest.approx(10.05 + floor)


def test_a_short_wait_that_the_server_does_not_make_up_for_is_a_penalty():
    search = cruising()
    search.estimator.depth = 0.3
    refuse(search, 500, 10.0, floor=1.0)
    assert search.curve.penalty == pytest.approx(0.7)
    deep = cruising()
    deep.estimator.depth = 5.0
    refuse(deep, 500, 10.0, floor=1.0)
    assert deep.curve.penalty == pytest.approx(0.2)


def test_a_refusal_of_a_call_from_before_the_probe_only_makes_us_wait_as_told():
    search = cruising()
    refuse(search, 500, 10.0, floor=2.0)
    refuse(search, 499, 9.98, now=10.1)
    assert search.floor_until == pytest.approx(12.05)
    refuse(search, 498, 9.96, now=10.2, floor=4.0)
    assert search.floor_until == pytest.approx(14.2)


def blocked():
    search = cruising()
    for seq in (500, 501, 502):
        refuse(search, seq, 10.0, latest=502)
    return search


def probe(search, seq, now):
    search.send_blocked(Ticket(SimpleNamespace(seq=seq), seq, now, 0), now)


def test_a_refused_probe_is_followed_by_a_longer_hold():
    search = blocked()
    first = search.floor_until - 10.05
    at = search.floor_until
    probe(search, 503, at)
    assert search.probe_until > at
    refuse(search, 503, at)
    assert search.probe_until < at
    assert search.floor_until - (at + 0.05) >= first


def test_a_probe_that_is_let_in_resumes_where_it_was():
    search = blocked()
    probe(search, 503, 10.3)
    assert search.resume(503, 10.5) == 1.0
    assert (search.phase, search.cut_seq) == (Phase.CRUISE, 503)


def test_a_call_that_leaves_after_the_probe_proves_that_it_was_not_refused():
    search = blocked()
    probe(search, 503, 10.3)
    probe(search, 504, 10.6)
    assert (search.phase, search.cut_seq) == (Phase.CRUISE, 503)


def test_a_collapse_is_never_believed_at_once():
    """Two agreeing measurements of 50/s, then a block that says 10/s."""
    search = cruising(calls=500, at=50.0)
    search.block.last_length, search.block.last_rate = 3.0, 9.0
    for seq in (500, 501, 502):
        refuse(search, seq, 50.0, latest=502)
    search.curve.agreed, search.curve.quota = 2, 50.0
    probe(search, 503, 54.0)
    refuse(search, 503, 54.0)
    probe(search, 504, 60.0)
    search.resume(504, 60.2)
    assert search.curve.quota == pytest.approx(25.0)
    assert search.curve.rough


def test_a_first_block_that_was_told_is_no_lesson_about_the_quota_but_the_search_goes_slower():
    search = cruising()
    refuse(search, 500, 10.0, floor=16.0)
    probe(search, 501, 26.05)
    search.resume(501, 26.2)
    assert (search.phase, search.curve.window) == (Phase.START, 0.0)
    assert search.doubling == pytest.approx(16.05 / 16.0)


# -- what the server says is left -----------------------------------------------------------------


def told_spent(search, seq, sent_at):
    search.told_spent(Ticket(SimpleNamespace(seq=seq), seq, sent_at, 3), sent_at + 0.05)


def test_a_look_ends_where_the_server_says_that_nothing_is_left_and_moves_the_quota_a_little():
    search = cruising(calls=530)
    search.look(10.0, 530)
    told_spent(search, 530, 10.0)
    assert search.phase is Phase.CRUISE
    assert 50.0 < search.curve.quota < 51.5, "53/s were let in, leaning to the pace of the look"
    assert (search.estimator.since_seq, search.estimator.since_at) == (530, 10.0)


def test_at_rest_it_may_say_so_and_after_a_guess_it_measures():
    search = cruising(calls=530)
    told_spent(search, 530, 10.0)
    assert search.curve.quota == 50.0
    search.curve.guess(50.0)
    search.look(10.0, 530)
    told_spent(search, 530, 10.0)
    assert search.curve.quota > 52.0
    assert not search.curve.rough


# -- holds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "window", "before", "silence"),
    [(False, 10.0, 6.0, 5.98), (True, 10.0, 6.0, 1.0), (True, 0.0, 6.0, 5.98), (True, 0.0, 8.0, 1.0)],
)
def test_a_silence_that_the_server_asks_for_is_lost_by_as_much_as_it_is_rounded_up(told, window, before, silence):
    """Of 6 s at 50 calls a second, where a window explains it or it varies: else it may be far too much."""
    search = cruising(window=window)
    search.pace, search.wait.blocked_for = 50.0, before
    search.hold(16.0, 10.0, told)
    assert search.estimator.silence == pytest.approx(silence)


def test_where_refusals_are_punished_all_of_it_is_lost():
    search = cruising()
    search.pace, search.curve.penalty = 50.0, 12.0
    search.hold(16.0, 10.0, True)
    assert search.estimator.silence == pytest.approx(5.98)


def test_a_hold_that_is_shorter_than_a_slot_is_no_silence():
    search = cruising()
    search.pace = 0.5
    search.hold(11.0, 10.0)
    assert search.estimator.silence == 0.0
