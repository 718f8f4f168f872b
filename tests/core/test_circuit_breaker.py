"""Breaker: what trips it, what it lets through meanwhile, and what cannot move it."""

from __future__ import annotations

import marshal
from math import inf, nan

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.core.circuit_breaker import Breaker, BreakerSettings
from headgate.core.decision import CircuitState, Outcome, Refuse

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
OK, FAILED = Outcome.OK, Outcome.TRANSIENT
NEUTRAL = [outcome for outcome in Outcome if outcome is not OK and not outcome.counts_against_target]


class Caller:
    """Numbers calls as a gate does, and lets through only what is not refused."""

    def __init__(self, **policy: object) -> None:
        self.breaker = Breaker(BreakerSettings(**policy))
        self.newest = 0

    def ask(self, now: float) -> int | Refuse:
        refusal = self.breaker.check(now)
        if refusal is not None:
            return refusal
        self.newest += 1
        self.breaker.admit(self.newest, now)
        return self.newest

    def end(self, number: int, outcome: Outcome, now: float) -> bool:
        return self.breaker.record(number, outcome, now, self.newest)

    def call(self, outcome: Outcome, now: float) -> bool:
        number = self.ask(now)
        assert not isinstance(number, Refuse), number
        return self.end(number, outcome, now)

    def fail(self, times: int, now: float = 0.0) -> None:
        for _ in range(times):
            self.call(FAILED, now)


def opened(**policy: object) -> Caller:
    """Opened at 0, cools off until 30."""
    caller = Caller(**policy)
    caller.fail(caller.breaker.settings.failures_to_trip)
    assert caller.breaker.state is OPEN
    return caller


# ---------------------------------------------------------------------- tripping


def test_five_failures_in_a_row_open_it() -> None:
    caller = Caller()
    caller.fail(4)
    assert caller.breaker.state_at(0.0) is CLOSED
    assert caller.call(FAILED, 1.0)
    assert caller.breaker.state_at(1.0) is OPEN


@pytest.mark.parametrize("outcome", [Outcome.OVERLOADED, Outcome.TRANSIENT])
def test_overload_and_transient_failures_count(outcome: Outcome) -> None:
    caller = Caller(failures_to_trip=1)
    assert caller.call(outcome, 0.0)


@pytest.mark.parametrize("outcome", NEUTRAL)
def test_what_says_nothing_about_health_never_trips_it(outcome: Outcome) -> None:
    caller = Caller(failures_to_trip=1, error_rate_to_trip=0.01, calls_to_judge=1)
    for step in range(100):
        assert not caller.call(outcome, step / 10)
    assert caller.breaker.state is CLOSED


@pytest.mark.parametrize("outcome", NEUTRAL)
def test_what_says_nothing_about_health_does_not_break_a_row_of_failures(outcome: Outcome) -> None:
    caller = Caller()
    caller.fail(4)
    caller.call(outcome, 0.0)
    assert caller.call(FAILED, 0.0)


def test_a_success_breaks_a_row_of_failures() -> None:
    caller = Caller()
    for _ in range(10):
        caller.fail(4)
        caller.call(OK, 0.0)
    assert caller.breaker.state is CLOSED


def test_the_error_rate_trips_it_without_a_row() -> None:
    caller = Caller(error_rate_to_trip=0.4, calls_to_judge=10)
    for outcome in (OK, FAILED, OK, FAILED, OK, FAILED, OK, OK, OK):
        assert not caller.call(outcome, 0.0)
    assert caller.call(FAILED, 0.0)


def test_the_error_rate_is_not_judged_by_too_few_calls() -> None:
    caller = Caller(error_rate_to_trip=0.1, calls_to_judge=10)
    for outcome in (FAILED, OK, FAILED, OK, FAILED, OK, FAILED, OK, FAILED):
        assert not caller.call(outcome, 0.0)


def test_failures_older_than_the_window_are_forgotten() -> None:
    caller = Caller(error_rate_to_trip=0.4, calls_to_judge=10, window=30.0, window_bucket=2.0)
    for _ in range(4):
        caller.call(FAILED, 0.0)
    for step in range(20):
        caller.call(OK, 31.0 + step / 10)
    assert not caller.call(FAILED, 34.0)


def test_without_an_error_rate_only_the_row_counts() -> None:
    caller = Caller(error_rate_to_trip=None)
    for _ in range(50):
        caller.fail(4)
        caller.call(OK, 0.0)
    assert caller.breaker.state is CLOSED


# ---------------------------------------------------------------------- open and half-open


def test_while_open_everybody_is_refused_and_told_when_to_come_back() -> None:
    caller = opened()
    for now in (0.0, 10.0, 29.99):
        refusal = caller.ask(now)
        assert isinstance(refusal, Refuse)
        assert (refusal.reason, refusal.retry_at) == ("circuit_open", 30.0)
        assert refusal.reason


def test_30_s_later_six_callers_make_exactly_one_call() -> None:
    caller = opened()
    asked = [caller.ask(30.0) for _ in range(6)]
    assert [isinstance(answer, Refuse) for answer in asked] == [False] + [True] * 5
    assert asked[1].reason == "probe_in_flight"
    assert asked[1].reason


@pytest.mark.parametrize("probes", [2, 3, 7])
def test_half_open_admits_exactly_the_probes(probes: int) -> None:
    caller = opened(half_open_probes=probes)
    asked = [caller.ask(30.0) for _ in range(20)]
    assert sum(not isinstance(answer, Refuse) for answer in asked) == probes


def test_a_probe_that_succeeds_closes_it() -> None:
    caller = opened()
    assert caller.call(OK, 31.0)
    assert caller.breaker.state is CLOSED


def test_a_probe_that_fails_reopens_it_for_the_full_time() -> None:
    caller = opened()
    probe = caller.ask(31.0)
    assert caller.end(probe, FAILED, 33.0)
    assert caller.ask(62.9).retry_at == 63.0
    assert not isinstance(caller.ask(63.0), Refuse)


def test_closing_may_take_several_successes() -> None:
    caller = opened(successes_to_close=3)
    assert [caller.call(OK, 31.0) for _ in range(3)] == [False, False, True]


def test_successes_before_a_reopening_do_not_count_after_it() -> None:
    caller = opened(successes_to_close=2)
    caller.call(OK, 31.0)
    caller.call(FAILED, 31.0)
    assert not caller.call(OK, 62.0)
    assert caller.call(OK, 62.0)


@pytest.mark.parametrize("outcome", NEUTRAL)
def test_a_probe_that_says_nothing_gives_its_slot_back(outcome: Outcome) -> None:
    caller = opened()
    probe = caller.ask(30.0)
    assert isinstance(caller.ask(30.0), Refuse)
    assert not caller.end(probe, outcome, 30.5)
    assert caller.breaker.state is HALF_OPEN
    assert not isinstance(caller.ask(30.5), Refuse)


def test_a_cancelled_probe_gives_its_slot_back() -> None:
    caller = opened()
    caller.breaker.give_back(caller.ask(30.0))
    assert not isinstance(caller.ask(30.0), Refuse)


def test_a_probe_never_heard_of_again_loses_its_slot_after_the_open_time() -> None:
    caller = opened()
    caller.ask(31.0)
    assert isinstance(caller.ask(60.9), Refuse)
    assert not isinstance(caller.ask(61.0), Refuse)
    assert isinstance(caller.ask(61.0), Refuse)


def test_a_probe_that_lost_its_slot_to_another_moves_nothing_any_more() -> None:
    caller = opened()
    lost = caller.ask(31.0)
    caller.ask(61.0)
    assert not caller.end(lost, FAILED, 62.0)
    assert not caller.end(lost, OK, 62.0)
    assert caller.breaker.state is HALF_OPEN
    assert isinstance(caller.ask(62.0), Refuse)


def test_giving_back_twice_frees_no_second_slot() -> None:
    caller = opened(half_open_probes=2)
    first, _second = caller.ask(30.0), caller.ask(30.0)
    caller.breaker.give_back(first)
    caller.breaker.give_back(first)
    assert not isinstance(caller.ask(30.0), Refuse)
    assert isinstance(caller.ask(30.0), Refuse)


# ---------------------------------------------------------------------- what cannot move it


def test_polled_every_50_ms_while_open_it_recovers_by_itself() -> None:
    caller = opened(cool_off=0.3)
    refused = 0
    for step in range(1, 100):
        number = caller.ask(step * 0.05)
        if not isinstance(number, Refuse):
            break
        refused += 1
    assert (step * 0.05, refused) == (pytest.approx(0.3), 5)
    assert caller.end(number, OK, 0.31)
    assert caller.breaker.state is CLOSED


def test_after_closing_8_healthy_calls_leave_it_closed() -> None:
    caller = opened(error_rate_to_trip=0.4, calls_to_judge=5)
    caller.call(OK, 31.0)
    for step in range(8):
        assert not caller.call(OK, 31.0 + step / 10)
    assert caller.breaker.state is CLOSED


def test_after_closing_the_errors_from_before_do_not_count() -> None:
    caller = opened(failures_to_trip=5, error_rate_to_trip=0.4, calls_to_judge=5, cool_off=1.0)
    caller.call(OK, 1.5)
    for _ in range(4):
        assert not caller.call(OK, 1.5)
    assert not caller.call(FAILED, 1.5)


@pytest.mark.parametrize("outcome", Outcome)
def test_answers_to_calls_from_before_it_opened_are_ignored(outcome: Outcome) -> None:
    caller = Caller()
    late = [caller.ask(0.0) for _ in range(9)]
    for number in late[:5]:
        caller.end(number, FAILED, 1.0)
    assert not caller.end(late[5], outcome, 2.0)
    assert caller.breaker.state_at(2.0) is OPEN
    caller.ask(31.0)
    assert not caller.end(late[6], outcome, 31.5)
    assert caller.breaker.state is HALF_OPEN
    caller.end(caller.newest, OK, 32.0)
    assert not any(caller.end(number, FAILED, 33.0) for number in late[7:] * 5)
    assert caller.breaker.state is CLOSED


def test_late_failures_do_not_prolong_the_open_time() -> None:
    caller = Caller()
    late = [caller.ask(0.0) for _ in range(10)]
    for number in late[:5]:
        caller.end(number, FAILED, 1.0)
    for number in late[5:]:
        caller.end(number, FAILED, 20.0)
    assert not isinstance(caller.ask(31.0), Refuse)


def test_looking_takes_no_probe_and_changes_nothing() -> None:
    caller = opened()
    before = caller.breaker.to_state()
    seen = [caller.breaker.state_at(now) for now in (0.0, 29.9, 30.0, 1e6) for _ in range(5)]
    assert seen == [OPEN] * 10 + [HALF_OPEN] * 10
    caller.breaker.check(50.0)
    assert caller.breaker.to_state() == before
    assert not isinstance(caller.ask(30.0), Refuse)


def test_it_remembers_since_when_the_target_is_sick_over_reopenings() -> None:
    caller = opened()
    caller.call(FAILED, 31.0)
    caller.call(FAILED, 62.0)
    assert caller.breaker.sick_since == 0.0


# ---------------------------------------------------------------------- policy and state


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, value) for field in ("failures_to_trip", "calls_to_judge") for value in (0, -1, nan)),
        *((field, value) for field in ("half_open_probes", "successes_to_close") for value in (0, -1, nan)),
        *(("cool_off", value) for value in (0.0, -1.0, inf, nan)),
        *(("error_rate_to_trip", value) for value in (0.0, -0.1, 1.1, nan)),
        *(("window", value) for value in (0.0, 1.0, nan)),
    ],
)
def test_a_policy_out_of_range_names_field_and_value(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field}={value!r}"):
        BreakerSettings(**{field: value})


@pytest.mark.parametrize("script", ["", "ffff", "fffff", "fofofofof", "fffffpo", "fffffpf"])
def test_a_copy_from_its_state_goes_on_the_same_way(script: str) -> None:
    policy = {"error_rate_to_trip": 0.5, "calls_to_judge": 10}
    original, now = Caller(**policy), 0.0
    for letter in script:
        now += 31.0 if letter == "p" else 0.1
        if letter != "p":
            original.call(OK if letter == "o" else FAILED, now)
    copy = Caller(**policy)
    copy.breaker.load_state(marshal.loads(marshal.dumps(original.breaker.to_state())))
    copy.newest = original.newest
    for step in range(60):
        now += 1.0
        answers = [caller.ask(now) for caller in (original, copy)]
        assert answers[0] == answers[1]
        if not isinstance(answers[0], Refuse):
            outcome = FAILED if step % 3 else OK
            assert original.end(answers[0], outcome, now) == copy.end(answers[1], outcome, now)
        assert original.breaker.state_at(now) is copy.breaker.state_at(now)


# ---------------------------------------------------------------------- any order of events


class AgainstAModel(RuleBasedStateMachine):
    """The breaker beside a model that keeps every call and every answer of the era in plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.state, self.opened_at = CLOSED, 0.0
        self.row = 0
        self.answers: list[tuple[float, bool]] = []
        self.successes = 0
        self.current: dict[int, float] = {}
        """Calls of this era that count: when they left."""
        self.older: list[int] = []
        self.newest = 0

    @initialize(
        in_a_row=st.integers(1, 4),
        rate=st.sampled_from([None, 0.4, 1.0]),
        enough=st.integers(1, 6),
        probes=st.integers(1, 3),
        closes=st.integers(1, 3),
    )
    def start(self, in_a_row: int, rate: float | None, enough: int, probes: int, closes: int) -> None:
        # A window of one bucket forgets all at once, so a model can be exact about it.
        self.policy = BreakerSettings(
            failures_to_trip=in_a_row,
            error_rate_to_trip=rate,
            calls_to_judge=enough,
            cool_off=5.0,
            half_open_probes=probes,
            successes_to_close=closes,
            window=1e6,
            window_bucket=1e6,
        )
        self.breaker = Breaker(self.policy)

    def change(self, state: CircuitState) -> None:
        self.state = state
        self.older += self.current
        self.current, self.answers, self.row, self.successes = {}, [], 0, 0
        if state is OPEN:
            self.opened_at = self.now

    def sick(self) -> bool:
        if self.row >= self.policy.failures_to_trip:
            return True
        rate, total = self.policy.error_rate_to_trip, len(self.answers)
        failed = sum(bad for _, bad in self.answers)
        return rate is not None and total >= self.policy.calls_to_judge and failed / total >= rate

    @rule(step=st.sampled_from([0.0, 0.05, 1.0, 4.9, 5.0]))
    def time_passes(self, step: float) -> None:
        self.now += step

    @rule()
    def ask(self) -> None:
        cooled = self.now >= self.opened_at + self.policy.cool_off
        pending = [n for n, sent_at in self.current.items() if self.now < sent_at + self.policy.cool_off]
        free = len(pending) < self.policy.half_open_probes
        expected = self.state is CLOSED or (self.state is OPEN and cooled) or (self.state is HALF_OPEN and free)
        refusal = self.breaker.check(self.now)
        assert (refusal is None) == expected
        if refusal is not None:
            assert refusal.reason
            if self.state is OPEN:
                assert refusal.retry_at == self.opened_at + self.policy.cool_off
            return
        self.newest += 1
        self.breaker.admit(self.newest, self.now)
        if self.state is OPEN:
            self.change(HALF_OPEN)
        if self.state is HALF_OPEN:
            self.older += [n for n in self.current if n not in pending]
            self.current = {n: sent_at for n, sent_at in self.current.items() if n in pending}
        self.current[self.newest] = self.now

    @precondition(lambda self: self.current)
    @rule(which=st.integers(0, 100), outcome=st.sampled_from([OK, OK, FAILED, FAILED, Outcome.OVERLOADED, *NEUTRAL]))
    def answer(self, which: int, outcome: Outcome) -> None:
        number = sorted(self.current)[which % len(self.current)]
        changed = self.breaker.record(number, outcome, self.now, self.newest)
        del self.current[number]
        before = self.state
        if outcome is OK or outcome.counts_against_target:
            failed = outcome is not OK
            if self.state is HALF_OPEN:
                self.successes += not failed
                if failed:
                    self.change(OPEN)
                elif self.successes >= self.policy.successes_to_close:
                    self.change(CLOSED)
            else:
                self.answers.append((self.now, failed))
                self.row = self.row + 1 if failed else 0
                if failed and self.sick():
                    self.change(OPEN)
        assert changed == (self.state is not before)

    @precondition(lambda self: self.older)
    @rule(which=st.integers(0, 100), outcome=st.sampled_from(list(Outcome)))
    def late_answer(self, which: int, outcome: Outcome) -> None:
        assert not self.breaker.record(self.older[which % len(self.older)], outcome, self.now, self.newest)

    @precondition(lambda self: self.current)
    @rule(which=st.integers(0, 100))
    def cancel(self, which: int) -> None:
        number = sorted(self.current)[which % len(self.current)]
        self.breaker.give_back(number)
        del self.current[number]

    @invariant()
    def onlookers_see_the_model(self) -> None:
        if hasattr(self, "breaker"):
            cooled = self.state is OPEN and self.now >= self.opened_at + self.policy.cool_off
            before = self.breaker.to_state()
            assert self.breaker.state_at(self.now) is (HALF_OPEN if cooled else self.state)
            assert self.breaker.to_state() == before
            assert len(self.breaker.probes) <= self.policy.half_open_probes


TestAgainstAModel = AgainstAModel.TestCase
TestAgainstAModel.settings = settings(derandomize=True, deadline=None, max_examples=40, stateful_step_count=40)
