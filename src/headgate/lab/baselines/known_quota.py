"""Strategies that are told the quota: the oracle, a fixed pace at half of it, and the OpenAI cookbook's processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .contract import (
    ROUNDING,
    TOO_MANY,
    Clients,
    ClientSetup,
    Headers,
    Slots,
    Tokens,
    shared_by_all,
    wait_until,
)

if TYPE_CHECKING:
    from ..simulated_server import SimulatedServer

PLACE_POLL = 0.005
"""How soon to ask again for a place under a limit on concurrency."""


class Oracle:
    """The mark of 100 %: a client that knows the server's state and is never refused.

    No published algorithm; what all others are measured against. It asks the server when a call sent
    now would be admitted on arrival. Under a limit on concurrency it keeps to a semaphore of exactly
    that size, as a client could: a place is free again when the answer is back, not when the server
    is done. Against windows it spaces its calls evenly, so that where a run happens to end does not
    favour it; a client that uses up a partial first window at once may therefore reach a little over 100 %.
    """

    def __init__(self, server: SimulatedServer, key: int) -> None:
        self.server, self.key = server, key

    def on_send(self, now: float) -> float:
        server, key = self.server, self.key
        arrives_at = now + server.trip
        if server.oracle_out[key] >= server.at_once(arrives_at, key):
            return PLACE_POLL
        wait = server.free_in(arrives_at, key)
        if wait > ROUNDING:
            return wait
        server.oracle_out[key] += 1
        return 0.0

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        self.server.oracle_out[self.key] -= 1


def oracle_clients(setup: ClientSetup) -> Clients:
    return shared_by_all(setup, lambda key: Oracle(setup.server, key))


USED = 0.5
"""Share of the quota that is used."""
SLACK = 2.0
"""Intervals that are made up for."""


class FixedPace:
    """A fixed pace at half of the quota: what is configured with care after reading the documentation.

    It is told the quota, takes its even share of it by process and key, and halves that. Slots missed by
    up to two intervals are made up for.

    Falls short: half of what was paid for is never used; and when the quota falls below half, others share it or
    one key is much smaller than the rest, it goes on at the same pace, refused.
    """

    def __init__(self, rate: float) -> None:
        self.interval = 1.0 / rate
        self.slots = Slots()

    def on_send(self, now: float) -> float:
        return self.slots.ask(now, interval=self.interval, slack=SLACK * self.interval)

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        """A fixed pace learns nothing."""


def fixed_half_clients(setup: ClientSetup) -> Clients:
    return shared_by_all(setup, lambda key: FixedPace(USED * setup.share))


REST = 15.0
SAVED_UP = 60.0
"""Seconds' worth of capacity that can be saved up."""
LOOK_AGAIN = 0.001


class Cookbook:
    """The OpenAI cookbook's parallel request processor: told the quota, it spends it, and rests 15 s after a 429.

    Capacity fills evenly at the quota's rate up to a minute's worth. Its loop sleeps a millisecond between looks.

    Falls short: it must be told, and is told once; after a step down it lives in rests of 15 s, after a step up it
    stays where it was. What it saved up in a rest leaves at once, and is refused if the server's burst is smaller.
    """

    def __init__(self, rate: float) -> None:
        self.tokens = Tokens(rate, rate * SAVED_UP)
        self.rest_until = 0.0

    def on_send(self, now: float) -> float:
        wait = wait_until(self.rest_until, now) or self.tokens.take(now)
        return max(LOOK_AGAIN, wait) if wait else 0.0

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        if status == TOO_MANY:
            self.rest_until = now + REST


def cookbook_clients(setup: ClientSetup) -> Clients:
    return shared_by_all(setup, lambda key: Cookbook(setup.share))
