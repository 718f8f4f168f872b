"""Additive increase, multiplicative decrease: by the clock, and on every answer."""

from __future__ import annotations

import math

from .contract import (
    OK,
    TOO_MANY,
    Clients,
    ClientSetup,
    Headers,
    Slots,
    Tokens,
    shared_by_all,
    told_to_wait,
    wait_until,
)

UNAVAILABLE = 503


class AimdInterval:
    """AIMD by the clock: one cut for a burst, and one step up in ten seconds.

        429, or 503 with Retry-After   rate *= 0.7, unless the call was sent before the last change
        200                            rate += 2, if nothing changed for 10 s and a call had to wait
        Retry-After                    nothing before it is over

    It starts at 10 calls a second, never goes below 0.1, and makes up for slots missed by up to 0.1 s.
    The rule of TCP as textbooks give it, with the constants of client-side limiters for slow APIs.

    Falls short: a step of 2 in 10 s takes 40 minutes to reach 500/s and is a leap of 20 % at 10/s; each cut gives
    away 30 % of what had just been found.
    """

    INITIAL, LEAST = 10.0, 0.1
    INCREASE, DECREASE = 2.0, 0.7
    INTERVAL = 10.0
    """Seconds without a change before the rate may rise."""
    SLACK = 0.1

    def __init__(self) -> None:
        self.rate = self.INITIAL
        self.slots = Slots()
        self.hold_until = 0.0
        self.changed_at = 0.0
        self.waited = False

    def on_send(self, now: float) -> float:
        wait = self.slots.ask(now, interval=1.0 / self.rate, slack=self.SLACK, not_before=self.hold_until)
        self.waited = self.waited or wait > 0.0
        return wait

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        told = told_to_wait(headers)
        if status == TOO_MANY or (status == UNAVAILABLE and told):
            self.hold_until = max(self.hold_until, now + told)
            if now - latency > self.changed_at:
                self.rate, self.changed_at = max(self.LEAST, self.rate * self.DECREASE), now
        elif status == OK and self.waited and now - self.changed_at >= self.INTERVAL:
            self.rate, self.changed_at, self.waited = self.rate + self.INCREASE, now, False


def interval_clients(setup: ClientSetup) -> Clients:
    return shared_by_all(setup, lambda key: AimdInterval())


SLOW = 2.0
"""Times the usual latency that count as overload."""


class AimdPerResponse:
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

    INITIAL, LEAST, MOST = 2.0, 0.1, 2000.0
    INCREASE, DECREASE = 0.1, 0.5
    BURST = 5.0
    RECENT = 0.2
    """Weight of one answer in the usual latency."""
    FAILURES_TO_OPEN = 5
    OPEN = 5.0
    """Seconds that nothing is sent after so many failures."""
    PROBE_POLL = 0.05
    """How soon to ask again while a probe is out."""

    def __init__(self, slow: float = SLOW) -> None:
        self.slow = slow
        self.tokens = Tokens(self.INITIAL, self.BURST)
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
            return self.PROBE_POLL
        wait = self.tokens.take(now)
        self.probe_out = wait == 0.0
        return wait

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        told = told_to_wait(headers)
        if told:
            self.hold_until = max(self.hold_until, now + told)
        if status == OK:
            usual = latency if self.usual is None else self.usual
            self.usual = usual + self.RECENT * (latency - usual)
            self.failures, self.half_open = 0, False
            if latency < self.slow * usual:
                self.tokens.rate = min(self.MOST, self.tokens.rate + self.INCREASE)
                return
        self.tokens.rate = max(self.LEAST, self.tokens.rate * self.DECREASE)
        if status != OK:
            self.fail(now)

    def fail(self, now: float) -> None:
        self.failures += 1
        if self.half_open or (self.failures >= self.FAILURES_TO_OPEN and now >= self.open_until):
            self.open_until = now + self.OPEN
            self.half_open, self.probe_out, self.failures = True, False, 0


def per_response_clients(setup: ClientSetup, slow: float = SLOW) -> Clients:
    return shared_by_all(setup, lambda key: AimdPerResponse(slow))


def per_refusal_clients(setup: ClientSetup) -> Clients:
    return per_response_clients(setup, slow=math.inf)
