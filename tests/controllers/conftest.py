"""Worlds to try the adaptive controller in, in virtual time: a server with a hidden limit, the simplest
gate there is, and workers that always want to call."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from dataclasses import dataclass
from math import ceil, floor, inf
from types import SimpleNamespace

import pytest

from headgate.controllers.adaptive import Adaptive, AdaptiveSettings
from headgate.core.decision import Outcome
from headgate.core.policy import Ticket
from headgate.core.signal import SILENT, Limit, Signal

SEED = 20261115


class TokenBucket:
    def __init__(self, rate, burst):
        self.rate, self.burst, self.level, self.at = rate, burst, burst, 0.0

    def _fill(self, now):
        self.level = min(self.burst, self.level + (now - self.at) * self.rate)
        self.at = now

    def admits(self, now, service):
        self._fill(now)
        if self.level < 1 - 1e-9:
            return False
        self.level -= 1
        return True

    def limits(self, now):
        self._fill(now)
        missing = (self.burst - self.level) / self.rate
        window = ceil(self.burst / self.rate)
        return (Limit(limit=self.burst, remaining=floor(self.level), reset=ceil(missing), window=window),)


class FixedWindow:
    def __init__(self, amount, window, phase=0.0):
        self.amount, self.window, self.phase, self.index, self.used = amount, window, phase, None, 0

    def _turn(self, now):
        index = floor((now - self.phase) / self.window)
        if index != self.index:
            self.index, self.used = index, 0
        return (index + 1) * self.window + self.phase - now

    def admits(self, now, service):
        self._turn(now)
        if self.used >= self.amount:
            return False
        self.used += 1
        return True

    def limits(self, now):
        left = self._turn(now)
        return (Limit(limit=self.amount, remaining=self.amount - self.used, reset=ceil(left), window=self.window),)


class SlidingLog:
    """So many calls in any ``window`` seconds, forgotten one by one."""

    def __init__(self, amount, window):
        self.amount, self.window, self.let_in = amount, window, deque()

    def _forget(self, now):
        while self.let_in and self.let_in[0] <= now - self.window:
            self.let_in.popleft()

    def admits(self, now, service):
        self._forget(now)
        if len(self.let_in) >= self.amount:
            return False
        self.let_in.append(now)
        return True

    def limits(self, now):
        self._forget(now)
        left = self.let_in[0] + self.window - now if self.let_in else 0.0
        return (
            Limit(limit=self.amount, remaining=self.amount - len(self.let_in), reset=ceil(left), window=self.window),
        )


class AtOnce:
    def __init__(self, amount):
        self.amount, self.busy = amount, []

    def admits(self, now, service):
        while self.busy and self.busy[0] <= now:
            heapq.heappop(self.busy)
        if len(self.busy) >= self.amount:
            return False
        heapq.heappush(self.busy, now + service)
        return True


class Queue:
    """No limit but its own speed: calls wait for one of a few servers."""

    def __init__(self, servers):
        self.free = [0.0] * servers

    def admits(self, now, service):
        return True

    def service(self, now, service):
        start = max(now, self.free[0])
        heapq.heapreplace(self.free, start + service)
        return start + service - now


@dataclass
class Tally:
    served: int = 0
    refused: int = 0

    @property
    def refused_share(self):
        return self.refused / max(1, self.served + self.refused)


class World:
    """One controller, one server, ``workers`` that always have a next call, and a bucket in between."""

    def __init__(self, server, *, workers=64, initial=4.0, service=0.15, headers=False, retry_after=None, seed=SEED):
        self.controller = Adaptive(AdaptiveSettings(initial=initial))
        self.server, self.workers, self.service = server, workers, service
        self.headers, self.retry_after = headers, retry_after
        self.random = random.Random(seed)
        self.now = self.filled_at = 0.0
        self.tokens = 4.0
        self.seq = self.in_flight = 0
        self.events = []
        self.order = itertools.count()
        self.decisions = []
        self.down = False

    def run(self, until, *, record=False):
        """Let the world turn; returns what was served and refused meanwhile."""
        tally, controller = Tally(), self.controller
        while True:
            ready_at = self._ready_at()
            answer_at = self.events[0][0] if self.events else inf
            if min(ready_at, answer_at) > until:
                self.now = until
                return tally
            self.now = min(ready_at, answer_at)
            if answer_at <= ready_at:
                self._answer(tally)
            else:
                self._send()
            if record:
                self.decisions.append((self.now, controller.rate, controller.hold_until, controller.cap))

    def _level(self):
        since = max(self.filled_at, min(self.controller.hold_until, self.now))
        self.tokens = min(4.0, self.tokens + max(0.0, self.now - since) * self.controller.rate)
        self.filled_at = max(self.filled_at, self.now)
        return self.tokens

    def _ready_at(self):
        controller = self.controller
        if self.in_flight >= min(self.workers, controller.cap):
            return inf
        if controller.hold_until > self.now:
            return controller.hold_until
        missing = 1.0 - self._level()
        if missing <= 1e-9:
            return self.now
        controller.on_wait(self.now)
        return self.now + missing / controller.rate

    def _send(self):
        self._level()
        if self.tokens < 1.0 - 1e-6:
            return
        self.tokens -= 1.0
        self.seq += 1
        ticket = Ticket(self, self.seq, self.now, self.in_flight)
        self.in_flight += 1
        self.controller.on_send(ticket, self.now)
        trip = 0.04 * self.random.uniform(0.75, 1.25)
        service = self.service * self.random.lognormvariate(-0.11, 0.47)
        arrives_at = self.now + trip / 2
        outcome, taken = Outcome.OK, service
        if self.down:
            outcome, taken = Outcome.OVERLOADED, 0.002
        elif not self.server.admits(arrives_at, service):
            outcome, taken = Outcome.RATE_LIMITED, 0.002
        elif isinstance(self.server, Queue):
            taken = self.server.service(arrives_at, service)
        signal = SILENT[outcome]
        if self.headers:
            signal = Signal(outcome=outcome, limits=self.server.limits(arrives_at))
        if self.retry_after and outcome is Outcome.RATE_LIMITED:
            signal = Signal(outcome=outcome, retry_after=self.retry_after, limits=signal.limits)
        heapq.heappush(self.events, (arrives_at + taken + trip / 2, next(self.order), ticket, signal))

    def _answer(self, tally):
        _, _, ticket, signal = heapq.heappop(self.events)
        self.in_flight -= 1
        held = self.controller.hold_until
        self._level()
        skip = self.controller.on_answer(ticket, signal, self.now - ticket.sent_at, self.now)
        if skip > 0:
            self.tokens = min(self.tokens, 1.0 - skip)
        if self.controller.hold_until > max(held, self.now):
            self.tokens = min(self.tokens, 1.0)
        if signal.outcome is Outcome.OK:
            tally.served += 1
        elif signal.outcome is Outcome.RATE_LIMITED:
            tally.refused += 1


class Gate:
    """Only as much of a gate as a ticket needs."""

    def __init__(self, controller, seq):
        self.controller, self.seq = controller, seq

    def send(self, now, depth=5):
        self.seq += 1
        ticket = Ticket(self, self.seq, now, depth)
        self.controller.on_send(ticket, now)
        return ticket


@pytest.fixture(scope="session")
def lab():
    """The servers, the world around them, and as much of a gate as a ticket needs."""
    return SimpleNamespace(
        World=World,
        TokenBucket=TokenBucket,
        FixedWindow=FixedWindow,
        SlidingLog=SlidingLog,
        AtOnce=AtOnce,
        Queue=Queue,
        Gate=Gate,
        Limit=Limit,
    )


@pytest.fixture
def steady(lab):
    """A controller that knows a quota of 50/s, after 99 s and not yet 10,000 calls."""
    world = lab.World(lab.TokenBucket(50, 50))
    world.run(99)
    return world.controller
