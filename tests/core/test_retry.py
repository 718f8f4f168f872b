"""Sending again: backoff with full jitter above a floor, deadlines and the retry budget."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core.cooldown import MOST_FLOOR_JITTER, above
from headgate.core.decision import LONGEST_WAIT
from headgate.core.retry import RetryBudget, delay

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


def test_a_few_retries_are_always_allowed() -> None:
    budget = RetryBudget()
    assert [budget.take(0.0) for _ in range(5)] == [True, True, True, False, False]


def test_a_retry_that_ended_makes_room() -> None:
    budget = RetryBudget()
    assert all(budget.take(0.0) for _ in range(3))
    budget.ended()
    assert budget.take(0.0)


def test_beyond_the_few_retries_are_a_fifth_of_the_calls() -> None:
    budget = RetryBudget()
    for _ in range(100):
        budget.called(0.0)
    assert sum(budget.take(0.0) for _ in range(100)) == 20


def test_quick_retries_do_not_slip_through_by_ending_quickly() -> None:
    budget = RetryBudget(floor=0)
    for _ in range(100):
        budget.called(0.0)
    granted = 0
    for _ in range(100):
        if budget.take(0.0):
            granted += 1
            budget.ended()
    assert granted == 20


def test_retries_earn_no_retries() -> None:
    budget = RetryBudget(share=1.0, floor=1)
    budget.called(0.0)
    assert [budget.take(0.0) for _ in range(3)] == [True, False, False]


def test_calls_of_long_ago_earn_nothing() -> None:
    budget = RetryBudget(window=30.0)
    for _ in range(100):
        budget.called(0.0)
    assert sum(budget.take(31.0) for _ in range(100)) == 3


def test_retries_still_out_count_after_the_window() -> None:
    budget = RetryBudget(window=30.0)
    for _ in range(100):
        budget.called(0.0)
    assert sum(budget.take(0.0) for _ in range(20)) == 20
    for _ in range(100):
        budget.called(60.0)
    assert not budget.take(60.0)


def test_no_share_and_no_floor_mean_no_retries() -> None:
    budget = RetryBudget(share=0.0, floor=0)
    budget.called(0.0)
    assert not budget.take(0.0)


def test_asking_takes_nothing() -> None:
    budget = RetryBudget(floor=1)
    assert all(budget.allows(0.0) for _ in range(5))
    assert budget.in_flight == 0


def test_an_end_too_many_gives_nothing_away() -> None:
    budget = RetryBudget(floor=1)
    budget.ended()
    assert [budget.take(0.0), budget.take(0.0)] == [True, False]


@pytest.mark.parametrize("share", [-0.1, nan, inf])
def test_a_share_out_of_range_is_named(share: float) -> None:
    with pytest.raises(ValueError, match=r"share=.* must be a number within \[0, inf\)"):
        RetryBudget(share=share)


def test_a_floor_out_of_range_is_named() -> None:
    with pytest.raises(ValueError, match="floor=-1 must be 0 or more"):
        RetryBudget(floor=-1)


class AgainstALedger(RuleBasedStateMachine):
    """Whatever is asked in whatever order, retries stay within the share or the few."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = RetryBudget(share=0.2, floor=3, window=30.0)
        self.now = 1000.0
        self.first: list[float] = []
        self.retries: list[float] = []
        self.out = 0

    def recent(self, instants: list[float], seconds: float) -> int:
        return sum(self.now - at < seconds for at in instants)

    @rule(step=st.floats(0.0, 10.0))
    def time_passes(self, step: float) -> None:
        self.now += step

    @rule(calls=st.integers(1, 60))
    def calls_are_sent(self, calls: int) -> None:
        for _ in range(calls):
            self.budget.called(self.now)
            self.first.append(self.now)

    @rule()
    def a_retry_is_asked_for(self) -> None:
        # The window's edge is a bucket wide: within it either answer is right.
        spent_at_most = max(self.out, self.recent(self.retries, 30.0)) + 1
        spent_at_least = max(self.out, self.recent(self.retries, 28.0 - 1e-6)) + 1
        granted = self.budget.take(self.now)
        if granted:
            assert self.out < 3 or spent_at_least <= 0.2 * self.recent(self.first, 30.0 + 1e-6)
            self.retries.append(self.now)
            self.out += 1
        else:
            assert self.out >= 3
            assert spent_at_most > 0.2 * self.recent(self.first, 28.0 - 1e-6)

    @precondition(lambda self: self.out)
    @rule()
    def a_retry_ends(self) -> None:
        self.budget.ended()
        self.out -= 1

    @invariant()
    def all_that_are_out_are_known(self) -> None:
        assert self.budget.in_flight == self.out


AgainstALedger.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None, derandomize=True)
TestAgainstALedger = AgainstALedger.TestCase
