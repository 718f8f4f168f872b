"""Baselines that rest after a refusal: each worker for itself, all workers together, or by chance before sending.

Backoff            one worker rests, twice as long after each failure           tenacity
BackoffBefore      the same, in front of a limiter that the workers share       AWS SDKs, Gradient2
PausedWorker       a 429 pauses all workers, then a slow start                  batch tools
ThrottledWorker    calls are dropped by chance before they are sent             SRE book, failsafe-go
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from .contract import OK, TOO_MANY, Clients, ClientSetup, Headers, one_per_worker, told_to_wait, wait_until

MOST_DOUBLINGS = 63
"""Failures in a row that are counted; the longest rest is reached long before."""


class Backoff:
    """Exponential backoff as in tenacity: one worker rests by chance, up to a bound that doubles with each failure.

        failures in a row       1      2      3     ...    7 and more
        tenacity rests        1 s   1..2   1..4     ...    1..60 s      wait_random_exponential(min=1, max=60)
        full jitter rests   0..1    0..2   0..4     ...    0..20 s      ``BackoffBefore``

    It is what most programs do, and what the OpenAI cookbook recommends. Each worker knows only of its own
    refusals, so the offered load falls only as far as workers happen to be asleep.

    Falls short: all the quota is used, but from a third to four fifths of all calls are refused for as long as the
    run lasts; an unlucky item waits many times its turn; nothing is learned, and Retry-After is ignored.
    """

    longest = 60.0
    shortest = 1.0

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.failures = 0
        self.ready_at = 0.0

    def on_send(self, now: float) -> float:
        return wait_until(self.ready_at, now)

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        if status == OK:
            self.failures = 0
        else:
            self.rest(now)

    def rest(self, now: float) -> None:
        self.failures = min(self.failures + 1, MOST_DOUBLINGS)
        self.ready_at = now + self.draw(min(self.longest, 2.0 ** (self.failures - 1)))

    def draw(self, ceiling: float) -> float:
        return self.rng.uniform(self.shortest, max(self.shortest, ceiling))


class Limiter(Protocol):
    """What the workers of a process share."""

    def acquire(self, now: float) -> float:
        """As ``on_send``."""

    def learn(self, now: float, status: int, latency: float) -> None: ...


class BackoffBefore(Backoff):
    """One worker with full jitter of at most 20 s, as in the AWS SDKs, that then asks the shared limiter."""

    longest = 20.0
    shortest = 0.0

    def __init__(self, rng: random.Random, limiter: Limiter) -> None:
        super().__init__(rng)
        self.limiter = limiter

    def on_send(self, now: float) -> float:
        return super().on_send(now) or self.limiter.acquire(now)

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        self.limiter.learn(now, status, latency)
        super().on_response(now, status, latency, headers)


def backoff_clients(setup: ClientSetup) -> Clients:
    return one_per_worker(setup, lambda key: Backoff(setup.rng))


class Cooldown:
    """A pause that all workers of a process share, then a slow start: the cooldown that batch tools like to build.

        429            all workers pause: 60 s, twice as long for each further limit without a success between, 600 s
                       at most; Retry-After is a floor. A 429 to a call sent before the pause ended changes nothing
        resume         the next 50 items are each held back, by 2 s at first and 0.1 s at last
        5xx, timeout   the worker alone rests, half to all of 1, 2, 4 ... 60 s

    Falls short: the pause has nothing to do with how long the quota needs (a bucket of 50/s is back within
    20 ms), so that almost all throughput is lost; and a pause of 5 s instead loses less, not little.
    """

    LONGEST_PAUSE = 600.0
    SLOW_ITEMS = 50
    """Items held back after a pause."""
    FIRST_HOLD, LAST_HOLD = 2.0, 0.1

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self.until = 0.0
        self.limits_in_a_row = 0
        self.slow_left = 0

    def limited(self, now: float, sent_at: float, told: float) -> None:
        if now < self.until or sent_at < self.until:
            return
        doubled = self.pause * 2.0 ** min(self.limits_in_a_row, MOST_DOUBLINGS)
        self.limits_in_a_row += 1
        self.until = now + max(min(self.LONGEST_PAUSE, doubled), told)
        self.slow_left = self.SLOW_ITEMS

    def hold(self) -> float:
        """How long the next item is held back; 0 once the slow start is over."""
        if not self.slow_left:
            return 0.0
        started = self.SLOW_ITEMS - self.slow_left
        self.slow_left -= 1
        return self.FIRST_HOLD - (self.FIRST_HOLD - self.LAST_HOLD) * started / self.SLOW_ITEMS


class PausedWorker(Backoff):
    def __init__(self, rng: random.Random, cooldown: Cooldown) -> None:
        super().__init__(rng)
        self.cooldown = cooldown
        self.was_held = False

    def on_send(self, now: float) -> float:
        wait = wait_until(max(self.ready_at, self.cooldown.until), now)
        if wait:
            return wait
        hold = 0.0 if self.was_held else self.cooldown.hold()
        self.was_held = hold > 0.0
        if hold:
            self.ready_at = now + hold
        return hold

    def on_response(self, now: float, status: int, latency: float, headers: Headers) -> None:
        if status == OK:
            self.failures = self.cooldown.limits_in_a_row = 0
        elif status == TOO_MANY:
            self.cooldown.limited(now, now - latency, told_to_wait(headers))
        else:
            self.rest(now)

    def draw(self, ceiling: float) -> float:
        return self.rng.uniform(0.5, 1.0) * ceiling


def pause_clients(setup: ClientSetup, pause: float = 60.0) -> Clients:
    cooldowns = [Cooldown(pause) for _ in range(setup.keys)]
    return one_per_worker(setup, lambda key: PausedWorker(setup.rng, cooldowns[key]))


SLOTS = 24
"""Parts of the window that are forgotten one by one."""
SHORTEST_REST, LONGEST_REST = 0.2, 0.6
"""Seconds after which a dropped item comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleSettings:
    accepts_worth: float = 2.0
    """K: how many requests one accepted one stands for."""
    window: float = 120.0
    most: float = 1.0
    """The highest chance to drop a call."""
    counts_asks: bool = True
    """Whether a request counts when it is asked for, or only when it is answered."""


class Throttle:
    """Adaptive throttling of Google's SRE book (chapter "Handling Overload"), shared by the workers of a process.

        chance to drop = (requests - K * accepts) / (requests + 1), or 0       over the last two minutes, K = 2

    Requests count when they are asked for, dropped ones too; accepts are answers of 200. A dropped item comes back
    after 0.2 to 0.6 s, and so does not disappear as it would in a server that sheds load.

    Falls short: it promises no more than that a backend sees at most K calls for each it accepts, and with work
    waiting all the time that is just what it gives: half of all calls refused. It protects servers, not quotas.
    """

    def __init__(self, rng: random.Random, settings: ThrottleSettings) -> None:
        self.rng, self.settings = rng, settings
        self.requests, self.accepts = [0] * SLOTS, [0] * SLOTS
        self.all_requests = self.all_accepts = 0
        self.slot = 0

    def acquire(self, now: float) -> float:
        self.turn(now)
        settings = self.settings
        excess = self.all_requests - settings.accepts_worth * self.all_accepts
        chance = min(settings.most, excess / (self.all_requests + 1))
        if settings.counts_asks:
            self.count_request()
        dropped = self.rng.random() < chance
        return self.rng.uniform(SHORTEST_REST, LONGEST_REST) if dropped else 0.0

    def learn(self, now: float, status: int) -> None:
        self.turn(now)
        if not self.settings.counts_asks:
            self.count_request()
        if status == OK:
            self.accepts[self.slot % SLOTS] += 1
            self.all_accepts += 1

    def count_request(self) -> None:
        self.requests[self.slot % SLOTS] += 1
        self.all_requests += 1

    def turn(self, now: float) -> None:
        """Forget what has left the window."""
        slot = int(now / (self.settings.window / SLOTS))
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


def sre_clients(setup: ClientSetup, settings: ThrottleSettings | None = None) -> Clients:
    throttles = [Throttle(setup.rng, settings or ThrottleSettings()) for _ in range(setup.keys)]
    return one_per_worker(setup, lambda key: ThrottledWorker(throttles[key]))


FAILSAFE = ThrottleSettings(accepts_worth=1 / 0.9, window=60.0, most=0.9, counts_asks=False)
"""failsafe-go's AdaptiveThrottler: the SRE book's throttling with a threshold one can name.

Calls are dropped once over 10 % of the answers of the last minute were failures (K = 1 / 0.9), by a chance of 0.9 at
most, so that something always gets through to notice a recovery. Unlike the book it counts answers, not asks.

Falls short: the chance follows the share that was refused and not how many calls would fit, and what it drops comes
back a moment later. With work waiting all the time it settles where over half of all calls are refused, more than by
the book; against a server that counts refusals it locks itself out.
"""


def failsafe_clients(setup: ClientSetup) -> Clients:
    return sre_clients(setup, FAILSAFE)
