"""Decisions over all keys of a call, and the errors that refuse it.

All of its keys must let a call through, or none does; the one whose objection lasts longest decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.decision import INSTANT, Refuse, RefuseReason, Wait, WaitReason, explain
from ..core.policy import costs_of
from ..errors import CircuitOpenError, CostTooLargeError, Refused, WaitTooLongError
from ..reason_text import reason_text, refuse_text
from .arguments import Cost
from .key_entry import KeyEntry
from .wait_queue import MOST_WAITING, Demand, QueuedCall, WaitQueue

Decision = tuple[KeyEntry, Wait | Refuse]
"""What was decided, and by which key."""


def forecast(entries: list[KeyEntry], cost: Cost, now: float) -> Decision:
    """When the turn of a call that joins now would come, by the key where it is known to come last."""
    latest, decides = None, entries[0]
    for entry in entries:
        queue = entry.queue
        if queue is None:
            found = entry.gate.check(now, cost)
        elif len(queue) >= MOST_WAITING:
            return entry, Refuse(RefuseReason.QUEUE_FULL, subject=str(MOST_WAITING))
        else:
            found = entry.gate.check(now, cost, queue.requests, queue.costs)
        if isinstance(found, Refuse):
            return entry, found
        if found is not None and (
            latest is None or (found.not_before, found.until) > (latest.not_before, latest.until)
        ):
            latest, decides = found, entry
    return decides, latest or Wait(WaitReason.NONE, now)


def broken_promises(entry: KeyEntry, queue: WaitQueue, now: float) -> Iterator[tuple[QueuedCall, Refused]]:
    """The forecast has worsened: the calls in the queue that would now wait too long."""
    ahead = Demand()
    for call in queue.in_order():
        found = entry.gate.check(now, call.cost, ahead.requests, ahead.costs)
        wait = call.interpret(found) if isinstance(found, Refuse) else found
        if isinstance(wait, Refuse):
            yield call, refusal_of(entry, wait, now)
        elif wait is not None and wait.not_before > call.waiter.give_up_at + INSTANT:
            yield call, too_long(entry, wait, now, "the wait has become too long")
        else:
            ahead.add(call)


def pointless(entry: KeyEntry, decision: Wait | Refuse, now: float, give_up_at: float) -> Refused | None:
    """Why a call need not join: nothing is let through, or not in time. None if it is worth waiting."""
    if isinstance(decision, Refuse):
        return refusal_of(entry, decision, now)
    if now > give_up_at:
        return WaitTooLongError(entry.key, "the deadline has passed already")
    if decision.not_before > give_up_at + INSTANT:
        return too_long(entry, decision, now, "the wait would be too long")
    return None


def timed_out(entry: KeyEntry, decision: Wait | Refuse, now: float) -> Refused:
    """The deadline has come while it waited."""
    wait = decision if isinstance(decision, Wait) else None
    retry_after = wait.until - now if wait is not None and wait.is_forecast else None
    if wait is not None and wait.is_circuit:
        return CircuitOpenError(entry.key, reason_text(explain(entry.gate, wait, now)), retry_after)
    return WaitTooLongError(entry.key, "not let through within the time allowed", retry_after)


def too_long(entry: KeyEntry, wait: Wait, now: float, what: str) -> Refused:
    """A wait that cannot be kept within the time allowed."""
    reason = reason_text(explain(entry.gate, wait, now))
    if wait.is_circuit:
        return CircuitOpenError(entry.key, reason, wait.not_before - now)
    return WaitTooLongError(entry.key, f"{what}: {reason}", wait.not_before - now)


def refusal_of(entry: KeyEntry, refuse: Refuse, now: float) -> Refused:
    retry_after = None if refuse.retry_at is None else max(0.0, refuse.retry_at - now)
    kind = WaitTooLongError if refuse.reason is RefuseReason.QUEUE_FULL else CircuitOpenError
    return kind(entry.key, refuse_text(refuse), retry_after)


def check_fits(entries: list[KeyEntry], cost: Cost) -> None:
    """Raise if a known limit is smaller than what one call takes."""
    for entry in entries:
        quota = entry.gate.never_fits(costs_of(cost)) if entry.gate.config.quotas else None
        if quota is not None:
            amount = costs_of(cost)[quota.dimension]
            reason = f"cost[{quota.dimension!r}]={amount:,.10g} is above the limit of {quota.amount:,.10g}"
            raise CostTooLargeError(entry.key, f"{reason} and would never fit")
