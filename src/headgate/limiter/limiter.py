"""``AdaptiveRateLimiter``: many keys, many threads, many event loops.

    acquire ──> registry: the entry of the key ──> its gate admits the call ──> a permit     (nearly every call)
                     │ not at once
                     └──> admission: a place in the wait queue ──> a permit or a refusal
    permit.report ──> completion: the gate learns, the queue is served ──> events, without the lock

One lock guards all keys and is held only while deciding, never over a call, a listener or a wait. The parts share it
and know nothing of each other but what they are given.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .. import fork_safety
from ..clock import Clock, SystemClock
from ..config import RateLimitConfig
from ..core.decision import UNKNOWN, CircuitState
from ..core.policy import NUMBER
from ..errors import WaitTooLongError
from ..events import Event
from ..waiters import TaskWaiter, ThreadWaiter, let_others_run
from .admin import Admin
from .admission import Admission
from .completion import Completion
from .events import CallObserver, LimiterEvents
from .key_entry import KeyEntry
from .permit import Cost, Feedback, Permit, PermitContext, WhenOpen, check_also, check_cost, check_fits, check_request
from .registry import KeyRegistry
from .snapshot import KeySnapshot, LimiterSnapshot, SharingSnapshot, SnapshotReader
from .wait_queue import QueuedCall

if TYPE_CHECKING:
    from ..distributed.store import Store
    from ..distributed.sync_loop import SyncLoop

_blank = object.__new__

MOST_YIELDS = 2  # times that a task lets others run before it joins a queue that is about to end


class AdaptiveRateLimiter:
    """Lets calls through as fast as each key's server accepts them; for threads and asyncio at once, without its own.

    limiter = AdaptiveRateLimiter()
    with limiter.permit("api.example.com") as permit:
        permit.report(requests.get(...))
    """

    def __init__(
        self,
        config: RateLimitConfig | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        on_event: Callable[[Event], None] | None = None,
        for_key: Callable[[str], RateLimitConfig] | None = None,
        store: Store | str | None = None,
    ) -> None:
        """``store`` shares all keys with every process that uses the same one: "machine", "redis://...", or an object.

        ``for_key`` finds the settings of a key, the same object each time, under the lock; by default ``config`` does.
        """
        self.config = RateLimitConfig() if config is None else config
        self.clock: Clock = SystemClock() if clock is None else clock
        self._now = self.clock.now
        self._rng = random.Random() if rng is None else rng
        self._reseeds = rng is None
        self._lock = fork_safety.lock()
        self._take_lock, self._free_lock = self._lock.acquire, self._lock.release
        self.events = events = LimiterEvents(on_event, self.clock)
        self._admission = Admission(self._lock, self.clock, self._rng.random, events)
        self._sync = None if store is None else _sync_loop(store, self._admission, self.config)
        self._registry = KeyRegistry(self.config, for_key or self.config.for_key, events, self._sync)
        self._find = self._registry.find
        self._completion = Completion(self.clock, self._rng, self._registry, self._admission, events)
        self._admin = Admin(self._registry, self._admission, events)
        self._reader = SnapshotReader(self._registry, self._admission, self._completion, self._sync)
        fork_safety.reset_in_child(self._reset_in_child)

    def _reset_in_child(self) -> None:
        """In a forked child no call waits and none is in flight; what was learned stays."""
        if self._reseeds:
            self._rng.seed()
        self._admission.reset()
        self.events.clear()
        if self._sync is not None:
            self._sync.start_over()
        now = self._now()
        for entry in self._registry.entries.values():
            entry.reset(now)

    # ------------------------------------------------------------------ getting a permit

    def acquire(
        self,
        key: str,
        cost: Cost = 1,
        max_wait: float | None = None,
        deadline_at: float | None = None,
        also: Iterable[str] = (),
        when_open: WhenOpen = "refuse",
    ) -> Permit:
        """Wait, in this thread, until the call may start.

        ``max_wait`` and ``deadline_at`` (an instant on the limiter's clock) are promises: if they cannot be kept,
        ``WaitTooLongError`` is raised at once. ``cost`` is a number of requests or what the call takes of each known
        limit. With ``also``, the call is let through under all keys or none. An open circuit raises
        ``CircuitOpenError`` at once; with ``when_open="wait"`` the call waits until the circuit lets it through.
        """
        is_plain = max_wait is None or (isinstance(max_wait, NUMBER) and max_wait >= 0)
        if is_plain and cost == 1 and deadline_at is None and not also:
            permit = _blank(Permit)  # filled in by the gate: calling __init__ would cost a tenth of the whole way
            with self._lock:
                entry = self._find(key)
                if entry is not None and entry.gate.try_fast_admit(permit, self._now()):
                    permit.entry = entry
                    return permit
        others = check_request(cost, max_wait, deadline_at, also, when_open)
        waiter = ThreadWaiter(self.clock)
        call = QueuedCall(waiter, cost, when_open)
        try:
            self._join(call, key, others, max_wait, deadline_at)
            if not waiter.settled and self._sync is not None and self._sync.is_this_thread():
                raise WaitTooLongError(
                    key, "a listener must not wait for a permit: it runs on the thread that grants them"
                )
            while not waiter.settled:
                waiter.sleep()
                if not waiter.settled:
                    self._tick(call)
        except BaseException:
            self._admission.leave(call, self._completion.give_back)
            raise
        return call.outcome()

    async def acquire_async(
        self,
        key: str,
        cost: Cost = 1,
        max_wait: float | None = None,
        deadline_at: float | None = None,
        also: Iterable[str] = (),
        when_open: WhenOpen = "refuse",
    ) -> Permit:
        """Wait, in this task, until the call may start. Cancelling the wait takes nothing."""
        is_plain = max_wait is None or (isinstance(max_wait, NUMBER) and max_wait >= 0)
        if is_plain and cost == 1 and deadline_at is None and not also:
            permit, yields = _blank(Permit), 0
            while True:
                self._take_lock()  # not `with`: no signal handler raises here, and it costs a tenth of the whole way
                try:
                    entry, now = self._find(key), self._now()
                    if entry is not None and entry.gate.try_fast_admit(permit, now):
                        permit.entry = entry
                        return permit
                    if yields == MOST_YIELDS or entry is None or not entry.has_room_for_all(now):
                        break
                finally:
                    self._free_lock()
                yields += 1
                await let_others_run()  # joining those that are about to start would keep their queue alive
        others = check_request(cost, max_wait, deadline_at, also, when_open)
        waiter = TaskWaiter(self.clock)
        call = QueuedCall(waiter, cost, when_open)
        try:
            self._join(call, key, others, max_wait, deadline_at)
            while not waiter.settled:
                await waiter.future
                if not waiter.settled:
                    self._tick(call)
        except BaseException:
            self._admission.leave(call, self._completion.give_back)
            raise
        finally:
            if waiter.timer is not None:
                waiter.disarm()
        return call.outcome()

    def try_acquire(self, key: str, cost: Cost = 1, also: Iterable[str] = ()) -> Permit | None:
        """A permit if the call may start this instant, else None. Never waits, never overtakes a call that does."""
        if cost == 1 and not also:
            permit = _blank(Permit)
            with self._lock:
                entry = self._find(key)
                if entry is not None and entry.gate.try_fast_admit(permit, self._now()):
                    permit.entry = entry
                    return permit
        check_cost(cost)
        keys = check_also(also)
        with self._lock:
            now = self._now()
            entries = self._open(key, keys, cost, now)
            given = self._admission.try_admit(entries, now, cost)
        self._after(entries)
        return given

    def permit(
        self,
        key: str,
        cost: Cost = 1,
        max_wait: float | None = None,
        deadline_at: float | None = None,
        also: Iterable[str] = (),
        when_open: WhenOpen = "refuse",
    ) -> PermitContext:
        """For ``with`` and ``async with``: acquires on entering, ends the permit on leaving."""
        return PermitContext(self, (key, cost, max_wait, deadline_at, also, when_open))

    def _join(
        self, call: QueuedCall, key: str, also: tuple[str, ...], max_wait: float | None, deadline_at: float | None
    ) -> None:
        with self._lock:
            now = call.asked_at = self._now()
            if max_wait is not None or deadline_at is not None:
                wait_until = UNKNOWN if max_wait is None else now + max_wait
                call.waiter.give_up_at = wait_until if deadline_at is None else min(wait_until, deadline_at)
            entries = self._open(key, also, call.cost, now)
            self._admission.join(call, entries, now)
        self._after(entries)

    def _tick(self, call: QueuedCall) -> None:
        with self._lock:  # no loop in here: on 3.12 a signal that raises as it repeats would leave the lock held
            self._admission.tick(call)
        self._after(call.entries)

    def _open(self, key: str, also: tuple[str, ...], cost: Cost, now: float) -> list[KeyEntry]:
        """The entries of a call's keys, if the cost can ever fit. Under the lock."""
        entries = self._registry.open_all(key, also, now) if also else [self._registry.open(key, now)]
        for entry in entries:
            if entry.gate.config.quotas:
                check_fits(entry, cost)
        if not isinstance(cost, NUMBER):
            self._completion.note_spent(entries, cost)
        return entries

    def _after(self, entries: list[KeyEntry]) -> None:
        """What follows a decision, without the lock."""
        for entry in entries:
            if entry.gate.seq >= entry.gate.check_at_seq:
                self._completion.look_after(entry)
        if self.events.has_work:
            self.events.flush()

    # ------------------------------------------------------------------ answers without a permit, and circuits

    def feedback(self, key: str, feedback: Feedback) -> None:
        """Report how a call of this key ended: its oldest open permit if that fits, else a call we did not see."""
        self._completion.end_unmatched(key, feedback)

    def check(self, key: str, cost: Cost) -> None:
        """Raise ``CostTooLargeError`` if a call of this cost could never start under the key's known limits."""
        check_cost(cost)
        with self._lock:
            self._open(key, (), cost, self._now())

    def has_limits(self, key: str) -> bool:
        """Whether limits are known for this key. Where none are, a call's cost is its number of requests alone."""
        with self._lock:
            return self._registry.open(key, self._now()).has_quotas

    def share_limits(self, key: str, owner: str) -> None:
        """Count calls of ``key`` against the known limits of ``owner``, if both have the same; all else is its own."""
        with self._lock:
            is_shared = self._registry.share_limits(key, owner, self._now())
        if not is_shared:
            self._completion.warn_counted_apart(key, owner)

    def check_circuit(self, key: str) -> None:
        """Raise ``CircuitOpenError`` if this key's circuit would refuse a call now. Takes nothing, not even a probe."""
        entry = self._registry.entries.get(key)
        if entry is None or entry.gate.breaker.state is CircuitState.CLOSED:  # a key that is packed has a closed one
            return
        with self._lock:
            refusal = self._admission.refuse_by_circuit(entry)
        self.events.flush()
        if refusal is not None:
            raise refusal

    def circuit_opens_in(self, key: str) -> float:
        """Seconds until this key's circuit lets a probe through; 0 unless it is open. Takes nothing, counts nothing."""
        return self._reader.circuit_opens_in(key)

    def circuit_state(self, key: str) -> CircuitState:
        """This key's circuit as of its last change: once it was open for long enough the next call is the probe."""
        entry = self._registry.entries.get(key)
        return CircuitState.CLOSED if entry is None else entry.gate.breaker.state

    def held_for(self, key: str) -> float:
        """Seconds until anything may start under this key, by the server or the controller. Takes nothing."""
        return self._reader.held_for(key)

    # ------------------------------------------------------------------ listeners

    @property
    def on_event(self) -> Callable[[Event], None] | None:
        """The listener for events; may be changed at any time."""
        return self.events.listener

    @on_event.setter
    def on_event(self, listener: Callable[[Event], None] | None) -> None:
        self.events.listen(listener)

    def watch(self, observer: CallObserver) -> None:
        """Add an observer of every single call."""
        with self._lock:
            self.events.observe((*self.events.observers, observer))

    def unwatch(self, observer: CallObserver) -> None:
        """Remove an observer."""
        with self._lock:
            self.events.observe(tuple(one for one in self.events.observers if one is not observer))

    def allow_unreported(self) -> None:
        """Do not warn that nothing can be learned because nothing is reported."""
        self._completion.warn_unreported = False

    # ------------------------------------------------------------------ operator actions (see ``admin``)

    def pause(self, key: str, seconds: float) -> None:
        """Start nothing under this key for so long; then calls come back by the ramp. A longer pause stays."""
        self._admin.pause(key, seconds)

    def pause_all(self) -> None:
        """Start nothing, under any key, until ``resume_all``. Calls in flight go on, new ones wait."""
        self._admin.pause_all()
        self._find = self._registry.find

    def resume_all(self) -> None:
        """Go on after ``pause_all``: each key at its pace, first come, first served."""
        self._admin.resume_all()
        self._find = self._registry.find

    @property
    def is_paused(self) -> bool:
        """Whether ``pause_all`` holds."""
        return self._admission.is_paused

    def limit(self, key: str, rps: float | None) -> None:
        """Let no more than ``rps`` calls a second start under this key from now on; None lifts that.

        What is learned, and what the server says, may hold it further below. Where the key is shared with other
        processes, it is a limit for this one.
        """
        self._admin.limit(key, rps)

    def split_pace(self, key: str, pace_key: str, config: RateLimitConfig) -> None:
        """Move the pacing state of a key to ``pace_key``; the key keeps its circuit breaker, with these settings.

        With the pace go the calls that wait for it, the calls in flight and all that was learned.
        """
        self._admin.split_pace(key, pace_key, config)

    # ------------------------------------------------------------------ status (see ``snapshot``)

    def snapshot(self, top: int = 100) -> LimiterSnapshot:
        """Totals, and the ``top`` keys used last."""
        found = self._reader.snapshot(top)
        self.events.flush()
        return found

    def totals(self) -> dict[str, int]:
        """Of all keys so far: calls let through, those of them that waited, calls refused, answers to send again."""
        return self._reader.totals()

    def recent_keys(self, most: int) -> list[str]:
        """The names of the keys that were used last, the most recent first."""
        return self._reader.recent_keys(most)

    def key_statuses(self, keys: Iterable[str]) -> list[KeySnapshot]:
        """Those of these keys that are in use. Callers are not held up, however many there are."""
        return self._reader.key_statuses(keys)

    def key_status(self, key: str) -> KeySnapshot | None:
        """One key at this moment; None if it is not in use. Takes nothing, not even a probe."""
        found = self._reader.key_statuses((key,))
        return found[0] if found else None

    def look_at_sharing(self) -> SharingSnapshot | None:
        """The state of the store that this limiter shares its keys through; None if it shares nothing."""
        return self._reader.sharing()

    def close(self) -> None:
        """Give back what is held of a shared quota and leave it; a limiter that shares nothing has nothing to do.

        It happens by itself when the program ends.
        """
        if self._sync is not None:
            self._sync.close()


def _sync_loop(store: Store | str, admission: Admission, config: RateLimitConfig) -> SyncLoop:
    from ..distributed.sync_loop import SyncLoop  # here, because most programs share nothing
    from ..stores import open_store

    refuses = config.without_store == "refuse"
    return SyncLoop(open_store(store), admission, refuses=refuses, owns_store=isinstance(store, str))
