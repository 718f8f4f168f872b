"""Admission: which calls start now, which wait, in which order, over all keys of a limiter under one lock.

    the queue is empty, nothing objects ──> a permit
    something objects ──> a place in the queue ──its turn──> notified ──it runs, nothing objects──> a permit
                               │ no longer worth waiting
                               └──> a refusal

Any thread that holds the lock may serve a queue. That is done when a timer fires, when an answer comes in and when a
permit is given back: everything that can bring a turn. The waiter takes its token itself, when it runs: what it takes
counts from the moment at which its call starts. Nothing of the user's runs under the lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from threading import Lock

from ..clock import Clock
from ..core.decision import INSTANT, NEVER, UNKNOWN, Refuse, RefuseReason, Wait, WaitReason, explain
from ..core.policy import NUMBER
from ..errors import CircuitOpenError, Refused, WaitTooLongError
from ..fork_safety import run_locked
from ..reason_text import reason_text, refuse_text
from .events import LimiterEvents
from .key_entry import KeyEntry
from .permit import Cost, LongPermit, Permit
from .wait_queue import MOST_WAITING, STALLED_AFTER, QueuedCall, TotalDemand, WaitQueue

LONGEST_DECISION = 0.5
"""The lock is never held for so many seconds, unless by the thread that asks for it."""
CHECK_PAUSE_EVERY = 60.0
"""Seconds after which a waiter looks whether the limiter is still paused; resuming it serves every queue at once."""

Decision = tuple[KeyEntry, Wait | Refuse]
"""What was decided, and by which key."""


class Admission:
    """Lets calls through under their keys, and queues those that must wait. A sync loop sees the limiter as this."""

    def __init__(self, lock: Lock, clock: Clock, draw: Callable[[], float], events: LimiterEvents) -> None:
        self.lock = lock
        self.now = clock.now
        self.draw = draw
        self.is_paused = False
        """Whether an operator lets nothing start, under any key."""
        self.throttled = self.denied = 0
        """Calls that had to wait, and calls that were refused."""
        self._events = events
        self._deferred: deque[Callable[[], None]] = deque()
        """What could not be done at once because the lock was taken."""

    # ------------------------------------------------------------------ waiting

    def join(self, call: QueuedCall, entries: list[KeyEntry], now: float) -> None:
        """Settle the call if the answer is known at once, else give it a place in the queues. Under the lock."""
        waiter = call.waiter
        is_first = now <= waiter.give_up_at
        for entry in entries:
            is_first = is_first and not entry.gate.has_waiters
        decider, found = self.admit(entries, now, now, call.cost) if is_first else self._forecast(call, entries, now)
        if isinstance(found, Permit):
            call.permit, waiter.settled = found, True
            return
        decision = call.interpret(found) if isinstance(found, Refuse) else found
        refusal = pointless(decider, decision, now, waiter.give_up_at)
        if refusal is not None:
            if is_first and isinstance(found, Wait):
                decider.gate.on_wait(found, now)
            call.refusal, waiter.settled = refusal, True
            self.note_refusal(decider, refusal, now)
            return
        call.entries = entries
        is_plain = isinstance(call.cost, NUMBER) or len(entries) > 1  # keys may count in different units
        worth = None if is_plain else entries[0].gate.pacer.worth(call.cost)
        for entry in entries:
            if entry.queue is None:
                entry.queue = WaitQueue()
                entry.gate.set_queue(entry.queue, now)
            entry.queue.join(call, worth)
        gate, queue = entries[0].gate, entries[0].queue
        assert isinstance(decision, Wait)
        assert queue is not None
        if is_first:  # it is the head, and what it waits for is known
            if isinstance(found, Wait):  # once it has joined, since policies look at the queue
                decider.gate.on_wait(found, now)
            queue.begin(call, decision, gate.pacer.rate, gate.hold.opens_at)
        elif queue.is_scheduled(gate.pacer.rate, now):
            gate.on_wait(queue.forecast, now)  # serving it would find what was found the last time
        else:
            self.serve(entries[0], now, call)
        if not (waiter.armed or waiter.settled):
            waiter.watch_deadline()

    def tick(self, call: QueuedCall) -> None:
        """The waiter of a call runs: take its turn if that has come, serve its queues, give up at its deadline.

        Under the lock.
        """
        waiter, entries, now = call.waiter, call.entries, self.now()
        waiter.on_wake()
        for entry in entries:
            if entry.queue is not None and entry.queue.notified:
                entry.queue.put_back(call)
        for entry in entries:
            self.serve(entry, now, call)
        if not waiter.settled and now >= waiter.give_up_at:
            decider, decision = self._forecast(call, entries, now)
            self._settle(call, None, timed_out(decider, decision, now), now, runs=True)
            for entry in entries:
                self.serve(entry, now)
        if not waiter.settled:
            waiter.watch_deadline()

    def leave(self, call: QueuedCall, give_back: Callable[[Permit, float], None]) -> None:
        """The caller was cancelled or interrupted: nothing stays taken, and no call behind it is held up."""

        def act() -> None:
            now = self.now()
            if call.permit is not None:
                give_back(call.permit, now)
            call.waiter.settled = True
            for entry in call.entries:
                if entry.queue is not None:
                    entry.queue.leave(call)  # which it has, unless it was interrupted before that
                self.serve(entry, now)

        self.when_free(act)

    def when_free(self, act: Callable[[], None]) -> None:
        """Act under the lock, or leave it to ``catch_up``.

        Garbage collection can end a permit's block at any moment, also in the middle of a decision of this very
        thread; waiting for the lock would then never end.
        """
        if run_locked(self.lock, LONGEST_DECISION, act):
            self._events.flush()
        else:
            self._deferred.append(act)

    def catch_up(self) -> None:
        """Do what ``when_free`` could not. Under the lock."""
        while self._deferred:
            self._deferred.popleft()()

    def reset(self) -> None:
        """In a forked child nothing is left to do."""
        self._deferred.clear()

    # ------------------------------------------------------------------ serving, under the lock

    def serve(self, first: KeyEntry, now: float, runs: QueuedCall | None = None) -> None:
        """Notify the calls whose turn has come, and set the timer of the next one.

        The call that ``runs``, if it is one of them that calls this, takes its token at once.
        """
        to_serve = [first]
        while to_serve:
            entry = to_serve.pop()
            queue, gate = entry.queue, entry.gate
            if queue is None:
                continue
            while queue.notified and (dead := queue.dead()) is not None:
                self._settle(dead, None, None, now)
                to_serve.extend(other for other in dead.entries if other is not entry)
            queue.in_charge = None
            until = UNKNOWN
            while (head := queue.next(now)) is not None:
                if head is not runs and head.waiter.is_dead():
                    self._settle(head, None, None, now)
                elif len(head.entries) > 1 and any(
                    other.queue is None or other.queue.next(now) is not head for other in head.entries
                ):
                    break
                else:
                    decision = self._offer_turn(head, now, takes=head is runs)
                    if isinstance(decision, Wait):
                        if queue.update_forecast(head, decision, gate.pacer.rate, gate.hold.opens_at):
                            to_serve.extend(self._refuse_late(entry, queue, now))
                        if not head.waiter.settled:
                            until = decision.until
                            break
                if len(head.entries) > 1:
                    to_serve.extend(other for other in head.entries if other is not entry)
            if queue.waiting or queue.notified:
                queue.schedule(head, until, now)
                gate.pacer.mark_late(bool(queue.notified), now)
            else:
                entry.queue = None
                gate.set_queue(None, now)

    def _offer_turn(self, head: QueuedCall, now: float, *, takes: bool) -> Wait | None:
        """End the wait of the first in the queue, or notify it that its turn has come; returns what it waits for."""
        decision: Permit | Wait | Refuse | None
        try:
            if takes:
                decider, decision = self.admit(head.entries, now, head.asked_at, head.cost, head)
            else:
                decider, decision = self._check(head.entries, now, head.cost, head) or (head.entries[0], None)
            if isinstance(decision, Wait):
                decider.gate.on_wait(decision, now)
        except Exception as error:  # a controller of the user's; it fails this call, not the ones behind it
            self._settle(head, None, error, now, runs=takes)
            return None
        if isinstance(decision, Refuse):
            decision = head.interpret(decision)
        if isinstance(decision, Wait):
            return decision
        if isinstance(decision, Refuse):
            self._settle(head, None, refusal_of(decider, decision, now), now, runs=takes)
        elif decision is not None:
            self._settle(head, decision, None, now, runs=takes)
        else:
            for entry in head.entries:
                if entry.queue is not None:
                    entry.queue.notify(head, now)
            head.waiter.wake()
        return None

    def _refuse_late(self, entry: KeyEntry, queue: WaitQueue, now: float) -> list[KeyEntry]:
        """The forecast has worsened: refuse at once what would now wait too long. Returns what queues that leaves."""
        left: list[KeyEntry] = []
        ahead = TotalDemand()
        for call in queue.in_order():
            found = entry.gate.check(now, call.cost, ahead.requests, ahead.costs)
            wait = call.interpret(found) if isinstance(found, Refuse) else found
            if isinstance(wait, Refuse):
                refusal = refusal_of(entry, wait, now)
            elif wait is not None and wait.not_before > call.waiter.give_up_at + INSTANT:
                refusal = too_long(entry, wait, now, "the wait has become too long")
            else:
                ahead.add(call)
                continue
            self._settle(call, None, refusal, now)
            left.extend(other for other in call.entries if other is not entry)
        return left

    def _forecast(self, call: QueuedCall, entries: list[KeyEntry], now: float) -> Decision:
        """When the turn of a call would come that joins now, by the key where it is known to come last."""
        decider, latest = entries[0], Wait(WaitReason.NONE, NEVER)
        decision: Wait | Refuse | None = None
        for entry in entries:
            queue = entry.queue
            if queue is None:
                decision = entry.gate.check(now, call.cost)
            elif len(queue) >= MOST_WAITING:
                decision = Refuse(RefuseReason.QUEUE_FULL, subject=str(MOST_WAITING))
            else:
                decision = entry.gate.check(now, call.cost, queue.requests, queue.costs)
            if isinstance(decision, Refuse):
                decider, decision = entry, call.interpret(decision)
                break
            if decision is not None and (decision.not_before, decision.until) > (latest.not_before, latest.until):
                decider, latest = entry, decision
        else:
            decision = latest if latest.until > NEVER else Wait(WaitReason.NONE, now)
        if self.is_paused and isinstance(decision, Wait) and decision.until <= now + CHECK_PAUSE_EVERY:
            return entries[0], Wait(WaitReason.PAUSED, now + CHECK_PAUSE_EVERY)
        return decider, decision

    def _check(
        self, entries: list[KeyEntry], now: float, cost: Cost, call: QueuedCall | None = None
    ) -> Decision | None:
        """What keeps a call from starting under all of its keys now: the longest wait, or a refusal.

        For a queued one: after those ahead of it that have yet to run.
        """
        if self.is_paused:
            return entries[0], Wait(WaitReason.PAUSED, now + CHECK_PAUSE_EVERY)
        longest: tuple[KeyEntry, Wait] | None = None
        for entry in entries:
            gate, queue = entry.gate, entry.queue
            ahead = None if call is None or queue is None or not queue.notified else queue.ahead_of(call, now)
            if ahead is None or not ahead.count:
                found = gate.check(now, cost)
            elif gate.has_room(ahead.count):
                found = gate.check(now, cost, ahead.requests, ahead.costs)
            else:
                found = Wait(WaitReason.DEPTH, now + STALLED_AFTER)
            if isinstance(found, Refuse):
                return entry, found
            if found is not None and (longest is None or found.until > longest[1].until):
                longest = entry, found
        return longest

    def admit(
        self, entries: list[KeyEntry], now: float, asked_at: float, cost: Cost, call: QueuedCall | None = None
    ) -> tuple[KeyEntry, Permit | Wait | Refuse]:
        """Let a call through under all of its keys, or say which of them objects most."""
        found = self._check(entries, now, cost, call)
        if found is not None:
            return found
        waited = now - asked_at
        permit: Permit
        if len(entries) == 1 and cost == 1 and waited == 0.0:
            permit = Permit(entries[0])
        else:
            others = () if len(entries) == 1 else tuple(LongPermit(entry, cost, waited) for entry in entries[1:])
            permit = LongPermit(entries[0], cost, waited, others)
        for one in (permit, *permit.others):
            one.entry.gate.admit(one, now)
        return entries[0], permit

    def try_admit(self, entries: list[KeyEntry], now: float, cost: Cost) -> Permit | None:
        """Let a call through that would not wait, if nothing objects and it overtakes none. Under the lock."""
        if any(entry.gate.has_waiters for entry in entries):
            return None
        decider, decision = self.admit(entries, now, now, cost)
        if isinstance(decision, Wait):
            decider.gate.on_wait(decision, now)
        return decision if isinstance(decision, Permit) else None

    def _settle(
        self, call: QueuedCall, permit: Permit | None, refusal: Exception | None, now: float, *, runs: bool = False
    ) -> None:
        """End a wait: granted, refused or gone. A waiter that does not run is woken."""
        call.permit, call.refusal = permit, refusal
        call.waiter.settled = True
        if not runs:
            call.waiter.wake()
        if isinstance(refusal, Refused):
            self.note_refusal(call.entries[0], refusal, now)
        for entry in call.entries:
            if entry.queue is not None:
                entry.queue.leave(call)
        self.throttled += permit is not None and permit.waited > 0

    def note_refusal(self, entry: KeyEntry, refusal: Refused, now: float) -> None:
        self.denied += 1
        self._events.note("refused", entry, now, refusal.reason)

    def refuse_by_circuit(self, entry: KeyEntry) -> Refused | None:
        """The refusal of a call by this key's circuit now, if it would refuse one. Takes nothing, not even a probe."""
        now = self.now()
        found = entry.gate.breaker.check(now)
        if found is None:
            return None
        refusal = refusal_of(entry, found, now)
        self.note_refusal(entry, refusal, now)
        return refusal

    # ------------------------------------------------------------------ for the sync loop

    def note_synced(self, owner: KeyEntry, now: float) -> None:
        """The store's reply was taken."""
        self._events.note_changes(owner, now)

    def note_store(self, kind: str, owner: KeyEntry, now: float, reason: str) -> None:
        """The store was lost, or is back."""
        self._events.note(kind, owner, now, reason)

    def flush_events(self) -> None:
        self._events.flush()


def pointless(entry: KeyEntry, decision: Wait | Refuse, now: float, give_up_at: float) -> Refused | None:
    """Why a call need not join: nothing is let through, or not in time. None if it is worth waiting."""
    if isinstance(decision, Refuse):
        return refusal_of(entry, decision, now)
    if now > give_up_at:
        return WaitTooLongError(entry.key, "the deadline has already passed")
    if decision.not_before > give_up_at + INSTANT:
        return too_long(entry, decision, now, "the wait would be too long")
    return None


def timed_out(entry: KeyEntry, decision: Wait | Refuse, now: float) -> Refused:
    """The deadline has come while it waited."""
    wait = decision if isinstance(decision, Wait) else None
    retry_after = wait.until - now if wait is not None and wait.is_forecast else None
    if wait is not None and wait.is_circuit:
        return CircuitOpenError(entry.key, _reason(entry, wait, now), retry_after)
    return WaitTooLongError(entry.key, "no permit within the time allowed", retry_after)


def too_long(entry: KeyEntry, wait: Wait, now: float, what: str) -> Refused:
    """A wait that cannot be kept within the time allowed."""
    reason = _reason(entry, wait, now)
    if wait.is_circuit:
        return CircuitOpenError(entry.key, reason, wait.not_before - now)
    refused = WaitTooLongError(entry.key, f"{what}: {reason}", wait.not_before - now)
    refused.explanation = explain(entry.gate, wait, now)
    return refused


def _reason(entry: KeyEntry, wait: Wait, now: float) -> str:
    """Why it waits, without the time: the error says when to try again."""
    return reason_text(replace(explain(entry.gate, wait, now), seconds_left=None))


def refusal_of(entry: KeyEntry, refuse: Refuse, now: float) -> Refused:
    retry_after = None if refuse.retry_at is None else max(0.0, refuse.retry_at - now)
    kind = WaitTooLongError if refuse.reason is RefuseReason.QUEUE_FULL else CircuitOpenError
    return kind(entry.key, refuse_text(refuse), retry_after)
