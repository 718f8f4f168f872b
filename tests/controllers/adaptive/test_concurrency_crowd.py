"""Shallow caps on calls in flight: known by the crowd in which calls are refused, where depths alone prove nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headgate.controllers.adaptive.concurrency import ENOUGH_LET_IN, LET_IN, SHALLOW, ConcurrencyCap, Verdict
from headgate.controllers.adaptive.limit_models import LimitModels
from headgate.controllers.adaptive.rate_search import RateSearch
from headgate.controllers.adaptive.state import Phase
from headgate.core.policy import Ticket
from headgate.reason_text import controller_text

pytestmark = pytest.mark.no_cover


def with_let_in(*crowds, times=1):
    cap = ConcurrencyCap()
    for crowd in crowds * times:
        cap.served(crowd)
    return cap


def refused(cap, crowd, depth=2, *, exact=0, now=1.0):
    """A refusal in this crowd, weighed and judged."""
    cap.weigh(crowd, depth)
    return cap.suspect(depth, 9, exact, 100, now)


def test_two_refused_in_a_crowd_in_which_none_is_let_in_are_a_cap():
    cap = with_let_in(0.1, 0.2, times=32)
    assert [refused(cap, 0.4), refused(cap, 0.4, depth=3)] == [Verdict.NOT_MINE, Verdict.MINE]
    assert (cap.on, cap.cap, cap.fine) == (True, 2, 2)


def test_a_crowd_is_evidence_even_where_what_gets_through_is_always_the_same():
    cap = with_let_in(0.1, 0.2, times=32)
    assert [refused(cap, 0.4, exact=3) for _ in range(2)][-1] is Verdict.MINE


def test_a_quota_refuses_in_any_crowd_and_lets_in_in_any():
    cap = with_let_in(0.1, 0.2, 0.3, 0.4, times=16)
    assert {refused(cap, crowd) for crowd in (0.1, 0.4, 0.2, 0.3, 0.4, 0.2) * 5} == {Verdict.NOT_MINE}


def test_equal_crowds_are_no_evidence_however_often_they_are_refused():
    cap = with_let_in(0.2, times=64)
    assert {refused(cap, 0.2) for _ in range(50)} == {Verdict.NOT_MINE}
    assert cap.evidence == 0.0


def test_a_refusal_in_an_ordinary_crowd_takes_evidence_back():
    cap = with_let_in(0.1, 0.2, times=32)
    refused(cap, 0.4)
    before = cap.evidence
    refused(cap, 0.1)
    assert 0.0 < cap.evidence < before


def test_with_too_few_let_in_to_compare_with_a_crowd_tells_nothing():
    cap = with_let_in(0.1, times=ENOUGH_LET_IN - 1)
    assert {refused(cap, 0.4) for _ in range(3)} == {Verdict.NOT_MINE}
    cap.served(0.1)
    assert [refused(cap, 0.4) for _ in range(2)][-1] is Verdict.MINE


def test_a_deep_refusal_is_no_evidence_of_a_shallow_cap():
    cap = with_let_in(0.1, 0.2, times=32)
    for depth in (12, 30, 19, 12, 25):
        refused(cap, 0.4, depth)
    assert cap.evidence == 0.0
    assert refused(cap, 0.4, SHALLOW - 1) is Verdict.NOT_MINE


def test_evidence_of_a_shallow_cap_is_kept_for_a_shallow_refusal():
    cap = with_let_in(0.1, 0.2, times=32)
    cap.weigh(0.4, 2)
    cap.weigh(0.4, 2)
    assert cap.suspect(20, 9, 0, 100, 1.0) is Verdict.NOT_MINE
    assert cap.suspect(2, 9, 0, 100, 1.0) is Verdict.MINE


def test_calls_let_in_in_the_very_same_crowd_count_by_half():
    cap = with_let_in(0.1, 0.3, times=32)
    cap.weigh(0.3, 2)
    assert not cap.common, "a quarter"
    cap.weigh(0.1, 2)
    assert cap.common, "three quarters"


def test_one_depth_is_no_cap_where_calls_are_let_in_in_the_same_crowd():
    common, rare = with_let_in(0.3, 0.4, times=32), with_let_in(0.1, 0.2, times=32)
    assert {refused(common, 0.3, depth=16) for _ in range(6)} == {Verdict.NOT_MINE}
    for _ in range(3):
        rare.weigh(0.4, 16)
        verdict = rare.suspect(16, 15, 0, 100, 1.0)
    assert verdict is Verdict.MINE


def test_evidence_is_used_up_by_the_cap_it_made():
    cap = with_let_in(0.1, 0.2, times=32)
    refused(cap, 0.4)
    refused(cap, 0.4)
    assert (cap.on, cap.evidence) == (True, 0.0)


def test_only_the_last_calls_let_in_are_remembered_and_none_after_a_rest():
    cap = with_let_in(*range(1000))
    assert sorted(cap.let_in) == list(range(1000 - LET_IN, 1000))
    cap.rest()
    cap.served(5.0)
    assert list(cap.let_in) == [5.0]


# -- what is compared -----------------------------------------------------------------------------


def cruising_models():
    """Models that hold a quota of 10/s since call 100."""
    models = LimitModels(search=RateSearch.start(10.0, 10.0))
    models.search.curve.learn(10.0, rough=False)
    models.search.cruise_from(100)
    models.search.pace = 10.0
    return models


def serve(models, seq, depth):
    models.served(Ticket(SimpleNamespace(seq=seq), seq, 1.0, depth), 0.1, seq, 1.1)
    return list(models.concurrency.let_in)


def test_a_crowd_is_the_depth_for_the_pace():
    models = cruising_models()
    assert serve(models, 200, 3) == pytest.approx([0.35])
    models.search.pace = 5.0
    assert serve(models, 201, 1) == pytest.approx([0.35, 0.3])


@pytest.mark.parametrize(("seq", "compared"), [(106, 0), (107, 1)])
def test_calls_that_left_while_those_of_the_last_cut_were_out_are_not_compared(seq, compared):
    assert len(serve(cruising_models(), seq, 3)) == compared


def test_calls_of_a_search_are_not_compared():
    assert serve(LimitModels(search=RateSearch.start(10.0, 10.0)), 200, 3) == []


@pytest.mark.parametrize(
    ("seq", "phase", "weighed"),
    [(200, Phase.CRUISE, True), (106, Phase.CRUISE, False), (200, Phase.PROBE, False), (200, Phase.CLIMB, False)],
    ids=["cruising", "right after a cut", "looking", "searching"],
)
def test_only_a_refusal_at_a_settled_pace_is_weighed(seq, phase, weighed):
    models = cruising_models()
    models.search.phase = phase
    for _ in range(LET_IN):
        models.concurrency.served(0.1)
    models.refused(Ticket(SimpleNamespace(seq=seq), seq, 1.0, 3), 0.05, 0.0, 9, 1.1)
    assert (models.concurrency.evidence > 0.0) is weighed


# -- in a world -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_once", "within", "served"), [(1, 60, 0.92), (2, 240, 0.96), (3, 180, 0.96), (4, 120, 0.96), (6, 60, 0.96)]
)
def test_a_shallow_cap_is_found_and_kept_to(lab, at_once, within, served):
    world = lab.World(lab.AtOnce(at_once), service=0.4)
    world.run(within)
    assert controller_text(world.controller.why()) == f"at most {at_once} in flight"
    tally = world.run(within + 120)
    assert tally.served >= served * at_once / (0.4 + 0.04) * 120
    assert tally.refused_share <= 0.02


@pytest.mark.parametrize("rate", [pytest.param(130, marks=pytest.mark.chaos), 180])
def test_a_bucket_with_short_answers_is_not_held_as_a_cap(lab, rate):
    for seed in range(5):
        world = lab.World(lab.TokenBucket(rate, 12), service=0.04, seed=seed)
        world.run(15)
        assert not world.controller.models.concurrency.on, f"seed {seed}"
        tally = world.run(60)
        assert not world.controller.models.concurrency.on, f"seed {seed}"
        assert tally.served >= 0.99 * rate * 45, f"seed {seed}"
