import pytest

from headgate.lab.baselines.autothrottle import AutoThrottle


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
