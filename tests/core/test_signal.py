"""What an answer says: a signal for every outcome, and limits that leave out what was not stated."""

from __future__ import annotations

from headgate.core.decision import Outcome
from headgate.core.signal import SILENT, Limit, Signal


def test_every_outcome_has_a_silent_signal_of_its_own() -> None:
    assert all(SILENT[outcome] == Signal(outcome=outcome) for outcome in Outcome)


def test_what_a_server_did_not_state_is_none() -> None:
    limit = Limit()
    assert limit.dimension == "requests"
    assert (limit.limit, limit.remaining, limit.reset, limit.window) == (None, None, None, None)
