"""Gradient: faster while answers come back as fast as usual, slower when they begin to queue."""

from __future__ import annotations

import marshal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.controllers.gradient import Gradient, GradientSettings
from headgate.core.decision import Outcome, Wait
from headgate.core.gate import Gate
from headgate.core.gate_config import GateConfig
from headgate.core.policy import Ticket
from headgate.core.signal import SILENT


def gate_of(**policy: float) -> Gate:
    return Gate.local(GateConfig(controller=lambda: Gradient(GradientSettings(**policy)), burst=1.0))


def drive(gate: Gate, calls: int, latency: float, now: float = 0.0, *, busy: bool = True) -> float:
    """One caller after another; a busy one asks as soon as it can, an idle one never has to wait. The instant after."""
    for _ in range(calls):
        ticket = gate.ask(now)
        while isinstance(ticket, Wait):
            now = ticket.until
            ticket = gate.ask(now)
        gate.record(ticket, SILENT[Outcome.OK], latency, now + latency, 0.0)
        if not busy:
            now += 10.0 + 2.0 / gate.controller.rate
    return now


@pytest.mark.parametrize("rate", [2.0, 20.0, 200.0])
def test_it_grows_while_latency_stays_and_calls_wait(rate: float) -> None:
    gate = gate_of(initial=rate)
    drive(gate, 100, 0.1)
    assert gate.controller.rate > 1.2 * rate


def test_a_caller_that_always_waits_makes_it_grow_at_any_pace() -> None:
    gate = gate_of(initial=0.2)
    drive(gate, 50, 0.1)
    assert gate.controller.rate > 0.2


def test_it_does_not_grow_for_an_idle_caller() -> None:
    gate = gate_of(initial=20.0)
    drive(gate, 100, 0.1, busy=False)
    assert gate.controller.rate == 20.0


@pytest.mark.parametrize("rate", [2.0, 50.0, 500.0])
def test_it_falls_when_latency_doubles(rate: float) -> None:
    gate = gate_of(initial=rate, most=rate)
    now = drive(gate, 100, 0.1)
    drive(gate, 15, 0.2, now)
    assert gate.controller.rate < rate


def test_it_falls_for_an_idle_caller_too() -> None:
    gate = gate_of(initial=100.0)
    now = drive(gate, 100, 0.1, busy=False)
    drive(gate, 30, 0.3, now, busy=False)
    assert gate.controller.rate < 100.0


def test_a_little_slower_is_no_queue() -> None:
    gate = gate_of(initial=100.0)
    now = drive(gate, 100, 0.1, busy=False)
    drive(gate, 50, 0.12, now, busy=False)
    assert gate.controller.rate == 100.0


def test_a_refusal_cuts() -> None:
    gate = gate_of(initial=10.0, decrease=0.7)
    gate.record(gate.ask(0.0), SILENT[Outcome.RATE_LIMITED], 0.1, 0.1, 0.0)
    assert gate.controller.rate == pytest.approx(7.0)


def test_four_429s_of_one_burst_are_one_cut() -> None:
    gate = Gate.local(GateConfig(controller=lambda: Gradient(GradientSettings(initial=10.0, decrease=0.5)), burst=4.0))
    for ticket in [gate.ask(0.0) for _ in range(4)]:
        gate.record(ticket, SILENT[Outcome.RATE_LIMITED], 0.0, 0.0, 0.0)
    assert gate.controller.rate == 5.0


def test_answers_to_calls_of_the_era_before_do_not_undo_the_cut() -> None:
    gate = Gate.local(GateConfig(controller=lambda: Gradient(GradientSettings(initial=10.0, decrease=0.5)), burst=8.0))
    first, *others = [gate.ask(0.0) for _ in range(8)]
    assert isinstance(gate.ask(0.0), Wait)
    gate.record(first, SILENT[Outcome.RATE_LIMITED], 0.1, 0.1, 0.0)
    for ticket in others:
        gate.record(ticket, SILENT[Outcome.OK], 0.2, 0.2, 0.0)
    assert gate.controller.rate == 5.0


@pytest.mark.parametrize("outcome", [o for o in Outcome if o not in (Outcome.OK, Outcome.RATE_LIMITED)])
def test_other_outcomes_leave_it_alone(outcome: Outcome) -> None:
    gate = gate_of(initial=10.0)
    gate.record(gate.ask(0.0), SILENT[outcome], 50.0, 50.0, 0.0)
    assert gate.controller.rate == 10.0


answers = st.lists(st.tuples(st.sampled_from(list(Outcome)), st.floats(0.0, 1e6), st.booleans()), max_size=80)


@given(answers, st.floats(0.01, 5.0), st.floats(5.0, 1000.0))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_the_rate_stays_within_its_bounds(script: list[tuple[Outcome, float, bool]], least: float, most: float) -> None:
    gate = gate_of(initial=5.0, least=least, most=most)
    for step, (outcome, latency, waits) in enumerate(script):
        now = step / 10
        if waits:
            gate.controller.on_wait(now)
        ticket = Ticket(gate, 0, now, 0)
        gate.admit(ticket, now)
        gate.record(ticket, SILENT[outcome], latency, now, 0.0)
        assert least <= gate.controller.rate <= most


def test_it_goes_on_from_its_state() -> None:
    gate = gate_of(initial=20.0)
    now = drive(gate, 50, 0.1)
    copy = Gradient(GradientSettings(initial=20.0))
    copy.load_state(marshal.loads(marshal.dumps(gate.controller.to_state())))
    for controller in (gate.controller, copy):
        controller.on_answer(Ticket(gate, gate.seq, now, 0), SILENT[Outcome.OK], 0.15, now)
    assert copy.rate == gate.controller.rate
    assert copy.why()
