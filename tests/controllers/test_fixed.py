"""Fixed: whatever comes back, the pace stays."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headgate.controllers.fixed import Fixed
from headgate.core.controller import Controller
from headgate.core.decision import NEVER, UNKNOWN, Outcome
from headgate.core.gate import Gate
from headgate.core.gate_config import GateConfig
from headgate.core.policy import Ticket
from headgate.core.signal import SILENT, Limit, Signal
from headgate.reason_text import controller_text


@pytest.mark.parametrize("outcome", Outcome)
def test_no_outcome_moves_it(outcome: Outcome) -> None:
    controller = Fixed(7.0)
    signal = Signal(outcome=outcome, retry_after=30.0, limits=(Limit(limit=5.0, remaining=0.0, reset=60.0),))
    assert controller.on_answer(Ticket(None, 1, 0.0, 0), signal, 99.0, 1.0) == 0.0
    assert (controller.rate, controller.hold_until, controller.cap) == (7.0, NEVER, UNKNOWN)


def test_a_busy_caller_gets_exactly_its_rate_after_the_burst() -> None:
    gate = Gate.local(GateConfig(controller=lambda: Fixed(10.0), burst=4.0))
    sent = sum(isinstance(gate.ask(step / 1000), Ticket) for step in range(100_00))
    assert sent == 4 + 99


def test_leaky_is_a_burst_of_one() -> None:
    gate = Gate.local(GateConfig(controller=lambda: Fixed(10.0), burst=1.0))
    sent = [step / 1000 for step in range(2000) if isinstance(gate.ask(step / 1000), Ticket)]
    gaps = [after - before for before, after in pairwise(sent)]
    assert min(gaps) == pytest.approx(0.1)
    assert max(gaps) == pytest.approx(0.1)


def test_it_has_nothing_to_remember() -> None:
    controller, copy = Fixed(3.0), Fixed(3.0)
    copy.load_state(controller.to_state())
    assert copy.rate == 3.0


def test_it_says_what_it_does() -> None:
    assert controller_text(Fixed(1.0).why()) == "at a fixed rate"


def test_a_strategy_without_on_answer_says_what_is_missing() -> None:
    class Mine(Controller):
        pass

    with pytest.raises(NotImplementedError, match=r"Mine.*on_answer"):
        Mine().on_answer(Ticket(None, 1, 0.0, 0), SILENT[Outcome.OK], 0.1, 0.0)


def test_a_strategy_that_cannot_be_put_away_says_so() -> None:
    class Mine(Controller):
        rate = 1.0

    assert Mine().to_state() is None
    assert Mine().why()
