"""Gate: one key's circuit, floors, limits, pace and depth under any order of questions and answers."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.gates import CONTROLLERS, HEEDED, CostlyTicket, gate_of, told

from headgate.controllers.adaptive import Adaptive, AdaptiveSettings
from headgate.controllers.aimd import Aimd, AimdSettings
from headgate.controllers.fixed import Fixed
from headgate.core.circuit_breaker import BreakerSettings
from headgate.core.concurrency import LOST_AFTER, record_unmatched
from headgate.core.decision import (
    INSTANT,
    LONGEST_WAIT,
    CircuitState,
    Outcome,
    Refuse,
    RefuseReason,
    Wait,
    WaitReason,
    blocked_by,
    explain,
)
from headgate.core.gate import CHECK_EVERY, Gate
from headgate.core.gate_config import GateConfig
from headgate.core.policy import Ticket
from headgate.core.quota import Quota, QuotaPolicy
from headgate.core.signal import SILENT, Limit, Signal

OK, REFUSED, FAILED = SILENT[Outcome.OK], SILENT[Outcome.RATE_LIMITED], SILENT[Outcome.TRANSIENT]
everywhere = pytest.mark.parametrize("name", CONTROLLERS)


def sent_within(gate: Gate, start: float, seconds: float, step: float = 0.001) -> list[float]:
    """When the calls of a busy caller start, all of them answered at once."""
    sent = []
    for tick in range(round(seconds / step)):
        now = start + tick * step
        while isinstance(ticket := gate.ask(now), Ticket):
            gate.record(ticket, OK, 0.01, now, 0.0)
            sent.append(now)
    return sent


def trip(gate: Gate, now: float = 0.0) -> None:
    while gate.breaker.state is not CircuitState.OPEN:
        gate.record(admitted(gate, now), FAILED, 0.1, now, 0.0)


# ---------------------------------------------------------------------- pace


@everywhere
def test_a_fresh_gate_lets_its_burst_through_and_then_paces(name: str) -> None:
    gate = gate_of(name, 10.0, burst=3.0)
    asked = [gate.ask(0.0) for _ in range(4)]
    assert [isinstance(answer, Ticket) for answer in asked] == [True, True, True, False]
    assert asked[3].reason == "pace"
    assert asked[3].until == pytest.approx(0.1)


@everywhere
def test_tickets_are_numbered_from_1_in_the_order_of_leaving(name: str) -> None:
    gate = gate_of(name, burst=4.0)
    assert [gate.ask(0.0).seq for _ in range(4)] == [1, 2, 3, 4]


@given(
    burst=st.floats(1.0, 5.0),
    rate=st.floats(0.1, 100.0),
    late=st.floats(-1.0, 2.0),
    gaps=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20),
)
def test_the_fast_path_takes_a_token_as_the_bucket_itself_does(burst, rate, late, gaps) -> None:
    gate, other, now = gate_of(rate=rate, burst=burst), gate_of(rate=rate, burst=burst), 0.0
    gate.check_at_seq = len(gaps) + 1  # that call would take the slow way, whatever the bucket holds
    for one in (gate, other):
        one.pacer.late_until = late
    for gap in gaps:
        now += gap
        assert gate.try_fast_admit(Ticket(gate, 0, 0.0, 0), now) is other.pacer.try_take(now)
        assert (gate.pacer.tokens, gate.pacer.filled_at) == (other.pacer.tokens, other.pacer.filled_at)


def test_a_cost_above_the_burst_waits_for_a_full_one_and_leaves_debt() -> None:
    gate = gate_of(rate=1.0, burst=4.0)
    assert isinstance(gate.ask(0.0, 6), Ticket)
    assert gate.ask(0.0).until == pytest.approx(3.0)


@pytest.mark.parametrize("least", [0.5, 5.0])
def test_the_least_rate_floors_the_learned_pace(least: float) -> None:
    gate = Gate.local(GateConfig(controller=lambda: Aimd(AimdSettings(initial=8.0, least=1e-6)), least=least))
    for step in range(30):
        gate.record(admitted(gate, step), REFUSED, 0.1, step + 0.5, 0.0)
    assert gate.pacer.rate == least


def test_the_least_rate_floors_no_pace_that_the_server_asks_for() -> None:
    gate = Gate.local(GateConfig(controller=lambda: Adaptive(AdaptiveSettings(initial=50.0, least=20.0)), least=20.0))
    for step in range(200):
        now = step / 20
        left = Limit(limit=600, remaining=300 - step, reset=60.0 - now, window=60.0)
        gate.record(admitted(gate, now), Signal(outcome=Outcome.OK, limits=(left,)), 0.01, now + 0.01, 0.0)
    assert gate.pacer.rate == pytest.approx(100 / 50, rel=0.1)


def test_a_short_ramp_after_a_pause_costs_a_slow_key_no_more_than_the_ramp() -> None:
    gate = gate_of(rate=0.2, burst=1.0)
    gate.record(gate.ask(0.0), told(3.0), 0.0, 0.0, 0.0)
    forecast = gate.ask(3.0).until
    assert 5.0 < forecast <= 6.0  # 0.3 s at half of the pace, and half of it while paused
    assert gate.ask(forecast - 0.01).until == pytest.approx(forecast)
    assert isinstance(gate.ask(forecast), Ticket)


def test_the_least_rate_shortens_no_floor() -> None:
    gate = gate_of(rate=50.0, least=50.0)
    gate.record(gate.ask(0.0), told(30.0), 0.0, 0.0, 0.0)
    assert gate.ask(29.9).until == 30.0


def test_the_least_rate_lifts_no_known_limit() -> None:
    gate = gate_of(rate=50.0, least=50.0, quotas=(Quota(dimension="requests", amount=2, window=60, burst=1),))
    assert len(sent_within(gate, 0.0, 60.0, 0.05)) <= 2


def test_the_least_rate_opens_no_circuit() -> None:
    gate = gate_of(rate=50.0, least=50.0)
    trip(gate)
    assert isinstance(gate.ask(29.9), Refuse)


def test_the_most_is_above_every_controller() -> None:
    assert gate_of(rate=500.0, most=20.0).pacer.rate == 20.0


@pytest.mark.parametrize("rate", [0.0, -3.0, nan])
def test_a_controller_that_says_no_rate_gets_the_least(rate: float) -> None:
    gate = gate_of(rate=rate, least=0.5)
    assert gate.pacer.rate == 0.5
    assert len(sent_within(gate, 0.0, 20.0, 0.01)) == 4 + 9


def test_a_controller_without_a_limit_lets_everything_through_and_stays_sane() -> None:
    gate = gate_of(rate=inf)
    for now in (0.0, 0.0, 0.0, 1.0, 1.0):
        for _ in range(20):
            assert isinstance(fast(gate, now) or gate.ask(now), Ticket)
            assert isfinite(gate.pacer.tokens)


@pytest.mark.no_cover
@pytest.mark.parametrize("burst", [1.0, 4.0])
@everywhere
def test_clock_readings_that_overtake_each_other_give_nothing_away(name: str, burst: float) -> None:
    """Threads read the clock before they take their turn, so readings arrive a little out of order."""
    gate, sent = gate_of(name, 10.0, burst=burst, most=10.0), 0
    for tick in range(2000):
        now = tick * 0.005
        ticket = gate.ask(now)
        if isinstance(ticket, Ticket):
            sent += 1
            gate.record(ticket, OK, 0.001, now - 0.004, 0.0)
        record_unmatched(gate, OK, 0.001, now - 0.004, 0.0)
    assert sent <= burst + 10.0 * 10.0 + 1


# ---------------------------------------------------------------------- floors


@everywhere
def test_a_floor_is_never_undercut(name: str) -> None:
    gate = gate_of(name, 1000.0, burst=8.0)
    gate.record(gate.ask(0.0), told(60.0), 0.1, 10.0, 0.0)
    for now in (10.0, 40.0, 69.9, 69.999):
        wait = gate.ask(now)
        assert isinstance(wait, Wait)
        assert wait.until >= 70.0
        assert fast(gate, now) is None
    assert isinstance(gate.ask(wait.until), Ticket)


@pytest.mark.parametrize("outcome", HEEDED)
def test_every_refusal_with_a_retry_after_sets_a_floor(outcome: Outcome) -> None:
    gate = gate_of(rate=1000.0)
    gate.record(gate.ask(0.0), told(5.0, outcome), 0.1, 0.0, 0.0)
    assert gate.ask(0.1).until == 5.0
    assert gate.hold.opens_at == 5.0


@everywhere
@pytest.mark.parametrize("outcome", [Outcome.TRANSIENT, Outcome.INVALID])
def test_the_retry_after_of_what_concerns_one_call_rests_nobody(name: str, outcome: Outcome) -> None:
    gate = gate_of(name, rate=1000.0)
    gate.record(gate.ask(0.0), told(5.0), 0.1, 0.1, 0.0)  # with its first refusal a controller begins to count
    gate.record(gate.ask(20.0), OK, 0.1, 20.1, 0.0)
    before = gate.hold.opens_at
    gate.record(gate.ask(30.0), told(500.0, outcome), 0.1, 30.1, 0.0)
    assert gate.hold.opens_at == before


def test_jitter_only_adds_to_a_floor() -> None:
    for draw in (0.0, 0.3, 0.999):
        gate = gate_of(rate=1000.0)
        gate.record(gate.ask(0.0), told(10.0), 0.1, 0.0, draw)
        assert 10.0 <= gate.hold.opens_at <= 11.0


@pytest.mark.parametrize(("second", "until"), [(3.0, 31.0), (29.0, 31.0), (40.0, 42.0)])
def test_a_longer_floor_extends_and_a_shorter_one_shortens_nothing(second: float, until: float) -> None:
    gate = gate_of(rate=1000.0)
    first, joiner = gate.ask(0.0), gate.ask(0.0)
    gate.record(first, told(30.0), 0.1, 1.0, 0.0)
    gate.record(joiner, told(second), 0.1, 2.0, 0.0)
    assert gate.hold.opens_at == until


@pytest.mark.parametrize("retry_after", [inf, 1e12, LONGEST_WAIT])
def test_no_floor_is_longer_than_31_days(retry_after: float) -> None:
    gate = gate_of(rate=1000.0)
    gate.record(gate.ask(0.0), told(retry_after), 0.1, 100.0, 0.999)
    assert gate.ask(100.0).until == 100.0 + LONGEST_WAIT


@pytest.mark.parametrize("retry_after", [nan, -5.0, 0.0])
def test_a_floor_that_is_no_time_holds_nothing(retry_after: float) -> None:
    gate = gate_of(rate=1000.0)
    gate.record(gate.ask(0.0), told(retry_after), 0.1, 1.0, 0.5)
    assert isinstance(gate.ask(1.0), Ticket)


@pytest.mark.parametrize("pause", [0.5, 5.0, 60.0])
def test_after_a_floor_exactly_one_call_is_ready_and_the_rest_are_paced(pause: float) -> None:
    gate = gate_of(rate=10.0, burst=8.0)
    gate.record(gate.ask(0.0), told(pause), 0.0, 0.0, 0.0)
    sent = sent_within(gate, pause, 1.0)
    assert sent[0] == pause
    assert sent[1] >= pause + 0.1 - 2 * INSTANT
    assert len(sent) <= 11


def test_calls_abandoned_inside_a_floor_start_no_rush_after_it() -> None:
    gate = gate_of(rate=10.0, burst=4.0)
    refused, *never_sent = [gate.ask(0.0) for _ in range(4)]
    gate.record(refused, told(30.0), 0.1, 0.1, 0.0)
    for ticket in never_sent:
        gate.cancel(ticket, 0.0)
    assert sum(isinstance(gate.ask(30.1), Ticket) for _ in range(4)) == 1


def test_after_a_long_floor_the_pace_comes_back_over_a_ramp() -> None:
    gate = gate_of(rate=100.0, burst=1.0)
    gate.record(gate.ask(0.0), told(20.0), 0.0, 0.0, 0.0)
    sent = sent_within(gate, 20.0, 4.0)
    by_second = [sum(20.0 + n <= at < 21.0 + n for at in sent) for n in range(4)]
    assert 50 <= by_second[0] < by_second[1] < by_second[3] <= 101


def test_a_joiner_that_extends_a_long_floor_a_little_keeps_its_ramp() -> None:
    gate = gate_of(rate=100.0, burst=2.0)
    first, joiner = gate.ask(0.0), gate.ask(0.0)
    gate.record(first, told(30.0), 0.0, 0.0, 0.0)
    gate.record(joiner, told(0.9), 0.0, 29.5, 0.0)
    assert len(sent_within(gate, 30.4, 0.5)) <= 35


def test_a_short_floor_does_not_end_the_ramp_after_an_outage() -> None:
    gate = gate_of(rate=100.0, burst=1.0, breaker=BreakerSettings(failures_to_trip=2, cool_off=20.0))
    trip(gate)
    gate.record(gate.ask(20.0), OK, 0.1, 20.0, 0.0)
    before = gate.pacer.rate
    gate.record(admitted(gate, 20.5), told(0.2), 0.0, 20.5, 0.0)
    assert len(sent_within(gate, 20.7, 0.5)) <= 0.5 * 2 * before


def test_after_an_outage_the_pace_comes_back_over_a_ramp() -> None:
    gate = gate_of(rate=100.0, burst=4.0, breaker=BreakerSettings(failures_to_trip=2, cool_off=20.0))
    trip(gate)
    gate.record(gate.ask(20.0), OK, 0.1, 20.0, 0.0)
    sent = sent_within(gate, 20.0, 8.0, 0.002)
    by_second = [sum(20.0 + n <= at < 21.0 + n for at in sent) for n in range(8)]
    assert by_second[0] <= 36
    assert by_second == sorted(by_second)
    assert 95 <= by_second[7] <= 101


# ---------------------------------------------------------------------- known limits


def test_a_known_limit_decides_and_is_named() -> None:
    quotas = (
        Quota(dimension="requests", amount=60, window=60, burst=2),
        Quota(dimension="tokens", amount=1000, window=60, burst=100),
    )
    gate = gate_of(rate=1000.0, burst=100.0, quotas=quotas)
    assert isinstance(gate.ask(0.0, {"requests": 1, "tokens": 100}), Ticket)
    wait = gate.ask(0.0, {"requests": 1, "tokens": 90})
    assert explain(gate, wait, 0.0).code == "tokens"
    assert explain(gate, wait, 0.0).subject == "1,000 tokens per 60 s"


@pytest.mark.parametrize("cost", [1, {"requests": 1, "tokens": 5}, {"tokens": 5}])
def test_every_call_is_a_request_whatever_else_it_costs(cost: float | dict[str, float]) -> None:
    quotas = (
        Quota(dimension="requests", amount=10, window=60, burst=4),
        Quota(dimension="tokens", amount=1e6, window=60, burst=1e5),
    )
    gate = gate_of(rate=1000.0, burst=100.0, quotas=quotas)
    assert sum(isinstance(gate.ask(tick * 0.1, cost), Ticket) for tick in range(600)) <= 10


@pytest.mark.no_cover
@given(
    st.lists(
        st.tuples(st.floats(0.0, 20.0), st.integers(1, 12), st.floats(0.0, 1.0), st.booleans()), min_size=5, max_size=40
    ),
    st.sampled_from([1.0, 3.0, 12.0]),
)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_no_window_ever_holds_more_than_a_known_limit(script: list, burst: float) -> None:
    gate = gate_of(rate=1000.0, burst=100.0, quotas=(Quota(dimension="requests", amount=12, window=10, burst=burst),))
    now, sent = 0.0, []
    for idle, cost, late, has_waiters in script:
        now += idle if idle > 10.0 else 0.0
        gate.has_waiters = gate.pacer.has_waiters = has_waiters
        gate.apply_limits(now)
        for _ in range(3):
            answer = gate.ask(now, cost)
            if isinstance(answer, Ticket):
                sent.append((now, cost))
                gate.record(answer, OK, 0.1, now, 0.0)
                break
            now = answer.until + late * 0.1
        else:
            raise AssertionError(answer)
    for start, _ in sent:
        assert sum(cost for at, cost in sent if start <= at < start + 10.0) <= 12


def test_settling_charges_what_a_call_really_cost() -> None:
    gate = gate_of(quotas=(Quota(dimension="tokens", amount=1000, window=10, burst=100),))
    cost = {"requests": 1, "tokens": 60}
    ticket = CostlyTicket(gate.ask(0.0, cost), cost)
    gate.settle(ticket, {"tokens": 10})
    assert isinstance(gate.ask(0.0, {"requests": 1, "tokens": 90}), Ticket)


# ---------------------------------------------------------------------- ending


def test_ending_twice_is_harmless() -> None:
    for first in ("report", "release", "abandon"):
        gate = gate_of(rate=1.0)
        ticket = gate.ask(0.0)
        assert end(gate, ticket, first)
        tokens, answers, state = gate.pacer.tokens, gate.answers, gate.breaker.to_state()
        assert not any(end(gate, ticket, again) for again in ("report", "release", "abandon"))
        assert (gate.pacer.tokens, gate.answers, gate.breaker.to_state()) == (tokens, answers, state)
        assert not len(gate.in_flight)


def quotas_of(gate: Gate) -> QuotaPolicy:
    assert gate.policies.quotas is not None
    return gate.policies.quotas


def admitted(gate: Gate, now: float) -> Ticket:
    ticket = Ticket(gate, 0, now, 0)
    gate.admit(ticket, now)
    return ticket


def fast(gate: Gate, now: float) -> Ticket | None:
    ticket = Ticket(gate, 0, now, 0)
    return ticket if gate.try_fast_admit(ticket, now) else None


def end(gate: Gate, ticket: Ticket, how: str) -> bool:
    if how == "report":
        return gate.record(ticket, FAILED, 0.1, 0.0, 0.0)
    return gate.release(ticket, 0.0) if how == "release" else gate.cancel(ticket, 0.0)


def test_a_released_call_stays_paid_for_and_teaches_nothing() -> None:
    gate = gate_of("aimd", 1.0, burst=2.0, quotas=(Quota(dimension="requests", amount=10, window=100, burst=5),))
    ticket = gate.ask(0.0)
    before = gate.controller.to_state(), gate.latency.to_state(), gate.breaker.to_state(), gate.answers
    gate.release(ticket, 0.0)
    assert (gate.controller.to_state(), gate.latency.to_state(), gate.breaker.to_state(), gate.answers) == before
    assert gate.pacer.tokens == 1.0
    assert quotas_of(gate).all[0].level == 4.0


@everywhere
def test_an_abandoned_call_gives_everything_back(name: str) -> None:
    gate = gate_of(name, 1.0, burst=2.0, quotas=(Quota(dimension="requests", amount=10, window=100, burst=5),))
    gate.cancel(gate.ask(0.0), 0.0)
    assert gate.pacer.tokens == 2.0
    assert quotas_of(gate).all[0].level == 5.0
    assert [isinstance(gate.ask(0.0), Ticket) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("cost", [1, 3, {"requests": 2, "tokens": 70}])
def test_an_abandoned_call_of_any_cost_gives_everything_back(cost: float | dict[str, float]) -> None:
    quotas = (
        Quota(dimension="requests", amount=50, window=100, burst=5),
        Quota(dimension="tokens", amount=1000, window=100, burst=100),
    )
    gate = gate_of(rate=1.0, burst=8.0, quotas=quotas)
    gate.cancel(gate.ask(0.0, cost), 0.0)
    levels = [bucket.level for bucket in quotas_of(gate).all]
    assert (gate.pacer.tokens, levels) == (8.0, [5.0, 100.0])


def test_abandoning_takes_nothing_away_from_what_a_late_waiter_is_owed() -> None:
    gate = gate_of(rate=1000.0, burst=1.0)
    gate.ask(0.0)
    gate.mark_waiting()
    gate.apply_limits(0.0)
    ticket = gate.ask(0.02)
    before = gate.pacer.tokens
    assert before > 10.0
    gate.cancel(ticket, 0.0)
    assert gate.pacer.tokens >= before


def test_an_abandoned_probe_gives_its_slot_back() -> None:
    for give_back in (Gate.cancel, Gate.release):
        gate = gate_of(rate=1000.0)
        trip(gate)
        give_back(gate, gate.ask(30.0), 30.0)
        assert isinstance(gate.ask(30.1), Ticket)


# ---------------------------------------------------------------------- refusals by the server


@pytest.mark.parametrize("latency", [0.0, 0.2])
@pytest.mark.parametrize("name", ["aimd", "gradient", "adaptive"])
def test_four_429s_of_one_burst_are_one_cut(name: str, latency: float) -> None:
    gate = gate_of(name, 8.0, burst=4.0)
    burst = [gate.ask(1.0) for _ in range(4)]
    rates = []
    for ticket in burst:
        gate.record(ticket, REFUSED, latency, 1.0 + latency, 0.0)
        rates.append(gate.controller.rate)
    assert rates[0] < 8.0
    assert rates == [rates[0]] * 4


@pytest.mark.parametrize("ask", [Gate.ask, fast])
def test_four_429s_of_one_burst_told_after_release_are_one_cut(ask: Callable) -> None:
    gate = gate_of("aimd", 8.0, burst=4.0)
    for number in range(4):
        gate.release(ask(gate, 1.0 + number / 100), 1.0 + number / 100)
    for number in range(4):
        record_unmatched(gate, REFUSED, 0.1, 1.1 + number / 100, 0.0)
    assert gate.controller.rate == 4.0


def test_four_429s_of_a_burst_that_took_no_tickets_are_one_cut() -> None:
    gate = gate_of("aimd", 8.0)
    for number in range(4):
        record_unmatched(gate, REFUSED, 0.1, 1.1 + number / 100, 0.0)
    assert gate.controller.rate == 4.0


def test_answers_without_tickets_sent_after_the_cut_cut_again() -> None:
    gate = gate_of("aimd", 8.0)
    record_unmatched(gate, REFUSED, 0.1, 1.1, 0.0)
    record_unmatched(gate, REFUSED, 0.1, 2.1, 0.0)
    assert gate.controller.rate == 2.0


@everywhere
def test_a_429_never_trips_the_breaker(name: str) -> None:
    gate = gate_of(name, breaker=BreakerSettings(failures_to_trip=1, error_rate_to_trip=0.01, calls_to_judge=1))
    for step in range(200):
        gate.record(admitted(gate, step), REFUSED, 0.1, step + 0.1, 0.0)
        assert gate.breaker.state is CircuitState.CLOSED


@pytest.mark.parametrize("name", ["aimd", "gradient", "adaptive"])
def test_a_429_changes_the_very_next_admission(name: str) -> None:
    gate = gate_of(name, 10.0, burst=4.0)
    ticket = gate.ask(0.0)
    gate.record(ticket, REFUSED, 0.05, 0.05, 0.0)
    assert isinstance(gate.ask(0.05), Wait)
    assert fast(gate, 0.05) is None


def test_a_broken_key_leaves_its_neighbour_alone() -> None:
    policy = GateConfig(controller=lambda: Aimd(AimdSettings(initial=8.0)))
    broken, healthy = Gate.local(policy), Gate.local(policy)
    untouched = healthy.to_state()
    trip(broken)
    record_unmatched(broken, told(300.0), 0.1, 0.1, 0.0)
    assert healthy.to_state() == untouched
    assert isinstance(healthy.ask(0.2), Ticket)


# ---------------------------------------------------------------------- answers without tickets


def test_an_answer_belongs_to_the_oldest_call_that_can_have_got_it() -> None:
    gate = gate_of(rate=1000.0)
    first, second, third = (gate.ask(now) for now in (0.0, 1.0, 2.0))
    record_unmatched(gate, OK, 1.5, 3.0, 0.0)
    assert list(gate.in_flight.pending) == [second.seq, third.seq]
    assert not gate.release(first, 0.0)


def test_an_answer_older_than_every_call_out_ends_none() -> None:
    gate = gate_of(rate=1000.0)
    ticket = gate.ask(1.0)
    record_unmatched(gate, OK, 2.5, 3.0, 0.0)
    assert list(gate.in_flight.pending) == [ticket.seq]
    assert gate.answers == 1


@pytest.mark.parametrize("signal", [OK, FAILED])
def test_an_answer_from_before_the_outage_neither_closes_nor_reopens_it(signal: Signal) -> None:
    gate = gate_of(rate=1000.0)
    trip(gate)
    gate.ask(30.0)
    record_unmatched(gate, signal, 15.0, 31.0, 0.0)
    assert gate.breaker.state is CircuitState.HALF_OPEN
    assert isinstance(gate.ask(31.0), Refuse)


def test_failures_of_calls_that_took_no_tickets_open_the_circuit_too() -> None:
    gate = gate_of(rate=1000.0)
    for step in range(5):
        record_unmatched(gate, FAILED, 0.1, 1.0 + step, 0.0)
    assert isinstance(gate.ask(5.1), Refuse)


# ---------------------------------------------------------------------- depth


class Capped(Fixed):
    """A pace without end, and so many calls at a time."""

    __slots__ = ("cap",)

    def __init__(self, cap: float) -> None:
        super().__init__(1000.0)
        self.cap = cap


def test_at_the_cap_a_call_waits_for_an_answer() -> None:
    gate = Gate.local(GateConfig(controller=lambda: Capped(2), burst=10.0))
    first, _second = gate.ask(0.0), gate.ask(0.0)
    wait = gate.ask(0.0)
    assert (wait.reason, wait.is_forecast) == ("depth", False)
    assert fast(gate, 0.0) is None
    gate.record(first, OK, 0.1, 0.1, 0.0)
    assert isinstance(gate.ask(0.1), Ticket)


def test_calls_never_ended_stop_counting_after_a_while() -> None:
    gate = Gate.local(GateConfig(controller=lambda: Capped(2), burst=10.0))
    gate.ask(0.0)
    gate.ask(5.0)
    wait = gate.ask(10.0)
    assert wait.until == LOST_AFTER
    assert isinstance(gate.ask(wait.until), Ticket)


def test_at_the_cap_a_floor_is_still_told() -> None:
    gate = Gate.local(GateConfig(controller=lambda: Capped(2), burst=10.0))
    gate.ask(0.0), gate.ask(0.0)
    record_unmatched(gate, told(3600.0), 5.0, 1.0, 0.0)  # an answer to a call of somebody else's
    wait = gate.ask(1.0)
    assert wait.is_forecast
    assert wait.until == 3601.0


def test_a_cap_below_one_lets_one_call_through_or_waits_but_never_raises() -> None:
    gate = Gate.local(GateConfig(controller=lambda: Capped(0), burst=10.0))
    assert isinstance(gate.ask(0.0), Wait | Ticket)


def test_many_calls_in_flight_at_once_all_stay_counted_and_are_all_heard() -> None:
    gate = gate_of(rate=1e6, burst=1e6)
    tickets = []
    while len(tickets) < 10_000:
        ticket = fast(gate, 1.0)
        if ticket is None:
            gate.drop_lost(1.0)
        else:
            tickets.append(ticket)
    assert len(gate.in_flight) == 10_000
    assert all(gate.record(ticket, OK, 4.0, 5.0, 0.0) for ticket in tickets)


@pytest.mark.no_cover
@pytest.mark.parametrize("answers", [0, 25])
def test_permits_never_ended_are_bounded_where_the_owner_looks_after_them(answers: int) -> None:
    gate, most = gate_of(rate=1e6, burst=1e6), 0
    for step in range(answers):  # of calls that took no ticket
        record_unmatched(gate, OK, 0.1, float(step), 0.0)
    for step in range(12 * CHECK_EVERY):
        if fast(gate, 100.0 + step / 1000) is None:
            gate.drop_lost(100.0 + step / 1000)
        most = max(most, len(gate.in_flight))
    assert most <= 60_000


# ---------------------------------------------------------------------- looking


@everywhere
def test_why_is_empty_when_a_call_may_start_and_a_sentence_when_not(name: str) -> None:
    gate = gate_of(name, 2.0, burst=1.0)
    assert blocked_by(gate, 0.0) is None
    gate.ask(0.0)
    paced = blocked_by(gate, 0.0)
    assert (paced.reason, paced.rate) == (WaitReason.PACE, 2.0)
    record_unmatched(gate, told(30.0), 0.0, 0.5, 0.0)
    assert blocked_by(gate, 0.5).seconds_left == pytest.approx(30.0)
    trip(gate, 0.5)
    assert blocked_by(gate, 0.5).reason is RefuseReason.CIRCUIT_OPEN


def test_looking_takes_nothing() -> None:
    gate = gate_of(rate=1.0, burst=1.0)
    trip(gate)
    for _ in range(5):
        blocked_by(gate, 30.0)
        gate.idle_from(30.0)
        assert gate.hold.opens_at
    assert isinstance(gate.ask(35.0), Ticket)


def test_a_gate_is_idle_once_forgetting_it_would_free_nothing() -> None:
    gate = gate_of(rate=1.0, burst=4.0, quotas=(Quota(dimension="requests", amount=10, window=100, burst=4),))
    assert gate.idle_from(0.0) == 0.0
    ticket = gate.ask(0.0)
    assert gate.idle_from(0.0) == inf
    gate.record(ticket, told(500.0), 0.1, 1.0, 0.0)
    assert gate.idle_from(1.0) >= 501.0
    trip(gate, 1.0)
    assert gate.idle_from(1e6) == inf


def test_what_is_put_away_does_not_remember_permits_that_are_out() -> None:
    gate = gate_of()
    gate.ask(0.0)
    state = gate.to_state()
    assert state is not None
    other = gate_of()
    other.load_state(state, 0.0)
    assert (len(other.in_flight), other.seq, other.pacer.tokens) == (0, 1, gate.pacer.tokens)
