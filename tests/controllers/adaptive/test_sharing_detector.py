"""Others take from the same quota: noticed by measurements that wander, and left model."""

from __future__ import annotations

import random

import pytest

from headgate.controllers.adaptive.sharing_detector import SharingDetector
from headgate.lab.experiment import decision_text

pytestmark = pytest.mark.no_cover

SEED = 20261115


def compared(*measures):
    sharing = SharingDetector()
    return sharing, [sharing.compare(measure) for measure in measures]


def test_measurements_that_wander_by_six_percent_are_of_a_shared_quota():
    sharing, changed = compared(50.0, 53.0, 50.0, 53.0)
    assert sharing.on
    assert changed == [False, False, False, True]


def test_three_measurements_are_too_few_to_tell():
    assert not compared(50.0, 70.0, 40.0)[0].on


def test_one_that_is_far_off_among_equal_ones_is_a_change_of_the_quota_and_no_neighbour():
    assert not compared(50.0, 50.1, 50.0, 80.0, 80.1, 80.0)[0].on


def test_a_fall_that_shows_in_two_measurements_is_a_single_change():
    assert not compared(117.0, 117.0, 111.0, 66.6, 65.5)[0].on
    assert not compared(59.0, 58.9, 54.6, 37.8, 37.7)[0].on


def test_measurements_that_agree_again_make_the_quota_ours_again():
    sharing, _ = compared(50.0, 53.0, 50.0, 53.0)
    assert [sharing.compare(50.0) for _ in range(4)] == [False, False, False, True]
    assert not sharing.on


def test_one_and_a_half_percent_are_too_little_to_start_sharing_and_too_much_to_end_it():
    alternating = (50.0, 50.75) * 4
    assert not compared(*alternating)[0].on
    assert compared(50.0, 53.0, 50.0, 53.0, *alternating)[0].on


@pytest.mark.parametrize(("age", "grown"), [(0.0, 0.6), (10.0, 1.2), (20.0, 5.4)])
def test_growth_doubles_after_ten_seconds_without_a_refusal_and_then_quickens(age, grown):
    assert SharingDetector().grown(100.0, 1.0, age, window=0.0) == pytest.approx(100.0 + grown)


def test_the_small_grow_by_less_but_faster_for_their_size():
    small, large = (SharingDetector().grown(pace, 1.0, 0.0, 0.0) / pace for pace in (25.0, 100.0))
    assert small - 1.0 == pytest.approx(2.0 * (large - 1.0))
    assert SharingDetector().grown(1.0, 1.0, 0.0, 0.0) == pytest.approx(1.002), "a crawl is not doubled in seconds"


def test_a_slow_client_waits_for_two_dozen_calls_before_it_grows_faster():
    grown = [SharingDetector().grown(0.5, 1.0, age, 0.0) - 0.5 for age in (0.0, 8.0, 48.0)]
    assert grown[1] < 1.1 * grown[0]
    assert grown[2] == pytest.approx(2.0 * grown[0])


def test_a_window_of_a_minute_is_shared_six_times_as_slowly():
    assert SharingDetector().grown(100.0, 1.0, 0.0, window=60.0) == pytest.approx(100.0 + 0.6 / 6.0)


def test_growth_is_never_more_than_a_fifth_of_the_pace_a_second():
    assert SharingDetector().grown(0.6, 1.0, age=600.0, window=0.0) == pytest.approx(0.72)


def test_three_searches_upwards_in_half_a_minute_that_find_no_more_show_that_others_share_it():
    sharing = SharingDetector()
    assert [sharing.climbed(quota, now) for quota, now in ((30.0, 10.0), (20.0, 20.0), (32.0, 30.0))] == [
        False,
        False,
        True,
    ]
    assert sharing.on
    assert not sharing.climbed(30.0, 31.0), "that is known already"


@pytest.mark.parametrize(
    "climbs",
    [
        pytest.param(((30.0, 10.0), (36.0, 12.0), (45.0, 14.0)), id="a quota that grows is sought again and again"),
        pytest.param(((30.0, 10.0), (30.0, 30.0), (30.0, 50.0)), id="once in twenty seconds may be chance"),
        pytest.param(((30.0, 110.0), (30.0, 112.0), (30.0, 5.0)), id="the clock is another one"),
    ],
)
def test_searches_upwards_are_no_sign_of_others_where(climbs):
    sharing = SharingDetector()
    assert not any(sharing.climbed(quota, now) for quota, now in climbs)


def test_searches_upwards_are_forgotten_when_measurements_agree_again():
    sharing = SharingDetector()
    for now in (10.0, 20.0, 30.0):
        sharing.climbed(30.0, now)
    for _ in range(5):
        sharing.compare(30.0)
    assert not sharing.on
    assert not sharing.climbed(30.0, 35.0), "another one proves nothing"


def test_the_searches_upwards_are_stored():
    sharing, loaded = SharingDetector(), SharingDetector()
    sharing.climbed(30.0, 10.0)
    loaded.load_state(sharing.to_state())
    assert loaded.climbs == ((10.0, 30.0),)
    loaded.load_state(sharing.to_state()[:-1])


def test_a_neighbour_that_comes_and_goes_is_noticed_and_yielded_to(lab):
    class Neighboured(lab.TokenBucket):
        """50/s, of which a neighbour takes half for some seconds, and then nothing for some."""

        busy, turns_at, random = True, 0.0, random.Random(SEED)

        def admits(self, now, service):
            self._fill(now)
            while now >= self.turns_at:
                self.busy, self.turns_at = not self.busy, self.turns_at + self.random.uniform(3.0, 11.0)
            self.rate = 25 if self.busy else 50
            return super().admits(now, service)

    told = []
    world = lab.World(Neighboured(50, 10))
    world.controller.listen(lambda now, event: told.append(decision_text(event)))
    world.run(120)
    tally = world.run(240)
    assert any("other clients use it too; yielding" in sentence for sentence in told)
    assert tally.refused_share <= 0.01
    assert tally.served >= 0.6 * 37.5 * 120


def test_a_quota_of_our_own_is_never_taken_for_a_shared_one(lab):
    for seed in range(3):
        world = lab.World(lab.TokenBucket(50, 10), seed=seed)
        for until in range(10, 120, 10):
            world.run(until)
            assert not world.controller.models.search.curve.sharing.on, f"seed {seed}, {until} s"
