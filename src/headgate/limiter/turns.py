"""When the turn of a call comes that stands before several gates, and in which words it is turned away.

All of its gates must let it through, or none does; the one whose objection lasts longest decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.costs import costs_of
from ..core.decision import Refuse, Wait
from ..core.pace import INSTANT
from ..errors import CircuitOpenError, CostTooLargeError, Refused, WaitTooLongError
from .checks import Cost
from .key_gate import KeyGate
from .line import HUNG_AFTER, MOST_WAITING, Demand, Line, Waiter

Decision = tuple[KeyGate, Wait | Refuse]
"""What was decided, and by which gate."""


def objection(gates: list[KeyGate], cost: Cost, now: float, waiter: Waiter | None = None) -> Decision | None:
    """What speaks against a call now, if anything does; for a waiter, once those ahead of it have taken their turn."""
    longest: tuple[KeyGate, Wait] | None = None
    for gate in gates:
        ahead = None if waiter is None or gate.line is None else gate.line.ahead_of(waiter, now)
        if ahead is None or not ahead.count:
            found = gate.objection(now, cost)
        elif gate.has_room(ahead.count):
            found = gate.objection(now, cost, ahead.requests, ahead.costs)
        else:
            found = Wait(now + HUNG_AFTER, "depth")
        if isinstance(found, Refuse):
            return gate, found
        if found is not None and (longest is None or found.until > longest[1].until):
            longest = gate, found
    return longest


def forecast(gates: list[KeyGate], cost: Cost, now: float) -> Decision:
    """When the turn of a call that lines up now would come, by the gate where it is known to come last."""
    latest, decides = None, gates[0]
    for gate in gates:
        line = gate.line
        if line is None:
            found = gate.objection(now, cost)
        elif len(line) >= MOST_WAITING:
            return gate, Refuse("line_full", f"{MOST_WAITING} callers are waiting already")
        else:
            found = gate.objection(now, cost, line.requests, line.costs)
        if isinstance(found, Refuse):
            return gate, found
        if found is not None and (
            latest is None or (found.not_before, found.until) > (latest.not_before, latest.until)
        ):
            latest, decides = found, gate
    return decides, latest or Wait(now, "")


def cannot_wait(gate: KeyGate, line: Line, now: float) -> Iterator[tuple[Waiter, Refused]]:
    """The forecast has worsened: those in line who would now wait too long."""
    ahead = Demand()
    for waiter in line.waiting():
        found = gate.objection(now, waiter.cost, ahead.requests, ahead.costs)
        wait = None if found is None else waiter.takes(found)
        if isinstance(wait, Refuse):
            yield waiter, refused_by(gate, wait, now)
        elif wait is not None and wait.not_before > waiter.give_up_at + INSTANT:
            yield waiter, too_long(gate, wait, now, "the wait has become too long")
        else:
            ahead.add(waiter)


def turned_away(gate: KeyGate, decision: Wait | Refuse, now: float, give_up_at: float) -> Refused | None:
    """Why somebody need not line up: nothing is let through, or not in time. None if it is worth waiting."""
    if isinstance(decision, Refuse):
        return refused_by(gate, decision, now)
    if now > give_up_at:
        return WaitTooLongError(gate.key, "the deadline has passed already")
    if decision.not_before > give_up_at + INSTANT:
        return too_long(gate, decision, now, "the wait would be too long")
    return None


def too_long(gate: KeyGate, wait: Wait, now: float, what: str) -> Refused:
    """A wait that cannot be kept within the time allowed; for an open circuit, in the words for that."""
    reason = gate.reason(wait, now)
    if wait.is_circuit:
        return CircuitOpenError(gate.key, reason, wait.not_before - now)
    return WaitTooLongError(gate.key, f"{what}: {reason}", wait.not_before - now)


def refused_by(gate: KeyGate, refuse: Refuse, now: float) -> Refused:
    retry_after = None if refuse.retry_at is None else max(0.0, refuse.retry_at - now)
    kind = WaitTooLongError if refuse.code == "line_full" else CircuitOpenError
    return kind(gate.key, refuse.reason, retry_after)


def check_fits(gates: list[KeyGate], cost: Cost) -> None:
    """No known limit is smaller than what one call takes."""
    for gate in gates:
        quota = None if gate.buckets is None else gate.buckets.never_fits(costs_of(cost))
        if quota is not None:
            amount = costs_of(cost)[quota.dimension]
            reason = f"cost[{quota.dimension!r}]={amount:,.10g} is above the limit of {quota.amount:,.10g}"
            raise CostTooLargeError(gate.key, f"{reason} and would never fit")
