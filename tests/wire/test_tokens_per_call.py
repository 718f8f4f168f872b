"""The tokens that calls take, and a server's limits on tokens as limits on calls."""

from __future__ import annotations

import pytest

from headgate.core.decision import Outcome
from headgate.core.signal import CALLS_BY_TOKENS, Limit, Signal
from headgate.wire.token_usage import Usage, settled
from headgate.wire.tokens_per_call import LARGER, TokensPerCall


def test_limit_on_tokens_is_told_in_calls():
    pace = TokensPerCall()
    told = Signal(outcome=Outcome.OK, limits=(Limit(dimension="tokens", limit=600.0, remaining=300.0, reset=6.0),))
    assert pace.in_calls(told) is told, "as long as nothing is known of calls"
    pace.note(settled("", Usage(40, 20), None))
    in_calls = pace.in_calls(told).limits[1]
    assert in_calls.dimension == CALLS_BY_TOKENS
    assert in_calls.limit == pytest.approx(10 / LARGER)
    assert in_calls.remaining == pytest.approx(5 / LARGER)
    assert in_calls.reset == 6.0


def test_average_follows_what_calls_take():
    pace = TokensPerCall()
    for _ in range(100):
        pace.note(settled("", Usage(1000, 0), None))
    for _ in range(100):
        pace.note(settled("", Usage(10, 0), None))
    told = Signal(outcome=Outcome.OK, limits=(Limit(dimension="input_tokens", limit=1000.0, remaining=1000.0),))
    assert pace.in_calls(told).limits[1].limit > 50
