import pytest

from headgate.lab.baselines.cubic import CubicLimiter


def steady(limiter, rate, start, end, status=200):
    for n in range(int((end - start) * rate)):
        limiter.learn(start + n / rate, status, 0.1)


def refused_at_100_per_second():
    limiter = CubicLimiter()
    steady(limiter, 100, 0.0, 10.0)
    limiter.learn(10.0, 429, 0.1)
    return limiter


def test_there_is_no_limit_before_the_first_429():
    limiter = CubicLimiter()
    steady(limiter, 100, 0.0, 10.0)
    assert all(limiter.acquire(10.0) == 0.0 for _ in range(1000))


def test_a_429_cuts_to_seven_tenths_of_the_measured_rate():
    limiter = refused_at_100_per_second()
    assert limiter.tokens.rate == pytest.approx(70.0, rel=0.01)


def test_each_429_of_a_burst_cuts_again():
    limiter = refused_at_100_per_second()
    limiter.learn(10.01, 429, 0.1)
    assert limiter.tokens.rate == pytest.approx(49.0, rel=0.01)


def test_the_old_rate_is_back_after_the_plateau_and_growth_then_speeds_up():
    limiter = refused_at_100_per_second()
    plateau = (100 * 0.3 / 0.4) ** (1 / 3)
    rates = []
    for after in (plateau / 2, plateau, 2 * plateau):
        limiter.measured.value = 1000.0
        limiter.learn(10.0 + after, 200, 0.1)
        rates.append(limiter.tokens.rate)
    assert rates == [pytest.approx(rate, rel=0.01) for rate in (100 - 0.4 * (plateau / 2) ** 3, 100, 130)]


def test_the_rate_is_never_above_twice_the_measured_one_nor_below_a_half():
    limiter = refused_at_100_per_second()
    steady(limiter, 2, 11.0, 60.0)
    assert limiter.tokens.rate == pytest.approx(4.0, rel=0.05)
    steady(limiter, 2, 60.0, 80.0, status=429)
    assert limiter.tokens.rate == 0.5
    assert limiter.tokens.capacity == 1.0
