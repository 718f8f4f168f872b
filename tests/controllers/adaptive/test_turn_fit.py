"""Windows that turn at fixed times are recognized by their refusals, and nothing else is taken for one."""

from random import Random

import pytest

from headgate.controllers.adaptive.call_history import CallHistory
from headgate.controllers.adaptive.growth_probe import PaceCurve
from headgate.controllers.adaptive.turn_fit import TurnFit
from headgate.controllers.adaptive.window import CERTAIN, WindowPhase
from headgate.mock.quota import FixedWindow, Gcra, SlidingLog, TokenBucket
from headgate.units import Rate


def refusals(quota, *, seconds, pace, seed=0, told=False):
    """Calls at about ``pace`` a second, slower for a while after every refusal; yields what was found at each."""
    fit, history, draw, seq, now = TurnFit(), CallHistory(), Random(seed), 0, 0.0
    history.sends.mark(now, 0)
    at = pace
    while now < seconds:
        seq += 1
        history.sends.mark(now, seq)
        fit.sent(seq, now)
        if quota.take(now):
            at = min(at * 1.003, 1.5 * pace)
            now += draw.uniform(0.8, 1.2) / at
            continue
        floor = float(-(-quota.wait(now) // 1)) if told else 0.0
        history.refusals.add(seq)
        fit.refused(seq, now, floor, history)
        yield fit, now
        at, now = pace, now + max(floor, draw.uniform(0.5, 1.5))


def found(quota, **how):
    return next(((fit, now) for fit, now in refusals(quota, **how) if fit.found), (None, 0.0))


@pytest.mark.parametrize("told", [False, True], ids=["bare", "told"])
@pytest.mark.parametrize(
    ("calls", "length", "phase", "pace"),
    [(16, 15, 4.3, 1.3), (37, 10, 6.2, 4.4), (8, 10, 0.05, 1.0), (131, 60, 11.0, 2.5)],
)
def test_a_window_is_found_with_its_length_its_turns_and_what_it_holds(calls, length, phase, pace, told):
    quota = FixedWindow(Rate(float(calls), float(length)), phase=phase)
    fit, now = found(quota, seconds=40 * length, pace=pace, told=told)
    assert fit is not None
    turn = fit.found
    assert turn.length == length
    assert turn.calls == pytest.approx(calls, abs=1.0)
    assert now - length < turn.at <= now
    assert abs((turn.at - phase + length / 2) % length - length / 2) <= turn.error + 0.05


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("told", [False, True], ids=["bare", "told"])
@pytest.mark.parametrize(
    "quota",
    [lambda: TokenBucket(Rate(1.0), 3.0), lambda: TokenBucket(Rate(2.0), 1.0), lambda: Gcra(Rate(3.0), 8.0)],
    ids=["bucket of 3", "bucket of 1", "gcra"],
)
def test_a_quota_that_accrues_is_no_window(quota, told, seed):
    assert found(quota(), seconds=1200.0, pace=2.2, seed=seed, told=told) == (None, 0.0)


def test_what_is_found_of_a_log_is_what_it_holds_in_its_length():
    """Its calls leave it as they came, a length later: what it lets in at regular times a window does too."""
    for seed in range(5):
        fit, _ = found(SlidingLog(Rate(16.0, 15.0)), seconds=900.0, pace=1.3, seed=seed)
        assert fit is None or (fit.found.length, fit.found.calls) == (15.0, pytest.approx(16.0, abs=1.0))


def test_a_run_of_refusals_rules_out_every_window_that_is_shorter():
    fit, history = TurnFit(), CallHistory()
    for seq, at in enumerate((1.0, 2.0, 4.5, 7.5), start=1):
        history.sends.mark(at, seq)
        fit.sent(seq, at)
        history.refusals.add(seq)
        fit.refused(seq, at, 0.0, history)
    fit.sent(5, 8.0)
    history.sends.mark(9.0, 6)
    fit.refused(6, 9.0, 0.0, history)
    assert [lattice.length for lattice in fit.lattices if lattice.too_short] == [1.0, 2.0, 5.0]


def known(*, length=15.0, sharing=False):
    curve, phase = PaceCurve(quota=3.0), WindowPhase()
    curve.sharing.on = sharing
    fit, _ = found(FixedWindow(Rate(16.0, length), phase=4.3), seconds=900.0, pace=1.3)
    return fit, curve, phase


def test_a_window_that_is_found_is_gone_by():
    fit, curve, phase = known()
    curve.log, curve.penalty = 30.0, 5.0
    assert fit.follow(curve, phase)
    assert (curve.window, curve.log, curve.penalty) == (15.0, 0.0, 0.0)
    assert curve.quota == pytest.approx(16.0 / 15.0)
    assert not curve.rough
    assert (phase.spacing, phase.sure) == (15.0, CERTAIN)


def test_one_that_is_known_already_is_only_timed_again():
    fit, curve, phase = known()
    fit.follow(curve, phase)
    curve.quota, phase.last_at = 0.5, 0.0
    assert not fit.follow(curve, phase)
    assert curve.quota == 0.5
    assert phase.last_at == fit.found.at


def test_another_length_is_no_reason_to_give_up_one_whose_turns_are_known():
    fit, curve, phase = known()
    curve.window = 60.0
    phase.know(100.0, 0.1, 60.0)
    assert not fit.follow(curve, phase)
    assert (curve.window, phase.spacing) == (60.0, 60.0)


def test_of_a_shared_quota_no_window_is_gone_by():
    fit, curve, phase = known(sharing=True)
    assert not fit.follow(curve, phase)
    assert curve.window == 0.0


def test_what_was_found_is_forgotten_at_rest():
    fit, curve, phase = known()
    fit.forget()
    assert not fit.lattices
    assert not fit.follow(curve, phase)
