"""Of an API that announces limits on calls and on tokens only one was followed: a minute's tokens went out at once, and
half of the calls were refused."""

from heapq import heappop, heappush
from types import SimpleNamespace

import pytest

from headgate.controllers.adaptive import Adaptive, AdaptiveSettings
from headgate.core.decision import Outcome
from headgate.core.policy import Ticket
from headgate.core.signal import Limit, Signal
from headgate.wire.token_usage import TokensPerCall

LATENCY, TOKENS = 0.04, 57.0


class Bucket:
    def __init__(self, limit, size):
        self.limit, self.size, self.left, self.at = limit, size, size, 0.0

    def refill(self, now):
        self.left = min(self.size, self.left + self.limit / 60.0 * (now - self.at))
        self.at = now

    def limit_of(self, dimension):
        reset = (self.size - self.left) / self.limit * 60.0
        return Limit(dimension=dimension, limit=self.limit, remaining=float(int(self.left)), reset=reset, window=60.0)


def played(calls_a_minute, burst, tokens_a_minute, seconds):
    """Calls that were served and refused, sent by a controller as fast as it allows."""
    calls, tokens = Bucket(calls_a_minute, burst), Bucket(tokens_a_minute, tokens_a_minute)
    controller, per_call, answers = Adaptive(AdaptiveSettings()), TokensPerCall(), []
    now, seq, next_at, served, refused, gate = 0.0, 0, 0.0, 0, 0, SimpleNamespace()

    def hear(until):
        while answers and answers[0][0] <= until:
            at, _, ticket, signal = heappop(answers)
            controller.on_answer(ticket, signal, LATENCY, at)

    while now < seconds:
        now = max(next_at, controller.hold_until)
        hear(now)
        seq += 1
        gate.seq = seq
        ticket = Ticket(gate, seq, now, len(answers))
        controller.on_wait(now)
        controller.on_send(ticket, now)
        for bucket in (calls, tokens):
            bucket.refill(now)
        fits = calls.left >= 1.0 and tokens.left >= TOKENS
        if fits:
            calls.left, tokens.left, served = calls.left - 1.0, tokens.left - TOKENS, served + 1
        refused += not fits
        signal = Signal(
            outcome=Outcome.OK if fits else Outcome.RATE_LIMITED,
            limits=(calls.limit_of("requests"), tokens.limit_of("tokens")),
        )
        heappush(answers, (now + LATENCY, seq, ticket, per_call.in_calls(signal)))
        per_call.note({"tokens": TOKENS})
        next_at = now + 1.0 / controller.rate
    return served, refused


@pytest.mark.parametrize(
    ("calls", "burst", "tokens"),
    [(900, 20, 24_000), (900, 900, 24_000), (900, 20, 120_000)],
    ids=["tokens, after a while", "tokens", "calls"],
)
def test_both_are_kept_and_what_they_allow_is_used(calls, burst, tokens):
    served, refused = played(calls, burst, tokens, 180.0)
    allowed = min(burst + calls * 3, (tokens + tokens * 3) / TOKENS)
    assert refused <= 0.01 * served
    assert served >= 0.96 * allowed
