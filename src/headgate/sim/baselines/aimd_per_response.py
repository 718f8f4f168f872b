"""AIMD taken literally: every answer moves the rate (Chiu and Jain's rule, without the round it was meant for).

    200, not slow                      rate += 0.1
    200, slower than twice the usual   rate /= 2        the usual: an average that moves by 0.2 with each answer
    any failure                        rate /= 2        within 0.1 and 2000 calls a second, from 2; a bucket of 5
    5 failures in a row                nothing for 5 s, then one probe at a time decides
    Retry-After                        nothing before it is over

Falls short: service times always vary, so ordinary slow answers halve the rate again and again, and it stays at a
few calls a second whatever the quota. ``aimd-429`` is the same without the latency rule. Both pay for one
burst with a cut for each refused call, which is how 50 calls/s become 0.1 within a round trip.
"""

from __future__ import annotations

import math

from .contract import OK, Clients, Headers, Seat, shared_by_all
from .pacing import Tokens, told_to_wait, wait_until

INITIAL, LEAST, MOST = 2.0, 0.1, 2000.0
INCREASE, DECREASE = 0.1, 0.5
BURST = 5.0
SLOW = 2.0
"""Times the usual latency that count as overload."""
RECENT = 0.2
"""Weight of one answer in the usual latency."""
FAILURES_TO_OPEN = 5
OPEN = 5.0
"""Seconds that nothing is sent after so many failures."""
PROBE_POLL = 0.05
"""How soon to ask again while a probe is out."""


class AimdPerResponse:
    def __init__(self, slow: float = SLOW) -> None:
        self.slow = slow
        self.tokens = Tokens(INITIAL, BURST)
        self.usual: float | None = None
        self.hold_until = 0.0
        self.failures = 0
        self.open_until = 0.0
        self.half_open = False
        self.probe_out = False

    def on_send(self, now: float) -> float:
        wait = wait_until(max(self.open_until, self.hold_until), now)
        if wait:
            return wait
        if self.half_open and self.probe_out:
            return PROBE_POLL
        wait = self.tokens.take(now)
        self.probe_out = wait == 0.0
        return wait

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        told = told_to_wait(headers)
        if told:
            self.hold_until = max(self.hold_until, now + told)
        if status == OK:
            usual = latency if self.usual is None else self.usual
            self.usual = usual + RECENT * (latency - usual)
            self.failures, self.half_open = 0, False
            if latency < self.slow * usual:
                self.tokens.rate = min(MOST, self.tokens.rate + INCREASE)
                return
        self.tokens.rate = max(LEAST, self.tokens.rate * DECREASE)
        if status != OK:
            self.fail(now)

    def fail(self, now: float) -> None:
        self.failures += 1
        if self.half_open or (self.failures >= FAILURES_TO_OPEN and now >= self.open_until):
            self.open_until = now + OPEN
            self.half_open, self.probe_out, self.failures = True, False, 0


def clients(seat: Seat, slow: float = SLOW) -> Clients:
    return shared_by_all(seat, lambda key: AimdPerResponse(slow))


def clients_without_latency(seat: Seat) -> Clients:
    return clients(seat, slow=math.inf)
