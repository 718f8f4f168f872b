import pytest

from headgate.lab.baselines.header_pace import HeaderPace


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
