"""What the quota is after a refusal, by what the search was doing."""

from __future__ import annotations

from math import inf

import pytest

from headgate.controllers.adaptive.call_history import CallHistory
from headgate.controllers.adaptive.estimator import Burst, QuotaEstimator
from headgate.controllers.adaptive.judgement import AFTER_CLIMB, AFTER_SEARCH, AT_REST, FEW_TELL, Refused, judge
from headgate.controllers.adaptive.pace_curve import PaceCurve
from headgate.controllers.adaptive.state import Phase
from headgate.controllers.adaptive.window import WindowPhase

PACE, AT = 10.0, 200.0


def judged(phase, *, measured=None, calls=0.0, span=10.0, silence=0.0, curve=None, burst=None, turns=None):
    """A call that left at 200 s, 10 a second before it, is refused."""
    history, estimator = CallHistory(), QuotaEstimator()
    for second in range(int(AT) + 1):
        history.sends.mark(float(second), int(PACE * second))
    estimator.restart(0, AT - span)
    estimator.silence = silence
    refused = Refused(phase, PACE, measured, calls, span, int(PACE * AT), AT, 5.0, 0.05, PACE)
    curve = curve or known()
    return judge(refused, curve, estimator, burst or Burst(most=inf), history, turns or WindowPhase())


def known(quota=9.0, **what):
    curve = PaceCurve(quota=quota, rough=False)
    for name, value in what.items():
        setattr(curve, name, value)
    return curve


def test_at_rest_it_is_what_was_measured_leaning_to_the_pace():
    quota, rough = judged(Phase.CRUISE, measured=9.5, calls=95.0)
    assert 9.5 < quota < PACE
    assert not rough


def test_a_look_that_measures_nothing_changes_nothing():
    assert judged(Phase.PROBE) == (9.0, False)


@pytest.mark.parametrize(
    ("calls", "span", "quota"), [(20.0, 1.0, 9.0), (59.0, 10.0, 6.0), (2.0, 10.0, FEW_TELL * PACE), (0.0, 10.0, 9.0)]
)
def test_a_handful_of_calls_cuts_to_what_they_say_at_most_but_not_to_nothing(calls, span, quota):
    assert judged(Phase.CRUISE, calls=calls, span=span) == (pytest.approx(quota), False)


def test_where_refusals_are_punished_the_silence_says_nothing():
    assert judged(Phase.CRUISE, curve=known(penalty=12.0)) == (pytest.approx(9.0), False)


@pytest.mark.parametrize(
    ("phase", "share"), [(Phase.CRUISE, AT_REST), (Phase.PROBE, AT_REST), (Phase.START, AFTER_SEARCH)]
)
def test_where_each_refusal_is_waited_for_the_pace_tells_the_quota(phase, share):
    found = judged(phase, measured=5.0, calls=20.0, span=4.0, silence=1.0, curve=known(penalty=0.9))
    assert found == (pytest.approx(share * PACE), True)


@pytest.mark.parametrize("other", [{"silence": 0.3}, {"curve": known(penalty=0.5), "silence": 1.0}, {"silence": 0.0}])
def test_it_does_not_where_the_wait_is_a_small_part_or_short_for_the_pace(other):
    _, rough = judged(
        Phase.CRUISE, **({"measured": 9.5, "calls": 38.0, "span": 4.0, "curve": known(penalty=0.9)} | other)
    )
    assert not rough


def test_after_a_search_upwards_it_is_most_of_that_pace_at_least():
    quota, rough = judged(Phase.CLIMB, measured=2.0, calls=20.0, span=4.0, silence=1.0, curve=known(penalty=0.9))
    assert AFTER_CLIMB * PACE <= quota <= PACE
    assert rough


def test_in_a_search_few_calls_give_their_average_and_many_the_last_moments_too():
    assert judged(Phase.START, calls=8.0) == (0.8, True)
    quota, rough = judged(Phase.START, calls=80.0, measured=8.0)
    assert quota > 8.0
    assert rough


def test_a_search_upwards_never_ends_below_where_it_began():
    quota, rough = judged(Phase.CLIMB, measured=2.0, calls=20.0, curve=known(sought_from=30.0))
    assert (quota, rough) == (30.0, True)


def turning(error=0.1):
    turns = WindowPhase()
    turns.know(AT - 30.0, error, 60.0)
    return turns


def test_where_turns_are_known_it_is_what_was_let_in_since_the_last_one():
    """300 calls since the turn: 5 a second of a window of a minute."""
    quota, rough = judged(Phase.CRUISE, measured=9.0, calls=90.0, curve=known(5.2, window=60.0), turns=turning())
    assert quota == pytest.approx(5.1, rel=0.03)
    assert not rough
    sought, _ = judged(Phase.CLIMB, curve=known(4.0, window=60.0, sought_from=4.0), turns=turning())
    assert sought == pytest.approx(5.0, rel=0.01)


def test_a_count_that_is_far_less_than_a_window_held_is_not_believed_before_it_has_turned():
    """It may have fallen; or it does not turn when it was thought to."""
    quota, _ = judged(Phase.CRUISE, measured=8.0, calls=80.0, curve=known(9.0, window=60.0), turns=turning())
    assert quota > 7.0


def test_of_a_shared_quota_it_is_the_pace():
    curve = known(window=60.0)
    curve.sharing.on = True
    assert judged(Phase.CRUISE, curve=curve, turns=turning()) == (PACE, False)


def test_where_single_calls_are_let_in_only_the_pace_tells():
    assert judged(Phase.CRUISE, measured=2.0, calls=20.0, burst=Burst(most=1.0)) == (pytest.approx(0.97 * 9.0), False)
