"""AIMD: a little more on every fast answer, half on a refusal or a slow one, once per era."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.controllers.aimd import Aimd, AimdSettings
from headgate.core.decision import Outcome
from headgate.core.gate import Gate
from headgate.core.gate_config import GateConfig
from headgate.core.policy import Ticket
from headgate.core.signal import SILENT

TARGET = 1.0


def gate_of(burst: float = 4.0, **policy: float) -> Gate:
    return Gate.local(GateConfig(controller=lambda: Aimd(AimdSettings(**policy)), burst=burst))


def call(gate: Gate, outcome: Outcome, latency: float = 0.1, now: float = 0.0) -> float:
    """One call sent and answered; the rate after it."""
    ticket = Ticket(gate, 0, now, 0)
    gate.admit(ticket, now)
    gate.record(ticket, SILENT[outcome], latency, now + latency, 0.0)
    return gate.controller.rate


def test_a_fast_200_adds_the_increase() -> None:
    assert call(gate_of(initial=2.0, increase=0.5), Outcome.OK) == 2.5


@pytest.mark.parametrize("outcome", [Outcome.RATE_LIMITED, Outcome.OVERLOADED])
def test_a_429_and_a_503_halve_it(outcome: Outcome) -> None:
    assert call(gate_of(initial=2.0), outcome) == 1.0


@pytest.mark.parametrize(("latency", "rate"), [(0.999, 2.25), (1.0, 2.0), (1.999, 2.0), (2.0, 1.0), (60.0, 1.0)])
def test_latency_speeds_up_leaves_alone_or_halves(latency: float, rate: float) -> None:
    assert call(gate_of(initial=2.0, latency_target=TARGET), Outcome.OK, latency) == rate


@pytest.mark.parametrize(
    "outcome", [o for o in Outcome if o not in (Outcome.OK, Outcome.RATE_LIMITED, Outcome.OVERLOADED)]
)
def test_other_outcomes_leave_it_alone(outcome: Outcome) -> None:
    assert call(gate_of(initial=2.0), outcome) == 2.0


def test_the_decrease_can_be_chosen() -> None:
    assert call(gate_of(initial=2.0, decrease=0.75), Outcome.RATE_LIMITED) == 1.5


def test_it_starts_within_its_bounds() -> None:
    assert Aimd(AimdSettings(initial=50.0, most=10.0)).rate == 10.0
    assert Aimd(AimdSettings(initial=0.001, least=0.5)).rate == 0.5


@given(
    st.lists(st.tuples(st.sampled_from(list(Outcome)), st.floats(0.0, 10.0)), max_size=60),
    st.floats(0.01, 5.0),
    st.floats(5.0, 50.0),
)
@settings(derandomize=True, deadline=None, max_examples=40)
def test_the_rate_stays_within_its_bounds(answers: list[tuple[Outcome, float]], least: float, most: float) -> None:
    gate = gate_of(initial=5.0, least=least, most=most, increase=2.0)
    for step, (outcome, latency) in enumerate(answers):
        assert least <= call(gate, outcome, latency, float(step)) <= most


def test_a_refusal_changes_the_very_next_admission() -> None:
    gate = gate_of(initial=2.0)
    call(gate, Outcome.RATE_LIMITED, latency=0.0, now=5.0)
    wait = gate.ask(5.0)
    assert wait.until == pytest.approx(6.0)


@pytest.mark.parametrize("latency", [0.0, 0.3])
def test_four_429s_of_one_burst_are_one_cut(latency: float) -> None:
    gate = gate_of(initial=8.0)
    burst = [gate.ask(0.0) for _ in range(4)]
    for ticket in burst:
        gate.record(ticket, SILENT[Outcome.RATE_LIMITED], latency, latency, 0.0)
    assert gate.controller.rate == 4.0


def test_slow_answers_of_one_burst_are_one_cut_too() -> None:
    gate = gate_of(initial=8.0)
    for ticket in [gate.ask(0.0) for _ in range(4)]:
        gate.record(ticket, SILENT[Outcome.OK], 3.0, 3.0, 0.0)
    assert gate.controller.rate == 4.0


def test_a_call_sent_after_the_cut_may_cut_again() -> None:
    gate = gate_of(initial=8.0)
    call(gate, Outcome.RATE_LIMITED, now=0.0)
    assert call(gate, Outcome.RATE_LIMITED, now=1.0) == 2.0


def test_answers_to_calls_of_the_era_before_do_not_undo_the_cut() -> None:
    gate = gate_of(initial=2.0, increase=0.5)
    first, *others = [gate.ask(0.0) for _ in range(4)]
    gate.record(first, SILENT[Outcome.RATE_LIMITED], 0.1, 0.1, 0.0)
    for ticket in others:
        gate.record(ticket, SILENT[Outcome.OK], 0.2, 0.2, 0.0)
    assert gate.controller.rate == 1.0


def test_it_goes_on_from_its_state() -> None:
    gate = gate_of(initial=8.0)
    old = gate.ask(0.0)
    call(gate, Outcome.RATE_LIMITED)
    copy = Aimd(AimdSettings(initial=8.0))
    copy.load_state(gate.controller.to_state())
    assert copy.rate == 4.0
    copy.on_answer(Ticket(gate, old.seq, 0.0, 0), SILENT[Outcome.RATE_LIMITED], 0.1, 1.0)
    assert copy.rate == 4.0
    assert copy.why()
