"""The calls in the air, beside a plain dict of them."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core.concurrency import A_LOT, LOST_AFTER, InFlight


class AgainstADict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.flight, self.model = InFlight(), dict[int, float]()
        self.seq, self.now = 0, 100.0

    @rule(calls=st.integers(1, 5))
    def send(self, calls: int) -> None:
        for _ in range(calls):
            self.seq += 1
            self.flight.pending[self.seq] = self.model[self.seq] = self.now

    @rule(seconds=st.sampled_from([0.0, 0.1, 60.0, 450.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.model)
    @rule(pick=st.integers(0, 1000))
    def complete(self, pick: int) -> None:
        seq = sorted(self.model)[pick % len(self.model)]
        del self.model[seq]
        assert self.flight.complete(seq)
        assert not self.flight.complete(seq)

    @rule()
    def look_after(self) -> None:
        self.flight.let_go(self.now, self.seq)
        self.model = {seq: at for seq, at in self.model.items() if at + LOST_AFTER > self.now}

    @invariant()
    def they_agree(self) -> None:
        assert len(self.flight) == len(self.model)
        assert self.flight.oldest() == next(iter(sorted(self.model.items())), None)


TestAgainstADict = AgainstADict.TestCase
TestAgainstADict.settings = settings(derandomize=True, deadline=None, max_examples=30, stateful_step_count=40)


def test_a_caller_that_never_ends_anything_fills_no_memory() -> None:
    flight, seq = InFlight(), 0
    for _ in range(20):
        for _ in range(A_LOT // 2):
            seq += 1
            flight.pending[seq] = 1.0
        flight.let_go(1.0, seq)
        assert len(flight) <= 3 * A_LOT


def test_a_caller_that_ends_some_loses_none_that_are_on_their_way() -> None:
    flight, seq = InFlight(), 0
    for _ in range(10):
        for _ in range(A_LOT):
            seq += 1
            flight.pending[seq] = 1.0
        flight.complete(seq)
        flight.let_go(1.0, seq)
    assert len(flight) == 10 * A_LOT - 10
