"""AIMD on every answer, and AIMD by the clock."""

import math

import pytest

from headgate.lab.baselines.aimd import AimdInterval, AimdPerResponse


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
