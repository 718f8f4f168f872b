"""RecoveryRateLimiter: the ramp as its users meet it, on a clock of its own, over threads and restarts."""

from __future__ import annotations

import json
import math
import threading
import time
from types import SimpleNamespace

import pytest

from headgate.core import recovery_ramp
from headgate.core.recovery_ramp import BACKOFF
from headgate.resilience import recovery
from headgate.resilience.recovery import RecoveryRateLimiter


@pytest.fixture
def limiter() -> RecoveryRateLimiter:
    limiter = RecoveryRateLimiter()
    limiter.start_recovery_period(now=1000.0)
    return limiter


def fail(limiter: RecoveryRateLimiter, times: int = 5, *, now: float) -> None:
    for _ in range(times):
        limiter.record_result(False, now=now)


class TestGraduatedRate:
    def test_it_starts_at_the_initial_rate(self, limiter: RecoveryRateLimiter) -> None:
        assert limiter.current_rate(now=1000.0) == 5.0

    def test_it_is_half_way_at_half_time(self, limiter: RecoveryRateLimiter) -> None:
        assert limiter.current_rate(now=1150.0) == 12.5

    def test_it_ends_at_the_target_rate(self, limiter: RecoveryRateLimiter) -> None:
        assert limiter.current_rate(now=1300.0) == 20.0

    def test_it_stays_at_the_target_rate(self, limiter: RecoveryRateLimiter) -> None:
        assert limiter.current_rate(now=1500.0) == 20.0

    def test_it_climbs_in_a_straight_line(self, limiter: RecoveryRateLimiter) -> None:
        assert [limiter.current_rate(now=1000.0 + t) for t in (60, 240)] == [8.0, 17.0]

    def test_rates_and_duration_can_be_chosen(self) -> None:
        limiter = RecoveryRateLimiter(initial_rate=2.0, target_rate=50.0, ramp_duration=600.0)
        limiter.start_recovery_period(now=2000.0)
        assert [limiter.current_rate(now=2000.0 + t) for t in (0, 300, 600)] == [2.0, 26.0, 50.0]

    def test_outside_recovery_it_is_the_target_rate(self) -> None:
        assert RecoveryRateLimiter().current_rate(now=1000.0) == 20.0


class TestLifecycle:
    def test_a_new_limiter_is_not_in_recovery(self) -> None:
        assert RecoveryRateLimiter().is_in_recovery_period(now=1000.0) is False

    def test_it_is_in_recovery_until_the_ramp_ends(self, limiter: RecoveryRateLimiter) -> None:
        assert [limiter.is_in_recovery_period(now=1000.0 + t) for t in (0, 150, 299)] == [True] * 3

    def test_after_the_ramp_it_is_over(self, limiter: RecoveryRateLimiter) -> None:
        assert [limiter.is_in_recovery_period(now=1000.0 + t) for t in (300, 500)] == [False] * 2

    def test_starting_sets_the_instant_and_one_token(self) -> None:
        limiter = RecoveryRateLimiter()
        limiter.tokens = 0.0
        limiter.start_recovery_period(now=1234.5)
        assert (limiter.recovery_started_at, limiter.tokens) == (1234.5, 1.0)
        assert limiter.is_in_recovery_period(now=1234.5) is True

    def test_ending_clears_the_instant(self, limiter: RecoveryRateLimiter) -> None:
        limiter.end_recovery_period()
        assert limiter.recovery_started_at == 0.0
        assert limiter.is_in_recovery_period(now=1100.0) is False

    def test_a_stored_instant_resumes_the_ramp(self) -> None:
        limiter = RecoveryRateLimiter()
        limiter.recovery_started_at = 1000.0
        assert limiter.is_in_recovery_period(now=1100.0) is True
        assert limiter.current_rate(now=1100.0) == 10.0
        assert limiter.should_wait(now=1100.0) == 0.0
        assert limiter.should_wait(now=1100.0) == pytest.approx(0.1)


class TestTokenBucket:
    def test_outside_recovery_nobody_waits(self) -> None:
        limiter = RecoveryRateLimiter()
        assert [limiter.should_wait(now=1000.0) for _ in range(50)] == [0.0] * 50

    def test_with_a_token_nobody_waits(self, limiter: RecoveryRateLimiter) -> None:
        assert limiter.should_wait(now=1000.0) == 0.0

    def test_without_a_token_the_wait_is_one_over_the_rate(self, limiter: RecoveryRateLimiter) -> None:
        limiter.should_wait(now=1000.0)
        assert limiter.should_wait(now=1000.0) == pytest.approx(0.2)

    def test_tokens_come_back_with_time(self, limiter: RecoveryRateLimiter) -> None:
        limiter.should_wait(now=1000.0)
        assert limiter.should_wait(now=1000.2) == 0.0

    def test_a_burst_is_one_call(self, limiter: RecoveryRateLimiter) -> None:
        assert limiter.should_wait(now=1050.0) == 0.0
        assert limiter.should_wait(now=1050.0) > 0.0

    def test_a_higher_rate_refills_faster(self, limiter: RecoveryRateLimiter) -> None:
        limiter.should_wait(now=1150.0)
        assert limiter.should_wait(now=1150.0) == pytest.approx(1 / 12.5)

    def test_after_the_ramp_nobody_waits(self, limiter: RecoveryRateLimiter) -> None:
        assert [limiter.should_wait(now=1500.0) for _ in range(50)] == [0.0] * 50


class TestErrorMonitoring:
    def test_a_success_is_no_error(self, limiter: RecoveryRateLimiter) -> None:
        limiter.record_result(success=True, now=1000.0)
        assert limiter.error_rate(now=1000.0) == 0.0
        assert limiter.results == [(1000.0, True)]

    def test_a_failure_is_an_error(self, limiter: RecoveryRateLimiter) -> None:
        limiter.record_result(success=False, now=1000.0)
        assert limiter.error_rate(now=1000.0) == 1.0

    def test_the_error_rate_is_failures_over_all(self, limiter: RecoveryRateLimiter) -> None:
        for i, success in enumerate((True, False, True, False, True)):
            limiter.record_result(success, now=1000.0 + 10 * i)
        assert limiter.error_rate(now=1040.0) == 0.4

    def test_old_results_do_not_count(self, limiter: RecoveryRateLimiter) -> None:
        fail(limiter, 2, now=1010.0)
        limiter.record_result(True, now=1100.0)
        assert limiter.error_rate(now=1120.0) == 0.0

    def test_too_many_errors_start_a_backoff(self, limiter: RecoveryRateLimiter) -> None:
        for i, success in enumerate((False, False, True, True, True)):
            limiter.record_result(success, now=1000.0 + i)
        assert limiter.error_rate(now=1004.0) == 0.4
        assert (limiter.rate_multiplier, limiter.backoff_until) == (0.5, 1004.0 + BACKOFF)

    def test_few_errors_start_none(self, limiter: RecoveryRateLimiter) -> None:
        for i, success in enumerate((False, True, True, True, True)):
            limiter.record_result(success, now=1000.0 + i)
        assert limiter.rate_multiplier == 1.0

    def test_a_backoff_halves_the_rate_of_the_moment(self, limiter: RecoveryRateLimiter) -> None:
        fail(limiter, now=1010.0)
        assert limiter.current_rate(now=1060.0) == 4.0

    def test_a_backoff_ends_when_errors_are_few_again(self, limiter: RecoveryRateLimiter) -> None:
        fail(limiter, now=1010.0)
        for i in range(20):
            limiter.record_result(True, now=1100.0 + i)
        assert limiter.current_rate(now=1150.0) == 12.5


class TestEdges:
    def test_the_defaults_are_those_promised(self) -> None:
        limiter = RecoveryRateLimiter()
        settings = (limiter.initial_rate, limiter.target_rate, limiter.ramp_duration)
        assert settings == (5.0, 20.0, 300.0)
        assert (limiter.error_threshold, limiter.error_window) == (0.3, 60.0)

    def test_settings_can_be_given_in_order(self) -> None:
        limiter = RecoveryRateLimiter(1.0, 2.0, 3.0, 0.4, 5.0)
        assert (limiter.initial_rate, limiter.ramp_duration, limiter.error_window) == (1.0, 3.0, 5.0)

    def test_no_method_reads_a_clock_when_it_is_given_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        limiter = RecoveryRateLimiter()
        monkeypatch.setattr(recovery, "time", None)
        assert limiter.is_in_recovery_period(now=1000.0) is False
        limiter.start_recovery_period(now=1000.0)
        limiter.record_result(success=True, now=1000.0)
        assert (limiter.current_rate(now=1000.0), limiter.should_wait(now=1000.0)) == (5.0, 0.0)
        assert limiter.error_rate(now=1000.0) == 0.0

    def test_no_results_are_no_errors(self, limiter: RecoveryRateLimiter) -> None:
        assert limiter.error_rate(now=1000.0) == 0.0

    def test_starting_again_starts_over(self, limiter: RecoveryRateLimiter) -> None:
        fail(limiter, now=1010.0)
        limiter.start_recovery_period(now=2000.0)
        assert limiter.recovery_started_at == 2000.0
        assert (limiter.error_rate(now=2000.0), limiter.rate_multiplier) == (0.0, 1.0)

    def test_a_new_limiter_has_no_start(self) -> None:
        assert RecoveryRateLimiter().recovery_started_at == 0.0

    def test_an_instant_of_zero_is_a_start(self) -> None:
        limiter = RecoveryRateLimiter()
        limiter.start_recovery_period(now=0.0)
        assert [limiter.current_rate(now=t) for t in (0.0, 60.0, 150.0)] == [5.0, 8.0, 12.5]

    def test_results_may_be_set_and_are_judged(self, limiter: RecoveryRateLimiter) -> None:
        limiter.results = [(1000.0, False)] * 4
        limiter.record_result(False, now=1001.0)
        assert limiter.rate_multiplier == 0.5

    def test_a_setting_out_of_range_is_named(self) -> None:
        with pytest.raises(ValueError, match=r"^error_threshold=30 must be within \[0, 1\]"):
            RecoveryRateLimiter(error_threshold=30)


class TestItsOwnClock:
    """``time`` is replaced by numbers that stand still."""

    @pytest.fixture
    def clocks(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
        clocks = {"wall": 1.75e9, "monotonic": 50.0}
        still = SimpleNamespace(time=lambda: clocks["wall"], monotonic=lambda: clocks["monotonic"])
        monkeypatch.setattr(recovery, "time", still)  # its own alone: other threads need theirs
        return clocks

    def test_the_start_is_wall_time(self, clocks: dict[str, float]) -> None:
        limiter = RecoveryRateLimiter()
        limiter.start_recovery_period()
        assert limiter.recovery_started_at == 1.75e9

    def test_it_runs_by_itself(self, clocks: dict[str, float]) -> None:
        limiter = RecoveryRateLimiter()
        limiter.start_recovery_period()
        limiter.record_result(False)
        clocks["monotonic"] += 60.0
        assert limiter.current_rate() == pytest.approx(8.0)
        assert limiter.is_in_recovery_period()
        assert limiter.should_wait() == 0.0
        assert limiter.should_wait() == pytest.approx(1 / 8.0)
        clocks["monotonic"] += 1.0
        assert limiter.error_rate() == 0.0

    def test_a_wall_clock_that_is_set_changes_nothing(self, clocks: dict[str, float]) -> None:
        limiter = RecoveryRateLimiter()
        limiter.start_recovery_period()
        clocks["wall"] -= 3600.0
        clocks["monotonic"] += 150.0
        assert limiter.current_rate() == pytest.approx(12.5)


class TestRestart:
    def test_a_restored_limiter_behaves_like_the_first(self, limiter: RecoveryRateLimiter) -> None:
        limiter.should_wait(now=1000.0)
        fail(limiter, now=1010.0)
        restored = RecoveryRateLimiter.from_state(json.loads(json.dumps(limiter.to_state())), now=1020.0)
        assert restored.to_state() == limiter.to_state()
        assert restored.current_rate(now=1060.0) == limiter.current_rate(now=1060.0) == 4.0
        assert restored.should_wait(now=1000.05) == limiter.should_wait(now=1000.05) > 0.0

    def test_settings_are_kept(self) -> None:
        state = RecoveryRateLimiter(1.0, 2.0, 30.0, 0.4, 50.0).to_state()
        restored = RecoveryRateLimiter.from_state(state, now=0.0)
        assert (restored.initial_rate, restored.target_rate, restored.ramp_duration) == (1.0, 2.0, 30.0)
        assert (restored.error_threshold, restored.error_window) == (0.4, 50.0)

    def test_a_limiter_that_was_not_in_recovery_still_is_not(self) -> None:
        restored = RecoveryRateLimiter.from_state(RecoveryRateLimiter().to_state())
        assert restored.is_in_recovery_period() is False

    @pytest.mark.parametrize("now", [0.0, 500.0])
    def test_a_clock_set_back_in_between_begins_the_ramp_now(self, limiter: RecoveryRateLimiter, now: float) -> None:
        restored = RecoveryRateLimiter.from_state(limiter.to_state(), now=now)
        assert restored.current_rate(now=now + 150.0) == 12.5

    def test_a_clock_set_back_in_between_prolongs_no_backoff(self, limiter: RecoveryRateLimiter) -> None:
        fail(limiter, now=1290.0)
        restored = RecoveryRateLimiter.from_state(limiter.to_state(), now=100.0)
        assert restored.backoff_until == 100.0 + BACKOFF

    def test_a_backoff_outlives_the_ramps_time(self, limiter: RecoveryRateLimiter) -> None:
        fail(limiter, now=1290.0)
        restored = RecoveryRateLimiter.from_state(limiter.to_state(), now=9000.0)
        assert restored.current_rate(now=9000.0) == 10.0

    def test_tokens_and_multiplier_are_clamped(self, limiter: RecoveryRateLimiter) -> None:
        state = limiter.to_state() | {"tokens": -1e9, "rate_multiplier": 0.0}
        restored = RecoveryRateLimiter.from_state(state, now=1000.0)
        assert (restored.tokens, restored.rate_multiplier) == (0.0, 0.125)
        assert 0.0 < restored.should_wait(now=1000.0) <= 1.6

    @pytest.mark.parametrize("damage", [None, "soon", float("nan"), float("inf"), [1.0]])
    def test_a_damaged_state_is_refused_by_name(self, limiter: RecoveryRateLimiter, damage: object) -> None:
        state = limiter.to_state() | {"backoff_until": damage}
        with pytest.raises(ValueError, match=r"^stored backoff_until=.* must be a finite number"):
            RecoveryRateLimiter.from_state(state, now=1000.0)

    def test_a_state_with_settings_out_of_range_is_refused_by_name(self, limiter: RecoveryRateLimiter) -> None:
        with pytest.raises(ValueError, match=r"^target_rate=0.0 must be within"):
            RecoveryRateLimiter.from_state(limiter.to_state() | {"target_rate": 0.0}, now=1000.0)


def test_eight_threads_at_one_instant_share_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def pause_between_look_and_take(now: float) -> float:
        time.sleep(0.001)  # really: it lets every other thread run where a missing lock would show
        return math.ulp(now)

    limiter = RecoveryRateLimiter()
    limiter.start_recovery_period(now=1000.0)
    monkeypatch.setattr(recovery_ramp, "ulp", pause_between_look_and_take)
    waits: list[float] = []
    threads = [threading.Thread(target=lambda: waits.append(limiter.should_wait(now=1000.0))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(waits) == [0.0, *[pytest.approx(0.2)] * 7]
