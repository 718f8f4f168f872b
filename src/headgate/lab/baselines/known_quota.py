"""Strategies that are told the quota: the oracle, what is left of it for a client that has to find the quota, a
fixed pace at half of it, and the OpenAI cookbook's processor."""

from __future__ import annotations

import math
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
    told_to_wait,
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


MOMENT = 1e-3
"""Seconds over which the quota is what it is at an instant."""
FIRST_PACE = 2.0
"""Calls a second to begin with: as ``adaptive`` does."""
BUDGET = 0.01
"""The share of the calls that may be refused, for looks at whether the quota was raised."""
REST_BUDGET = 0.035
"""The share of the time that looks may cost where a refusal asks for silence."""


class Informed:
    """A bound: the oracle, less what no client can know before it has been answered.

    No published algorithm. It is told how the server counts, its window and its burst, and at the first refusal what
    the quota is to the last digit. But it begins at the pace of ``adaptive``, doubles no faster than once in a
    round trip, and pays for every change: a quota that is reached, or has fallen, refuses what leaves in one
    round trip; one that was raised is seen at the next look, which is refused if it was not. Looks come as often as one
    refusal in a hundred calls allows. A Retry-After is waited for. Headers tell the quota with every answer.
    """

    def __init__(self, server: SimulatedServer, key: int) -> None:
        self.server, self.key = server, key
        self.oracle = Oracle(server, key)
        self.pace, self.next_at = FIRST_PACE, 0.0
        self.known, self.places = 0.0, math.inf
        """Calls a second, 0 before the first refusal; and calls in flight."""
        self.owed = 0
        """Calls that are on their way before the first refusal is back."""
        self.sent = self.refused = 0
        self.rest_until = self.look_at = 0.0
        """Until when nothing is sent; the next look comes no sooner than the second, never where headers tell."""

    def on_send(self, now: float) -> float:
        server, key = self.server, self.key
        wait = wait_until(self.rest_until, now)
        if wait:
            return wait
        if self.owed > 0:
            self.owed -= 1
            return self._be_refused()
        arrives_at = now + server.trip
        rate = self._rate_at(arrives_at)
        if not self.known or rate < self.known:
            if server.is_full(arrives_at, key):
                self.owed = math.ceil(abs(self.known - rate) * 2.0 * server.trip) - 1
                self._learn(now)
                return self._be_refused()
            if not self.known:
                return self._search(now)
        elif self._may_look(now):
            if rate > self.known:
                self._learn(now)
            elif server.is_full(arrives_at, key):
                return self._be_refused()
        if rate > self.known:
            if server.oracle_out[key] >= self.places:
                return PLACE_POLL
            wait = wait_until(self.next_at, now)
            if wait:
                return wait
            self.next_at = max(self.next_at, now - 1.0 / self.known) + 1.0 / self.known
        wait = self.oracle.on_send(now)
        self.sent += not wait
        return wait

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        self.oracle.on_response(now, status, latency, headers)
        if headers and any("ratelimit" in name for name in headers):
            self._learn(now - latency + self.server.trip)
            self.look_at = math.inf
        if status == TOO_MANY:
            rest = told_to_wait(headers)
            self.rest_until = max(self.rest_until, now + rest)
            self.look_at = max(self.look_at, now + rest / REST_BUDGET)

    def _search(self, now: float) -> float:
        """Nothing is known yet: the pace doubles with each round trip, and at most with each call."""
        wait = wait_until(self.next_at, now)
        if wait:
            return wait
        self.next_at = max(self.next_at, now) + 1.0 / self.pace
        self.pace *= 2.0 ** min(1.0, 1.0 / (self.pace * 2.0 * self.server.trip))
        return self._send()

    def _may_look(self, now: float) -> bool:
        return now >= self.look_at and self.sent * BUDGET >= self.refused + 1

    def _learn(self, now: float) -> None:
        self.known, self.places = self._rate_at(now), self.server.at_once(now, self.key)

    def _rate_at(self, now: float) -> float:
        """Calls a second that a key may make, if all have the same quota."""
        return round(self.server.allowed_between(now, now + MOMENT) / MOMENT / len(self.server.oracle_out), 6)

    def _be_refused(self) -> float:
        """A call that tells something by being refused."""
        self.refused += 1
        return self._send()

    def _send(self) -> float:
        """A call that the oracle would not have sent, or not yet."""
        self.sent += 1
        self.server.oracle_out[self.key] += 1
        return 0.0


def informed_clients(setup: ClientSetup) -> Clients:
    return shared_by_all(setup, lambda key: Informed(setup.server, key))


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
