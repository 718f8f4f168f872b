"""What an onlooker sees of the clients of a run, without touching anything.

Asking a gate why it would wait brings its bucket up to date, and with it the last bit of its numbers. A run that
is watched must be the same as one that is not, so only what can be read is read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from ..core.decision import CircuitState
from ..core.gate import Gate
from ..core.words import brief, span

MOST_REASONS = 4


@dataclass(frozen=True, slots=True)
class Look:
    """One client at one moment."""

    learned: Mapping[Gate, float]
    """Calls a second that each gate believes in; clients of one gate say the same of it."""
    in_flight: int
    waiting: int
    reason: str


def look_at(gates: Iterable[Gate], now: float, in_flight: int, waiting: int) -> Look:
    learned = {gate: gate.learned_rate for gate in gates}
    reasons = dict.fromkeys(_reason(gate, now) for gate in islice(learned, MOST_REASONS))
    return Look(learned, in_flight, waiting, "; ".join(reasons))


def _reason(gate: Gate, now: float) -> str:
    state = gate.breaker.state_at(now)
    if state is not CircuitState.CLOSED:
        return f"circuit {state.value}"
    if gate.opens_at > now:
        return f"nothing starts for {span(gate.opens_at - now)}, {gate.controller.why()}"
    return f"paced at {brief(gate.learned_rate)} calls/s, {gate.controller.why()}"
