"""Logs and caps that say what is left: told from windows and buckets by what we sent and by what is in flight."""

from __future__ import annotations

from math import ceil

import pytest

from headgate.controllers.adaptive.call_history import CallHistory, SendLog
from headgate.controllers.adaptive.concurrency import ConcurrencyCap, Refusal, Verdict
from headgate.controllers.adaptive.headers import PLACES, SURELY_LOG, HeaderModel, HeaderReading
from headgate.core.decision import NEVER
from headgate.core.policy import Ticket
from headgate.core.signal import Limit
from headgate.reason_text import controller_text

pytestmark = pytest.mark.no_cover


def read(header_model, told, seq, now, log):
    header_model.read(HeaderReading((told,), Ticket(None, seq, now - 0.1, 0), CallHistory(sends=log), 0.1, 0.05, now))


def following_a_log(limit, window, share=0.7, *, windows=6, reset=None):
    """A log, after some windows of calls at this share of it: just what we sent in the last one is missing."""
    header_model, log, each = HeaderModel(), SendLog(), window / (share * limit)
    for seq in range(1, int(windows * share * limit)):
        now = 100.0 + seq * each
        log.mark(now, seq)
        left = limit - min(seq, int(share * limit))
        told = Limit(limit=limit, remaining=left, reset=reset or ceil(each), window=window)
        read(header_model, told, seq, now + 0.1, log)
    return header_model, log, seq, now


@pytest.mark.parametrize(("limit", "window"), [(100, 1), (100, 10), (600, 60)])
def test_a_log_shows_in_what_is_left_after_what_we_sent_and_is_used_evenly(limit, window):
    header_model, log, seq, now = following_a_log(limit, window)
    assert header_model.is_log > SURELY_LOG
    for n in range(20):
        rate, hold = header_model.pace(seq, log, now + n)
    assert 0.98 * limit / window < rate < limit / window, "no more than the jitter of its calls is left free"
    assert hold == NEVER


def test_a_log_whose_reset_moves_away_before_it_comes_is_not_taken_for_a_window():
    """ "Whole again in a minute", whenever one asks."""
    header_model, log, seq, now = following_a_log(600, 60, reset=60)
    assert header_model.pace(seq, log, now)[0] == pytest.approx(600 / 60, rel=0.05)


def test_a_log_that_is_full_by_our_own_count_is_waited_for_whatever_it_says_is_left():
    header_model, log, seq, now = following_a_log(100, 10)
    assert header_model.remaining == 30
    assert header_model.pace(seq + 29, log, now)[1] == NEVER
    rate, hold = header_model.pace(seq + 31, log, now)
    assert rate > 9.0
    assert hold == pytest.approx(log.instant_of(seq + 32 - 100) + 10, abs=header_model.trip)
    assert now < hold < now + 0.5


def test_a_log_that_always_says_whole_again_in_a_minute_is_known_after_a_tenth_of_it():
    header_model, *_ = following_a_log(600, 60, windows=0.2, reset=60)
    assert header_model.is_log > SURELY_LOG
    header_model, *_ = following_a_log(600, 60, windows=0.2, reset=50)
    assert header_model.is_log == 0.0


def test_what_a_refusal_takes_off_the_pace_of_a_log_comes_back_slowly():
    header_model, log, seq, now = following_a_log(100, 10)
    for n in range(20):
        before, _ = header_model.pace(seq, log, now + n)
    header_model.refused(seq, seq, 0.0, now + 19)
    after = [header_model.pace(seq, log, now + 19 + n)[0] / before for n in range(20)]
    assert after[:3] == pytest.approx([0.93, 0.935, 0.94])
    assert after[-1] == 1.0


def test_a_log_of_a_few_calls_is_followed_too():
    header_model, log, seq, now = following_a_log(5, 10, windows=12)
    assert header_model.is_log > SURELY_LOG
    assert header_model.leads
    assert header_model.pace(seq, log, now)[0] == pytest.approx(0.95 * 5 / 10, rel=0.06)


@pytest.mark.parametrize(
    ("burst", "per_second", "share"), [(8, 4.3, 1.0), (11, 1.54, 1.0), (2, 1.11, 0.9), (3, 1.1, 0.9)]
)
def test_a_small_bucket_is_not_taken_for_a_log(burst, per_second, share):
    """Empty, it says nothing is left just as a log would; but it lets in more, or is full too soon."""
    header_model, log, left = HeaderModel(), SendLog(), 1.0 if share == 1.0 else burst
    for seq in range(1, 200):
        now = 100.0 + seq / (share * per_second)
        log.mark(now, seq)
        left = min(burst, left + 1.0 / share) - 1.0
        told = Limit(limit=burst, remaining=int(left), reset=1, window=ceil(burst / per_second))
        header_model.read(
            HeaderReading((told,), Ticket(None, seq, now, 0), CallHistory(sends=log), 0.1, 0.05, now + 0.1)
        )
        assert header_model.is_log < SURELY_LOG, f"{now} s"


def test_a_window_used_in_full_is_not_taken_for_a_log():
    header_model, log = HeaderModel(), SendLog()
    for seq in range(1, 3000):  # 600 a minute, all of it
        now = 120.0 + seq / 10
        log.mark(now, seq)
        told = Limit(limit=600, remaining=600 - seq % 600, reset=ceil(60 - now % 60), window=60)
        read(header_model, told, seq, now + 0.1, log)
        assert header_model.is_log < SURELY_LOG, f"{now} s"
    assert header_model.counts_down > 0.5


@pytest.mark.parametrize(("amount", "window"), [(100, 10), (600, 60)])
def test_a_sliding_log_is_followed_by_what_we_sent_and_used_in_full(lab, amount, window):
    world = lab.World(lab.SlidingLog(amount, window), headers=True)
    world.run(window)
    tally = world.run(window + 300)
    assert tally.served >= 0.97 * amount / window * 300
    assert tally.refused_share <= 0.001
    assert controller_text(world.controller.why()) == "following the server's headers"


# -- caps that say how many places are left ----------------------------------------------------------


def of_places(limit, depths, remaining=None):
    """After answers that say how many places were left when their calls came in beside ``depth`` others."""
    header_model, log = HeaderModel(), SendLog()
    for seq, depth in enumerate(depths, 1):
        left = limit - depth - 1 if remaining is None else remaining
        told = Limit(limit=limit, remaining=left, reset=0.0)
        header_model.read(
            HeaderReading((told,), Ticket(None, seq, seq / 10, depth), CallHistory(sends=log), 0.1, 0.05, seq / 10)
        )
    return header_model


def test_what_is_missing_as_many_calls_as_are_in_flight_are_places():
    header_model = of_places(30, [9, 12, 3, 20, 15, 11, 9, 14])
    assert header_model.places >= PLACES
    assert header_model.limit == 30
    assert not header_model.leads


def test_places_are_counted_by_late_and_overtaken_answers_too_and_while_headers_are_muted():
    header_model = HeaderModel(muted_until=1000.0)
    for seq in range(PLACES):
        told = Limit(limit=400, remaining=400 - 210, reset=0.0)  # ten later calls came in first
        ticket = Ticket(None, 300 - seq, 1.0, 199)
        header_model.read(HeaderReading((told,), ticket, CallHistory(), 0.1, 0.05, 2.0))
    assert header_model.places >= PLACES


def test_what_is_missing_whatever_is_in_flight_are_no_places():
    assert of_places(30, [9, 12, 3, 20, 15, 11, 9, 14], remaining=2).places < PLACES
    assert of_places(30, [90] * 8, remaining=2).places == 0


def test_places_that_are_told_are_all_used_and_none_is_tried_beyond():
    cap = ConcurrencyCap()
    cap.hear(12, 100, 1.0)
    assert (cap.on, cap.cap) == (True, 12)
    for seq in range(101, 200):
        cap.grow(10.0, 12, seq, 0.05)
    assert cap.cap == 12
    cap.hear(6, 200, 2.0)
    assert cap.cap == 6


def test_places_that_are_told_and_refused_are_not_believed_for_a_while():
    cap = ConcurrencyCap()
    cap.hear(12, 100, 1.0)
    seq, verdict = 101, Verdict.MINE
    while verdict is not Verdict.LET_GO:
        seq += 10
        verdict = cap.refused(Refusal(seq, seq, 10**9, 10.0, 1.5, 0.0, 0.0, 0.0), 2.0)
    cap.hear(12, seq, 3.0)
    assert not cap.on


def test_a_trickle_of_calls_that_find_it_full_does_not_make_it_a_bucket():
    header_model, log = HeaderModel(), SendLog()
    for seq in range(1, 13):
        now = 15.0 * seq
        log.mark(now, seq)
        read(header_model, Limit(limit=100, remaining=99, reset=10, window=10), seq, now + 0.1, log)
    assert not header_model.refills
