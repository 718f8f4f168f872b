import random

import pytest

from headgate.mock.quota import ALGORITHMS, Concurrency, FixedWindow, Gcra, SlidingLog, TokenBucket, make_quota
from headgate.units import Rate


def admitted(quota, instants):
    return [now for now in instants if quota.take(now)]


def test_a_bucket_gives_its_burst_and_then_its_rate():
    bucket = TokenBucket(Rate(10.0), burst=5)
    assert len(admitted(bucket, [0.0] * 20)) == 5
    assert len(admitted(bucket, [n / 100 for n in range(1, 1001)])) == 100


def test_a_bucket_says_when_the_next_call_fits():
    bucket = TokenBucket(Rate(10.0), burst=1)
    assert bucket.take(0.0)
    status = bucket.status(0.0)
    assert status.retry == pytest.approx(0.1)
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
    assert window.status(12.0).reset == pytest.approx(8.0)
    assert window.status(12.0).remaining == 2


def test_a_window_that_is_full_says_how_long():
    window = FixedWindow(Rate(1.0, 10.0))
    assert window.take(4.0)
    assert window.status(4.0).retry == pytest.approx(6.0)


def test_a_log_counts_the_last_seconds_wherever_they_begin():
    log = SlidingLog(Rate(2.0, 10.0))
    assert admitted(log, [9.0, 9.5, 10.0, 18.9, 19.0, 19.4, 19.5]) == [9.0, 9.5, 19.0, 19.5]
    assert log.status(19.5).retry == pytest.approx(9.5)


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
    retry = log.status(3.0).retry
    assert retry == pytest.approx(9.0)  # the third of four must have left
    assert not log.take(3.0 + retry - 0.01)
    assert log.take(3.0 + retry)


def test_concurrency_counts_what_is_not_ended():
    gate = Concurrency(2)
    assert [gate.take(0.0) for _ in range(3)] == [True, True, False]
    assert gate.status(0.0).retry is None
    gate.end(1.0)
    assert gate.take(1.0)
    assert gate.status(1.0).remaining == 0


def test_an_end_without_a_beginning_frees_nothing():
    gate = Concurrency(1)
    gate.end(0.0)
    assert [gate.take(0.0), gate.take(0.0)] == [True, False]


def test_a_bucket_may_keep_its_size_when_its_rate_changes():
    bucket = TokenBucket(Rate(10.0), burst=20, scales_burst=False)
    bucket.scale(0.5, 0.0)
    assert len(admitted(bucket, [0.0] * 30)) == 20
    assert len(admitted(bucket, [n / 100 for n in range(1, 1001)])) == 50


def test_a_neighbour_can_put_a_bucket_into_debt_but_no_deeper_than_its_size():
    bucket = TokenBucket(Rate(10.0), burst=5)
    for _ in range(30):
        bucket.yield_to(0.0)
    assert bucket.wait(0.0) == pytest.approx(0.6)
    assert not bucket.take(0.59)
    assert bucket.take(0.6)


def test_gcra_gives_its_burst_and_then_one_call_an_interval():
    gcra = Gcra(Rate(10.0), burst=3)
    assert len(admitted(gcra, [0.0] * 10)) == 3
    assert gcra.status(0.0).retry == pytest.approx(0.1)
    assert len(admitted(gcra, [n / 100 for n in range(1, 1001)])) == 100


def test_gcra_admits_what_a_bucket_of_its_size_admits():
    seed = 5
    draws = random.Random(seed)
    gcra, bucket, now = Gcra(Rate(10.0), burst=4), TokenBucket(Rate(10.0), burst=4), 0.0
    for _ in range(2000):
        now += draws.expovariate(12.0)
        assert gcra.take(now) == bucket.take(now), f"seed {seed}, now {now}"


def test_a_neighbour_delays_the_procession_of_gcra():
    gcra = Gcra(Rate(10.0), burst=1)
    gcra.yield_to(0.0)
    assert gcra.wait(0.0) == pytest.approx(0.1)
    for _ in range(50):
        gcra.yield_to(0.0)
    assert gcra.wait(0.0) == pytest.approx(0.2)


def test_windows_turn_at_their_phase():
    window = FixedWindow(Rate(2.0, 10.0), phase=4.0)
    assert admitted(window, [0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 14.0]) == [0.0, 1.0, 4.0, 5.0, 14.0]
    assert window.status(15.0).reset == pytest.approx(9.0)


def test_a_neighbour_uses_up_windows_and_logs():
    window, log = FixedWindow(Rate(2.0, 10.0)), SlidingLog(Rate(2.0, 10.0))
    for quota in (window, log):
        quota.yield_to(1.0)
        assert [quota.take(2.0), quota.take(2.0)] == [True, False]


def test_a_strict_log_keeps_out_a_client_that_hammers():
    log = SlidingLog(Rate(2.0, 10.0), strict=True)
    assert len(admitted(log, [n / 10 for n in range(1000)])) == 2
    assert log.wait(99.9) == pytest.approx(10.0, abs=0.2)


def test_a_strict_log_lets_a_client_in_again_that_stops():
    log = SlidingLog(Rate(2.0, 10.0), strict=True)
    assert admitted(log, [0.0, 1.0, 2.0, 10.5, 11.9, 12.1, 22.05]) == [0.0, 1.0, 22.05]


def test_a_strict_log_does_not_remember_without_bound():
    log = SlidingLog(Rate(5.0, 10.0), strict=True)
    for _ in range(1000):
        log.take(1.0)
    assert len(log.entries) == 40


@pytest.mark.parametrize("algorithm", ["bucket", "gcra", "window", "log"])
def test_an_amount_is_taken_whole_or_not_at_all(algorithm):
    quota = make_quota(algorithm, rate=Rate(100.0, 10.0), burst=100, at_once=1)
    assert quota.take(1.0, 70.0)
    assert not quota.take(1.0, 40.0)
    assert quota.take(1.0, 30.0)
    wait = quota.wait(1.0, 20.0)
    assert not quota.take(1.0 + wait - 0.01, 20.0)
    assert quota.take(1.0 + wait + 0.001, 20.0)


def test_a_log_adds_up_amounts_to_say_when_there_is_room():
    log = SlidingLog(Rate(10.0, 10.0))
    for at, amount in ((0.0, 2.0), (1.0, 3.0), (2.0, 5.0)):
        assert log.take(at, amount)
    assert log.wait(3.0, 2.0) == pytest.approx(7.0)
    assert log.wait(3.0, 4.0) == pytest.approx(8.0)
    assert log.wait(3.0, 6.0) == pytest.approx(9.0)


@pytest.mark.parametrize("algorithm", ["window", "log", "concurrency"])
def test_a_third_of_thirty_is_ten(algorithm):
    quota = make_quota(algorithm, rate=Rate(30.0), burst=1, at_once=30)
    quota.scale(1 / 3, 0.0)
    assert len(admitted(quota, [0.5] * 30)) == 10


def test_a_log_says_when_its_oldest_call_leaves_and_when_its_last():
    log = SlidingLog(Rate(5.0, 10.0))
    assert (log.status(3.0).relief, log.status(3.0).reset) == (0.0, 0.0)
    assert log.take(1.0)
    assert log.take(2.0)
    assert log.status(3.0).relief == pytest.approx(8.0)
    assert log.status(3.0).reset == pytest.approx(9.0)


@pytest.mark.parametrize("algorithm", ["bucket", "gcra"])
def test_a_quota_that_refills_says_how_much_fits_at_once(algorithm):
    quota = make_quota(algorithm, rate=Rate(10.0), burst=40, at_once=1, scales_burst=False)
    assert quota.take(0.0)
    quota.scale(0.5, 0.0)
    status = quota.status(0.0)
    assert (status.limit, status.window, status.burst) == (5.0, 1.0, 40)
    assert status.remaining == pytest.approx(39, abs=1)


@pytest.mark.parametrize("algorithm", ["bucket", "gcra", "window", "log"])
def test_a_scaled_quota_admits_its_share(algorithm):
    quota = make_quota(algorithm, rate=Rate(100.0), burst=1, at_once=1)
    ticks = [n / 1000 for n in range(10_000)]
    full = len(admitted(quota, ticks))
    quota.scale(0.4, 10.0)
    less = len(admitted(quota, [10.0 + at for at in ticks]))
    assert full == pytest.approx(1000, abs=2)
    assert less == pytest.approx(400, abs=2 if algorithm in ("bucket", "gcra") else 40)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_looking_takes_nothing(algorithm):
    quota = make_quota(algorithm, rate=Rate(3.0), burst=3, at_once=3)
    for _ in range(10):
        before = quota.status(1.0)
    assert quota.status(1.0) == before
    assert [quota.take(1.0) for _ in range(4)] == [True, True, True, False]


def test_what_can_never_admit_is_refused_with_advice():
    with pytest.raises(ValueError, match="1/2s"):
        make_quota("window", rate=Rate(0.5), burst=1, at_once=1)
    with pytest.raises(ValueError, match="burst"):
        make_quota("bucket", rate=Rate(5.0), burst=0.5, at_once=1)
    with pytest.raises(ValueError, match="burst"):
        make_quota("gcra", rate=Rate(5.0), burst=0.5, at_once=1)
    with pytest.raises(ValueError, match="phase"):
        make_quota("window", rate=Rate(5.0), burst=1, at_once=1, phase=1.5)
    with pytest.raises(ValueError, match="at_once"):
        make_quota("concurrency", rate=Rate(5.0), burst=1, at_once=0)
    with pytest.raises(ValueError, match="bucket, gcra, window, log, strict-log, concurrency"):
        make_quota("guess", rate=Rate(5.0), burst=1, at_once=1)
