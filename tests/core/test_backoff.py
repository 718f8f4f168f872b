"""Backoff: full jitter below a ceiling, and floors that nothing undercuts."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.backoff import MOST_FLOOR_JITTER, above, delay
from headgate.core.decision import LONGEST_WAIT

ALMOST_ONE = 1.0 - 2**-53
modest = settings(max_examples=50, deadline=None, derandomize=True)
draws = st.floats(0.0, 1.0, exclude_max=True)


def test_the_ceiling_doubles_up_to_the_maximum() -> None:
    ceilings = [delay(attempt, ALMOST_ONE) for attempt in range(1, 8)]
    assert ceilings == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_jitter_is_full() -> None:
    assert [delay(3, draw) for draw in (0.0, 0.25, 0.5)] == pytest.approx([0.0, 0.2, 0.4])


def test_a_millionth_attempt_waits_the_maximum() -> None:
    assert delay(10**6, ALMOST_ONE) == pytest.approx(5.0)
    assert delay(10**6, ALMOST_ONE, base=1e9, max_delay=7.0) == pytest.approx(7.0)


@pytest.mark.parametrize("draw", [0.0, ALMOST_ONE])
def test_without_a_maximum_31_days_are_the_maximum(draw: float) -> None:
    assert delay(10**6, draw, base=5.0, max_delay=inf) == draw * LONGEST_WAIT


def test_a_base_of_zero_means_at_once() -> None:
    assert delay(10**6, ALMOST_ONE, base=0.0) == 0.0


def test_a_floor_above_the_maximum_is_kept() -> None:
    assert delay(1, 0.0, floor=30.0) == 30.0


def test_a_floor_below_the_backoff_changes_nothing() -> None:
    assert delay(5, 0.5, floor=1.0) == delay(5, 0.5)


def test_callers_who_were_told_the_same_come_back_apart() -> None:
    assert [delay(1, draw, floor=30.0) for draw in (0.0, 0.5, ALMOST_ONE)] == pytest.approx([30.0, 31.5, 33.0])


def test_a_long_floor_is_overstayed_by_seconds_not_by_minutes() -> None:
    assert delay(1, ALMOST_ONE, floor=86400.0) == pytest.approx(86400.0 + MOST_FLOOR_JITTER)


def test_a_floor_without_jitter_is_exact() -> None:
    assert delay(1, ALMOST_ONE, floor=30.0, floor_jitter=0.0) == 30.0


@pytest.mark.parametrize("floor", [inf, 1e300, LONGEST_WAIT])
def test_31_days_bound_every_floor(floor: float) -> None:
    assert delay(1, 0.5, floor=floor) == above(floor, 0.5) == LONGEST_WAIT


@pytest.mark.parametrize("floor", [nan, -5.0, -inf, 0.0])
def test_a_floor_that_is_no_time_is_none(floor: float) -> None:
    assert delay(1, 0.5, floor=floor) == delay(1, 0.5)


@modest
@given(st.integers(1, 10**6), draws, st.floats(0.0, 10.0), st.floats(0.0, 100.0))
def test_without_a_floor_no_delay_exceeds_the_maximum(attempt: int, draw: float, base: float, max_delay: float) -> None:
    assert 0.0 <= delay(attempt, draw, base=base, max_delay=max_delay) <= max_delay


@modest
@given(st.integers(1, 10**6), draws, st.floats(0.0, LONGEST_WAIT))
def test_no_delay_undercuts_its_floor(attempt: int, draw: float, floor: float) -> None:
    assert floor <= delay(attempt, draw, floor=floor) <= LONGEST_WAIT
