"""When calls that went through prove that a quota has grown."""

from __future__ import annotations

import pytest

from headgate.core.control.adaptive.books import Books
from headgate.core.control.adaptive.estimator import Meter
from headgate.core.control.adaptive.growth import Curve
from headgate.core.control.adaptive.lookout import Lookout

TRIP = 0.1
"""So a call counts as let in 0.17 s after it left."""


def books_of(*stretches):
    """Books of calls sent evenly: ``(until, rate)`` after ``(until, rate)``, from 0 s on."""
    books, now, seq = Books(0.0), 0.0, 0.0
    for until, rate in stretches:
        began_at, began_seq, step = now, seq, 1
        while now < until - 1e-9:
            now = min(began_at + 0.05 * step, until)
            seq, step = began_seq + rate * (now - began_at), step + 1
            books.sends.mark(now, seq)
    return books


def fifty(*, rough=False):
    curve = Curve(50.0)
    curve.rough = rough
    return curve


def looking(*, refused_first=True):
    """A look that began at 10 s, after 500 calls; the last refusal was call 0, at 0 s."""
    lookout, meter = Lookout(), Meter()
    lookout.begin(500, 10.0)
    if refused_first:
        meter.restart(0, 0.0)
    return lookout, meter


@pytest.mark.parametrize(("now", "proof"), [(10.1, False), (10.6, False), (10.9, True)])
def test_a_look_a_fifth_above_proves_growth_after_a_handful_of_calls(now, proof):
    lookout, meter = looking()
    assert lookout.has_proof(fifty(), meter, books_of((10.0, 50.0), (now, 60.0)), TRIP, now) is proof


@pytest.mark.parametrize(("now", "proof"), [(11.2, False), (11.8, True)])
def test_a_guess_takes_a_few_calls_more(now, proof):
    lookout, meter = looking()
    assert lookout.has_proof(fifty(rough=True), meter, books_of((10.0, 50.0), (now, 60.0)), TRIP, now) is proof


@pytest.mark.parametrize(("now", "proof"), [(15.0, False), (16.0, True)])
def test_where_nothing_was_refused_for_long_a_full_bucket_must_be_emptied_first(now, proof):
    lookout, meter = looking(refused_first=False)
    assert lookout.has_proof(fifty(), meter, books_of((10.0, 50.0), (now, 60.0)), TRIP, now) is proof


def test_the_pace_of_the_quota_itself_proves_nothing():
    lookout, meter = looking()
    assert not lookout.has_proof(fifty(), meter, books_of((60.0, 50.0)), TRIP, 60.0)


def test_calls_that_were_refused_prove_nothing():
    lookout, meter = looking()
    books = books_of((10.0, 50.0), (11.0, 60.0))
    for seq in range(505, 525):
        books.refusals.add(seq)
    assert not lookout.has_proof(fifty(), meter, books, TRIP, 11.0)


def test_a_silence_that_may_have_been_made_up_for_must_be_outweighed():
    """2.3 s without calls of which 0.3 s are known to be made up for: up to a second more may have been."""
    lookout, meter = looking()
    meter.silence = 2.3
    early, late = (
        books_of((4.0, 50.0), (6.3, 0.0), (10.0, 50.0), (11.0, 60.0)),
        books_of((4.0, 50.0), (6.3, 0.0), (10.0, 50.0), (18.5, 60.0)),
    )
    assert not lookout.has_proof(fifty(), meter, early, TRIP, 11.0)
    assert lookout.has_proof(fifty(), meter, late, TRIP, 18.5)


def test_the_surplus_of_a_look_is_what_was_let_in_above_the_quota():
    lookout, _ = looking()
    books = Books(0.0)
    assert lookout.surplus(fifty(), books, 530, 10.5) == pytest.approx(5.0)
    books.refusals.add(520)
    assert lookout.surplus(fifty(), books, 530, 10.5) == pytest.approx(4.0)


# -- without a quick look -------------------------------------------------------------------------


def creeping(age, *, quota=50.0, window=0.0, period=10.0):
    curve = Curve(quota)
    curve.rough, curve.slow_for, curve.window, curve.period, curve.age = False, 4, window, period, age
    return curve


@pytest.mark.parametrize(("age", "proof"), [(20.0, False), (22.5, False), (24.0, True)])
def test_the_curve_itself_proves_growth_once_it_sent_enough_above_the_quota(age, proof):
    assert Lookout().has_slow_proof(creeping(age), Meter(), Books(0.0), 100.0) is proof


@pytest.mark.parametrize(("age", "proof"), [(29.0, False), (31.0, True)])
def test_a_second_of_silence_takes_a_second_of_calls_more(age, proof):
    meter = Meter()
    meter.silence = 1.0
    assert Lookout().has_slow_proof(creeping(age), meter, Books(0.0), 100.0) is proof


@pytest.mark.parametrize(("age", "proof"), [(39.0, False), (41.0, True)])
def test_of_a_call_in_ten_seconds_four_periods_are_proof_enough(age, proof):
    assert Lookout().has_slow_proof(creeping(age, quota=0.1), Meter(), Books(0.0), 100.0) is proof


@pytest.mark.parametrize(("age", "rate", "proof"), [(80.0, 10.3, False), (100.0, 10.2, False), (100.0, 10.3, True)])
def test_a_window_has_grown_when_more_than_it_held_went_through_in_its_length(age, rate, proof):
    """A window of 600 in 60 s: more than 611 and a few in a minute, half a window after the curve has met the quota."""
    curve = creeping(age, quota=10.0, window=60.0, period=60.0)
    assert Lookout().has_slow_proof(curve, Meter(), books_of((200.0, rate)), 200.0) is proof
