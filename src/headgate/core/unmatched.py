"""Answers without a ticket: find the call that one belongs to, or learn from it as from a call of another process."""

from __future__ import annotations

from .decision import INSTANT, CircuitState
from .gate import Gate
from .policy import Ticket
from .signal import Signal

USUAL_LATENCY = 0.2
"""What answers take, as long as nothing is known."""
MEASURED_WITHIN = 0.05
"""By how many seconds, and by which share of it, a latency may differ from what we would have measured."""


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
