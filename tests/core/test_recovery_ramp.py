"""The graduated ramp: how it climbs, what it admits, when errors slow it down and when it is over."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headgate.core.decision import LONGEST_WAIT
from headgate.core.recovery_ramp import BACKOFF, MOST_RESULTS, SMALLEST_MULTIPLIER, RecoveryRamp


def started(now: float = 1000.0, **settings: float) -> RecoveryRamp:
    ramp = RecoveryRamp(**settings)
    ramp.start_recovery_period(now)
    return ramp


def record(ramp: RecoveryRamp, *outcomes: bool, now: float) -> None:
    for success in outcomes:
        ramp.record_result(success, now)


def drain(ramp: RecoveryRamp, start: float, seconds: float) -> int:
    """A caller with endless work who waits exactly as long as it is told."""
    now, admitted = start, 0
    while now < start + seconds:
        wait = ramp.should_wait(now)
        admitted += wait == 0.0
        now += wait
    return admitted


@pytest.mark.parametrize(("after", "rate"), [(0, 5.0), (60, 8.0), (150, 12.5), (240, 17.0), (300, 20.0), (500, 20.0)])
@pytest.mark.parametrize("start", [0.0, 1000.0, -50.0])
def test_the_rate_climbs_in_a_straight_line(start: float, after: float, rate: float) -> None:
    assert started(start).current_rate(start + after) == rate


@pytest.mark.parametrize("start", [0.0, 1000.0, 1.75e9])
def test_a_busy_drain_over_the_ramp_admits_the_area_under_it(start: float) -> None:
    assert drain(started(start), start, 300.0) == pytest.approx(3750, rel=0.01)


def test_a_drain_of_a_thousand_a_second_on_a_wall_clock_does_not_stall() -> None:
    ramp = started(1.75e9, initial_rate=1000.0, target_rate=1000.0)
    assert drain(ramp, 1.75e9, 5.0) == pytest.approx(5000, rel=0.01)


def test_a_wait_under_the_clocks_resolution_is_no_wait() -> None:
    ramp = started(1.75e9)
    ramp.should_wait(1.75e9)
    ramp.tokens = 1.0 - 1e-9
    assert ramp.should_wait(1.75e9) == 0.0


def test_waiting_exactly_as_told_is_enough() -> None:
    ramp = started(1000.0)
    ramp.should_wait(1000.0)
    assert ramp.should_wait(1000.0 + ramp.should_wait(1000.0)) == 0.0


def test_being_told_to_wait_takes_nothing() -> None:
    ramp = started(1000.0)
    ramp.should_wait(1000.0)
    assert [ramp.should_wait(1000.1) for _ in range(3)] == [pytest.approx(0.1, rel=0.01)] * 3


def test_idle_time_saves_up_one_call_only() -> None:
    ramp = started(1000.0)
    assert ramp.should_wait(1100.0) == 0.0
    assert ramp.should_wait(1100.0) > 0.0


def test_a_clock_that_goes_back_makes_no_debt() -> None:
    ramp = started(1000.0)
    ramp.should_wait(1000.0)
    assert ramp.should_wait(400.0) == pytest.approx(0.2)
    assert ramp.tokens == 0.0
    assert ramp.should_wait(400.21) == 0.0


def test_a_clock_that_went_back_behind_the_start_is_at_the_start() -> None:
    assert started(1000.0).current_rate(400.0) == 5.0


def test_no_wait_is_longer_than_31_days() -> None:
    ramp = started(1000.0, initial_rate=1e-9, target_rate=1.0)
    ramp.should_wait(1000.0)
    assert ramp.should_wait(1000.0) == LONGEST_WAIT


def test_one_failure_of_one_changes_nothing() -> None:
    ramp = started()
    record(ramp, False, now=1010.0)
    assert (ramp.rate_multiplier, ramp.backoff_until) == (1.0, 0.0)


def test_four_results_are_no_rate() -> None:
    ramp = started()
    record(ramp, *[False] * 4, now=1010.0)
    assert ramp.rate_multiplier == 1.0


def test_the_fifth_result_is_enough_to_judge() -> None:
    ramp = started()
    record(ramp, False, False, False, False, True, now=1010.0)
    assert (ramp.rate_multiplier, ramp.backoff_until) == (0.5, 1010.0 + BACKOFF)


def test_an_error_rate_at_the_threshold_is_tolerated() -> None:
    ramp = started(error_threshold=0.4)
    record(ramp, True, True, True, False, False, now=1010.0)
    assert ramp.rate_multiplier == 1.0


def test_one_spike_halves_once() -> None:
    ramp = started()
    record(ramp, *[False] * 100, now=1010.0)
    assert ramp.rate_multiplier == 0.5


def test_a_halved_rate_is_left_alone_for_a_minute() -> None:
    ramp = started()
    record(ramp, *[False] * 5, now=1010.0)
    record(ramp, *[True] * 100, now=1069.9)
    assert ramp.rate_multiplier == 0.5


def test_lasting_errors_halve_it_minute_by_minute_down_to_an_eighth() -> None:
    ramp = started()
    multipliers = []
    for minute in range(5):
        record(ramp, *[False] * 5, now=1000.0 + 60.0 * minute)
        multipliers.append(ramp.rate_multiplier)
    assert multipliers == [0.5, 0.25, SMALLEST_MULTIPLIER, SMALLEST_MULTIPLIER, SMALLEST_MULTIPLIER]


def test_the_errors_that_halved_it_once_count_no_more() -> None:
    ramp = started(error_window=300.0)
    record(ramp, *[False] * 5, now=1000.0)
    record(ramp, *[True] * 5, now=1060.0)
    assert ramp.error_rate(1060.0) == 0.5
    assert (ramp.rate_multiplier, ramp.backoff_until) == (1.0, 1060.0)


def test_results_of_the_quiet_minute_prove_recovery() -> None:
    ramp = started()
    record(ramp, *[False] * 5, now=1000.0)
    record(ramp, *[True] * 50, now=1030.0)
    record(ramp, True, now=1060.0)
    assert ramp.rate_multiplier == 1.0


@pytest.mark.parametrize(("failures", "multiplier"), [(0, 1.0), (1, 1.0), (2, 0.5), (6, 0.5)])
def test_it_recovers_only_under_a_tenth_of_errors(failures: int, multiplier: float) -> None:
    ramp = started()
    record(ramp, *[False] * 5, now=1000.0)
    record(ramp, *[False] * failures, *[True] * (20 - failures - 1), now=1030.0)
    record(ramp, True, now=1060.0)
    assert ramp.rate_multiplier == multiplier


def test_from_an_eighth_it_climbs_in_doublings_each_proven_anew() -> None:
    ramp = started()
    for minute in range(3):
        record(ramp, *[False] * 5, now=1000.0 + 60.0 * minute)
    multipliers = []
    for second in range(16):
        record(ramp, True, now=1200.0 + second)
        multipliers.append(ramp.rate_multiplier)
    assert multipliers == [*[0.125] * 4, *[0.25] * 5, *[0.5] * 5, 1.0, 1.0]


def test_errors_above_a_strict_threshold_are_no_recovery() -> None:
    ramp = started(error_threshold=0.02)
    record(ramp, *[False] * 5, now=1000.0)
    record(ramp, *[True] * 19, False, now=1030.0)
    record(ramp, True, now=1060.0)
    assert ramp.rate_multiplier == 0.25


def test_a_hundred_percent_errors_keep_it_backed_off_past_its_end() -> None:
    ramp = started(1000.0)
    for second in range(301):
        record(ramp, False, now=1000.0 + second)
    assert ramp.is_in_recovery_period(1300.0)
    assert ramp.current_rate(1300.0) == 20.0 * SMALLEST_MULTIPLIER
    assert drain(ramp, 1300.0, 60.0) == pytest.approx(60 * 2.5, abs=1)


def test_it_is_over_when_time_is_up_and_nothing_is_held_back() -> None:
    ramp = started(1000.0)
    record(ramp, *[False] * 5, now=1290.0)
    assert ramp.is_in_recovery_period(1351.0)
    record(ramp, *[True] * 5, now=1351.0)
    assert not ramp.is_in_recovery_period(1351.0)
    assert (ramp.current_rate(1351.0), ramp.should_wait(1351.0)) == (20.0, 0.0)


def test_failures_after_its_end_start_nothing() -> None:
    ramp = started(1000.0)
    record(ramp, *[False] * 50, now=1400.0)
    assert not ramp.is_in_recovery_period(1400.0)


def test_ending_it_by_hand_forgets_the_backoff() -> None:
    ramp = started(1000.0)
    record(ramp, *[False] * 5, now=1010.0)
    ramp.end_recovery_period()
    assert (ramp.recovery_started_at, ramp.rate_multiplier, ramp.current_rate(1010.0)) == (0.0, 1.0, 20.0)


def test_results_are_bounded_and_the_newest_count() -> None:
    ramp = started()
    record(ramp, *[False] * 10, *[True] * MOST_RESULTS, now=1010.0)
    assert len(ramp.results) == MOST_RESULTS
    assert ramp.error_rate(1010.0) == 0.0


def test_results_older_than_the_window_are_dropped() -> None:
    ramp = started(error_window=60.0)
    record(ramp, False, now=1000.0)
    record(ramp, True, now=1060.0)
    record(ramp, True, now=1060.1)
    assert ramp.results == [(1060.0, True), (1060.1, True)]


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("initial_rate", {"initial_rate": 0.0}),
        ("initial_rate", {"initial_rate": -1.0}),
        ("initial_rate", {"initial_rate": nan}),
        ("initial_rate", {"initial_rate": 30.0}),
        ("target_rate", {"target_rate": 0.0}),
        ("target_rate", {"target_rate": inf}),
        ("ramp_duration", {"ramp_duration": 0.0}),
        ("ramp_duration", {"ramp_duration": LONGEST_WAIT + 1}),
        ("error_threshold", {"error_threshold": -0.1}),
        ("error_threshold", {"error_threshold": 1.1}),
        ("error_window", {"error_window": 0.0}),
        ("error_window", {"error_window": nan}),
    ],
)
def test_a_setting_out_of_range_is_named(field: str, settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=rf"^{field}={settings[field]!r} must be within"):
        RecoveryRamp(**settings)


class AgainstPlainSums(RuleBasedStateMachine):
    """However it is used, it admits no more than its rates allow and changes only on fresh, sufficient evidence."""

    @initialize(start=st.sampled_from([0.0, 1000.0, 1.75e9]))
    def start(self, start: float) -> None:
        self.now = start
        self.ramp = RecoveryRamp()
        self.restart()

    @rule()
    def restart(self) -> None:
        self.ramp.start_recovery_period(self.now)
        self.allowance = 1.0
        self.multiplier = 1.0
        self.held_until = 0.0
        self.fresh: list[tuple[float, bool]] = []

    @rule(step=st.one_of(st.floats(0.0, 1.0), st.floats(0.0, 100.0)))
    def time_passes(self, step: float) -> None:
        self.now += step
        self.allowance += step * self.ramp.current_rate(self.now)

    @rule(step=st.floats(0.0, 50.0))
    def the_clock_goes_back(self, step: float) -> None:
        self.now = max(0.0, self.now - step)

    @rule(callers=st.integers(1, 5))
    def callers_ask(self, callers: int) -> None:
        for _ in range(callers):
            limited = self.ramp.is_in_recovery_period(self.now)
            wait = self.ramp.should_wait(self.now)
            assert 0.0 <= wait <= 1.0 / (5.0 * SMALLEST_MULTIPLIER)
            assert limited or wait == 0.0
            if limited and wait == 0.0:
                self.allowance = min(self.allowance, 1.0) - 1.0
                assert self.allowance > -1e-3

    @rule(outcomes=st.lists(st.booleans(), min_size=1, max_size=8))
    def calls_end(self, outcomes: list[bool]) -> None:
        for success in outcomes:
            limited = self.ramp.is_in_recovery_period(self.now)
            self.ramp.record_result(success, self.now)
            self.fresh.append((self.now, success))
            self.judge(limited)

    def judge(self, limited: bool) -> None:
        before, self.multiplier = self.multiplier, self.ramp.rate_multiplier
        kept = self.fresh[-len(self.ramp.results) :]  # a clock that goes back may hide some from the window
        failing = sum(not success for _, success in kept) / len(kept)
        if self.ramp.backoff_until != self.held_until:
            assert limited
            assert len(kept) >= 5
            assert failing > 0.3
            assert self.now >= self.held_until
            assert self.multiplier == max(SMALLEST_MULTIPLIER, before / 2)
            self.held_until = self.ramp.backoff_until
            self.fresh = []
        elif self.multiplier != before:
            judged = kept if len(kept) >= 5 else self.fresh[-5:]  # on the way up, whatever their age
            assert limited
            assert len(judged) >= 5
            assert sum(not success for _, success in judged) < 0.1 * len(judged)
            assert self.now >= self.held_until
            assert self.multiplier == before * 2
            self.fresh = []

    @invariant()
    def everything_stays_within_its_bounds(self) -> None:
        assert 0.0 <= self.ramp.tokens <= 1.0
        assert self.ramp.rate_multiplier in (1.0, 0.5, 0.25, 0.125)
        assert 5.0 * SMALLEST_MULTIPLIER <= self.ramp.current_rate(self.now) <= 20.0
        assert len(self.ramp.results) <= MOST_RESULTS


AgainstPlainSums.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None, derandomize=True)
TestAgainstPlainSums = AgainstPlainSums.TestCase
