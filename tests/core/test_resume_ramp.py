"""Comeback: after a pause a share of the pace, rising without a jump to all of it."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.resume_ramp import SHORTEST_PAUSE, ResumeRamp, after_outage, after_pause

quickly = settings(derandomize=True, deadline=None, max_examples=60)
durations = st.one_of(st.floats(0.0, 60.0), st.floats(0.0, 31 * 86400.0))
ramps = st.builds(lambda make, length: make(length, 1000.0), st.sampled_from([after_outage, after_pause]), durations)
instants = st.floats(900.0, 1100.0)


@given(ramps, instants)
@quickly
def test_the_share_is_above_0_and_at_most_1(ramp: ResumeRamp, now: float) -> None:
    assert 0.0 < ramp.share(now) <= 1.0


@given(ramps, instants, instants)
@quickly
def test_the_share_never_falls(ramp: ResumeRamp, one: float, other: float) -> None:
    assert ramp.share(min(one, other)) <= ramp.share(max(one, other))


@given(ramps)
@quickly
def test_there_is_no_cliff_at_the_end(ramp: ResumeRamp) -> None:
    assert ramp.share(ramp.ends_at) == 1.0
    assert ramp.share(ramp.ends_at - 1e-3 * ramp.lasts) == pytest.approx(1.0, abs=2e-3)


@given(ramps, st.floats(0.0, 1.0))
@quickly
def test_it_rises_evenly(ramp: ResumeRamp, way: float) -> None:
    expected = ramp.least + (1.0 - ramp.least) * way
    assert ramp.share(ramp.starts_at + way * ramp.lasts) == pytest.approx(expected, abs=1e-6)


@given(st.floats(1.0, 31 * 86400.0))
@quickly
def test_before_the_pause_has_ended_the_share_is_that_of_its_end(pause: float) -> None:
    ramp = after_pause(pause, 1000.0)
    assert ramp.share(1000.0 - pause) == ramp.share(1000.0) == ramp.least


@pytest.mark.parametrize("make", [after_outage, after_pause])
@pytest.mark.parametrize("length", [0.0, 0.3, SHORTEST_PAUSE - 1e-9, -5.0])
def test_under_a_second_pacing_is_enough(make, length: float) -> None:
    ramp = make(length, 1000.0)
    assert [ramp.share(now) for now in (0.0, 999.0, 1000.0, 1001.0)] == [1.0] * 4


def test_after_an_outage_it_takes_a_share_of_the_outage() -> None:
    assert [after_outage(down, 0.0).lasts for down in (1.0, 5.0, 10.0)] == pytest.approx([0.4, 2.0, 4.0])


@given(durations, durations)
@quickly
def test_the_longer_the_outage_the_longer_and_the_gentler(one: float, other: float) -> None:
    short, long = after_outage(min(one, other), 0.0), after_outage(max(one, other), 0.0)
    assert short.lasts <= long.lasts
    assert short.least >= long.least


@pytest.mark.parametrize("down", [1e3, 1e9, inf])
def test_however_long_it_was_away_it_is_back_within_seconds(down: float) -> None:
    assert after_outage(down, 0.0).share(6.0) == 1.0
    assert after_pause(down, 0.0).share(3.0) == 1.0
