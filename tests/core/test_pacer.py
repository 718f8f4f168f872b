"""The pacer alone: it starts calls at a controller's rate, within bounds, and resumes gently after a pause."""

from __future__ import annotations

from math import inf

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.controllers.fixed import Fixed
from headgate.core.decision import UNKNOWN, WaitReason
from headgate.core.pacer import (
    INSTANT,
    NO_RAMP,
    SHORTEST_PAUSE,
    Pacer,
    ResumeRamp,
    TokenBucket,
    after_outage,
    after_pause,
)
from headgate.core.policy import Demand, LongTicket, Ticket
from headgate.core.quota import CATCH_UP

NOW = 1000.0


class CountsTokens(Fixed):
    def worth(self, cost):
        return cost["tokens"] / 100.0


def pacer_of(rate=10.0, burst=2.0, least=0.01, most=1e6):
    pacer = Pacer(Fixed(rate), burst, least, most)
    pacer.apply(NOW, NOW)
    return pacer


def start(pacer, now=NOW, cost=1):
    pacer.admit(Ticket(None, 1, now, 0) if cost == 1 else LongTicket(None, 1, now, 0, cost, 0.0), now)


def at_once(pacer, now):
    return next(count for count in range(100_000) if not pacer.try_take(now))


@pytest.mark.parametrize(
    ("rate", "burst", "most"), [(900.0, 4.0, 4), (10_000.0, 4.0, 40), (10_000.0, 100.0, 100), (10_000.0, 1.0, 1)]
)
def test_a_fast_pace_starts_a_batch_at_once(rate: float, burst: float, most: int) -> None:
    pacer = pacer_of(rate, burst)
    assert at_once(pacer, NOW + 1.0) == most
    pacer.controller.rate = 100.0
    pacer.apply(NOW, NOW + 1.0)
    assert at_once(pacer, NOW + 9.0) == burst


class TestPace:
    def test_a_burst_starts_at_once_and_the_next_call_waits_for_its_token(self):
        pacer = pacer_of()
        for _ in range(2):
            assert pacer.check(NOW, Demand()) is None
            start(pacer)
        wait = pacer.check(NOW, Demand())
        assert (wait.reason, wait.until) == (WaitReason.PACE, pytest.approx(NOW + 0.1))
        assert pacer.check(wait.until, Demand()) is None

    def test_calls_ahead_in_the_queue_take_their_tokens_first(self):
        assert pacer_of().check(NOW, Demand(requests_ahead=3.0)).until == pytest.approx(NOW + 0.2)

    def test_a_cost_takes_as_many_tokens_and_one_above_the_burst_waits_for_a_full_bucket(self):
        pacer = pacer_of()
        start(pacer, cost={"requests": 5, "tokens": 900})
        assert pacer.tokens == pytest.approx(-3.0)
        assert pacer.check(NOW, Demand(cost=7, requests=7)).until == pytest.approx(NOW + 0.5)

    def test_what_was_not_sent_is_given_back(self):
        pacer = pacer_of()
        start(pacer)
        pacer.cancel(Ticket(None, 1, NOW, 0), NOW)
        assert pacer.tokens == 2.0

    def test_a_guess_refuses_no_deadline_that_the_fastest_rate_would_keep(self):
        class Guess(Fixed):
            is_guess = True

        pacer = Pacer(Guess(10.0), 1.0, 0.01, 100.0)
        pacer.apply(NOW, NOW)
        start(pacer)
        wait = pacer.check(NOW, Demand())
        assert (wait.until, wait.not_before) == (pytest.approx(NOW + 0.1), pytest.approx(NOW + 0.01))
        assert pacer_of().check(NOW, Demand(requests_ahead=9.0)).known_until == UNKNOWN


class TestRate:
    @pytest.mark.parametrize(("rate", "paced"), [(5.0, 5.0), (0.001, 0.5), (1e9, 50.0)])
    def test_it_stays_within_the_configured_bounds(self, rate, paced):
        pacer = pacer_of(rate, least=0.5, most=50.0)
        assert (pacer.rate, pacer.learned_rate) == (paced, paced)

    def test_the_server_s_word_may_be_below_the_least(self):
        class Told(Fixed):
            is_told = True

        pacer = Pacer(Told(0.1), 1.0, 0.5, 50.0)
        pacer.apply(NOW, NOW)
        assert pacer.rate == 0.1

    def test_an_operator_s_limit_is_one_more_bound_until_it_is_lifted(self):
        pacer = pacer_of(10.0, most=50.0)
        pacer.set_ceiling(4.0)
        pacer.apply(NOW, NOW)
        assert (pacer.rate, pacer.is_at_ceiling) == (4.0, True)
        assert pacer.explain(pacer.check(NOW, Demand(requests_ahead=9.0)), NOW).ceiling == 4.0
        pacer.set_ceiling(None)
        pacer.apply(NOW, NOW)
        assert (pacer.rate, pacer.is_at_ceiling) == (10.0, False)


class TestPause:
    def test_what_a_hold_keeps_back_is_one_call_at_its_end_and_the_pace_goes_on_from_there(self):
        pacer = pacer_of()
        pacer.apply(NOW + 5.0, NOW)
        assert pacer.held
        assert pacer.check(NOW, Demand(requests_ahead=1.0)).until == pytest.approx(NOW + 5.1)
        pacer.apply(NOW, NOW + 5.0)
        assert not pacer.held
        assert pacer.refill(NOW + 5.0) == pytest.approx(1.0)

    def test_after_a_pause_the_pace_grows_until_the_ramp_ends(self):
        pacer = pacer_of()
        pacer.resume_after_pause(10.0, NOW)
        pacer.apply(NOW, NOW)
        assert pacer.rate == pytest.approx(5.0)
        pacer.apply(NOW, NOW + 0.5)
        assert 5.0 < pacer.rate < 10.0
        pacer.apply(NOW, NOW + 1.0)
        assert (pacer.rate, pacer.ramp) == (10.0, NO_RAMP)

    def test_a_wait_that_outlasts_the_ramp_ends_at_the_full_pace(self):
        pacer = pacer_of()
        pacer.resume_after_pause(10.0, NOW)
        pacer.apply(NOW, NOW)
        assert pacer.check(NOW, Demand(requests_ahead=6.0)).until == pytest.approx(NOW + 1.0)
        assert pacer.check(NOW, Demand(requests_ahead=41.0)).until == pytest.approx(NOW + 1.0 + 35.0 / 10.0)

    def test_after_an_outage_no_burst_is_left(self):
        pacer = pacer_of()
        pacer.resume_after_outage(20.0, NOW)
        assert pacer.tokens == 1.0
        assert pacer.ramp is not NO_RAMP


class TestQueue:
    def test_callers_that_wait_make_up_for_being_late_and_for_a_moment_after(self):
        pacer = pacer_of()
        pacer.on_queue(object(), NOW)
        assert pacer.is_late(NOW)
        pacer.on_queue(None, NOW)
        assert pacer.is_late(NOW + 0.9 * CATCH_UP)
        assert not pacer.is_late(NOW + 1.1 * CATCH_UP)

    def test_it_can_be_forgotten_once_its_bucket_is_full(self):
        pacer = pacer_of()
        assert pacer.idle_from(NOW) == NOW
        start(pacer)
        assert pacer.idle_from(NOW) == pytest.approx(NOW + 0.1)

    def test_it_goes_on_from_its_state(self):
        pacer, other = pacer_of(), pacer_of()
        start(pacer)
        pacer.resume_after_pause(10.0, NOW)
        other.load_state(pacer.to_state())
        assert (other.tokens, other.ramp, other.rate) == (pacer.tokens, pacer.ramp, pacer.rate)

    def test_so_does_what_may_start_at_once_at_a_fast_pace(self):
        pacer, other = pacer_of(10_000.0, 4.0), pacer_of(10.0, 4.0)
        other.load_state(pacer.to_state())
        assert at_once(other, NOW + 1.0) == at_once(pacer, NOW + 1.0) == 40

    def test_a_cost_that_is_worth_less_than_a_call_is_no_way_past_the_most(self):
        pacer = pacer_of(10.0, 4.0, most=20.0)
        pacer.controller = CountsTokens(10.0)
        assert [pacer.worth({"tokens": tokens}) for tokens in (1.0, 70.0, 300.0)] == [0.5, 0.7, 3.0]
        now, starts = NOW + 9.0, []
        while len(starts) < 60:
            wait = pacer.check(now, Demand({"tokens": 1.0}, pacer.worth({"tokens": 1.0})))
            now = now if wait is None else wait.until
            start(pacer, now, {"tokens": 1.0})
            starts.append(now)
        assert starts[3] == NOW + 9.0 < starts[4]
        assert starts[-1] - starts[0] == pytest.approx((60 - 4) / 20.0)
        pacer.set_ceiling(5.0)
        assert pacer.calls is None
        assert pacer.worth({"tokens": 1.0}) == 1.0
        before = pacer.tokens
        pacer.cancel(LongTicket(None, 1, now, 0, {"tokens": 1.0}, 0.0), now)
        assert pacer.tokens == before + 1.0


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
