"""From refusal to refusal: what the search for a quota does at each of its turning points."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headgate.core.control.adaptive.blocked import Phase
from headgate.core.control.adaptive.seeker import ECHOES, QuotaSeeker
from headgate.core.ticket import Ticket


def sent(seeker, calls, until):
    """Calls up to number ``calls`` have left by ``until``."""
    seeker.books.sends.mark(until, calls)


def cruising(*, quota=50.0, calls=500, at=10.0, window=0.0):
    """A seeker that measured a quota, was refused at 0 s and has sent so many calls since."""
    seeker = QuotaSeeker(quota, quota, 0.0)
    seeker.curve.learn(quota, rough=False)
    seeker.curve.learn(quota, rough=False)
    seeker.curve.window = window
    seeker.meter.restart(0, 0.0)
    seeker.cruise_from(0)
    sent(seeker, calls, at)
    return seeker


def refuse(seeker, seq, sent_at, *, latest=None, floor=0.0, now=None):
    """The answer to call ``seq`` is a refusal; returns the slots to skip."""
    gate = SimpleNamespace(seq=latest or seq)
    ticket = Ticket(gate, seq, sent_at, 3)
    seeker.note(ticket, 0.05)
    now = sent_at + 0.05 if now is None else now
    if seeker.phase is Phase.BLOCK:
        return seeker.refused_blocked(ticket, floor, now)
    return seeker.refused(ticket, floor, now)


# -- cruising -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("behind", "faster"), [(0, 0.0), (3, 0.0), (9, 2.0), (60, 5.0)])
def test_what_a_silence_left_behind_is_caught_up_by_a_tenth_of_the_pace_at_most(behind, faster):
    seeker = cruising(calls=500 - behind)
    plain = cruising(calls=500).curve.cruise(50.0, 0.1)
    seeker.grow(0.1, 10.0, 500 - behind)
    assert seeker.pace == pytest.approx(plain + faster)


def test_a_silence_that_is_known_to_be_lost_is_not_caught_up():
    seeker = cruising(calls=400)
    seeker.meter.silence, seeker.meter.depth = 2.0, 0.0
    plain = cruising(calls=500).curve.cruise(50.0, 0.1)
    seeker.grow(0.1, 10.0, 400)
    assert seeker.pace == pytest.approx(plain)


def test_after_a_period_it_looks_above_and_a_refusal_there_confirms_the_quota():
    seeker = cruising()
    seeker.grow(seeker.curve.period, 10.0, 500)
    assert seeker.phase is Phase.LOOK
    assert seeker.pace == pytest.approx(57.5)
    sent(seeker, 512, 10.2)
    assert refuse(seeker, 512, 10.2) == 2.0
    assert seeker.phase is Phase.CRUISE
    assert seeker.curve.quota == pytest.approx(50.0, rel=0.03)
    assert seeker.pace < 51.0


def test_a_look_that_goes_through_becomes_a_search_and_a_refusal_ends_it():
    seeker = cruising()
    seeker.grow(seeker.curve.period, 10.0, 500)
    sent(seeker, 580, 11.4)
    seeker.grow(0.1, 11.4, 580)
    assert (seeker.phase, seeker.curve.sought_from) == (Phase.SEEK, 50.0)
    before = seeker.pace
    seeker.grow(0.3, 11.7, 600)
    assert seeker.pace > 1.2 * before
    sent(seeker, 640, 12.2)
    refuse(seeker, 640, 12.2)
    assert seeker.phase is Phase.CRUISE
    assert seeker.curve.rough
    assert seeker.curve.quota >= 50.0


def test_a_curve_that_creeps_proves_growth_without_a_look():
    seeker = cruising()
    seeker.curve.slow_for = 4
    for step in range(1000):
        seeker.grow(0.1, 10.0 + 0.1 * step, 500 + 5 * step)
        if seeker.phase is not Phase.CRUISE:
            break
    assert seeker.phase is Phase.SEEK


def test_a_refusal_after_next_to_no_calls_measures_nothing_and_gives_up_a_little():
    seeker = cruising(calls=3, at=0.05)
    seeker.cut_seq = -1000
    refuse(seeker, 3, 0.05)
    assert 44.0 < seeker.curve.quota < 50.0


def test_a_shared_quota_is_where_we_were_refused_less_a_fifth():
    seeker = cruising()
    seeker.curve.sharing.on = True
    seeker.pace = 40.0
    refuse(seeker, 500, 10.0)
    assert seeker.curve.quota == 40.0
    assert seeker.pace == pytest.approx(32.0)


# -- right after a cut ----------------------------------------------------------------------------


def test_a_single_refusal_right_after_a_cut_changes_nothing():
    seeker = cruising()
    refuse(seeker, 500, 10.0)
    before = seeker.pace, seeker.curve.quota
    assert refuse(seeker, 503, 10.06) == 0.0
    assert (seeker.pace, seeker.curve.quota) == before


def test_half_refused_right_after_a_cut_cuts_by_half():
    seeker = cruising()
    refuse(seeker, 500, 10.0)
    for seq in (502, 504, 506):
        refuse(seeker, seq, 10.0 + 0.02 * (seq - 500), latest=506)
    assert seeker.curve.rough
    assert 20.0 < seeker.curve.quota < 35.0


# -- windows --------------------------------------------------------------------------------------


def test_refusals_inside_a_window_that_is_full_are_the_same_news_up_to_a_bound():
    seeker = cruising(quota=10.0, calls=600, at=60.0, window=60.0)
    skips = []
    for n in range(ECHOES + 1):
        seq = 600 + 20 * n
        sent(seeker, seq, 60.0 + n)
        skips.append(refuse(seeker, seq, 60.0 + n))
        assert seeker.phase is Phase.CRUISE
    assert skips == [3.0] * ECHOES + [2.0]


def test_a_window_in_search_is_measured_over_its_length():
    seeker = cruising(quota=10.0, calls=600, at=60.0, window=60.0)
    seeker.phase, seeker.curve.sought_from, seeker.pace = Phase.SEEK, 10.0, 30.0
    sent(seeker, 1800, 120.0)
    refuse(seeker, 1800, 120.0)
    assert seeker.curve.quota == pytest.approx(20.0, rel=0.01)
    assert not seeker.curve.rough


def test_a_search_that_fills_a_window_is_measured_by_that_window_when_it_is_over():
    seeker = cruising(quota=10.0, calls=1000, at=100.0, window=60.0)
    seeker.block.last_length = 30.0
    seeker.phase, seeker.curve.sought_from, seeker.pace = Phase.SEEK, 10.0, 45.0
    sent(seeker, 1900, 120.0)
    refuse(seeker, 1900, 120.0, floor=40.0)
    assert (seeker.phase, seeker.curve.quota) == (Phase.BLOCK, 10.0)
    probe(seeker, 1901, 160.1)
    seeker.resume(1901, 160.2)
    assert seeker.phase is Phase.CRUISE
    assert seeker.curve.quota == pytest.approx(900 / 60, rel=0.05)


def test_once_the_turns_are_known_one_refusal_is_enough_to_wait_for_the_next():
    seeker = cruising(quota=10.0, calls=600, at=55.0, window=60.0)
    for at in (-120.0, -60.0, 0.0):
        seeker.block.turns.saw(at, 0.5)
    sent(seeker, 620, 56.0)
    refuse(seeker, 620, 56.0)
    assert seeker.phase is Phase.BLOCK
    assert seeker.floor_until == pytest.approx(60.0 - 1.8, abs=0.1)


# -- blocks ---------------------------------------------------------------------------------------


def test_three_refused_in_a_row_are_a_block_and_two_are_not():
    seeker = cruising()
    refuse(seeker, 500, 10.0)
    refuse(seeker, 501, 10.02)
    assert seeker.phase is Phase.CRUISE
    refuse(seeker, 502, 10.04)
    assert seeker.phase is Phase.BLOCK
    assert seeker.floor_until > 10.2


@pytest.mark.parametrize(("floor", "phase"), [(1.0, Phase.CRUISE), (2.0, Phase.BLOCK)])
def test_told_to_wait_two_seconds_is_a_block_and_one_is_only_a_hold(floor, phase):
    seeker = cruising()
    refuse(seeker, 500, 10.0, floor=floor)
    assert seeker.phase is phase
    assert seeker.floor_until == pytest.approx(10.05 + floor)


def test_a_short_wait_that_the_server_does_not_make_up_for_is_a_penalty():
    seeker = cruising()
    seeker.meter.depth = 0.3
    refuse(seeker, 500, 10.0, floor=1.0)
    assert seeker.curve.penalty == pytest.approx(0.7)
    deep = cruising()
    deep.meter.depth = 5.0
    refuse(deep, 500, 10.0, floor=1.0)
    assert deep.curve.penalty == pytest.approx(0.2)


def test_a_refusal_of_a_call_from_before_the_probe_only_makes_us_wait_as_told():
    seeker = cruising()
    refuse(seeker, 500, 10.0, floor=2.0)
    refuse(seeker, 499, 9.98, now=10.1)
    assert seeker.floor_until == pytest.approx(12.05)
    refuse(seeker, 498, 9.96, now=10.2, floor=4.0)
    assert seeker.floor_until == pytest.approx(14.2)


def blocked():
    seeker = cruising()
    for seq in (500, 501, 502):
        refuse(seeker, seq, 10.0, latest=502)
    return seeker


def probe(seeker, seq, now):
    seeker.send_blocked(Ticket(SimpleNamespace(seq=seq), seq, now, 0), now)


def test_a_refused_probe_is_followed_by_a_longer_hold():
    seeker = blocked()
    first = seeker.floor_until - 10.05
    at = seeker.floor_until
    probe(seeker, 503, at)
    assert seeker.probe_until > at
    refuse(seeker, 503, at)
    assert seeker.probe_until < at
    assert seeker.floor_until - (at + 0.05) >= first


def test_a_probe_that_is_let_in_resumes_where_it_was():
    seeker = blocked()
    probe(seeker, 503, 10.3)
    assert seeker.resume(503, 10.5) == 1.0
    assert (seeker.phase, seeker.cut_seq) == (Phase.CRUISE, 503)


def test_a_call_that_leaves_after_the_probe_proves_that_it_was_not_refused():
    seeker = blocked()
    probe(seeker, 503, 10.3)
    probe(seeker, 504, 10.6)
    assert (seeker.phase, seeker.cut_seq) == (Phase.CRUISE, 503)


def test_a_collapse_is_never_believed_at_once():
    """Two agreeing measurements of 50/s, then a block that says 10/s."""
    seeker = cruising(calls=500, at=50.0)
    seeker.block.last_length, seeker.block.last_rate = 3.0, 9.0
    for seq in (500, 501, 502):
        refuse(seeker, seq, 50.0, latest=502)
    seeker.curve.agreed, seeker.curve.quota = 2, 50.0
    probe(seeker, 503, 54.0)
    refuse(seeker, 503, 54.0)
    probe(seeker, 504, 60.0)
    seeker.resume(504, 60.2)
    assert seeker.curve.quota == pytest.approx(25.0)
    assert seeker.curve.rough


def test_a_first_block_that_was_told_is_no_lesson_about_the_quota_but_the_search_goes_slower():
    seeker = cruising()
    refuse(seeker, 500, 10.0, floor=16.0)
    probe(seeker, 501, 26.05)
    seeker.resume(501, 26.2)
    assert (seeker.phase, seeker.curve.window) == (Phase.START, 0.0)
    assert seeker.doubling == pytest.approx(16.05 / 16.0)
