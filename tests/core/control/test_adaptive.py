"""The adaptive controller against servers it knows nothing about, in virtual time.

A world is a server with a hidden limit, a gate of the simplest kind and workers that
always want to call. Each test states what must come out of it.
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass
from math import ceil, floor, inf

import pytest

from headgate.core.control.adaptive import Adaptive, AdaptivePolicy
from headgate.core.decision import Outcome
from headgate.core.signal import SILENT, Limit, Signal
from headgate.core.ticket import Ticket

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
        self.controller = Adaptive(AdaptivePolicy(initial=initial))
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


def test_it_finds_a_bucket_within_seconds_and_holds_it():
    world = World(TokenBucket(50, 50))
    world.run(5)
    assert 40 < world.controller.rate < 60
    tally = world.run(125)
    assert tally.served >= 0.95 * 50 * 120
    assert tally.refused_share <= 0.01
    assert world.controller.why().startswith("holding the measured 50.")


def test_a_small_initial_burst_that_is_refused_does_not_slow_the_start():
    world = World(TokenBucket(20, 3), initial=2.0)
    assert world.run(60).served >= 0.9 * 20 * 60


def test_it_follows_a_quota_down_and_up():
    bucket = TokenBucket(80, 40)
    world = World(bucket)
    world.run(60)
    bucket._fill(60)
    bucket.rate = 30
    down = world.run(120)
    assert down.served >= 0.93 * 30 * 60
    assert down.refused_share <= 0.02
    bucket._fill(120)
    bucket.rate = 90
    world.run(150)
    up = world.run(210)
    assert up.served >= 0.95 * 90 * 60
    assert up.refused_share <= 0.01


def test_a_quota_that_falls_to_a_tenth_is_followed_at_once():
    bucket = TokenBucket(100, 5)
    world = World(bucket)
    world.run(60)
    bucket._fill(60)
    bucket.rate = 10
    tally = world.run(70)
    assert world.controller.rate < 20
    assert tally.refused <= 25


@pytest.mark.parametrize("server", [TokenBucket(50, 50), FixedWindow(600, 60, phase=17.0)], ids=["bucket", "window"])
def test_it_follows_headers_without_being_refused(server):
    world = World(server, headers=True)
    tally = world.run(240)
    nominal = 50 if isinstance(server, TokenBucket) else 10
    assert tally.served >= 0.98 * nominal * 240
    assert tally.refused_share <= 0.0005
    assert world.controller.why() == "following the server's headers"


def test_a_window_too_short_to_spread_over_is_paced_just_below_its_limit():
    tally = World(FixedWindow(50, 1, phase=0.3), headers=True).run(120)
    assert tally.served >= 0.93 * 50 * 120
    assert tally.refused_share <= 0.01


def test_headers_that_lie_are_dropped_and_the_quota_is_measured_instead():
    class Liar(TokenBucket):
        def limits(self, now):
            return (Limit(limit=6000, remaining=5000, reset=30, window=60),)

    world = World(Liar(20, 20), headers=True)
    world.run(20)
    tally = world.run(110)
    assert world.controller.rooms.law.muted_until > world.now
    assert tally.served >= 0.93 * 20 * 90
    assert tally.refused_share <= 0.03


def test_it_learns_a_long_window_and_does_not_run_dry_in_each():
    world = World(FixedWindow(600, 60, phase=20.0))
    world.run(180)
    tally = world.run(480)
    assert tally.served >= 0.93 * 10 * 300
    assert tally.refused_share <= 0.01
    assert world.controller.rooms.seeker.curve.window > 20


def test_it_finds_a_cap_on_calls_in_flight():
    world = World(AtOnce(16), service=0.4)
    world.run(60)
    tally = world.run(180)
    assert 14 <= world.controller.cap <= 17
    assert "at a time" in world.controller.why()
    assert tally.served >= 0.96 * 16 / (0.4 + 0.04) * 120
    assert tally.refused_share <= 0.01


def test_it_holds_back_from_a_server_that_only_gets_slower():
    world = World(Queue(8), workers=256, service=0.1)
    world.run(30)
    tally = world.run(90)
    assert world.controller.cap < 40, "8 servers and the wire hold about 12 calls"
    assert tally.served >= 0.9 * 80 * 60


def test_an_idle_caller_teaches_nothing():
    world = World(TokenBucket(1000, 1000), workers=1, service=1.0)
    world.run(120)
    assert world.controller.rate <= 8.0, "one call a second needs no more than the initial pace"


def test_a_failing_server_is_no_reason_to_grow():
    world = World(TokenBucket(50, 50))
    world.run(30)
    before = world.controller.rate
    world.down = True
    world.run(60)
    assert world.controller.rate <= 1.05 * before


def test_a_retry_after_is_held_to_once_and_not_doubled():
    world = World(TokenBucket(5, 5), retry_after=7.0)
    while world.controller.hold_until <= world.now:
        world.run(world.now + 0.01)
    assert world.controller.hold_until == pytest.approx(world.now + 7.0, abs=0.02)


def test_the_burst_that_was_refused_as_one_is_one_cut():
    controller = steady()
    quota = controller.rooms.seeker.curve.quota
    gate = Gate(controller, 10_000)
    burst = [gate.send(100.0 + 0.001 * n) for n in range(40)]
    refused = [ticket for ticket in burst if ticket.seq % 3]
    for at, ticket in enumerate(refused):
        controller.on_answer(ticket, SILENT[Outcome.RATE_LIMITED], 0.05, 100.1 + 0.001 * at)
        if at == 0:
            after_first = controller.rooms.seeker.pace
    assert controller.rooms.seeker.cut_seq == burst[-1].seq
    assert controller.rooms.seeker.pace == pytest.approx(after_first, rel=0.02)
    assert controller.rooms.seeker.pace > 0.5 * quota


def test_answers_to_calls_sent_before_the_cut_change_nothing():
    controller = steady()
    gate = Gate(controller, 10_000)
    early, late = gate.send(100.0), gate.send(100.5)
    controller.on_answer(late, SILENT[Outcome.RATE_LIMITED], 0.05, 100.55)
    before = controller.rooms.seeker.pace, controller.hold_until
    controller.on_answer(early, SILENT[Outcome.RATE_LIMITED], 0.6, 100.56)
    assert (controller.rooms.seeker.pace, controller.hold_until) == (pytest.approx(before[0], rel=0.01), before[1])


@pytest.mark.parametrize("outcome", [o for o in Outcome if o not in (Outcome.OK, Outcome.RATE_LIMITED)])
def test_nothing_but_a_refusal_cuts(outcome):
    controller = steady()
    gate, rate = Gate(controller, 10_000), controller.rate
    for n in range(4):
        controller.on_answer(gate.send(100.0 + n), SILENT[outcome], 0.1, 100.1 + n)
    assert controller.rate >= 0.99 * rate
    assert controller.hold_until < 100.0


@pytest.mark.parametrize(
    "server",
    [lambda: TokenBucket(50, 50), lambda: FixedWindow(200, 10, phase=3.0), lambda: AtOnce(16)],
    ids=["bucket", "window", "at once"],
)
@pytest.mark.parametrize("packed_at", [0.5, 4.0, 33.0])
def test_a_controller_put_away_and_taken_out_again_decides_the_same(server, packed_at):
    one, other = World(server()), World(server())
    one.run(packed_at)
    other.run(packed_at)
    reborn = Adaptive(AdaptivePolicy(initial=4.0))
    reborn.load_state(other.controller.to_state())
    other.controller = reborn
    one.run(60, record=True)
    other.run(60, record=True)
    assert one.decisions == other.decisions
    assert one.controller.to_state() == other.controller.to_state()


def test_the_same_seed_gives_the_same_run():
    one, other = World(TokenBucket(30, 10)), World(TokenBucket(30, 10))
    one.run(60, record=True)
    other.run(60, record=True)
    assert one.decisions == other.decisions


class Gate:
    """Only as much of a gate as a ticket needs."""

    def __init__(self, controller, seq):
        self.controller, self.seq = controller, seq

    def send(self, now, depth=5):
        self.seq += 1
        ticket = Ticket(self, self.seq, now, depth)
        self.controller.on_send(ticket, now)
        return ticket


def steady():
    """A controller that knows a quota of 50/s."""
    world = World(TokenBucket(50, 50))
    world.run(99)
    return world.controller
