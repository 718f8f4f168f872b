"""Cooldown: one pause per burst, the longest wish wins, and only later calls say anything new."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate import RateLimitConfig
from headgate.controllers import controller_factory
from headgate.core.cooldown import (
    MOST_ACCOUNTS,
    MOST_ESCALATIONS,
    MOST_FLOOR_JITTER,
    SPEND_REST,
    Cooldown,
    ExponentialCooldown,
    FixedCooldown,
    HoldPolicy,
    SpendRests,
)
from headgate.core.decision import LONGEST_WAIT, NEVER, Outcome, WaitReason
from headgate.core.pacer import Pacer
from headgate.core.policy import Ticket
from headgate.core.signal import Signal


def test_a_fresh_cooldown_holds_nothing() -> None:
    assert not Cooldown().holds(0.0)


def test_without_a_policy_the_pause_is_what_the_server_says() -> None:
    cooldown = Cooldown()
    assert cooldown.report(sent_at=9.9, now=10.0, floor=2.0, draw=0.0)
    assert [cooldown.holds(now) for now in (10.0, 11.99, 12.0)] == [True, True, False]


def test_a_silent_server_starts_an_era_without_a_pause() -> None:
    cooldown = Cooldown()
    assert cooldown.report(9.9, 10.0, floor=0.0, draw=0.9)
    assert cooldown.era == 1
    assert not cooldown.holds(10.0)


def test_ten_429s_of_one_burst_are_one_cooldown() -> None:
    cooldown = Cooldown(FixedCooldown(0.2))
    started = [cooldown.report(sent_at=0.0, now=0.1 + 0.15 * i, floor=0.0, draw=0.5) for i in range(10)]
    assert started == [True] + [False] * 9
    assert (cooldown.era, cooldown.eras_in_a_row, cooldown.participants) == (1, 1, 10)


def test_a_joiner_that_asks_for_longer_extends_the_pause() -> None:
    cooldown = Cooldown(FixedCooldown(0.2))
    cooldown.report(0.0, 1.0, floor=0.0, draw=0.0)
    cooldown.report(0.0, 1.1, floor=5.0, draw=0.0)
    assert cooldown.until == 6.1


def test_a_joiner_that_asks_for_less_shortens_nothing() -> None:
    cooldown = Cooldown()
    cooldown.report(0.0, 1.0, floor=5.0, draw=0.0)
    cooldown.report(0.0, 1.1, floor=0.2, draw=0.0)
    assert cooldown.until == 6.0


def test_a_late_joiner_resumes_the_pause_of_its_era() -> None:
    cooldown = Cooldown(FixedCooldown(0.2))
    cooldown.report(0.0, 1.0, floor=0.0, draw=0.0)
    assert not cooldown.report(0.0, 2.0, floor=5.0, draw=0.0)
    assert cooldown.holds(6.9)
    assert cooldown.era == 1


def test_a_429_of_a_call_sent_at_the_very_start_of_the_era_joins() -> None:
    cooldown = Cooldown()
    cooldown.report(1.0, 1.0, floor=0.0, draw=0.0)
    assert not cooldown.report(1.0, 1.3, floor=0.0, draw=0.0)


def test_a_429_of_a_call_sent_after_the_pause_starts_the_next_era() -> None:
    cooldown = Cooldown(FixedCooldown(1.0))
    cooldown.report(0.0, 1.0, floor=0.0, draw=0.0)
    assert cooldown.report(2.0, 2.5, floor=0.0, draw=0.0)
    assert (cooldown.era, cooldown.until) == (2, 3.5)


def test_the_servers_wish_beats_a_shorter_policy() -> None:
    cooldown = Cooldown(ExponentialCooldown(base=5.0))
    cooldown.report(0.0, 1.0, floor=30.0, draw=0.0)
    assert cooldown.until == 31.0


def test_chance_only_adds_to_the_servers_wish() -> None:
    cooldown = Cooldown()
    cooldown.report(0.0, 1.0, floor=30.0, draw=0.5)
    assert cooldown.until == 32.5


def test_a_fixed_pause_is_exact() -> None:
    cooldown = Cooldown(FixedCooldown(60.0))
    cooldown.report(0.0, 1.0, floor=0.0, draw=0.9)
    assert cooldown.until == 61.0


def test_a_growing_pause_grows_once_per_era_up_to_its_maximum() -> None:
    cooldown = Cooldown(ExponentialCooldown(base=5.0, factor=2.0, max=30.0))
    now, pauses = 0.0, []
    for _ in range(5):
        cooldown.report(sent_at=now, now=now + 1.0, floor=0.0, draw=0.0)
        cooldown.report(sent_at=now, now=now + 1.0, floor=0.0, draw=0.0)
        pauses.append(cooldown.until - now - 1.0)
        now = cooldown.until
    assert pauses == [5.0, 10.0, 20.0, 30.0, 30.0]


def test_a_success_sent_after_the_pause_ends_the_escalation() -> None:
    cooldown = Cooldown(ExponentialCooldown(base=5.0))
    cooldown.report(0.0, 1.0, floor=0.0, draw=0.0)
    cooldown.cleared(sent_at=6.0)
    cooldown.report(7.0, 8.0, floor=0.0, draw=0.0)
    assert cooldown.until == 13.0


def test_a_success_sent_before_the_pause_proves_nothing() -> None:
    cooldown = Cooldown(ExponentialCooldown(base=5.0))
    cooldown.report(0.0, 1.0, floor=0.0, draw=0.0)
    cooldown.cleared(sent_at=0.9)
    cooldown.report(7.0, 8.0, floor=0.0, draw=0.0)
    assert cooldown.until == 18.0


def test_a_thousand_eras_in_a_row_overflow_nothing() -> None:
    cooldown = Cooldown(ExponentialCooldown(base=1.0, factor=100.0, max=300.0))
    for i in range(1000):
        cooldown.report(sent_at=1000.0 * i, now=1000.0 * i, floor=0.0, draw=0.0)
    assert cooldown.eras_in_a_row == MOST_ESCALATIONS
    assert cooldown.until == 999_300.0


@pytest.mark.parametrize("floor", [inf, 1e300])
def test_no_pause_is_longer_than_31_days(floor: float) -> None:
    cooldown = Cooldown()
    cooldown.report(0.0, 0.0, floor=floor, draw=0.5)
    assert cooldown.until == LONGEST_WAIT


@pytest.mark.parametrize("floor", [nan, -3.0])
def test_a_floor_that_is_no_time_is_none(floor: float) -> None:
    cooldown = Cooldown()
    cooldown.report(0.0, 5.0, floor=floor, draw=0.5)
    assert cooldown.until == 5.0


def test_the_time_of_a_restart_counts_towards_the_pause() -> None:
    before = Cooldown(FixedCooldown(60.0))
    before.report(0.0, 100.0, floor=0.0, draw=0.0)
    after = Cooldown.from_state(before.to_state(now=110.0, wall=5000.0), now=3.0, wall=5020.0)
    assert after.until == pytest.approx(3.0 + 30.0)
    assert (after.era, after.eras_in_a_row, after.participants) == (1, 1, 1)


def test_a_pause_that_ended_during_the_restart_is_over() -> None:
    before = Cooldown(FixedCooldown(60.0))
    before.report(0.0, 100.0, floor=0.0, draw=0.0)
    assert not Cooldown.from_state(before.to_state(110.0, 5000.0), now=3.0, wall=5050.0).holds(3.0)


def test_a_wall_clock_set_back_an_hour_lengthens_no_pause() -> None:
    before = Cooldown(FixedCooldown(60.0))
    before.report(0.0, 100.0, floor=0.0, draw=0.0)
    after = Cooldown.from_state(before.to_state(110.0, 5000.0), now=3.0, wall=1400.0)
    assert after.until == pytest.approx(53.0)


def test_a_stored_pause_is_bounded() -> None:
    assert Cooldown.from_state((0.0, 1e12, 1, 10**9, 1), now=0.0, wall=0.0).until == LONGEST_WAIT


@pytest.mark.parametrize("state", [(), (0.0, 1.0), (0.0, nan, 1, 1, 1), (0.0, inf, 1, 1, 1)])
def test_a_damaged_state_is_refused(state: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="expected five finite numbers"):
        Cooldown.from_state(state, 0.0, 0.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, nan, inf])
def test_a_fixed_cooldown_out_of_range_is_named(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"seconds=.* must be within \(0, 2678400\]"):
        FixedCooldown(seconds)


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("base", {"base": 0.0}),
        ("base", {"base": nan}),
        ("factor", {"factor": 0.5}),
        ("factor", {"factor": 101.0}),
        ("max", {"base": 5.0, "max": 4.0}),
        ("max", {"max": inf}),
    ],
)
def test_an_exponential_cooldown_out_of_range_is_named(field: str, settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=rf"{field}=.* must be within"):
        ExponentialCooldown(**settings)


class AgainstAHistory(RuleBasedStateMachine):
    """Eras and escalations are those of a history that is read from its start each time."""

    policy = ExponentialCooldown(base=1.0, factor=2.0, max=8.0)

    def __init__(self) -> None:
        super().__init__()
        self.cooldown = Cooldown(self.policy)
        self.now = 1000.0
        self.sent = [self.now]
        self.until = 0.0
        self.era_started_at = 0.0
        self.eras = self.in_a_row = self.reports = 0

    @rule(step=st.floats(0.001, 6.0))
    def time_passes(self, step: float) -> None:
        self.now += step

    @rule()
    def a_call_is_sent_if_it_may(self) -> None:
        if not self.cooldown.holds(self.now):
            self.sent.append(self.now)

    @rule(data=st.data(), floor=st.sampled_from([0.0, 0.5, 7.0]), draw=st.floats(0.0, 0.99))
    def a_call_is_refused(self, data: st.DataObject, floor: float, draw: float) -> None:
        sent_at = data.draw(st.sampled_from(self.sent[-5:]), label="sent_at")
        before = self.cooldown.until
        started = self.cooldown.report(sent_at, self.now, floor, draw)
        self.reports += 1
        pause = floor
        assert started == (sent_at >= self.until and sent_at > self.era_started_at)
        if started:
            self.eras += 1
            self.in_a_row += 1
            self.era_started_at = self.now
            pause = max(floor, min(8.0, 2.0 ** (self.in_a_row - 1)))
        self.until = max(self.until, self.cooldown.until)
        assert self.cooldown.until >= max(before, self.now + pause)
        assert self.cooldown.until <= max(before, self.now + pause + min(0.1 * floor, MOST_FLOOR_JITTER))

    @rule(data=st.data())
    def a_call_succeeds(self, data: st.DataObject) -> None:
        sent_at = data.draw(st.sampled_from(self.sent[-5:]), label="sent_at")
        self.cooldown.cleared(sent_at)
        if sent_at >= self.until and sent_at > self.era_started_at:
            self.in_a_row = 0

    @rule(down=st.floats(0.0, 5.0), clock_set_by=st.sampled_from([0.0, -3600.0]))
    def the_process_restarts(self, down: float, clock_set_by: float) -> None:
        state = self.cooldown.to_state(self.now, wall=7000.0)
        restored = Cooldown.from_state(state, self.now + down, 7000.0 + down + clock_set_by, self.policy)
        assert restored.until <= max(0.0, self.cooldown.until + down) + 1e-6
        if not clock_set_by:
            assert restored.holds(self.now + down) == self.cooldown.holds(self.now + down) or (
                abs(self.cooldown.until - self.now - down) < 1e-6
            )
        self.now += down
        self.cooldown = restored
        self.until = restored.until
        self.era_started_at = 0.0
        self.sent = [self.now]

    @invariant()
    def the_counts_are_those_of_the_history(self) -> None:
        counted = (self.cooldown.era, self.cooldown.eras_in_a_row, self.cooldown.participants)
        assert counted == (self.eras, self.in_a_row, self.reports)


AgainstAHistory.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None, derandomize=True)
TestAgainstAHistory = AgainstAHistory.TestCase


def test_a_hold_put_away_still_knows_why_it_holds() -> None:
    limits = controller_factory("fixed", RateLimitConfig())()
    pacer = Pacer(limits, 1.0, 1.0, 1.0)
    hold, taken_out = HoldPolicy(limits, None, pacer), HoldPolicy(limits, None, pacer)
    hold.record(Ticket(None, 1, 0.0, 0), Signal(outcome=Outcome.CAPACITY, retry_after=30.0), 0.1, 1.0, 0.0)
    taken_out.load_state(hold.to_state())
    assert (taken_out.reason, taken_out.opens_at) == (WaitReason.CAPACITY, 31.0)
    taken_out.load_state((31.0, 1, 1.0, 1, 1))  # as earlier versions have stored it
    assert (taken_out.reason, taken_out.opens_at) == (WaitReason.FLOOR, 31.0)


# ---------------------------------------------------------------------- accounts that cannot spend


def test_one_call_leaves_when_the_rest_is_over_and_others_wait_for_its_answer() -> None:
    rests = SpendRests()
    assert not rests
    assert rests.stopped("a", 0.0, 5.0)
    assert not rests.stopped("a", 1.0, 10.0)  # another that was in flight
    assert rests.begin("a", 100.0) == SPEND_REST - 95.0
    assert rests.begin("b", 100.0) == 0.0
    due = 5.0 + SPEND_REST
    assert [rests.begin("a", due), rests.begin("a", due + 1.0)] == [0.0, SPEND_REST - 1.0]
    assert rests.stopped("a", due, due + 2.0)
    assert rests.begin("a", due + SPEND_REST) == 2.0


def test_a_success_frees_the_account() -> None:
    rests = SpendRests()
    rests.stopped("a", 0.0, 5.0)
    assert not rests.worked("a", 4.0)  # it left before that was known
    assert rests.worked("a", 6.0)
    assert (bool(rests), rests.until("a"), rests.begin("a", 1.0)) == (False, NEVER, 0.0)


def test_the_accounts_that_are_known_have_a_bound() -> None:
    rests = SpendRests()
    for account in range(MOST_ACCOUNTS + 1):
        rests.stopped(account, 0.0, 0.0)
    assert (rests.until(0), rests.until(1)) == (NEVER, SPEND_REST)


def test_accounts_that_turn_out_to_be_one_rest_for_as_long_as_either() -> None:
    rests = SpendRests()
    rests.stopped("a", 0.0, 0.0)
    rests.stopped("b", 7.0, 7.0)
    rests.join("a", "b")
    assert ("b" in rests, rests.until("a")) == (False, 7.0 + SPEND_REST)
    rests.forget("a")
    assert not rests
