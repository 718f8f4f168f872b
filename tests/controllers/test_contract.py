"""What every registered controller promises under any order of answers: within bounds, the same after a rest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from headgate import RateLimitConfig
from headgate.controllers import CONTROLLERS, controller_factory
from headgate.core.controller import Controller
from headgate.core.decision import LONGEST_WAIT, Outcome
from headgate.core.policy import Ticket
from headgate.core.signal import SILENT
from headgate.reason_text import CONTROLLER_TEXTS, controller_text

OPTIONS = RateLimitConfig(initial_rps=5.0, min_rps=0.5, max_rps=40.0)
LIMITER_PAGE = Path(__file__).parents[2] / "docs" / "limiter.md"
ONE_CUT_PER_ERA = ("aimd", "gradient")
"""Controllers that cut once for a burst of refusals; one that does so is added here, and held to it."""


class AnyAnswers(RuleBasedStateMachine):
    name = "aimd"

    def __init__(self) -> None:
        super().__init__()
        self.controller: Controller = controller_factory(self.name, OPTIONS)()
        self.gate = SimpleNamespace(seq=0)
        self.out: list[Ticket] = []
        self.now = 100.0
        self.cut_at_seq = 0

    @rule(calls=st.integers(1, 6))
    def send(self, calls: int) -> None:
        for _ in range(calls):
            self.gate.seq += 1
            ticket = Ticket(self.gate, self.gate.seq, self.now, len(self.out))
            self.controller.on_send(ticket, self.now)
            self.out.append(ticket)

    @rule(seconds=st.floats(0.0, 3.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.controller.on_wait(self.now)

    @precondition(lambda self: self.out)
    @rule(pick=st.integers(0, 100), outcome=st.sampled_from(Outcome), latency=st.floats(0.0, 5.0))
    def answer(self, pick: int, outcome: Outcome, latency: float) -> None:
        ticket = self.out.pop(pick % len(self.out))
        before = self.controller.rate
        skip = self.controller.on_answer(ticket, SILENT[outcome], latency, self.now)
        assert skip >= 0.0
        if skip and self.name in ONE_CUT_PER_ERA:  # a cut: only an answer to a call of this era may bring one
            assert ticket.seq > self.cut_at_seq
            assert self.controller.rate <= before
            self.cut_at_seq = self.gate.seq

    @rule()
    def put_away_and_take_out(self) -> None:
        state = self.controller.to_state()
        assert state is not None, "a registered controller defines to_state and load_state: idle keys are packed"
        other = controller_factory(self.name, OPTIONS)()
        other.load_state(state)
        assert (other.rate, other.to_state()) == (self.controller.rate, state)
        self.controller = other

    @invariant()
    def the_rate_is_within_its_bounds(self) -> None:
        assert 0.5 <= self.controller.rate <= 40.0
        assert self.controller.hold_until < self.now + LONGEST_WAIT + 1.0
        assert self.controller.cap >= 1
        for note in (self.controller.why(), self.controller.why_cap()):
            reason = "" if isinstance(note, str) else note.reason
            assert not reason or reason in CONTROLLER_TEXTS, f"{reason!r} has no words in reason_text.CONTROLLER_TEXTS"
            assert controller_text(note)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_any_order_of_answers(name: str) -> None:
    machine = type(name, (AnyAnswers,), {"name": name})
    run_state_machine_as_test(
        machine, settings=settings(derandomize=True, deadline=None, max_examples=12, stateful_step_count=30)
    )


@pytest.mark.parametrize("name", CONTROLLERS)
def test_the_manual_names_it(name: str) -> None:
    assert f"`{name}`" in LIMITER_PAGE.read_text(encoding="utf-8"), 'name it in docs/limiter.md, "Your own strategy"'
