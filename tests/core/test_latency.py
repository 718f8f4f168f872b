"""Latency: an average that follows and a percentile that shows the slow ones."""

from __future__ import annotations

from array import array
from collections import deque
from math import ceil, inf, nan

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core.decision import LONGEST_WAIT
from headgate.core.latency import MOST_SAMPLES, Latency


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
def test_a_state_of_another_shape_is_refused(state: tuple[float, int, bytes]) -> None:
    with pytest.raises(ValueError, match="no state of a latency"):
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
