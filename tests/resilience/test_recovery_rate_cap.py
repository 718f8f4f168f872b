"""The pace of a crowd: none, except around an outage."""

from __future__ import annotations

from math import ceil

from headgate.core.decision import Outcome, PaceReason
from headgate.core.gate_config import FASTEST
from headgate.core.policy import Ticket
from headgate.core.signal import SILENT
from headgate.resilience.recovery import CALM, FEW, HEADROOM, ObservedRateCap

TICKET = Ticket(None, 1, 0.0, 0)
OK, FAILED, LIMITED = SILENT[Outcome.OK], SILENT[Outcome.TRANSIENT], SILENT[Outcome.RATE_LIMITED]


def going(crowd: ObservedRateCap, rate: int, start: float, seconds: int) -> float:
    """So many good calls a second; returns when they end."""
    for number in range(rate * seconds):
        now = start + number / rate
        crowd.on_send(TICKET, now)
        crowd.on_answer(TICKET, OK, 0.01, now)
    return start + seconds


def failing(crowd: ObservedRateCap, now: float, times: int = FEW) -> None:
    for _ in range(times):
        crowd.on_answer(TICKET, FAILED, 0.01, now)


def test_it_does_not_pace_what_goes_well() -> None:
    crowd = ObservedRateCap()
    going(crowd, 50, 100.0, 10)
    crowd.on_answer(TICKET, LIMITED, 0.01, 110.0)
    assert crowd.rate == FASTEST


def test_failures_now_and_then_slow_nobody_down() -> None:
    crowd, now = ObservedRateCap(), 100.0
    for _ in range(50):
        now = going(crowd, 20, now, 1)
        failing(crowd, now, FEW - 1)
    assert crowd.rate == FASTEST


def test_failed_probes_do_not_make_the_way_back_any_slower() -> None:
    crowd = ObservedRateCap()
    now = going(crowd, 50, 100.0, 10)
    failing(crowd, now)
    for probe in range(1, 5):
        crowd.on_send(TICKET, now + 15.0 * probe)
        crowd.on_answer(TICKET, FAILED, 0.01, now + 15.0 * probe)
    assert crowd.rate >= 50.0


def test_held_back_it_speeds_up_again_although_failures_go_on() -> None:
    crowd, now = ObservedRateCap(), 100.0
    failing(crowd, now)
    assert crowd.rate < 5.0
    for _ in range(30):
        now = going(crowd, ceil(min(crowd.rate, 100.0)), now, 4)
        failing(crowd, now)
    assert crowd.rate > 50.0


def test_after_failures_in_a_row_it_goes_little_faster_than_before() -> None:
    crowd = ObservedRateCap()
    now = going(crowd, 50, 100.0, 10)
    failing(crowd, now)
    assert 50.0 <= crowd.rate <= 1.1 * HEADROOM * 50.0


def test_it_lets_go_when_all_was_well_for_a_while() -> None:
    crowd = ObservedRateCap()
    now = going(crowd, 50, 100.0, 10)
    failing(crowd, now)
    now = going(crowd, 50, now, int(CALM) - 1)
    assert crowd.rate < FASTEST
    going(crowd, 50, now, 2)
    assert crowd.rate == FASTEST


def test_an_open_circuit_is_no_calm() -> None:
    crowd = ObservedRateCap()
    now = going(crowd, 50, 100.0, 10)
    failing(crowd, now)
    crowd.on_answer(TICKET, OK, 0.01, now + 0.1)  # a last one that was under way
    going(crowd, 1, now + 30.0, 1)
    assert crowd.rate < FASTEST


def test_it_can_be_put_away_and_taken_up_again() -> None:
    crowd, other = ObservedRateCap(), ObservedRateCap()
    now = going(crowd, 50, 100.0, 10)
    failing(crowd, now)
    other.load_state(crowd.to_state())
    assert other.rate == crowd.rate
    assert other.why() == (PaceReason.OBSERVED_RATE, 0.0)
