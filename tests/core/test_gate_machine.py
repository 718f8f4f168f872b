"""Gate: whoever asks, whatever comes back and in whatever order, it keeps its promises."""

from __future__ import annotations

import copy
import marshal
from collections.abc import Callable, Mapping
from math import inf, isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.core.gates import CONTROLLERS, HEEDED, CostlyTicket, gate_of, told

from headgate.core.circuit_breaker import BreakerSettings
from headgate.core.concurrency import record_unmatched
from headgate.core.decision import INSTANT, CircuitState, Outcome, Refuse, Wait, blocked_by, explain
from headgate.core.gate import Gate
from headgate.core.pacer import NO_RAMP
from headgate.core.policy import Ticket
from headgate.core.quota import CATCH_UP, Quota
from headgate.core.signal import SILENT, Limit, Signal
from headgate.reason_text import reason_text

pytestmark = pytest.mark.no_cover

OK, FAILED = SILENT[Outcome.OK], SILENT[Outcome.TRANSIENT]
# ---------------------------------------------------------------------- two gates side by side

outcomes = st.one_of(st.just(Outcome.OK), st.sampled_from([Outcome.RATE_LIMITED, Outcome.TRANSIENT, *Outcome]))
budgets = st.builds(
    Limit,
    dimension=st.sampled_from(["requests", "tokens"]),
    limit=st.sampled_from([None, 0.0, 1.0, 50.0, 600.0]),
    remaining=st.sampled_from([None, 0.0, 1.0, 30.0]),
    reset=st.sampled_from([None, 0.0, 0.5, 10.0, 60.0, 86400.0]),
    window=st.sampled_from([None, 1.0, 60.0]),
)
signals = st.builds(
    Signal,
    outcome=outcomes,
    retry_after=st.sampled_from([None, None, None, 0.0, 0.1, 1.0, 2.5, 30.0]),
    limits=st.one_of(st.just(()), st.just(()), st.lists(budgets, max_size=2).map(tuple)),
)
steps = st.sampled_from([0.0, 0.001, 0.02, 0.1, 0.5, 2.0, 11.0])
latencies = st.sampled_from([0.0, 0.05, 0.4, 3.0])
script_of_calls = st.lists(st.tuples(steps, signals, latencies, st.booleans()), max_size=40)
costs = st.sampled_from([1, 1, 1, 3, {"requests": 1, "tokens": 40}])
policies = st.fixed_dictionaries(
    {
        "name": st.sampled_from(list(CONTROLLERS)),
        "rate": st.sampled_from([0.2, 2.0, 50.0]),
        "burst": st.sampled_from([1.0, 4.0]),
        "most": st.sampled_from([inf, 20.0]),
        "breaker": st.builds(
            BreakerSettings,
            failures_to_trip=st.integers(1, 4),
            cool_off=st.just(3.0),
            error_rate_to_trip=st.sampled_from([None, 0.5]),
        ),
    }
)


def same(one: object, other: object) -> bool:
    """Whether two gates gave the same answer."""
    if isinstance(one, Ticket) or isinstance(other, Ticket):
        return isinstance(one, Ticket) and isinstance(other, Ticket) and one.seq == other.seq
    if isinstance(one, Wait) and isinstance(other, Wait):
        return (one.reason, one.subject) == (other.reason, other.subject) and one.until == pytest.approx(
            other.until, abs=1e-6
        )
    return one == other


def play(gates: list[Gate], asks: list[Callable], script: list, now: float) -> float:
    """The same calls through both gates, which must agree on each of them. All calls have ended after it."""
    out: list[tuple[list[Ticket], Signal, float]] = []
    for step, signal, latency, ends in script:
        now += step
        answers = [ask(gate, now) for gate, ask in zip(gates, asks, strict=True)]
        assert same(*answers), (now, answers)
        if isinstance(answers[0], Ticket):
            out.append((answers, signal, latency))
        if ends and out:
            tickets, signal, latency = out.pop(0)
            for gate, ticket in zip(gates, tickets, strict=True):
                gate.record(ticket, signal, latency, now, 0.5)
        assert gates[0].pacer.rate == pytest.approx(gates[1].pacer.rate)
    for tickets, _, _ in out:
        for gate, ticket in zip(gates, tickets, strict=True):
            gate.release(ticket, now)
    return now


def plainly_first(gate: Gate, now: float) -> Ticket | Wait | Refuse:
    return fast(gate, now) or gate.ask(now)


def fast(gate: Gate, now: float) -> Ticket | None:
    ticket = Ticket(gate, 0, now, 0)
    return ticket if gate.try_fast_admit(ticket, now) else None


@given(policies, script_of_calls)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_the_short_way_and_the_long_way_agree(policy: dict, script: list) -> None:
    play([gate_of(**policy), gate_of(**policy)], [plainly_first, Gate.ask], script, 1000.0)


@given(policies, script_of_calls, st.sampled_from([0.0, 0.3, 1.5, 10.0]), script_of_calls)
@settings(derandomize=True, deadline=None, max_examples=80)
def test_a_gate_put_away_and_taken_out_goes_on_the_same_way(
    policy: dict, before: list, idle: float, after: list
) -> None:
    original, twin, taken_out = gate_of(**policy), gate_of(**policy), gate_of(**policy)
    now = play([original, twin], [plainly_first, plainly_first], before, 1000.0) + idle
    taken_out.load_state(marshal.loads(marshal.dumps(original.to_state())), now)
    original.apply_limits(now)
    play([original, taken_out], [plainly_first, plainly_first], after, now)


def test_a_gate_taken_out_during_its_ramp_has_gained_nothing() -> None:
    def at_the_end_of_a_floor() -> Gate:
        gate = gate_of(rate=1.0, burst=8.0)
        gate.record(gate.ask(0.0), told(30.0), 0.0, 0.0, 0.0)
        gate.record(gate.ask(30.0), OK, 0.1, 30.0, 0.0)
        return gate

    original, taken_out = at_the_end_of_a_floor(), gate_of(rate=1.0, burst=8.0)
    taken_out.load_state(original.to_state(), 32.0)
    assert taken_out.pacer.refill(32.0) == pytest.approx(original.pacer.refill(32.0))


# ---------------------------------------------------------------------- any order of events


class AnyCaller(RuleBasedStateMachine):
    """Whoever asks and whatever comes back: the gate keeps its promises."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.floor = -inf
        self.out: list[Ticket] = []
        self.probes: list[Ticket] = []
        """Calls let through half-open."""
        self.ended: list[Ticket] = []
        self.told_until = self.now

    @initialize(
        policy=policies,
        probes=st.integers(1, 2),
        limits=st.sampled_from([{}, {"requests": (20, 10.0, 4)}, {"requests": (6, 2.0, 6), "tokens": (100, 5.0, 10)}]),
    )
    def start(self, policy: dict, probes: int, limits: dict[str, tuple[float, float, float]]) -> None:
        quotas = tuple(
            Quota(dimension=name, amount=n, window=window, burst=burst) for name, (n, window, burst) in limits.items()
        )
        breaker = BreakerSettings(failures_to_trip=3, cool_off=3.0, half_open_probes=probes, error_rate_to_trip=0.5)
        self.gate = gate_of(**{**policy, "breaker": breaker}, quotas=quotas)

    @rule(step=steps)
    def time_passes(self, step: float) -> None:
        self.now += step

    @precondition(lambda self: self.told_until > self.now)
    @rule(early=st.sampled_from([0.0, 0.0, 0.001, 0.1]))
    def wait_as_told(self, early: float) -> None:
        self.now = max(self.now, self.told_until - early)

    @rule(times=st.integers(1, 3), signal=st.sampled_from([FAILED, told(0.7, Outcome.OVERLOADED)]))
    def fail(self, times: int, signal: Signal) -> None:
        for _ in range(times):
            self.ask(1, False, 1)
        self.report_all(signal)

    @rule(cost=costs, plainly=st.booleans(), tries=st.integers(1, 4))
    def ask(self, cost: float | Mapping[str, float], plainly: bool, tries: int) -> None:
        for _ in range(tries):
            seen = self.gate.breaker.state_at(self.now)
            answer = fast(self.gate, self.now) if plainly and cost == 1 else None
            answer = self.gate.ask(self.now, cost) if answer is None else answer
            if isinstance(answer, Ticket):
                self.let_through(answer, cost, seen)
            else:
                self.held_back(answer, cost, seen)

    def let_through(self, ticket: Ticket, cost: float | Mapping[str, float], seen: CircuitState) -> None:
        assert seen is not CircuitState.OPEN
        assert self.now >= self.floor - INSTANT
        assert ticket.sent_at == self.now
        ticket = CostlyTicket(ticket, cost) if cost != 1 else ticket
        if seen is CircuitState.HALF_OPEN:
            policy = self.gate.config.breaker
            self.probes = [probe for probe in self.probes if self.now < probe.sent_at + policy.cool_off]
            self.probes.append(ticket)
            assert len(self.probes) <= policy.half_open_probes
        self.out.append(ticket)

    def held_back(self, answer: Wait | Refuse, cost: float | Mapping[str, float], seen: CircuitState) -> None:
        reason = reason_text(explain(self.gate, answer, self.now))
        assert reason.strip()
        assert "\n" not in reason
        if isinstance(answer, Refuse):
            assert seen is not CircuitState.CLOSED
            assert answer.retry_at is None or answer.retry_at > self.now
            self.told_until = answer.retry_at or self.told_until
            return
        assert self.now < answer.until < inf
        self.told_until = answer.until
        assert not answer.is_forecast or answer.until >= self.floor
        # If nothing happens but the time told passing by, the call starts.
        later = copy.deepcopy(self.gate, {id(one): one for one in (self.gate.config, NO_RAMP)})
        later.apply_limits(answer.until)
        assert isinstance(later.ask(answer.until, cost), Ticket), (answer, later.ask(answer.until, cost))

    def forget(self, ticket: Ticket) -> None:
        self.probes = [probe for probe in self.probes if probe.seq != ticket.seq]
        self.ended.append(ticket)

    def heard(self, signal: Signal) -> None:
        if signal.outcome in HEEDED and signal.retry_after is not None:
            self.floor = max(self.floor, self.now + signal.retry_after)

    @precondition(lambda self: self.out)
    @rule(which=st.integers(0, 50), signal=signals, draw=st.floats(0.0, 0.999))
    def report(self, which: int, signal: Signal, draw: float) -> None:
        ticket = self.out.pop(which % len(self.out))
        assert self.gate.record(ticket, signal, self.now - ticket.sent_at, self.now, draw)
        self.forget(ticket)
        self.heard(signal)

    @rule(signal=signals)
    def report_all(self, signal: Signal) -> None:
        while self.out:
            self.report(0, signal, 0.0)

    @precondition(lambda self: self.out)
    @rule(which=st.integers(0, 50))
    def release(self, which: int) -> None:
        ticket = self.out.pop(which % len(self.out))
        tokens, circuit = self.gate.pacer.tokens, self.gate.breaker.state
        assert self.gate.release(ticket, self.now)
        closes = circuit is not self.gate.breaker.state is CircuitState.CLOSED  # by an answer that was kept for it
        assert self.gate.pacer.tokens == (min(tokens, 1.0) if closes else tokens)
        self.forget(ticket)

    @precondition(lambda self: self.out)
    @rule(which=st.integers(0, 50))
    def abandon(self, which: int) -> None:
        ticket = self.out.pop(which % len(self.out))
        cost = ticket.cost if isinstance(ticket.cost, int) else ticket.cost["requests"]
        before = self.gate.pacer.tokens
        assert self.gate.cancel(ticket, self.now)
        assert before <= self.gate.pacer.tokens <= before + cost
        self.forget(ticket)

    @precondition(lambda self: self.ended)
    @rule(which=st.integers(0, 50), signal=signals)
    def end_again(self, which: int, signal: Signal) -> None:
        ticket = self.ended[which % len(self.ended)]
        tokens, answers = self.gate.pacer.tokens, self.gate.answers
        assert not self.gate.record(ticket, signal, 0.1, self.now, 0.0)
        assert not self.gate.release(ticket, self.now)
        assert not self.gate.cancel(ticket, self.now)
        assert (self.gate.pacer.tokens, self.gate.answers) == (tokens, answers)

    @rule(signal=signals, latency=st.sampled_from([0.0, 0.1, 1.0, 5.0]))
    def teach(self, signal: Signal, latency: float) -> None:
        mine = next((t for t in self.out if t.sent_at <= self.now - latency + INSTANT), None)
        breaker = self.gate.breaker
        before = breaker.state, dict(breaker.probes)
        record_unmatched(self.gate, signal, latency, self.now, 0.0)
        if mine is not None:
            self.out.remove(mine)
            self.forget(mine)
        elif before[0] is not CircuitState.CLOSED:  # a call of somebody else's is no probe
            assert (breaker.state, breaker.probes) == before
        self.heard(signal)

    @rule(has_waiters=st.booleans())
    def line_forms_or_goes(self, has_waiters: bool) -> None:
        if has_waiters:
            self.gate.mark_waiting()
            self.gate.apply_limits(self.now)
        elif self.gate.has_waiters:
            self.gate.set_queue(None, self.now)

    @invariant()
    def the_books_are_right(self) -> None:
        if not hasattr(self, "gate"):
            return
        gate = self.gate
        assert len(gate.in_flight) == len(self.out)
        assert isfinite(gate.pacer.tokens)
        assert isfinite(gate.pacer.rate)
        assert 0.0 < gate.pacer.rate <= gate.config.most
        assert gate.pacer.tokens <= gate.pacer.burst + CATCH_UP * max(gate.pacer.rate, gate.controller.rate, 100.0)
        assert gate.has_waiters or gate.pacer.refill(self.now) <= gate.pacer.burst + CATCH_UP * 100.0
        assert (blocked_by(gate, self.now) is None) == (gate.check(self.now) is None)


TestAnyCaller = AnyCaller.TestCase
TestAnyCaller.settings = settings(derandomize=True, deadline=None, max_examples=60, stateful_step_count=50)
