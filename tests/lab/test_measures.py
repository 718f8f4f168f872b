"""A run's figures: what its numbers mean, on runs small enough to count by hand."""

import math

import pytest

from headgate.lab.measures import BIN, Run


def made(*, horizon=20.0, starts=(0.0,), **more):
    return Run(scenario="by hand", strategy="none", seed=0, horizon=horizon, starts=starts, **more)


def with_bins(admitted, refused, *, allowed=10.0, window=2.0, **more):
    run = made(horizon=len(admitted) * BIN, window=window, **more)
    for number, (count, refusals) in enumerate(zip(admitted, refused, strict=True)):
        run.admitted_per_bin[number], run.refused_per_bin[number] = count, refusals
    run.allowed_per_bin = [allowed] * len(run.admitted_per_bin)
    return run


class TestCounting:
    def test_the_refused_share_is_of_all_calls_sent(self):
        run = made()
        for status, refused in ((200, False), (429, True), (503, False), (503, True)):
            run.note_sent(0.0)
            run.note_answered(1.0, 0, status, refused, 0.0)
        assert (run.sent, run.ok, run.refused, run.errors) == (4, 1, 2, 1)
        assert run.refused_share == 0.5

    def test_the_minute_from_the_first_refusal_on_is_counted_apart(self):
        run = with_bins([9] + [1] * 200, [0, 0, 2, 1] + [0] * 118 + [1] + [5] * 78)
        assert run.first_minute == (120 + 3, 3), "as many bins as make a minute"
        assert made().first_minute == (0, 0)

    def test_nothing_sent_is_nothing_refused(self):
        assert made().refused_share == 0.0

    def test_an_item_takes_from_its_first_send_to_its_success(self):
        run = made()
        run.note_answered(3.0, 0, 429, True, 1.0)
        run.note_answered(7.5, 0, 200, False, 1.0)
        assert list(run.item_times) == [6.5]

    def test_what_arrives_is_counted_by_the_half_second(self):
        run = made(horizon=2.0)
        for at in (0.0, 0.49, 0.5, 2.0):
            run.note_arrived(at, 200, False)
        run.note_arrived(1.7, 429, True)
        run.note_arrived(1.0, 500, False)
        assert run.admitted_per_bin == [2, 1, 0, 0, 1]
        assert run.refused_per_bin == [0, 0, 0, 1, 0]

    def test_what_arrives_after_the_horizon_is_not_counted(self):
        run = made(horizon=2.0)
        run.note_arrived(2.01, 200, False)
        assert sum(run.admitted_per_bin) == 0


class TestQuantiles:
    def test_of_a_hundred_times_the_99th_percentile_is_the_largest(self):
        run = made()
        for time in range(100, 0, -1):
            run.note_answered(float(time), 0, 200, False, 0.0)
            run.note_sent(time / 10)
        assert (run.p(0.0), run.p(0.5), run.p(0.99), run.p(1.0)) == (1.0, 51.0, 100.0, 100.0)
        assert run.wait_p(0.5) == 5.1

    def test_what_never_happens_takes_for_ever(self):
        assert made().p(0.5) == math.inf
        assert made().wait_p(0.5) == math.inf


class TestFairness:
    @pytest.mark.parametrize(("late", "index"), [([5, 5, 5, 5], 1.0), ([8, 0, 0, 0], 0.25), ([3, 1], 0.8), ([0, 0], 0)])
    def test_jains_index(self, late, index):
        run = made(starts=(0.0,) * len(late))
        run.per_process_late = late
        assert run.jain == index

    def test_it_is_judged_after_a_third_of_the_time_since_the_last_start(self):
        run = made(horizon=40.0, starts=(0.0, 10.0))
        for at in (5.0, 19.9, 20.0, 39.0):
            run.note_answered(at, 1, 200, False, at)
        assert (run.per_process, run.per_process_late) == ([0, 4], [0, 2])


class TestGoodput:
    def test_it_is_a_share_of_the_oracles(self):
        run, oracle = made(), made()
        run.ok, oracle.ok = 90, 120
        assert run.goodput_against(oracle) == 0.75

    def test_against_an_oracle_that_got_nothing_done_there_is_none(self):
        assert math.isnan(made().goodput_against(made()))


class TestConvergence:
    """Allowed are 10 a bin; four bins of 2 s in all must hold 38 of 40."""

    def test_a_run_that_does_well_at_once_has_converged_at_once(self):
        assert with_bins([10] * 20, [0] * 20).converged_after(0.0) == 0.0

    def test_it_has_converged_from_where_the_first_good_window_begins(self):
        assert with_bins([0, 0, 0, *[10] * 17], [0] * 20).converged_after(0.0) == 1.5

    def test_a_small_shortfall_is_made_up_for_within_the_window(self):
        assert with_bins([8, *[10] * 19], [0] * 20).converged_after(0.0) == 0.0
        assert with_bins([7, *[10] * 19], [0] * 20).converged_after(0.0) == 0.5

    def test_too_many_refusals_do_not_count_as_good(self):
        assert with_bins([10] * 20, [3, *[0] * 19]).converged_after(0.0) == 0.5

    def test_time_counts_from_the_mark(self):
        assert with_bins([*[0] * 12, *[10] * 8], [0] * 20).converged_after(5.0) == 1.0

    def test_a_window_must_end_before_the_next_change(self):
        run = with_bins([0, 0, 0, *[10] * 17], [0] * 20, changes_at=(0.0, 3.0))
        assert run.converged_after(0.0) == math.inf
        assert run.converged_after(3.0) == 0.0

    def test_never_is_infinite(self):
        assert with_bins([9] * 20, [0] * 20).converged_after(0.0) == math.inf

    def test_each_mark_gets_its_own(self):
        run = with_bins([0, *[10] * 19], [0] * 20, marks={"start": 0.0, "later": 5.0})
        assert run.convergence() == {"start": 0.5, "later": 0.0}
