"""The calls of a key that are in flight, and the bound on how many there may be at once.

A call is in flight from being let through until it ends. Some never end: a permit that was dropped, a task
that died. Each of them is lost after ``LOST_AFTER`` seconds. A caller that never ends any permit would still fill the
memory long before, so calls are kept in two lots, and while nothing ends, the older lot makes room for the younger.

A wait for depth ends with an answer, so nothing is known of when; it counts only where nothing else objects.

An answer may come without its ticket: ``record_unmatched`` finds the call that it belongs to.
"""

from __future__ import annotations

from itertools import chain, takewhile
from typing import TYPE_CHECKING

from .decision import INSTANT, NEVER, UNKNOWN, CircuitState, Wait, WaitReason
from .policy import Demand, Ticket

if TYPE_CHECKING:
    from .controller import Controller
    from .gate import Gate
    from .signal import Signal

LOST_AFTER = 900.0
"""A permit that has not ended after so many seconds no longer counts as a call in flight."""
MOST_OUT = 1_000_000
"""Calls of one key that may be in flight; beyond it the oldest are given up, however young they are."""
A_LOT = 20_000
"""Fewer calls than this without an end prove nothing: they may all still be on their way."""
USUAL_LATENCY = 0.2
"""What answers take, as long as nothing is known."""
MEASURED_WITHIN = 0.05
"""By how many seconds, and by which share of it, a latency may differ from what we would have measured."""
_NONE: dict[int, float] = {}


class InFlight:
    __slots__ = ("_out_before", "_sent_before", "pending", "stale")

    def __init__(self) -> None:
        self.pending: dict[int, float] = {}
        """Ordinals of calls and when they were sent, oldest first."""
        self.stale = _NONE
        """The older lot."""
        self._out_before = self._sent_before = 0
        """How many were out, and had been sent at all, when it was last looked after."""

    def __len__(self) -> int:
        return len(self.pending) + len(self.stale)

    def complete(self, seq: int) -> bool:
        """The call has ended; False if it had before, or was given up."""
        return self.pending.pop(seq, None) is not None or self.stale.pop(seq, None) is not None

    def clear(self) -> None:
        """Forget all of them."""
        self.pending, self.stale = {}, _NONE

    def oldest(self) -> tuple[int, float] | None:
        """The call that has been out for longest, and since when."""
        return next(iter((self.stale or self.pending).items()), None)

    def pending_since(self, instant: float) -> int:
        """How many are still out that were sent at that instant or before."""
        return sum(1 for _ in takewhile(lambda at: at <= instant, chain(self.stale.values(), self.pending.values())))

    def drop_lost(self, now: float) -> None:
        """Give up those that have been out for too long."""
        while (oldest := self.oldest()) is not None and (oldest[1] + LOST_AFTER <= now or len(self) > MOST_OUT):
            self.complete(oldest[0])

    def let_go(self, now: float, sent: int) -> None:
        """After thousands of calls, ``sent`` in all: if not one of them has ended, none is going to."""
        if len(self) - self._out_before == sent - self._sent_before and len(self.pending) > A_LOT:
            self.stale, self.pending = self.pending, {}
        self.drop_lost(now)
        self._out_before, self._sent_before = len(self), sent


class ConcurrencyPolicy:
    __slots__ = ("controller", "in_flight")

    def __init__(self, controller: Controller, in_flight: InFlight) -> None:
        self.controller = controller
        self.in_flight = in_flight

    def check(self, now: float, demand: Demand) -> Wait | None:
        cap = max(1.0, self.controller.cap)
        if len(self.in_flight) < cap:
            return None
        self.in_flight.drop_lost(now)
        oldest = self.in_flight.oldest()
        if oldest is None or len(self.in_flight) < cap:
            return None
        return Wait(WaitReason.DEPTH, oldest[1] + LOST_AFTER)

    def idle_from(self, now: float) -> float:
        return UNKNOWN if len(self.in_flight) else NEVER


def record_unmatched(gate: Gate, signal: Signal, latency: float, now: float, draw: float) -> None:
    """Learn from an answer that belongs to the oldest call it can belong to, or to none of ours.

    Nothing but probes leaves a half-open circuit, so what was sent since is a probe's answer; and so is what was
    sent when the probe was asked for: a latency may include the wait in the queue. Any other answer may be an old
    call's; it counts as the probe's if the probe ends, or is lost, without one.
    """
    sent_at, circuit = now - latency, gate.circuit
    probe = circuit.probe()
    if probe is not None:
        left_at = gate.in_flight.pending.get(probe, now)
        asked_at = circuit.probe_asked_at
        if sent_at + INSTANT >= left_at or abs(sent_at - asked_at) <= MEASURED_WITHIN * (1.0 + latency):
            gate.record(Ticket(gate, probe, left_at, 0), signal, latency, now, draw)
            return
        circuit.unmatched = signal, latency, now
    oldest = gate.in_flight.oldest()
    if oldest is not None and oldest[1] <= sent_at + INSTANT:
        gate.record(Ticket(gate, *oldest, 0), signal, latency, now, draw)
        return
    if not latency > 0.0:  # not told when it was sent: about as long ago as answers usually take
        sent_at = now - (gate.latency.ewma or USUAL_LATENCY)
    if sent_at > gate.last_sent_at + INSTANT:
        gate.seq += 1  # a call of another process: the newest we know of
        gate.last_sent_at = now
    closed = gate.breaker.state is CircuitState.CLOSED
    seq = gate.seq if closed else gate.breaker.era_after  # the newest may be a probe, and this is not its answer
    gate.learn(Ticket(gate, seq, sent_at, 0), signal, latency, now, draw)
