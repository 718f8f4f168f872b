"""The queue for credentials: the pool, the callers that wait for it, and one lock.

    no one ahead, one is free ──> a lease
    none is free ──> a place in the queue ──one is given back, or has rested──> a lease
                          │ none can come in time
                          └──> NoCredentialError, with the time the first is back

A free credential goes to the head of the queue under the lock, before its waiter runs: no caller can come in between
and no wakeup can be lost. That is done when a lease ends, when a rest is over and when an operator acts: everything
that can bring a turn. What happened is collected in ``changes``; the coordinator dispatches it once the lock is free.

A decision survives whatever interrupts it:

| interruption                    | when                         | what is done about it                               |
|---------------------------------|------------------------------|-----------------------------------------------------|
| Ctrl-C, any handler that raises | in the middle of a decision  | ``_torn`` stays set; the next decision mends        |
| garbage collection of a lease   | anywhere, even in a decision | ``defer``: if the lock is taken, its holder acts    |
| ``os.fork``                     | while another thread decides | the fork waits for it; the child starts over        |
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from .. import fork_safety
from ..clock import Clock
from ..core.credential_pool import Pool
from ..core.decision import INSTANT, UNKNOWN
from ..core.shared_budget import Groups
from ..core.signal import Signal
from ..errors import NoCredentialError
from ..reason_text import credential_why
from ..waiters import Waiter
from .credential import Key
from .events import Change, ChangeKind
from .lease import Lease

MOST_WAITING = 100_000
"""Callers that may wait at the same time."""
LATE = 0.02
"""A head that has not run so many seconds after its time is covered by a waiter that lives elsewhere."""
MOST_EXAMINED = 64
"""Waiters that are examined to find one that lives elsewhere."""
MOST_REASONS = 100
"""Credentials of which a refusal says why they cannot be used."""
T = TypeVar("T")


class LeaseRequest:
    """One caller in the queue: the lease it will have, and the waiter that is woken when it has."""

    __slots__ = ("joined_at", "lease", "prefer", "refusal", "waiter")

    def __init__(self, waiter: Waiter, lease: Lease, prefer: str | None) -> None:
        self.waiter = waiter
        self.lease = lease
        self.prefer = prefer
        self.joined_at = 0.0
        self.refusal: Exception | None = None


class LeaseQueue:
    """Hands out the credentials of a pool, first come, first served. Safe for threads."""

    def __init__(self, pool: Pool[Key], clock: Clock, name: str = "credentials", groups: str = "headers") -> None:
        """``name``: what refusals call it."""
        self.pool = pool
        self.groups = Groups(pool, groups)
        self.clock = clock
        self.name = name
        self.changes: deque[Change] = deque()
        """What happened and was not dispatched yet."""
        self.generation = 0
        """Grows in a forked child, where nothing is held of what the parent's threads hold."""
        self.store_check_at = UNKNOWN
        """When the head of the queue should run to look at the store; set by the coordinator."""
        self._requests: OrderedDict[LeaseRequest, None] = OrderedDict()
        self._lock = fork_safety.lock()
        self._now = clock.now
        self._torn = False
        """Whether a decision is under way; if the next one finds it so, that one was interrupted."""
        self._deferred: deque[Callable[[], None]] = deque()
        """What was left to the holder of the lock; at most one for each lease and each request."""
        fork_safety.reset_in_child(self._reset_in_child)

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def has_news(self) -> bool:
        """Whether there is something to do once the lock is free."""
        return bool(self.changes or self._deferred)

    # ------------------------------------------------------------------ decisions

    def decide(self, act: Callable[[float], T]) -> T:
        """Run ``act(now)`` under the lock."""
        with self._lock:
            now = self._begin()
            result = act(now)
            self._torn = False
        return result

    def read(self, look: Callable[[float], T]) -> T:
        """Run ``look(now)``, which changes nothing, under the lock."""
        with self._lock:
            return look(self._now())

    def defer(self, act: Callable[[], None]) -> None:
        """Act under the lock: now if it is free, else the holder does so after its decision."""
        self._deferred.append(act)
        self.catch_up()

    def catch_up(self) -> None:
        """Do what was left to the holder of the lock. It was noted before the lock is looked at, so none is overlooked.

        ``with`` and not ``acquire(blocking=False)``: a signal between that and ``try`` would leave the lock held. A
        thread that takes it meanwhile is waited for, but not without
        end: what it runs finds the locks of this thread taken.
        """
        while self._deferred and not self._lock.locked():
            with self._lock:
                self._act_deferred()

    def _act_deferred(self) -> None:
        now = self._begin()
        while self._deferred:
            self._deferred.popleft()()
        self._serve(now)
        self._torn = False

    def _begin(self) -> float:
        """Start a decision: mend what an interrupted one left, read the clock, bring back what has rested."""
        if self._torn:
            self.pool.mend()
        self._torn = True
        now = self._now()
        if now >= self.pool.change_at:
            back = self.pool.turn(now)
            self.changes.extend(Change(ChangeKind.BACK, key) for key in back)
            if back and self._requests:
                self._serve(now)
        return now

    def _reset_in_child(self) -> None:
        """In a forked child there is one thread, which waits for nothing and holds nothing."""
        self.generation += 1
        self._deferred.clear()
        self._requests.clear()
        for key in self.pool.slots:
            key.holders = 0
        self.pool.mend()

    # ------------------------------------------------------------------ taking and giving back

    def try_take(self, lease: Lease, prefer: str | None = None, *, only: bool = False) -> bool:
        """Take one, or ``only`` the preferred one, if it is free this instant and no caller waits for it."""
        with self._lock:
            now = self._begin()
            if not self._requests and not (only and self.pool.by_label.get(prefer or "") not in self.pool.free):
                self._fill(lease, prefer, now)
            self._torn = False
        return lease.key is not None

    def try_take_exclusive(self) -> Key | None:
        """Take one that has no holder, so that no other caller gets it meanwhile."""
        with self._lock:
            now = self._begin()
            key = None if self._requests else self.pool.pick(now, exclusive=True)
            if key is not None:
                self._note_pick(key)
            self._torn = False
        return key

    def end(self, lease: Lease, signal: Signal | None) -> None:
        """Take a lease back, with what the answer said, if there was one."""
        with self._lock:
            now = self._begin()
            key = lease.key
            if key is not None and not lease.ended and lease.generation == self.generation:
                era = key.era
                changed = [] if signal is None else self.pool.hear(key, signal, lease.since, now, lease.use)
                self._give_back(lease, is_answered=signal is not None)
                if key.era != era:
                    self._note_probe(key)
                found = None if signal is None else self.groups.hear(key, signal, lease.since, now)
                if found is not None:
                    kind = ChangeKind.GROUPED if found[1] else ChangeKind.PROPOSED
                    self.changes.append(Change(kind, key, reason=found[0].scope, others=found[0].labels))
                if changed or self._requests:
                    self.apply(changed, now)
            lease.ended = True
            self._torn = False

    def end_exclusive(self, key: Key, rests: float | None) -> bool:
        """Take a credential back that was taken exclusively; with ``rests``, it and its group rest for so long, however
        it was taken (nan: the server has not said for how long). False if it was not taken so."""
        with self._lock:
            now = self._begin()
            changed = [] if rests is None else self.pool.limit(key, rests, now, now)
            was_taken = key.exclusive
            if was_taken:
                key.holders -= 1
                self.pool.give_back(key, key.used, is_answered=rests is not None)
            if changed or self._requests:
                self.apply(changed, now)
            self._torn = False
        return was_taken

    def end_later(self, key: Key, use: int, generation: int) -> None:
        """A lease was garbage-collected, perhaps in the middle of a decision."""

        def give_back() -> None:
            if generation == self.generation:
                key.holders -= 1
                self.pool.give_back(key, use)

        self.defer(give_back)

    def _fill(self, lease: Lease, prefer: str | None, now: float) -> None:
        """Put into the lease the credential whose turn it is, if one is free."""
        lease.since = now
        key = lease.key = self.pool.pick(now, prefer)
        if key is not None:
            lease.use = key.used
            self._note_pick(key)

    def _note_pick(self, key: Key) -> None:
        if key.limit_group.probe == key.used:  # it is to find out whether its account can spend
            self._note_probe(key)

    def _note_probe(self, key: Key) -> None:
        self.changes.extend(Change(ChangeKind.PROBED, one) for one in self.pool.group_of(key))

    def _give_back(self, lease: Lease, *, is_answered: bool = False) -> None:
        key = lease.key
        lease.ended = True
        if key is not None:
            key.holders -= 1  # with no call in between, where a signal could be handled
            self.pool.give_back(key, lease.use, is_answered=is_answered)

    # ------------------------------------------------------------------ waiting

    def join(self, request: LeaseRequest, timeout: float | None) -> None:
        """Serve or refuse the request at once where that is clear, else give it a place in the queue."""
        with self._lock:
            now = self._begin()
            request.joined_at = now
            waiter = request.waiter
            if timeout is not None:
                waiter.give_up_at = now + timeout
            self._requests[request] = None
            self._serve(now)
            if not waiter.settled and (
                waiter.give_up_at <= now or len(self._requests) > MOST_WAITING or self._in_vain((request,))
            ):
                self._refuse(request, now)
            elif not waiter.settled:
                waiter.watch_deadline()
                if len(self._requests) == 1:
                    self.changes.append(self._exhausted(now))
            self._torn = False

    def tick(self, request: LeaseRequest) -> None:
        """A waiter runs: serve the queue, and refuse the request if its time is up."""
        with self._lock:
            now = self._begin()
            waiter = request.waiter
            waiter.on_wake()
            self._serve(now)
            if not waiter.settled and now >= waiter.give_up_at - INSTANT:
                self._refuse(request, now)
                self._serve(now)
            elif not waiter.settled:
                waiter.watch_deadline()
            self._torn = False

    def leave(self, request: LeaseRequest) -> None:
        """The caller was cancelled or interrupted: nothing stays taken, and no request behind it is held up."""

        def give_up() -> None:
            self._requests.pop(request, None)
            request.waiter.settled = True
            lease = request.lease
            if lease.key is not None and not lease.ended and lease.generation == self.generation:
                self._give_back(lease)

        self.defer(give_up)

    def _serve(self, now: float) -> None:
        """Hand out what is free, the head first, and arm the waiter of the request that is then the head."""
        requests = self._requests
        while requests:
            head = next(iter(requests))
            lease, waiter = head.lease, head.waiter
            if not waiter.settled and not waiter.is_dead():
                if lease.key is None:
                    self._fill(lease, head.prefer, now)
                if lease.key is None:
                    break
                lease.waited = now - head.joined_at
                if not waiter.settle():  # its loop has closed this very moment
                    self._give_back(lease)
            requests.pop(head, None)
        else:
            return
        wake_at = min(self.pool.back_at, self.store_check_at)
        if min(wake_at, waiter.give_up_at) != UNKNOWN:
            waiter.arm(wake_at)
        if waiter.may_stall and wake_at != UNKNOWN:  # a waiter that lives elsewhere serves the queue if the loop hangs
            others = (other.waiter for other in islice(requests, 1, MOST_EXAMINED))
            deputy = next((other for other in others if other.thread != waiter.thread), None)
            if deputy is not None:
                deputy.arm(wake_at + LATE)

    def apply(self, away: Iterable[Key], now: float, *, from_store: bool = False) -> None:
        """Credentials were given back or sent away: note it, serve, and refuse at once what now waits in vain."""
        is_changed = False
        for key in away:
            kind = ChangeKind.RETIRED if key.retired else ChangeKind.RESTED
            self.changes.append(Change(kind, key, 0.0 if key.retired else key.until - now, key.reason, from_store))
            is_changed = True
        self._serve(now)
        in_vain = self._in_vain(self._requests) if is_changed else ()
        for request in in_vain:
            self._refuse(request, now)
        if in_vain:
            self._serve(now)

    def _in_vain(self, requests: Iterable[LeaseRequest]) -> list[LeaseRequest]:
        """Those that give up before a credential can be there."""
        pool = self.pool
        if pool.is_spent():
            return list(requests)
        if pool.may_come_any_moment():
            return []
        return [request for request in requests if request.waiter.give_up_at < pool.back_at - INSTANT]

    def _refuse(self, request: LeaseRequest, now: float) -> None:
        self._requests.pop(request, None)
        request.refusal = self._refusal(now)
        request.waiter.settle()

    def _exhausted(self, now: float) -> Change:
        """A caller has to wait, the first since the queue was empty."""
        if self.pool.may_come_any_moment():
            return Change(ChangeKind.EXHAUSTED, None, 0.0, "held")
        return Change(ChangeKind.EXHAUSTED, None, self.pool.back_at - now, "resting")

    def _refusal(self, now: float) -> NoCredentialError:
        """Why there is none now, and in how many seconds the first is back."""
        pool = self.pool
        found = Counter((key.state(now), key.reason) for key in pool.slots)
        counts = [
            f"{count} {'disabled' if state == 'retired' else state}" + (f": {credential_why(why)}" if why else "")
            for (state, why), count in sorted(found.items())
            if state in ("held", "resting", "retired")
        ]
        reason = f"no credential is available ({', '.join(counts) or 'other callers are waiting'})"
        refusal = NoCredentialError(self.name, reason, pool.back_at - now if pool.resting else None)
        refusal.reasons = dict(islice(((key.label, key.reason) for key in pool.slots if key.reason), MOST_REASONS))
        return refusal
