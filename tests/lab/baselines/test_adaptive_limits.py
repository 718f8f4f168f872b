"""Limits that follow the answers: AIMD, CUBIC, header pace, AutoThrottle, Gradient2."""

import math

import pytest

from headgate.lab.baselines.adaptive_limits import (
    AimdInterval,
    AimdPerResponse,
    AutoThrottle,
    CubicLimiter,
    Gradient2,
    HeaderPace,
)

# -- AIMD on every answer, and AIMD by the clock


def rate_after(aimd, *answers):
    for status, latency in answers:
        aimd.on_response(1.0, status, latency, None)
    return aimd.tokens.rate


def test_every_good_answer_adds_and_every_failure_halves():
    assert rate_after(AimdPerResponse(), (200, 0.1), (200, 0.1)) == pytest.approx(2.2)
    assert rate_after(AimdPerResponse(), (429, 0.1), (503, 0.1)) == 0.5
    assert rate_after(AimdPerResponse(), *[(429, 0.1)] * 20) == 0.1


def test_an_answer_twice_as_slow_as_usual_halves_unless_latency_is_left_out():
    answers = (200, 0.1), (200, 0.2)
    assert rate_after(AimdPerResponse(), *answers) == pytest.approx(1.05)
    assert rate_after(AimdPerResponse(slow=math.inf), *answers) == pytest.approx(2.2)


def test_five_failures_in_a_row_open_the_circuit_and_one_probe_decides():
    aimd = AimdPerResponse()
    rate_after(aimd, *[(503, 0.1)] * 5)
    assert aimd.on_send(1.0) == 5.0
    assert aimd.on_send(6.0) == 0.0
    assert aimd.on_send(6.0) == 0.05, "the probe is still out"
    aimd.on_response(6.1, 503, 0.1, None)
    assert aimd.on_send(6.1) == pytest.approx(5.0)
    assert aimd.on_send(11.1) == 0.0
    aimd.on_response(11.2, 200, 0.1, None)
    assert not aimd.half_open


def test_retry_after_holds_everything():
    aimd = AimdPerResponse()
    aimd.on_response(1.0, 429, 0.1, {"retry-after": "7"})
    assert aimd.on_send(1.0) == 7.0


def test_by_the_clock_a_burst_is_one_cut():
    aimd = AimdInterval()
    for late in range(5):
        aimd.on_response(1.0 + late / 100, 429, 0.5, None)
    assert aimd.rate == pytest.approx(7.0)
    aimd.on_response(2.0, 429, 0.5, None)
    assert aimd.rate == pytest.approx(4.9)


def test_by_the_clock_one_step_up_in_ten_seconds_if_a_call_waited():
    aimd = AimdInterval()
    aimd.on_response(10.0, 200, 0.1, None)
    assert aimd.rate == 10.0, "no call had to wait"
    assert aimd.on_send(10.0) == 0.0
    while not aimd.on_send(10.0):
        pass
    aimd.on_response(10.0, 200, 0.1, None)
    aimd.on_response(10.1, 200, 0.1, None)
    assert aimd.rate == 12.0


@pytest.mark.parametrize(
    ("status", "headers", "rate"),
    [
        (503, None, 10.0),
        (503, {"retry-after": "3"}, 7.0),
        (503, {"retry-after": "Sun, 15 Nov 2026 08:00:00 GMT"}, 10.0),
    ],
)
def test_by_the_clock_a_503_cuts_when_it_says_for_how_many_seconds(status, headers, rate):
    aimd = AimdInterval()
    aimd.on_response(1.0, status, 0.1, headers)
    assert aimd.rate == pytest.approx(rate)


# -- CUBIC


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


# -- header pace


def told(limit, remaining, reset):
    return {"ratelimit-limit": str(limit), "ratelimit-remaining": str(remaining), "ratelimit-reset": str(reset)}


def test_the_pace_is_what_was_used_over_the_time_to_reset():
    pace = HeaderPace()
    pace.on_response(0.0, 200, 0.1, told(limit=100, remaining=80, reset=10))
    assert 1 / pace.interval == pytest.approx(0.95 * 20 / 10)


def test_a_bucket_that_is_nearly_full_starves_it():
    pace = HeaderPace()
    pace.on_response(0.0, 200, 0.1, told(limit=50, remaining=49, reset=1))
    assert 1 / pace.interval < 1.0


def test_nothing_used_says_nothing():
    pace = HeaderPace()
    pace.on_response(0.0, 200, 0.1, told(limit=50, remaining=50, reset=0))
    assert pace.interval == 0.25


def test_without_headers_a_200_speeds_up_a_little_and_a_429_slows_down_much():
    pace = HeaderPace()
    pace.on_response(0.0, 200, 0.1, None)
    assert pace.interval == pytest.approx(0.25 * 0.99)
    pace.on_response(0.0, 429, 0.1, {"retry-after": "4"})
    assert pace.interval == pytest.approx(0.25 * 0.99 * 1.5)
    assert pace.on_send(0.0) == 4.0


def test_calls_leave_one_interval_apart():
    pace = HeaderPace()
    assert pace.on_send(10.0) == 0.0
    assert pace.on_send(10.0) == 0.0, "one missed slot is made up for"
    assert pace.on_send(10.0) == pytest.approx(0.25)


# -- AutoThrottle


def test_calls_are_a_random_half_to_one_and_a_half_delays_apart(setup):
    for draw, gap in [(0.0, 2.5), (0.5, 5.0), (1.0, 7.5)]:
        throttle = AutoThrottle(setup(draw=draw).rng)
        assert throttle.on_send(0.0) == 0.0
        assert throttle.on_send(0.0) == gap


def test_the_delay_halves_its_way_down_to_an_eighth_of_the_latency(setup):
    throttle = AutoThrottle(setup().rng)
    delays = []
    for _ in range(30):
        throttle.on_response(1.0, 200, 0.8, None)
        delays.append(throttle.delay)
    assert delays[0] == pytest.approx((5.0 + 0.1) / 2)
    assert delays[-1] == pytest.approx(0.1)


def test_slow_answers_count_at_once_up_to_a_minute(setup):
    throttle = AutoThrottle(setup().rng)
    throttle.on_response(1.0, 200, 80.0, None)
    assert throttle.delay == 10.0
    throttle.on_response(1.0, 200, 8000.0, None)
    assert throttle.delay == 60.0


def test_a_fast_refusal_speeds_nothing_up_but_slows_nothing_down_either(setup):
    throttle = AutoThrottle(setup().rng)
    throttle.on_response(1.0, 429, 0.04, None)
    assert throttle.delay == 5.0


def test_at_most_64_are_out(setup):
    throttle = AutoThrottle(setup().rng)
    for now in range(64):
        assert throttle.on_send(10.0 * now) == 0.0
    assert throttle.on_send(1000.0) == 0.05
    throttle.on_response(1000.0, 200, 1.0, None)
    assert throttle.on_send(1000.0) == 0.0


# -- Gradient2


def fill(limiter):
    while not limiter.acquire(0.0):
        pass


def answer(limiter, times, latency, status=200):
    """Answers with the limit always used up."""
    for _ in range(times):
        fill(limiter)
        limiter.learn(0.0, status, latency)


def test_it_starts_with_20_in_flight():
    limiter = Gradient2()
    assert [limiter.acquire(0.0) for _ in range(21)] == [0.0] * 20 + [0.02]


def test_even_answers_raise_the_limit_to_200_and_no_further():
    limiter = Gradient2()
    answer(limiter, 1000, 0.1)
    assert limiter.limit == 200.0


def test_answers_slower_than_usual_lower_it():
    limiter = Gradient2()
    answer(limiter, 200, 0.1)
    before = limiter.limit
    answer(limiter, 20, 0.4)
    assert limiter.limit < before / 2


def test_a_limit_that_is_not_used_stays():
    limiter = Gradient2()
    for _ in range(100):
        assert limiter.acquire(0.0) == 0.0
        limiter.learn(0.0, 200, 0.1)
    assert limiter.limit == 20.0


def test_fast_refusals_look_like_room():
    limiter = Gradient2()
    answer(limiter, 100, 0.2)
    before = limiter.limit
    answer(limiter, 20, 0.04, status=429)
    assert limiter.limit > before


def test_usual_is_at_first_a_plain_mean():
    limiter = Gradient2()
    for latency in (0.1, 0.2, 0.3):
        limiter.learn(0.0, 200, latency)
    assert abs(limiter.usual - 0.2) < 1e-9
