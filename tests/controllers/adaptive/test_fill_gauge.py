"""A bucket's refill, measured by what its answers say is left."""

from __future__ import annotations

from math import floor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.controllers.adaptive.call_history import CallHistory
from headgate.controllers.adaptive.fill_gauge import KEPT, TARGET, FillGauge
from headgate.core.decision import NEVER
from headgate.core.policy import LongTicket, Ticket
from headgate.core.signal import Limit
from headgate.mock.quota import FixedWindow, TokenBucket
from headgate.units import Rate


def sent(server, times, limit, history):
    """What answers to calls sent then say: ticket and headers; refused ones are noted and say nothing."""
    answers = []
    for seq, at in enumerate(times, 1):
        history.sends.mark(at, seq)
        if server.take(at):
            left = float(floor(server.status(at).remaining))
            answers.append((Ticket(None, seq, at, 0), Limit(limit=limit, remaining=left, reset=1.0, window=1.0)))
        else:
            history.refusals.add(seq)
    return answers


def evenly(rate, calls, start=0.0):
    return [start + n / rate for n in range(calls)]


def read_all(gauge, answers, history, latency=0.1):
    for ticket, told in answers:
        gauge.read(ticket, told, history, latency)
    return gauge


@pytest.mark.parametrize(("rate", "burst"), [(117.0, 20), (47.0, 14), (8.0, 5), (0.7, 6)])
@pytest.mark.parametrize("seed", range(3))
def test_the_refill_is_measured_without_a_refusal_in_whatever_order_answers_come(rate, burst, seed):
    history = CallHistory()
    times = evenly(1.05 * rate, int(0.85 * burst / 0.05))  # which nearly empties it
    answers = sent(TokenBucket(Rate(rate), burst), times, burst, history)
    Random(seed).shuffle(answers)
    gauge = read_all(FillGauge(), answers, history)
    assert gauge.rate == pytest.approx(rate, rel=0.05)
    assert history.refusals.between(0, len(times)) == 0


def test_a_bucket_that_is_always_full_tells_nothing_at_first():
    history = CallHistory()
    gauge = read_all(FillGauge(), sent(TokenBucket(Rate(50.0), 10), evenly(20.0, 400), 10, history), history)
    assert not gauge.is_sure


def test_a_bucket_that_stays_full_refills_by_no_less_than_was_let_in_and_is_tried_faster():
    history, server = CallHistory(), TokenBucket(Rate(20.0), 10)
    answers = sent(server, evenly(22.0, 120), 10, history)
    gauge = read_all(FillGauge(), answers, history)
    slow = gauge.rate
    assert slow == pytest.approx(20.0, rel=0.05)
    server.scale(2.0, 120 / 22.0)
    later = [n / 30.0 + 130 / 22.0 for n in range(200)]
    for seq, at in enumerate(later, 121):
        history.sends.mark(at, seq)
        assert server.take(at)
        told = Limit(limit=10, remaining=9.0, reset=1.0, window=1.0)
        gauge.read(Ticket(None, seq, at, 0), told, history, 0.1)
    assert gauge.rate == pytest.approx(30.0, rel=0.02)
    pace, hold = gauge.pace(320, later[-1])
    assert pace == pytest.approx(1.25 * gauge.rate)
    assert hold == NEVER


@pytest.mark.parametrize("share", [0.7, 0.95, 1.0])
@pytest.mark.parametrize("limit", [6, 20, 123])
def test_a_window_that_turns_is_not_taken_for_a_bucket(limit, share):
    history, gauge = CallHistory(), FillGauge()
    server = FixedWindow(Rate(float(limit), 1.0))
    for answer in sent(server, evenly(share * limit, 20 * limit), limit, history):
        read_all(gauge, [answer], history)
        assert not gauge.is_sure


def test_the_pace_settles_the_level_and_waits_for_a_call_to_come_in():
    history = CallHistory()
    gauge = read_all(FillGauge(), sent(TokenBucket(Rate(50.0), 10), evenly(60.0, 60), 10, history), history)
    last = gauge.levels[-1]
    assert last.left < TARGET * 10
    assert gauge.pace(last.seq, last.at)[0] < gauge.rate
    assert gauge.pace(last.seq, last.at + 0.15)[0] > gauge.rate  # seven and a half have come in
    assert gauge.pace(last.seq + 3, last.at)[1] == pytest.approx(last.at + (4.0 - last.left) / gauge.rate)


@pytest.mark.parametrize("latency", [0.05, 2.0])
@pytest.mark.parametrize(("rate", "burst"), [(60.0, 9), (8.0, 5), (100.0, 20)])
def test_a_bucket_that_is_followed_is_used_in_full_and_refuses_nothing(rate, burst, latency):
    history, gauge, server, draw = CallHistory(), FillGauge(), TokenBucket(Rate(rate), burst), Random(1)
    on_the_way, now, seq, let_in, refused, pace = [], 0.0, 0, 0, 0, 1.3 * rate
    while now < 60.0:
        seq += 1
        history.sends.mark(now, seq)
        if server.take(now):
            let_in += now > 30.0
            told = Limit(limit=burst, remaining=float(floor(server.status(now).remaining)), reset=1.0, window=1.0)
            on_the_way.append((now + latency * draw.uniform(0.2, 1.8), Ticket(None, seq, now, 0), told))
        else:
            history.refusals.add(seq)
            refused += now > 30.0
        now += 1.0 / pace
        for answer in [answer for answer in on_the_way if answer[0] <= now]:
            on_the_way.remove(answer)
            gauge.read(answer[1], answer[2], history, latency)
        hold = NEVER
        if gauge.is_sure:
            pace, hold = gauge.pace(seq, now)
        now = max(now, hold)
    assert let_in == pytest.approx(30.0 * rate, rel=0.02)
    assert refused == 0


def test_after_a_pause_it_is_full_and_the_refill_is_still_known_whatever_comes_back_first():
    history = CallHistory()
    gauge = read_all(FillGauge(), sent(TokenBucket(Rate(50.0), 10), evenly(60.0, 60), 10, history), history)
    rate = gauge.rate
    for seq, left in ((62, 7.0), (61, 9.0), (64, 5.0), (63, 6.0)):  # four calls that leave together after the pause
        gauge.read(Ticket(None, seq, 10.0, 0), Limit(limit=10, remaining=left), history, 0.1)
    assert gauge.rate == rate
    assert gauge.pace(64, 10.1)[0] > rate


def test_nothing_that_is_ever_left_tells_no_refill():
    history, gauge = CallHistory(), FillGauge()
    for seq in range(1, 200):
        gauge.read(Ticket(None, seq, seq / 50.0, 0), Limit(limit=10, remaining=0.0), history, 0.1)
        assert not gauge.is_sure


@pytest.mark.parametrize("cost", [5, 1.5, {"requests": 2.0}])
def test_calls_that_take_more_than_one_are_not_counted_by_it(cost):
    history = CallHistory()
    gauge = read_all(FillGauge(), sent(TokenBucket(Rate(50.0), 10), evenly(60.0, 60), 10, history), history)
    gauge.read(LongTicket(None, 61, 1.1, 0, cost, 0.0), Limit(limit=10, remaining=3.0), history, 0.1)
    assert not gauge.is_sure


def test_another_limit_a_clock_that_goes_back_and_a_bucket_of_two_begin_again():
    history = CallHistory()
    answers = sent(TokenBucket(Rate(50.0), 10), evenly(60.0, 60), 10, history)
    for ticket, told in (
        (Ticket(None, 61, 1.0, 0), Limit(limit=11, remaining=3.0, reset=1.0)),
        (Ticket(None, 61, 0.5, 0), Limit(limit=10, remaining=3.0, reset=1.0)),
        (Ticket(None, 61, 1.0, 0), Limit(limit=2, remaining=0.0, reset=1.0)),
    ):
        gauge = read_all(FillGauge(), answers, history)
        assert gauge.is_sure
        assert gauge.patience > 0.0
        gauge.read(ticket, told, history, 0.1)
        assert not gauge.is_sure
        assert not gauge.patience


@given(
    st.lists(
        st.tuples(st.integers(1, 500), st.floats(0.0, 100.0), st.floats(0.0, 30.0), st.sampled_from([1.0, 5.0, 20.0])),
        max_size=150,
    )
)
def test_it_stays_small_and_sane_whatever_is_said(answers):
    gauge, history = FillGauge(), CallHistory()
    for seq, at, left, limit in answers:
        history.sends.mark(at, seq)
        gauge.read(Ticket(None, seq, at, 0), Limit(limit=limit, remaining=left), history, 0.1)
        assert len(gauge.levels) <= 2 * KEPT
        if gauge.is_sure:
            pace, hold = gauge.pace(seq, at)
            assert pace > 0.0
            assert hold <= at + 1.0 + 2.0 / gauge.rate
