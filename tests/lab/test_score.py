import pytest

from headgate.lab.score import breaker_spans, draw, judge, learned_by, percentile, time_to_find
from headgate.lab.trial import KeySample, Sample, Trial
from headgate.mock.api import MockPlan
from headgate.units import Outage, Rate, Step

PLAN = MockPlan(rate=Rate(100.0), burst=10, steps=(Step(0.5, 10.0),), outages=(Outage(15.0, 2.0),))


def sample(at, learned, state="closed"):
    return Sample(at=at, keys=(KeySample(learned, state),), waiting=0, done=0)


def finished_trial(done, *, calls=None, seconds=20.0, statuses=()):
    trial = Trial(limiter=None, url="", calls=calls or done, workers=1, began_at=0.0, ended_at=seconds)
    trial.keys[0].done_at = [seconds * number / done for number in range(done)]
    trial.times_done.update(range(done))
    trial.keys[0].statuses.update({200: done, **dict(statuses)})
    trial.samples = [sample(number / 10, 99.0 if number < 100 else 51.0) for number in range(200)]
    return trial


def test_the_quota_is_found_when_the_learned_rate_stays_close():
    rising = [sample(n / 10, min(97.0, 2.0 * n)) for n in range(100)]
    assert time_to_find(learned_by(rising, 0), PLAN, 0.0, 10.0) == pytest.approx(4.5)


def test_passing_through_the_quota_is_not_finding_it():
    shooting_past = [sample(n / 10, 40.0 * n) for n in range(100)]
    assert time_to_find(learned_by(shooting_past, 0), PLAN, 0.0, 10.0) is None


def test_a_change_is_followed_from_its_own_instant():
    late = [sample(n / 10, 100.0 if n < 112 else 50.0) for n in range(150)]
    assert time_to_find(learned_by(late, 0), PLAN, 10.0, float("inf")) == pytest.approx(1.2)


def test_a_quota_found_only_after_it_changed_is_not_the_first_one():
    trial = finished_trial(100)
    trial.samples = [sample(n / 10, 50.0) for n in range(200)]
    score = judge(trial, PLAN, {"ids_done": 100, "ids_done_twice": 0})
    assert score.found_after is None
    assert score.keys[0].followed_after == 0.0
    assert score.goodput_once_found is None
    assert "once found" not in score.headline


def test_breaker_spans_join_open_and_half_open():
    states = ["closed", "open", "half_open", "open", "closed", "open"]
    assert breaker_spans([sample(float(at), 1.0, state) for at, state in enumerate(states)], 0) == [
        (1.0, 4.0),
        (5.0, 5.0),
    ]
    assert breaker_spans([], 0) == []


def test_percentiles_are_values_that_occurred():
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([], 0.5) == 0.0


def test_goodput_is_measured_against_what_the_quota_allowed():
    score = judge(finished_trial(700, statuses={429: 7, 503: 3}.items()), PLAN, {"ids_done": 700, "ids_done_twice": 0})
    assert score.goodput == pytest.approx(700 / (1000 + 250 + 150 + 10))
    assert score.rate_limited_share == pytest.approx(7 / 710)
    assert score.failed == 3
    assert score.found_after == 0.0
    assert score.keys[0].followed_after == 0.0
    assert score.is_sound


@pytest.mark.parametrize(
    ("calls", "truth", "lost", "twice"),
    [
        (101, {"ids_done": 100, "ids_done_twice": 0}, 1, 0),
        (100, {"ids_done": 99, "ids_done_twice": 0}, 1, 0),
        (100, {"ids_done": 100, "ids_done_twice": 2}, 0, 2),
    ],
)
def test_either_book_can_convict(calls, truth, lost, twice):
    score = judge(finished_trial(100, calls=calls), PLAN, truth)
    assert (score.lost, score.done_twice, score.is_sound) == (lost, twice, False)
    assert "none lost" not in score.headline


def test_what_a_stopped_trial_did_not_reach_is_left_not_lost():
    trial = finished_trial(100, calls=150)
    trial.stopped = True
    score = judge(trial, PLAN, {"ids_done": 100, "ids_done_twice": 0})
    assert (score.lost, score.left) == (0, 50)


def test_the_picture_shows_quota_outage_and_refusals():
    trial = finished_trial(700)
    trial.keys[0].refused_at = [1.0, 2.0]
    trial.keys[0].rests = 1
    score = judge(trial, PLAN, {"ids_done": 700, "ids_done_twice": 0})
    picture = draw(trial, PLAN, score)
    assert picture.outages == [(15.0, 17.0)]
    (panel,) = picture.panels
    assert panel.quota == [(0.0, 100.0), (10.0, 50.0), (15.0, 0.0), (17.0, 50.0)]
    assert list(panel.refused_at) == [1.0, 2.0]
    assert panel.headline == "700 calls, 0 rate limited (429), 1 rest"


def test_every_key_is_judged_by_its_own_quota_and_found_once_all_are():
    keys = (PLAN, MockPlan(rate=Rate(20.0), burst=2, steps=(Step(0.5, 12.0),)))
    trial = Trial(limiter=None, url="", calls=900, workers=1, secrets=("a", "b"), began_at=0.0, ended_at=20.0)
    learned = [(99.0 if at < 10 else 51.0, 9.0 if at < 3 or at >= 12 else 21.0) for at in (n / 10 for n in range(200))]
    trial.samples = [Sample(n / 10, tuple(map(KeySample, rates)), 0, 0) for n, rates in enumerate(learned)]
    for number, log in enumerate(trial.keys):
        log.done_at = [n / 10 for n in range(200)]
        log.statuses.update({200: 200, 429: number})
    trial.times_done.update(range(400))
    score = judge(trial, MockPlan(keys=keys), {"ids_done": 400, "ids_done_twice": 0})
    assert [key.label for key in score.keys] == ["key-1", "key-2"]
    assert [key.found_after for key in score.keys] == [0.0, 3.0]
    assert [key.followed_after for key in score.keys] == [0.0, 0.0]
    assert [key.rate_limited for key in score.keys] == [0, 1]
    assert score.found_after == 3.0
    assert score.goodput_once_found == pytest.approx(340 / (7 * 100 + 10 * 50 + 9 * 20 + 8 * 10))


def test_a_trial_that_ends_before_it_began_is_judged_too():
    trial = Trial(limiter=None, url="", calls=5, workers=1, stopped=True)
    score = judge(trial, PLAN, {"ids_done": 0, "ids_done_twice": 0})
    assert (score.done, score.left, score.seconds) == (0, 5, 0.0)
