"""Sliding counts and latencies: what is in the window, what has left it, and what a strange clock does to it."""

from __future__ import annotations

from array import array
from collections import deque
from math import ceil, inf, nan

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.core.decision import LONGEST_WAIT
from headgate.core.rolling_stats import MOST_BUCKETS, MOST_PER_BUCKET, MOST_SAMPLES, Latency, SlidingCounts

WINDOW, BUCKET = 30.0, 2.0


def counts_with(*events: tuple[float, bool]) -> SlidingCounts:
    counts = SlidingCounts(WINDOW, BUCKET)
    for at, error in events:
        counts.add(error, at)
    return counts


def test_a_fresh_window_is_empty() -> None:
    counts = SlidingCounts()
    assert (counts.total(5.0), counts.errors(5.0), counts.error_rate(5.0)) == (0, 0, 0.0)


def test_calls_and_errors_are_counted_apart() -> None:
    counts = counts_with((100.0, False), (100.5, True), (103.0, False), (111.0, True))
    assert (counts.total(112.0), counts.errors(112.0), counts.error_rate(112.0)) == (4, 2, 0.5)


def test_a_call_is_counted_for_at_least_window_less_bucket() -> None:
    assert counts_with((100.0, False), (101.9, True)).errors(129.8) == 1


def test_a_call_is_gone_when_it_is_a_window_old() -> None:
    assert counts_with((100.0, True)).total(130.0) == 0


def test_old_buckets_leave_one_by_one() -> None:
    counts = counts_with(*((100.0 + 2.0 * i, i % 2 == 0) for i in range(15)))
    assert [counts.total(128.0 + 2.0 * i) for i in range(17)] == [15, *range(14, -1, -1), 0]


def test_new_calls_push_old_errors_out() -> None:
    counts = counts_with(*((100.0 + i, i < 30) for i in range(60)))
    assert (counts.total(159.0), counts.errors(159.0)) == (30, 0)


def test_after_a_long_silence_nothing_is_left() -> None:
    counts = counts_with((100.0, True), (105.0, True))
    counts.add(False, 5000.0)
    assert (counts.total(5000.0), counts.errors(5000.0)) == (1, 0)


def test_clear_forgets_everything_at_once() -> None:
    counts = counts_with((100.0, True), (105.0, True))
    counts.clear()
    assert counts.total(105.0) == counts.errors(105.0) == 0


def test_a_small_step_back_is_counted_as_new() -> None:
    counts = counts_with((100.0, False), (104.0, False), (103.9, True), (95.0, True))
    assert (counts.total(104.0), counts.errors(104.0)) == (4, 2)


def test_threads_racing_over_a_bucket_boundary_lose_nothing() -> None:
    counts = counts_with((100.0, False))
    for _ in range(100):
        counts.add(False, 102.0)
        counts.add(False, 101.999)
    assert counts.total(102.0) == 201


def test_a_clock_set_back_by_more_than_a_window_starts_over() -> None:
    counts = counts_with((5000.0, True), (100.0, False))
    assert (counts.total(100.0), counts.errors(100.0)) == (1, 0)
    assert counts.total(131.0) == 0


def test_an_infinite_instant_does_no_lasting_harm() -> None:
    counts = counts_with((100.0, True), (inf, True), (101.0, False))
    assert (counts.total(101.0), counts.errors(101.0)) == (1, 0)


def test_a_window_of_one_bucket_works() -> None:
    counts = SlidingCounts(1.0, 1.0)
    counts.add(True, 10.0)
    assert [counts.total(10.9), counts.total(11.0)] == [1, 0]


def test_a_bucket_that_is_no_binary_fraction_still_fits_exactly() -> None:
    counts = SlidingCounts(0.7, 0.1)
    for i in range(7):
        counts.add(False, 100.05 + 0.1 * i)
    assert counts.total(100.65) == 7


def test_counts_saturate_instead_of_overflowing() -> None:
    counts = SlidingCounts.from_state((102.0, 2**40, 2**40, b""), WINDOW, BUCKET)
    counts.add(True, 103.0)
    assert counts.total(103.0) == counts.errors(103.0) == MOST_PER_BUCKET + 1


def test_an_idle_key_gives_its_ring_back() -> None:
    counts = counts_with((100.0, False), (105.0, False))
    assert counts._ring is not None
    counts.total(200.0)
    assert counts._ring is None


def test_the_state_of_nothing_is_nothing() -> None:
    counts = counts_with((100.0, True))
    counts.total(200.0)
    assert SlidingCounts().to_state() == counts.to_state() == ()
    assert SlidingCounts.from_state(()).total(1.0) == 0


def test_what_was_set_aside_still_leaves_in_its_order() -> None:
    counts = counts_with(*((100.0 + 2.0 * i, i > 16) for i in range(20)))
    fetched = SlidingCounts.from_state(counts.to_state(), WINDOW, BUCKET)
    assert [fetched.errors(138.0 + 2.0 * i) for i in (0, 11, 12, 13, 14)] == [3, 3, 3, 2, 1]


@pytest.mark.parametrize("state", [(1.0, 2, 1, bytes(8)), (1.0, 2, 1, bytes(4 * 30))])
def test_a_state_of_another_shape_is_refused(state: tuple[float, int, int, bytes]) -> None:
    with pytest.raises(ValueError, match=r"not a state of window=30.0, bucket=2.0"):
        SlidingCounts.from_state(state)


@pytest.mark.parametrize(
    ("window", "bucket"), [(1.0, 2.0), (1.0, 0.0), (1.0, -1.0), (float("nan"), 1.0), (inf, 1.0), (MOST_BUCKETS + 1, 1)]
)
def test_a_window_its_buckets_do_not_fit_is_refused(window: float, bucket: float) -> None:
    with pytest.raises(ValueError, match=rf"window={window!r}, bucket={bucket!r}: bucket must"):
        SlidingCounts(window, bucket)


class AgainstAList(RuleBasedStateMachine):
    """The counts lie between a list's last ``window - bucket`` and its last ``window`` seconds."""

    @initialize(start=st.floats(-1e6, 1e6))
    def start(self, start: float) -> None:
        self.counts = SlidingCounts(WINDOW, BUCKET)
        self.events: list[tuple[float, bool]] = []
        self.now = self.latest = start

    @rule(step=st.one_of(st.floats(0.0, 3.0), st.floats(0.0, 80.0)), errors=st.lists(st.booleans(), max_size=5))
    def answers_arrive(self, step: float, errors: list[bool]) -> None:
        self.now = max(self.now + step, self.latest) if step else self.now
        self.latest = max(self.latest, self.now)
        for error in errors:
            self.counts.add(error, self.now)
            self.events.append((self.latest, error))

    @rule(period=st.floats(0.1, 7.0), errors=st.lists(st.booleans(), min_size=20, max_size=40))
    def a_steady_stream_arrives(self, period: float, errors: list[bool]) -> None:
        for error in errors:
            self.answers_arrive(period, [error])

    @rule(step=st.floats(0.0, 10.0))
    def the_clock_steps_back_a_little(self, step: float) -> None:
        self.now = self.latest - step

    @rule()
    def the_key_is_set_aside_and_fetched(self) -> None:
        self.counts = SlidingCounts.from_state(self.counts.to_state(), WINDOW, BUCKET)

    @rule()
    def everything_is_forgotten(self) -> None:
        self.counts.clear()
        self.events.clear()

    @invariant()
    def the_counts_are_bracketed_by_the_list(self) -> None:
        certain = [error for at, error in self.events if self.latest - at <= WINDOW - BUCKET - 1e-6]
        possible = [error for at, error in self.events if self.latest - at < WINDOW + 1e-6]
        total, errors = self.counts.total(self.now), self.counts.errors(self.now)
        assert len(certain) <= total <= len(possible)
        assert sum(certain) <= errors <= sum(possible)
        assert self.counts.error_rate(self.now) == (errors / total if total else 0.0)


AgainstAList.TestCase.settings = settings(max_examples=20, stateful_step_count=30, deadline=None, derandomize=True)
TestAgainstAList = AgainstAList.TestCase


def latency_of(*seconds: float) -> Latency:
    latency = Latency()
    for sample in seconds:
        latency.add(sample)
    return latency


def test_before_the_first_answer_everything_is_zero() -> None:
    latency = Latency()
    assert (latency.ewma, latency.p95(), latency.count) == (0.0, 0.0, 0)


def test_the_first_answer_is_the_average() -> None:
    assert latency_of(0.5).ewma == 0.5


def test_each_further_answer_moves_the_average_by_a_fifth() -> None:
    assert latency_of(1.0, 2.0, 2.0).ewma == pytest.approx(1.36)


def test_p95_is_the_nearest_rank() -> None:
    assert latency_of(*range(1, 21)).p95() == 19.0
    assert latency_of(*range(1, 22)).p95() == 20.0


def test_p95_of_a_few_answers_is_the_slowest() -> None:
    assert latency_of(0.25, 4.0, 0.5).p95() == 4.0


def test_p95_looks_at_the_latest_answers_only() -> None:
    assert latency_of(*[9.0] * 100, *[0.5] * MOST_SAMPLES).p95() == 0.5


def test_the_oldest_answer_leaves_first() -> None:
    slow_at_first = latency_of(9.0, 0.5, 9.0, 9.0, 9.0, *[0.5] * (MOST_SAMPLES - 5))
    assert slow_at_first.p95() == 9.0
    slow_at_first.add(0.5)
    assert slow_at_first.p95() == 0.5


def test_no_more_than_the_latest_answers_are_kept() -> None:
    kept = [len(latency_of(*[0.5] * n).to_state()[2]) // 4 for n in (1, 63, 64, 65, 500)]
    assert kept == [1, 63, 64, 64, 64]


@pytest.mark.parametrize("nonsense", [nan, -0.1, inf, -inf, LONGEST_WAIT + 1.0, 1e300])
def test_what_cannot_be_a_latency_is_ignored(nonsense: float) -> None:
    latency = latency_of(0.5, nonsense)
    assert (latency.ewma, latency.p95(), latency.count) == (0.5, 0.5, 1)


def test_two_fresh_latencies_share_nothing() -> None:
    latency_of(1.0, 2.0)
    assert Latency().p95() == 0.0


@pytest.mark.parametrize("state", [(1.0, 1, b""), (1.0, 3, bytes(4)), (1.0, 70, bytes(4)), (1.0, 65, bytes(4 * 65))])
def test_a_latency_state_of_another_shape_is_refused(state: tuple[float, int, bytes]) -> None:
    with pytest.raises(ValueError, match="not a state of latencies"):
        Latency.from_state(state)


class AgainstADeque(RuleBasedStateMachine):
    """The percentile is that of the latest 64 answers, the average that of all, whatever happens in between."""

    def __init__(self) -> None:
        super().__init__()
        self.latency = Latency()
        self.latest: deque[float] = deque(maxlen=MOST_SAMPLES)
        self.average = 0.0
        self.count = 0

    @rule(samples=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=40))
    def answers_arrive(self, samples: list[float]) -> None:
        for seconds in samples:
            self.latency.add(seconds)
            self.average = self.average * 0.8 + seconds * 0.2 if self.count else seconds
            self.count += 1
            self.latest.append(array("f", [seconds])[0])

    @rule(nonsense=st.sampled_from([nan, inf, -1.0]))
    def nonsense_arrives(self, nonsense: float) -> None:
        self.latency.add(nonsense)

    @rule()
    def the_key_is_set_aside_and_fetched(self) -> None:
        self.latency = Latency.from_state(self.latency.to_state())

    @invariant()
    def the_average_is_that_of_all(self) -> None:
        assert self.latency.ewma == pytest.approx(self.average)
        assert self.latency.count == self.count

    @precondition(lambda self: self.latest)
    @invariant()
    def the_percentile_is_that_of_the_latest(self) -> None:
        assert self.latency.p95() == sorted(self.latest)[ceil(0.95 * len(self.latest)) - 1]


AgainstADeque.TestCase.settings = settings(max_examples=50, stateful_step_count=15, deadline=None, derandomize=True)
TestAgainstADeque = AgainstADeque.TestCase
