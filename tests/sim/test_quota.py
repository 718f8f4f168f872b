import random

import pytest

from headgate.sim.notation import Rate
from headgate.sim.quota import Concurrency, FixedWindow, SlidingLog, TokenBucket, make_quota


def admitted(quota, instants):
    return [now for now in instants if quota.take(now)]


def test_a_bucket_gives_its_burst_and_then_its_rate():
    bucket = TokenBucket(Rate(10.0), burst=5)
    assert len(admitted(bucket, [0.0] * 20)) == 5
    assert len(admitted(bucket, [n / 100 for n in range(1, 1001)])) == 100


def test_a_bucket_says_when_the_next_call_fits():
    bucket = TokenBucket(Rate(10.0), burst=1)
    assert bucket.take(0.0)
    standing = bucket.standing(0.0)
    assert standing.retry == pytest.approx(0.1)
    assert not bucket.take(0.099)
    assert bucket.take(0.1)


def test_a_bucket_does_not_run_backwards():
    bucket = TokenBucket(Rate(10.0), burst=1)
    assert bucket.take(5.0)
    assert not bucket.take(1.0)
    assert bucket.take(5.1)


def test_a_window_starts_over_at_its_edge():
    window = FixedWindow(Rate(3.0, 10.0))
    assert admitted(window, [1.0, 2.0, 3.0, 4.0, 9.99, 10.0]) == [1.0, 2.0, 3.0, 10.0]
    assert window.standing(12.0).reset == pytest.approx(8.0)
    assert window.standing(12.0).remaining == 2


def test_a_window_that_is_full_says_how_long():
    window = FixedWindow(Rate(1.0, 10.0))
    assert window.take(4.0)
    assert window.standing(4.0).retry == pytest.approx(6.0)


def test_a_log_counts_the_last_seconds_wherever_they_begin():
    log = SlidingLog(Rate(2.0, 10.0))
    assert admitted(log, [9.0, 9.5, 10.0, 18.9, 19.0, 19.4, 19.5]) == [9.0, 9.5, 19.0, 19.5]
    assert log.standing(19.5).retry == pytest.approx(9.5)


def test_no_window_of_a_log_ever_holds_more_than_its_limit():
    seed = 11
    draws = random.Random(seed)
    log = SlidingLog(Rate(7.0, 2.0))
    now, times = 0.0, []
    for _ in range(2000):
        now += draws.expovariate(8.0)
        if log.take(now):
            times.append(now)
    assert all(sum(start - 2.0 < at <= start for at in times) <= 7 for start in times), f"seed {seed}"


def test_a_log_whose_limit_fell_waits_for_enough_to_leave():
    log = SlidingLog(Rate(4.0, 10.0))
    assert len(admitted(log, [0.0, 1.0, 2.0, 3.0])) == 4
    log.scale(0.5, 3.0)
    retry = log.standing(3.0).retry
    assert retry == pytest.approx(9.0)  # the third of four must have left
    assert not log.take(3.0 + retry - 0.01)
    assert log.take(3.0 + retry)


def test_concurrency_counts_what_is_not_ended():
    gate = Concurrency(2)
    assert [gate.take(0.0) for _ in range(3)] == [True, True, False]
    assert gate.standing(0.0).retry is None
    gate.end(1.0)
    assert gate.take(1.0)
    assert gate.standing(1.0).remaining == 0


def test_an_end_without_a_beginning_frees_nothing():
    gate = Concurrency(1)
    gate.end(0.0)
    assert [gate.take(0.0), gate.take(0.0)] == [True, False]


@pytest.mark.parametrize("algorithm", ["bucket", "window", "log"])
def test_a_scaled_quota_admits_its_share(algorithm):
    quota = make_quota(algorithm, rate=Rate(100.0), burst=1, at_once=1)
    ticks = [n / 1000 for n in range(10_000)]
    full = len(admitted(quota, ticks))
    quota.scale(0.4, 10.0)
    less = len(admitted(quota, [10.0 + at for at in ticks]))
    assert full == pytest.approx(1000, abs=2)
    assert less == pytest.approx(400, abs=2 if algorithm == "bucket" else 40)


@pytest.mark.parametrize("algorithm", ["bucket", "window", "log", "concurrency"])
def test_looking_takes_nothing(algorithm):
    quota = make_quota(algorithm, rate=Rate(3.0), burst=3, at_once=3)
    for _ in range(10):
        before = quota.standing(1.0)
    assert quota.standing(1.0) == before
    assert [quota.take(1.0) for _ in range(4)] == [True, True, True, False]


def test_what_can_never_admit_is_refused_with_advice():
    with pytest.raises(ValueError, match="1/2s"):
        make_quota("window", rate=Rate(0.5), burst=1, at_once=1)
    with pytest.raises(ValueError, match="burst"):
        make_quota("bucket", rate=Rate(5.0), burst=0.5, at_once=1)
    with pytest.raises(ValueError, match="at_once"):
        make_quota("concurrency", rate=Rate(5.0), burst=1, at_once=0)
    with pytest.raises(ValueError, match="bucket, window, log, concurrency"):
        make_quota("guess", rate=Rate(5.0), burst=1, at_once=1)
