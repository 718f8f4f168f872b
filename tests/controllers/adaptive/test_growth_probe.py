"""When calls that went through prove that a quota has grown."""

from __future__ import annotations

import pytest

from headgate.controllers.adaptive.call_history import CallHistory
from headgate.controllers.adaptive.estimator import QuotaEstimator
from headgate.controllers.adaptive.growth_probe import GrowthProbe
from headgate.controllers.adaptive.pace_curve import PaceCurve

pytestmark = pytest.mark.no_cover

TRIP = 0.1
"""So a call counts as let in 0.17 s after it left."""


def history_of(*stretches):
    """A history of calls sent evenly: ``(until, rate)`` after ``(until, rate)``, from 0 s on."""
    history, now, seq = CallHistory(), 0.0, 0.0
    history.sends.mark(0.0, 0)
    for until, rate in stretches:
        began_at, began_seq, step = now, seq, 1
        while now < until - 1e-9:
            now = min(began_at + 0.05 * step, until)
            seq, step = began_seq + rate * (now - began_at), step + 1
            history.sends.mark(now, seq)
    return history


def fifty(*, rough=False):
    curve = PaceCurve(quota=50.0)
    curve.rough = rough
    return curve


def looking(*, refused_first=True):
    """A look that began at 10 s, after 500 calls; the last refusal was call 0, at 0 s."""
    growth_probe, estimator = GrowthProbe(), QuotaEstimator()
    growth_probe.begin(500, 10.0)
    if refused_first:
        estimator.restart(0, 0.0)
    return growth_probe, estimator


@pytest.mark.parametrize(("now", "proof"), [(10.1, False), (10.6, False), (10.9, True)])
def test_a_look_a_fifth_above_proves_growth_after_a_handful_of_calls(now, proof):
    growth_probe, estimator = looking()
    assert growth_probe.has_proof(fifty(), estimator, history_of((10.0, 50.0), (now, 60.0)), TRIP, now) is proof


@pytest.mark.parametrize(("now", "proof"), [(11.2, False), (11.8, True)])
def test_a_guess_takes_a_few_calls_more(now, proof):
    growth_probe, estimator = looking()
    assert (
        growth_probe.has_proof(fifty(rough=True), estimator, history_of((10.0, 50.0), (now, 60.0)), TRIP, now) is proof
    )


@pytest.mark.parametrize(("now", "proof"), [(15.0, False), (16.0, True)])
def test_where_nothing_was_refused_for_long_a_full_bucket_must_be_emptied_first(now, proof):
    growth_probe, estimator = looking(refused_first=False)
    assert growth_probe.has_proof(fifty(), estimator, history_of((10.0, 50.0), (now, 60.0)), TRIP, now) is proof


def test_the_pace_of_the_quota_itself_proves_nothing():
    growth_probe, estimator = looking()
    assert not growth_probe.has_proof(fifty(), estimator, history_of((60.0, 50.0)), TRIP, 60.0)


def test_calls_that_were_refused_prove_nothing():
    growth_probe, estimator = looking()
    history = history_of((10.0, 50.0), (11.0, 60.0))
    for seq in range(505, 525):
        history.refusals.add(seq)
    assert not growth_probe.has_proof(fifty(), estimator, history, TRIP, 11.0)


def test_a_silence_that_may_have_been_made_up_for_must_be_outweighed():
    """2.3 s without calls of which 0.3 s are known to be made up for: up to a second more may have been."""
    growth_probe, estimator = looking()
    estimator.silence = 2.3
    early, late = (
        history_of((4.0, 50.0), (6.3, 0.0), (10.0, 50.0), (11.0, 60.0)),
        history_of((4.0, 50.0), (6.3, 0.0), (10.0, 50.0), (18.5, 60.0)),
    )
    assert not growth_probe.has_proof(fifty(), estimator, early, TRIP, 11.0)
    assert growth_probe.has_proof(fifty(), estimator, late, TRIP, 18.5)


def test_the_surplus_of_a_look_is_what_was_let_in_above_the_quota():
    growth_probe, _ = looking()
    history = CallHistory()
    history.sends.mark(0.0, 0)
    assert growth_probe.surplus(fifty(), history, 530, 10.5) == pytest.approx(5.0)
    history.refusals.add(520)
    assert growth_probe.surplus(fifty(), history, 530, 10.5) == pytest.approx(4.0)


# -- without a quick look -------------------------------------------------------------------------


def creeping(age, *, quota=50.0, window=0.0, period=10.0):
    curve = PaceCurve(quota=quota)
    curve.rough, curve.slow_for, curve.window, curve.period, curve.age = False, 4, window, period, age
    return curve


@pytest.mark.parametrize(("age", "proof"), [(20.0, False), (22.5, False), (24.0, True)])
def test_the_curve_itself_proves_growth_once_it_sent_enough_above_the_quota(age, proof):
    assert GrowthProbe().has_slow_proof(creeping(age), QuotaEstimator(), CallHistory(), 100.0) is proof


@pytest.mark.parametrize(("age", "proof"), [(29.0, False), (31.0, True)])
def test_a_second_of_silence_takes_a_second_of_calls_more(age, proof):
    estimator = QuotaEstimator()
    estimator.silence = 1.0
    assert GrowthProbe().has_slow_proof(creeping(age), estimator, CallHistory(), 100.0) is proof


@pytest.mark.parametrize(("age", "proof"), [(39.0, False), (41.0, True)])
def test_of_a_call_in_ten_seconds_four_periods_are_proof_enough(age, proof):
    assert GrowthProbe().has_slow_proof(creeping(age, quota=0.1), QuotaEstimator(), CallHistory(), 100.0) is proof


@pytest.mark.parametrize(("age", "rate", "proof"), [(59.0, 10.3, False), (100.0, 10.2, False), (100.0, 10.3, True)])
def test_a_window_has_grown_when_more_than_it_held_went_through_in_its_length(age, rate, proof):
    """A window of 600 in 60 s: more than 611 and a few in a minute, half a window after the curve has met the quota."""
    curve = creeping(age, quota=10.0, window=60.0, period=60.0)
    assert GrowthProbe().has_slow_proof(curve, QuotaEstimator(), history_of((200.0, rate)), 200.0) is proof
