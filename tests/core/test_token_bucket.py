"""The bucket whose refill changes, under any order of events."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core.quota import CATCH_UP
from headgate.core.token_bucket import INSTANT, TokenBucket


class UnderAnyOrder(RuleBasedStateMachine):
    """No more starts than the burst, what refilled, and what lateness allows; none while shut."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.shut_until = 100.0, 0.0
        self.pace = TokenBucket(4.0, 2.0)
        self.allowed, self.started = 4.0, 0.0
        self.fastest = 2.0

    @rule(seconds=st.floats(0.0, 5.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.allowed += seconds * self.pace.rate
        if self.pace.held and self.now >= self.shut_until:
            self.pace.reopen(self.now)

    @rule(rate=st.sampled_from([0.01, 1.0, 2.0, 50.0]))
    def change(self, rate: float) -> None:
        self.pace.refill(self.now)
        self.pace.rate = rate
        self.fastest = max(self.fastest, rate)

    @rule(has_waiters=st.booleans())
    def line(self, has_waiters: bool) -> None:
        self.pace.refill(self.now)
        self.pace.has_waiters = has_waiters

    @rule(seconds=st.floats(0.1, 10.0))
    def shut(self, seconds: float) -> None:
        self.shut_until = max(self.shut_until, self.now + seconds)
        self.pace.hold(self.shut_until, self.now)
        self.allowed += 1.0  # one call at most may be ready at the end

    @precondition(lambda self: not self.pace.held)
    @rule()
    def start(self) -> None:
        if self.pace.available_at(1.0, self.now) <= self.now:
            self.pace.tokens -= 1.0
            self.started += 1.0

    @precondition(lambda self: self.started > 0)
    @rule()
    def give_back(self) -> None:
        self.pace.give_back(1.0)
        self.started -= 1.0

    @invariant()
    def no_more_than_allowed(self) -> None:
        assert self.started <= self.allowed + 1e-3
        clamp = self.pace.burst + CATCH_UP * self.fastest
        assert self.pace.tokens <= clamp + 1e-9

    @invariant()
    def the_forecast_holds(self) -> None:
        if not self.pace.held:
            ready_at = self.pace.available_at(1.0, self.now)
            assert ready_at >= self.now
            assert ready_at <= self.now + (1.0 - self.pace.tokens) / self.pace.rate + INSTANT or ready_at == self.now


TestUnderAnyOrder = UnderAnyOrder.TestCase
TestUnderAnyOrder.settings = settings(derandomize=True, deadline=None, max_examples=40, stateful_step_count=40)


def test_a_shut_bucket_has_one_call_ready_at_its_end() -> None:
    pace = TokenBucket(10.0, 5.0)
    pace.refill(0.0)
    pace.hold(8.0, 0.0)
    pace.reopen(8.0)
    assert pace.refill(8.0) == 1.0


def test_a_wait_that_ends_sooner_than_was_said_goes_on_from_there() -> None:
    pace = TokenBucket(10.0, 5.0)
    pace.refill(0.0)
    pace.hold(8.0, 0.0)
    pace.reopen(2.0)
    assert pace.refill(2.2) == pytest.approx(2.0)
