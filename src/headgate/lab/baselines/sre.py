"""Adaptive throttling of Google's SRE book (chapter "Handling Overload"): drop calls before they are sent, by chance.

    chance to drop = (requests - K * accepts) / (requests + 1), or 0        over the last two minutes, K = 2

Requests count when they are asked for, dropped ones too; accepts are answers of 200. A dropped item comes back
after 0.2 to 0.6 s, and so does not disappear as it would in a server that sheds load.

Falls short: it promises no more than that a backend sees at most K calls for each it accepts, and with work
waiting all the time that is just what it gives: half of all calls refused. It protects servers, not quotas.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .contract import OK, Clients, ClientSetup, Headers, one_per_worker, wait_until

SLOTS = 24
"""Parts of the window that are forgotten one by one."""
SHORTEST_REST, LONGEST_REST = 0.2, 0.6
"""Seconds after which a dropped item comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlePolicy:
    accepts_worth: float = 2.0
    """K: how many requests one accepted one stands for."""
    window: float = 120.0
    most: float = 1.0
    """The highest chance to drop a call."""
    counts_asks: bool = True
    """Whether a request counts when it is asked for, or only when it is answered."""


class Throttle:
    """What the workers of a process share: two counts over a sliding window."""

    def __init__(self, rng: random.Random, policy: ThrottlePolicy) -> None:
        self.rng, self.policy = rng, policy
        self.requests, self.accepts = [0] * SLOTS, [0] * SLOTS
        self.all_requests = self.all_accepts = 0
        self.slot = 0

    def acquire(self, now: float) -> float:
        self.turn(now)
        policy = self.policy
        excess = self.all_requests - policy.accepts_worth * self.all_accepts
        chance = min(policy.most, excess / (self.all_requests + 1))
        if policy.counts_asks:
            self.count_request()
        dropped = self.rng.random() < chance
        return self.rng.uniform(SHORTEST_REST, LONGEST_REST) if dropped else 0.0

    def learn(self, now: float, status: int) -> None:
        self.turn(now)
        if not self.policy.counts_asks:
            self.count_request()
        if status == OK:
            self.accepts[self.slot % SLOTS] += 1
            self.all_accepts += 1

    def count_request(self) -> None:
        self.requests[self.slot % SLOTS] += 1
        self.all_requests += 1

    def turn(self, now: float) -> None:
        """Forget what has left the window."""
        slot = int(now / (self.policy.window / SLOTS))
        for gone in range(max(self.slot, slot - SLOTS) + 1, slot + 1):
            index = gone % SLOTS
            self.all_requests -= self.requests[index]
            self.all_accepts -= self.accepts[index]
            self.requests[index] = self.accepts[index] = 0
        self.slot = max(self.slot, slot)


class ThrottledWorker:
    """One worker: an item that was dropped is not asked for again before its rest is over."""

    def __init__(self, throttle: Throttle) -> None:
        self.throttle = throttle
        self.ready_at = 0.0

    def on_send(self, now: float) -> float:
        wait = wait_until(self.ready_at, now)
        if not wait:
            wait = self.throttle.acquire(now)
            self.ready_at = now + wait
        return wait

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        self.throttle.learn(now, status)


def clients(setup: ClientSetup, policy: ThrottlePolicy | None = None) -> Clients:
    throttles = [Throttle(setup.rng, policy or ThrottlePolicy()) for _ in range(setup.keys)]
    return one_per_worker(setup, lambda key: ThrottledWorker(throttles[key]))


FAILSAFE = ThrottlePolicy(accepts_worth=1 / 0.9, window=60.0, most=0.9, counts_asks=False)
"""failsafe-go's AdaptiveThrottler: the SRE book's throttling with a threshold one can name.

Calls are dropped once over 10 % of the answers of the last minute were failures (K = 1 / 0.9), by a chance of 0.9 at
most, so that something always gets through to notice a recovery. Unlike the book it counts answers, not asks.

Falls short: the chance follows the share that was refused and not how many calls would fit, and what it drops comes
back a moment later. With work waiting all the time it settles where over half of all calls are refused, more than by
the book; against a server that counts refusals it locks itself out.
"""


def failsafe_clients(setup: ClientSetup) -> Clients:
    return clients(setup, FAILSAFE)
