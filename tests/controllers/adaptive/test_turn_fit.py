"""Windows that turn at fixed times are recognized by their refusals, and nothing else is taken for one."""

from random import Random

import pytest

from headgate.controllers.adaptive.call_history import CallHistory
from headgate.controllers.adaptive.pace_curve import PaceCurve
from headgate.controllers.adaptive.turn_fit import TurnFit
from headgate.controllers.adaptive.window import Block, WindowPhase
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
    assert (phase.spacing, phase.known) == (15.0, True)


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


# -- what contradicts it --------------------------------------------------------------------------


def blocked(*, odd, began_at=130.0, refused_at=131.0, probe_at=140.0, calls=30):
    """A window of 60 in a minute that turned at 100 s; a block began at 130 s, and a probe was let in."""
    block, curve, history = Block(), PaceCurve(quota=1.0, window=60.0), CallHistory()
    block.window_phase.know(100.0, 0.5, 60.0)
    history.sends.mark(100.0, 50)
    history.sends.mark(began_at, 50 + calls)
    block.began_at, block.began_seq, block.refused_at, block.probe_at, block.odd = (
        began_at,
        50 + calls,
        refused_at,
        probe_at,
        odd,
    )
    return TurnFit(), block, history, curve


def test_a_window_that_lets_calls_in_before_its_turn_is_none():
    fit, block, history, curve = blocked(odd=True)
    fit.resumed(block, history, curve)
    assert not block.window_phase.known
    assert (block.window_phase.spacing, curve.window) == (0.0, 0.0)


def test_one_that_refused_before_it_was_full_and_turns_when_it_should_has_fallen():
    fit, block, history, curve = blocked(odd=True, refused_at=158.0, probe_at=161.0)
    fit.resumed(block, history, curve)
    assert block.window_phase.known
    assert curve.quota == pytest.approx(0.5, rel=0.05)


def test_distances_that_agreed_by_chance_are_given_up_like_turns_that_were_known():
    fit, block, history, curve = blocked(odd=False)
    block.window_phase.known = False
    fit.resumed(block, history, curve)
    assert block.window_phase.sure == 0
    assert curve.window == 60.0, "long blocks have shown it"


def test_refused_well_after_a_turn_it_is_not_this_window_that_refuses():
    fit, block, _, curve = blocked(odd=False)
    fit.probe_refused(block, 161.0, curve)
    assert block.window_phase.known, "the turn may be late"
    fit.probe_refused(block, 170.0, curve)
    assert not block.window_phase.known
