"""The pace of a crowd: none, except around an outage."""

from __future__ import annotations

from headgate.core.decision import Outcome
from headgate.core.gate import FASTEST
from headgate.core.signal import SILENT
from headgate.core.ticket import Ticket
from headgate.resilience.crowd import CALM, HEADROOM, Crowd

TICKET = Ticket(None, 1, 0.0, 0)
OK, FAILED, LIMITED = SILENT[Outcome.OK], SILENT[Outcome.TRANSIENT], SILENT[Outcome.RATE_LIMITED]


def going(crowd: Crowd, rate: int, start: float, seconds: int) -> float:
    """So many good calls a second; returns when they end."""
    for number in range(rate * seconds):
        now = start + number / rate
        crowd.on_send(TICKET, now)
        crowd.on_answer(TICKET, OK, 0.01, now)
    return start + seconds


def test_it_does_not_pace_what_goes_well() -> None:
    crowd = Crowd()
    going(crowd, 50, 100.0, 10)
    crowd.on_answer(TICKET, LIMITED, 0.01, 110.0)
    assert crowd.rate == FASTEST


def test_after_a_failure_it_goes_little_faster_than_before() -> None:
    crowd = Crowd()
    now = going(crowd, 50, 100.0, 10)
    crowd.on_answer(TICKET, FAILED, 0.01, now)
    assert 50.0 <= crowd.rate <= 1.1 * HEADROOM * 50.0


def test_it_lets_go_when_all_was_well_for_a_while() -> None:
    crowd = Crowd()
    now = going(crowd, 50, 100.0, 10)
    crowd.on_answer(TICKET, FAILED, 0.01, now)
    now = going(crowd, 50, now, int(CALM) - 1)
    assert crowd.rate < FASTEST
    going(crowd, 50, now, 2)
    assert crowd.rate == FASTEST


def test_an_open_circuit_is_no_calm() -> None:
    crowd = Crowd()
    now = going(crowd, 50, 100.0, 10)
    crowd.on_answer(TICKET, FAILED, 0.01, now)
    crowd.on_answer(TICKET, OK, 0.01, now + 0.1)  # a last one that was under way
    going(crowd, 1, now + 30.0, 1)
    assert crowd.rate < FASTEST


def test_it_can_be_put_away_and_taken_up_again() -> None:
    crowd, other = Crowd(), Crowd()
    now = going(crowd, 50, 100.0, 10)
    crowd.on_answer(TICKET, FAILED, 0.01, now)
    other.load_state(crowd.to_state())
    assert other.rate == crowd.rate
    assert "before the failures" in other.why()
