"""Judge a strategy from outside: the real gate of one key behind two methods.

    delay = client.on_send(now)                              0: send now; else ask again in so many seconds
    client.on_response(now, status, latency, headers)        how that call ended

Whoever has a simulator, a recording or a server of their own can drive any strategy through
this, and another limiter through the same two methods beside it. Time is whatever the caller
says it is: nothing here waits or reads a clock.

    plug("adaptive")                     one client on its own
    plug_shared("adaptive", members=4)   four of them behind one gate, the least served goes first
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from ..config import RateLimitConfig, Strategy
from ..core.control.protocol import Controller
from ..core.decision import Wait
from ..core.gate import Gate
from ..core.ticket import Ticket
from ..wire.reading import read

LAB_CONFIG = RateLimitConfig(open_state_duration=0.5)
"""The default settings but for the circuit: with its usual 15 s one would judge the circuit, not the strategy."""

POLL = 0.02
"""Seconds to ask again in when only an answer can open the way."""

TICK = 1e-6
"""Two instants closer than this are the same: ``now - latency`` has been through a subtraction."""

WALL = 1_800_000_000.0
"""The date at instant 0, for headers that speak in dates."""

Headers = Mapping[str, str] | None


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
    gate, rng, table = _gate(strategy, config), random.Random(f"{seed}/plug"), Table()
    return [Member(gate, rng, table) for _ in range(members)]


def _gate(strategy: str | Strategy | Controller, config: RateLimitConfig) -> Gate:
    return Gate(replace(config, strategy=strategy).gate_policy())


class Client:
    def __init__(self, gate: Gate, rng: random.Random) -> None:
        self.gate = gate
        self._rng = rng
        self._out: dict[int, deque[Ticket]] = {}
        """Calls on their way by the microsecond they were sent in; as many as the gate lets be in flight."""

    def on_send(self, now: float) -> float:
        """0.0: the call starts now. Otherwise: ask again in so many seconds."""
        gate = self.gate
        answer = gate.ask_plainly(now) or gate.ask(now)
        if isinstance(answer, Ticket):
            if gate.waited_for:
                gate.end_of_line(now)
            self._out.setdefault(round(now / TICK), deque()).append(answer)
            return 0.0
        gate.waited_for = True
        if isinstance(answer, Wait):
            return POLL if answer.code == "depth" else answer.until - now
        return POLL if answer.retry_at is None else max(answer.retry_at - now, TICK)

    def on_response(self, now: float, status: int, latency: float, headers: Headers = None) -> None:
        """The call sent ``latency`` seconds ago ended: an HTTP status, or 0 if it got no answer."""
        gate, signal = self.gate, read(status, headers, wall=WALL + now)
        ticket = self._find(now - latency)
        if ticket is None or not gate.report(ticket, signal, latency, now, self._rng.random()):
            gate.teach(signal, latency, now, self._rng.random())

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


class Table:
    """Where the members of one gate see how much each has got, and who else is hungry."""

    def __init__(self) -> None:
        self.members: list[Member] = []


class Member(Client):
    HUNGRY = 0.1
    """Seconds for which a member that was turned away counts as waiting."""
    STEP_BACK = 0.002
    """Seconds in which to ask again when somebody who got less is waiting."""

    def __init__(self, gate: Gate, rng: random.Random, table: Table) -> None:
        super().__init__(gate, rng)
        self.served = 0
        self.turned_away_at = -1.0
        self._table = table
        table.members.append(self)

    def on_send(self, now: float) -> float:
        if any(
            other.served < self.served and now - other.turned_away_at < self.HUNGRY for other in self._table.members
        ):
            self.turned_away_at = now
            return self.STEP_BACK
        delay = super().on_send(now)
        if delay > 0.0:
            self.turned_away_at = now
        else:
            self.served += 1
        return delay
