"""Judge a strategy from outside: the real gate of one key behind two methods.

    delay = client.on_send(now)                              0: send now; else ask again in so many seconds
    client.on_response(now, status, latency, headers)        how that call ended

Any simulator, recording or server can drive any strategy through
this, and another limiter through the same two methods beside it. Time is whatever the caller
says it is: nothing here waits or reads a clock.

    plug("adaptive")                     one client on its own
    plug_shared("adaptive", members=4)   four of them behind one gate, the least served goes first
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import TypeAlias

from ..config import RateLimitConfig, Strategy
from ..core.concurrency import LOST_AFTER, record_unmatched
from ..core.controller import Controller
from ..core.decision import NEVER, Refuse, Wait, WaitReason
from ..core.gate import Gate
from ..core.policy import Ticket
from ..wire.parse import read

LAB_CONFIG = RateLimitConfig(open_state_duration=0.5)
"""The default settings but for the circuit: with its usual 15 s one would judge the circuit, not the strategy."""

POLL = 0.02
"""Seconds to ask again in when only an answer can open the way."""

TICK = 1e-6
"""Two instants closer than this are the same: ``now - latency`` has been through a subtraction."""

WALL = 1_800_000_000.0
"""The date at instant 0, for headers that hold dates."""

Headers = Mapping[str, str] | None
Body = bytes | str | Mapping[str, object] | None


def plug(
    strategy: str | Strategy | Controller = "adaptive", seed: int = 0, config: RateLimitConfig = LAB_CONFIG
) -> Client:
    """A gate of its own that follows ``strategy``: a name, a ``Controller`` or a function that makes one."""
    return Client(_gate(strategy, config), random.Random(f"{seed}/plug"))


def plug_shared(
    strategy: str | Strategy | Controller = "adaptive",
    members: int = 2,
    seed: int = 0,
    config: RateLimitConfig = LAB_CONFIG,
) -> list[Client]:
    """``members`` clients, as of so many processes, behind one gate: together they are one caller."""
    if members < 1:
        raise ValueError(f"members={members!r} must be 1 or more")
    gate, rng, queue = _gate(strategy, config), random.Random(f"{seed}/plug"), MemberQueue()
    return [SharedClient(gate, rng, queue, number) for number in range(members)]


def _gate(strategy: str | Strategy | Controller, config: RateLimitConfig) -> Gate:
    return Gate.local(replace(config, strategy=strategy).gate_config())


class Client:
    def __init__(self, gate: Gate, rng: random.Random) -> None:
        self.gate = gate
        self._rng = rng
        self._out: dict[int, deque[Ticket]] = {}
        """Calls on their way by the microsecond they were sent in; given up with those the gate gives up."""

    def on_send(self, now: float) -> float:
        """0.0: the call starts now. Otherwise: ask again in so many seconds."""
        gate = self.gate
        ticket = Ticket(gate, 0, now, 0)
        answer = ticket if gate.try_fast_admit(ticket, now) else gate.ask(now)
        if isinstance(answer, Ticket):
            if gate.has_waiters:
                gate.set_queue(None, now)
            self._out.setdefault(round(now / TICK), deque()).append(answer)
            if answer.seq >= gate.check_at_seq:
                self._look_after(now)
            return 0.0
        return self._wait(answer, now)

    def _wait(self, objection: Wait | Refuse, now: float, poll: float = POLL) -> float:
        """Stand in line; after so many seconds ask again."""
        self.gate.mark_waiting()
        if isinstance(objection, Wait):
            return poll if objection.reason is WaitReason.DEPTH else objection.until - now
        return poll if objection.retry_at is None else max(objection.retry_at - now, TICK)

    def on_response(self, now: float, status: int, latency: float, headers: Headers = None, body: Body = None) -> None:
        """The call sent ``latency`` seconds ago ended: an HTTP status, or 0 if it got no answer."""
        gate, signal = self.gate, read(status, headers, body, wall=WALL + now)
        latency = latency if isfinite(latency) else 0.0
        ticket = self._find(now - latency)
        if ticket is None or not gate.record(ticket, signal, latency, now, self._rng.random()):
            record_unmatched(gate, signal, latency, now, self._rng.random())

    def _look_after(self, now: float) -> None:
        """From time to time: answers that never came are not waited for any longer."""
        self.gate.drop_lost(now)
        oldest = round((now - LOST_AFTER) / TICK)
        for tick in [tick for tick in self._out if tick < oldest]:
            del self._out[tick]

    def _find(self, sent_at: float) -> Ticket | None:
        tick = round(sent_at / TICK)
        for near in (tick, tick - 1, tick + 1):
            tickets = self._out.get(near)
            if tickets:
                ticket = tickets.popleft()
                if not tickets:
                    del self._out[near]
                return ticket
        return None


class MemberQueue:
    """Where the members of one gate wait: the least served first, and of those that got the same the longest ago.

    A member cannot be called, so it is told when its turn should come, with all that go first ahead of it. Asking
    costs the same however many wait, and nearly every member asks once for each call.
    """

    def __init__(self) -> None:
        self.line: list[Place] = []
        """Members that wait, in order; each member is in it once at most."""
        self.served = 0
        """Calls of all members."""

    def ahead_of(self, member: SharedClient, now: float, soon: float) -> int:
        """How many go first. None do if the first of them is not back soon: the turn would be lost."""
        line = self.line
        at = bisect_left(line, member.place)
        if at < len(line) and line[at] is member.place:
            del line[at]
        while at and line[0][2].back_at < now - SharedClient.GONE:
            del line[0]
            at -= 1
        return at if at and line[0][2].back_at <= now + soon else 0


class SharedClient(Client):
    GONE = 0.1
    """Seconds after which a member that has not come back does not wait any more."""
    LONGEST_NAP = 0.5
    """Seconds after which those behind the first ask again at the latest: the pace may have risen."""
    STEP_BACK = 0.002
    """Seconds after which the first in line asks again when only an answer can open the way."""

    def __init__(self, gate: Gate, rng: random.Random, queue: MemberQueue, number: int) -> None:
        super().__init__(gate, rng)
        self.back_at = NEVER
        """When it was told to ask again, if it waits."""
        self._queue = queue
        self.place: Place = (0, number, self)

    def on_send(self, now: float) -> float:
        queue = self._queue
        ahead = queue.ahead_of(self, now, max(1.0 / self.gate.pacer.rate, self.STEP_BACK))
        delay = min(self._after(ahead, now), self.LONGEST_NAP) if ahead else super().on_send(now)
        if delay > 0.0:
            self.back_at = now + delay
            insort(queue.line, self.place)
        else:
            queue.served += 1
            self.place = (self.place[0] + 1, queue.served, self)
        return delay

    def _after(self, ahead: int, now: float) -> float:
        """As ``on_send``, with so many that go first."""
        gate = self.gate
        if len(gate.in_flight) + ahead >= gate.controller.cap:
            gate.mark_waiting()
            return ahead * POLL
        objection = gate.check(now, requests_ahead=ahead)
        if objection is None:
            return super().on_send(now)
        gate.on_wait(objection, now)
        return self._wait(objection, now, ahead * POLL)

    def _wait(self, objection: Wait | Refuse, now: float, poll: float = STEP_BACK) -> float:
        return super()._wait(objection, now, poll)


Place: TypeAlias = tuple[int, int, SharedClient]
"""How many calls a member got, which of all calls was its last (at first: its own number), and the member."""
