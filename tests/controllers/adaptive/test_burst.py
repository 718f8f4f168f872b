"""Servers that let in one call at a time: nothing accrues, so the paces themselves must tell."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest

from headgate.controllers.adaptive.call_history import CallHistory
from headgate.controllers.adaptive.estimator import CRUISED, FIRST_CUT, LEAST_LOOK, SEARCHED, SOUGHT, Burst
from headgate.controllers.adaptive.rate_search import RateSearch
from headgate.controllers.adaptive.state import Phase
from headgate.core.policy import Ticket

pytestmark = pytest.mark.no_cover


def counted(volley, refused):
    """A burst, after a volley of which these were refused."""
    burst, history = Burst(), CallHistory()
    history.sends.mark(0.0, 0)
    burst.volley = volley
    for seq in refused:
        history.refusals.add(seq)
    burst.count(history)
    return burst, history


def test_what_is_let_in_of_the_first_volley_is_the_burst_at_most():
    assert counted(5, refused=(2, 3, 4, 5))[0].single
    several, _ = counted(5, refused=(4, 5))
    assert (several.most, several.single) == (3.0, False)


def test_before_a_volley_was_sent_nothing_is_known():
    burst, _ = counted(0, refused=())
    assert (burst.most, burst.single) == (inf, False)


def test_the_volley_is_counted_once():
    burst, history = counted(5, refused=(2, 3, 4, 5))
    burst.volley = 9
    burst.count(history)
    assert burst.most == 1.0


def test_each_look_that_is_refused_makes_the_next_go_half_as_far_down_to_the_least():
    burst = Burst()
    seen = []
    for _ in range(4):
        burst.looked(0.15)
        seen.append(burst.look)
    assert seen == pytest.approx([0.075, 0.0375, LEAST_LOOK, LEAST_LOOK])


def test_after_a_search_upwards_the_next_look_goes_half_as_far_as_the_search_was_refused():
    burst = Burst()
    for _ in range(4):
        burst.looked(0.15)
    burst.found(0.2)
    assert burst.look == pytest.approx(0.1)


# -- what the search makes of it ------------------------------------------------------------------


def single(phase, pace, quota=50.0):
    """A seeker that knows that calls are let in one by one, doing this at this pace for 10 s."""
    search = RateSearch.start(quota, quota, 0.0)
    search.burst.most = 1.0
    search.curve.learn(quota, rough=False)
    search.curve.learn(quota, rough=False)
    search.estimator.restart(0, 0.0)
    search.cruise_from(0)
    search.phase, search.pace = phase, pace
    search.history.sends.mark(10.0, 300)
    return search


def refuse(search, seq, sent_at):
    ticket = Ticket(SimpleNamespace(seq=seq), seq, sent_at, 1)
    search.note(ticket, 0.05, 0.0)
    search.refused(ticket, 0.0, sent_at + 0.05)


@pytest.mark.parametrize(
    ("phase", "pace", "quota"),
    [
        (Phase.START, 80.0, SEARCHED * 80.0),
        (Phase.CLIMB, 80.0, SOUGHT * 80.0),
        (Phase.PROBE, 57.5, 50.0),
        (Phase.CRUISE, 50.0, CRUISED * 50.0),
        (Phase.CRUISE, 51.0, CRUISED * 50.0),
    ],
)
def test_a_refusal_is_judged_by_the_pace_and_not_by_what_got_through_below_it(phase, pace, quota):
    search = single(phase, pace)
    refuse(search, 300, 10.0)
    assert search.phase is Phase.CRUISE
    assert search.curve.quota == pytest.approx(quota), "30/s were let in"


def test_a_search_upwards_never_ends_below_where_it_began():
    search = single(Phase.CLIMB, 52.0)
    search.curve.sought_from = 50.0
    refuse(search, 300, 10.0)
    assert search.curve.quota == 50.0


def test_a_look_that_was_let_in_is_what_a_search_upwards_never_ends_below():
    search = single(Phase.PROBE, 51.5)
    search.growth_probe.begin(0, 0.0)
    search.grow(0.1, 12.0, 300)
    assert search.phase is Phase.CLIMB
    search.pace = 53.0
    refuse(search, 400, 13.0)
    assert search.curve.quota == 51.5


def test_after_a_search_upwards_the_quota_lies_below_the_pace_that_was_refused_so_looks_stay_below_it():
    search = single(Phase.CLIMB, 80.0)
    search.burst.look = LEAST_LOOK
    refuse(search, 300, 10.0)
    assert search.curve.quota * (1.0 + search.burst.look) == pytest.approx(0.5 * (72.0 + 80.0))


def test_what_a_small_burst_cannot_have_let_in_was_the_quota():
    search = single(Phase.START, 100.0)
    search.burst.most = 3.0
    search.history.sends.mark(10.6, 300)
    search.history.sends.mark(11.0, 341)
    refuse(search, 341, 11.0)
    assert search.curve.quota == pytest.approx((40 - 3) / 0.4, rel=0.01)


def test_the_look_after_one_that_was_refused_goes_half_as_far():
    search = single(Phase.PROBE, 57.5)
    refuse(search, 300, 10.0)
    search.grow(search.curve.period, 20.0, 800)
    assert search.phase is Phase.PROBE
    assert search.pace == pytest.approx(50.0 * 1.075)


def test_every_other_call_refused_is_no_reason_to_go_down_to_half():
    search = single(Phase.CRUISE, 50.0)
    search.cruise_from(300)
    pace = search.pace
    for seq in (302, 304, 306):
        refuse(search, seq, 10.0 + 0.02 * (seq - 300))
    assert search.curve.quota == pytest.approx(pace * (1.0 - FIRST_CUT) * 0.97)


def test_refused_at_rest_four_times_in_a_row_it_lets_in_more_than_single_calls():
    """The volley met a bucket that others had emptied."""
    burst = Burst(most=1.0, volley=5)
    quota = 50.0
    for _ in range(3):
        quota, _ = burst.judge(Phase.CRUISE, quota, quota, 0.0, 0.1)
        assert burst.single
    burst.judge(Phase.CRUISE, quota, quota, 0.0, 0.1)
    assert (burst.most, burst.volley) == (inf, 0)


def test_a_look_between_two_refusals_at_rest_begins_their_count_again():
    burst = Burst(most=1.0)
    for _ in range(5):
        for phase in (Phase.CRUISE, Phase.CRUISE, Phase.CRUISE, Phase.PROBE):
            burst.judge(phase, 50.0, 50.0, 0.0, 0.1)
    assert burst.single


def test_refused_again_and_again_it_goes_down_twice_as_far_each_time():
    burst = Burst(most=1.0)
    cuts = [burst.cut_again(100.0, 2, 4, 10.0) / 97.0 for _ in range(5)]
    assert cuts == pytest.approx([0.9, 0.8, 0.6, 0.5, 0.5])
    assert burst.look == 1.0, "what it has fallen to lies anywhere below"


@pytest.mark.parametrize(
    ("refused", "sent", "seconds", "quota"), [(2, 4, 0.04, 48.5), (4, 5, 10.0, 19.4), (20, 20, 1.0, 9.7)]
)
def test_elsewhere_the_share_that_is_refused_tells_how_far(refused, sent, seconds, quota):
    assert Burst().cut_again(100.0, refused, sent, seconds) == pytest.approx(quota)


def test_where_few_are_refused_in_a_long_time_it_is_cut_no_further_than_what_was_let_in_says():
    assert Burst().cut_again(0.6, 2, 3, 10.0) == pytest.approx(0.2)
    assert Burst().cut_again(0.6, 2, 3, 5.0) == pytest.approx(0.4)
    assert Burst().cut_again(0.6, 2, 3, 2.0) == pytest.approx(0.97 * 0.6)


@pytest.mark.parametrize("known", ["window", "sharing"])
def test_of_a_window_and_a_shared_quota_what_got_through_counts_all_the_same(known):
    search, usual = single(Phase.CRUISE, 50.0), single(Phase.CRUISE, 50.0)
    usual.burst.most = inf
    for each in (search, usual):
        if known == "window":
            each.curve.window, each.curve.age = 5.0, 5.0
        else:
            each.curve.sharing.on = True
        refuse(each, 300, 10.0)
    assert search.curve.quota == usual.curve.quota


# -- in a world -----------------------------------------------------------------------------------


def test_a_bucket_of_one_call_is_held_just_below_what_it_keeps_calls_apart(lab):
    served = refused = 0
    for seed in range(6):
        world = lab.World(lab.TokenBucket(5, 1), seed=seed)
        world.run(60)
        tally = world.run(240)
        assert world.controller.models.search.burst.single, f"seed {seed}"
        served, refused = served + tally.served, refused + tally.refused
    assert served >= 0.92 * 5 * 180 * 6
    assert refused <= 0.01 * (served + refused)


def test_a_bucket_of_one_call_that_fills_twice_as_fast_is_followed(lab):
    bucket = lab.TokenBucket(5, 1)
    world = lab.World(bucket)
    world.run(120)
    bucket._fill(120)
    bucket.rate = 10
    world.run(300)
    assert world.run(420).served >= 0.85 * 10 * 120


@pytest.mark.parametrize(
    ("since", "pace", "rate"), [(0.4, 200.0, 100.0 * 2.0 / 2.15), (0.4, 100.0, 80.0), (2.0, 200.0, 0.0)]
)
def test_a_log_that_is_full_of_a_search_allows_what_it_held(since, pace, rate):
    """Too short a time after a search measures what is left of the log, not the quota."""
    history = CallHistory()
    for tenth in range(101):
        history.sends.mark(0.1 * tenth, 10 * tenth)
    assert Burst().rate_of_log(history, since, pace, 10.0) == pytest.approx(rate)
