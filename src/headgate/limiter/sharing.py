"""Between a limiter and its store: one thread that visits the desks of all keys in use, so that nobody else has to.

    gate wants something ──poke──> step: collect visits ──one round trip──> replies ──> serve the lines
                                         under the lock      without it      under the lock

A visit that fails sends every gate on its own way (``SharedGate.go_alone``); the thread goes on trying, and the first
visit that succeeds brings all of them back.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from typing import TYPE_CHECKING, Protocol

from .. import fork_safety
from ..config import RateLimitConfig
from ..core.decision import UNKNOWN
from ..core.gate_policy import GatePolicy
from ..core.sharing.visit import Reply, Visit
from ..stores.contract import Store, StoreDown
from ..stores.naming import member_name
from .shared import SharedGate
from .visiting import IDLE_EVERY, LEAVE_AFTER

if TYPE_CHECKING:
    from .key_gate import KeyGate
    from .serving import Serving

log = logging.getLogger("headgate")

TRY_AGAIN = 0.02
TRY_AGAIN_AT_MOST = 0.1
"""Seconds between two attempts to reach a store that is down: twice as many each time. Few, for whoever is back gets
all that the limit allows, while others still take their shares of it; and still fewer attempts than visits."""


class Wake(Protocol):
    """What a round waits for."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...


class Sharing:
    """A store may bring its own rounds: one with a method ``drive`` is given this object and returns a ``Wake``."""

    def __init__(self, store: Store, limiter: Serving, *, refuses: bool, owns_store: bool = False) -> None:
        self.store = store
        self._owns_store = owns_store
        """Whether it was opened for this limiter alone, and is closed with it."""
        self.refuses = refuses
        """Whether nothing may start while the store is down."""
        self.failures = 0
        """Visits that failed."""
        self.is_down = False
        self.member = member_name()
        self._limiter = weakref.ref(limiter)
        self._gates: dict[str, SharedGate] = {}
        self._wake: Wake | None = None
        self._thread: threading.Thread | None = None
        self._visits = 0
        self.closed = False
        self.visiting = fork_safety.lock(slow=True)
        """Held over a visit, so that no fork falls into one."""
        self._patience = TRY_AGAIN
        self._draw = limiter.draw
        self._now = limiter.clock.now
        _ends_with_program.add(self)

    @property
    def limiter(self) -> Serving | None:
        return self._limiter()

    def gate(self, key: str, policy: GatePolicy, config: RateLimitConfig, now: float) -> SharedGate:
        """The gate of a key that is shared."""
        limiter = self.limiter
        assert limiter is not None
        return SharedGate(key, limiter, policy, now, self, config)

    def is_this_thread(self) -> bool:
        """Whether who asks runs in the thread that visits the store, as a listener may."""
        return self._thread is threading.current_thread()

    def poke(self, gate: SharedGate) -> None:
        """This gate's visit is due. Called under the limiter's lock."""
        if self._gates.get(gate.key) is not gate:
            self._gates[gate.key] = gate
            if self.is_down:
                gate.go_alone(self._now())
        if self._wake is None:
            self._start()
        elif not self._wake.is_set():
            self._wake.set()

    def move(self, gate: KeyGate, key: str) -> None:
        """The gate is another key's from now on, with those in its line. Called under the limiter's lock."""
        if self._gates.get(gate.key) is gate:
            del self._gates[gate.key]
        gate.key = key
        if isinstance(gate, SharedGate):
            gate.leave_desk(self._now())
            if gate.waited_for:
                gate.want(self._now())

    def next_number(self) -> int:
        """The number of this member's next visit, wherever it goes: a gate that was forgotten may have been there."""
        self._visits += 1
        return self._visits

    def goes_on(self, wake: Wake) -> bool:
        """Whether the rounds that are woken by this have anything to do yet."""
        return wake is self._wake and self._limiter() is not None

    def _start(self) -> None:
        self.closed = False
        drive = getattr(self.store, "drive", None)
        if drive is not None:
            self._wake = drive(self)
            return
        wake = self._wake = threading.Event()
        self._thread = threading.Thread(
            target=_run, args=(weakref.ref(self), wake), name="headgate-sharing", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # there is none to be had, or the program ends
            self._wake = self._thread = None
            self._lose(StoreDown(f"{self.store.where} cannot be visited: {error}"), self._now())

    def start_over(self) -> None:
        """This is the child of a process that was forked: another member, which holds nothing of its parent's."""
        self.member, self._wake, self._thread = member_name(), None, None
        self._gates.clear()

    # ------------------------------------------------------------------ one round

    def collect(self, now: float) -> list[tuple[SharedGate, Visit]]:
        """Everybody whose visit is due, and what is to be said. Under the limiter's lock."""
        due: list[tuple[SharedGate, Visit]] = []
        for key, gate in list(self._gates.items()):
            if gate.visit_at <= now:
                leaves = gate.is_idle and now >= max(gate.last_sent_at, gate.used_at) + LEAVE_AFTER
                due.append((gate, gate.visit(self.member, now, self._draw(), leaves=leaves)))
                if leaves:
                    del self._gates[key]
                    gate.leave_desk(now)
        return due

    def deliver(self, due: list[tuple[SharedGate, Visit]], replies: list[Reply], sent_at: float, now: float) -> None:
        """Hand each gate its reply. Under the limiter's lock."""
        limiter = self.limiter
        if limiter is None:
            return
        if self.is_down:
            self.is_down, self._patience = False, TRY_AGAIN
            log.info("%s is back", self.store.where)
            for gate in self._gates.values():
                limiter.tell.note("store_back", gate, now, f"{self.store.where} is back")
                gate.visit_at = min(gate.visit_at, now)
        for (gate, visit), reply in zip(due, replies, strict=True):
            if gate.awaits != visit.number:
                continue
            before = gate.look()
            gate.take(reply, sent_at, now, self._draw())
            limiter.tell.note_changes(gate, before, gate.look(), now)
            limiter.serve(gate, now)

    def fail(self, due: list[tuple[SharedGate, Visit]], error: Exception, now: float) -> None:
        """The store did not answer: everybody goes on alone. Under the limiter's lock."""
        limiter = self.limiter
        if limiter is None:
            return
        self.failures += 1
        for gate in self._lose(error, now):
            limiter.serve(gate, now)
        for gate, _ in due:
            gate.visit_at = now + self._patience
        self._patience = min(2 * self._patience, TRY_AGAIN_AT_MOST)

    def _lose(self, error: Exception, now: float) -> list[SharedGate]:
        """Everybody goes on alone; returns who did not before."""
        if not self.is_down:
            self.is_down = True
            log.warning("%s; %s", error, self._without_it())
        left = [gate for gate in self._gates.values() if not gate.alone]
        for gate in left:
            gate.go_alone(now)
            gate.limiter.tell.note("store_lost", gate, now, str(error))
        return left

    def _without_it(self) -> str:
        if self.refuses:
            return "nothing may start without it (without_store='refuse')"
        if any(gate.crowd > 1 for gate in self._gates.values()):
            return "calls go on at this process's own share until it is back"
        return "calls go on as without a store until it can be reached; check store= (--store, HEADGATE_STORE)"

    def next_at(self) -> float:
        """When the next visit is due."""
        return min((gate.visit_at for gate in self._gates.values()), default=UNKNOWN)

    def step(self) -> float:
        """One round; returns in how many seconds the next is due."""
        limiter = self.limiter
        if limiter is None:
            return 0.0
        with limiter.lock:
            now = self._now()
            due = self.collect(now)
            if not due:
                return min(self.next_at() - now, IDLE_EVERY)
        replies, error = self._exchange(due)
        with limiter.lock:
            after = self._now()
            if error is None:
                try:
                    self.deliver(due, replies, now, after)
                except Exception as fault:
                    error = self._fault(fault)
            if error is not None:
                self.fail(due, error, after)
        limiter.tell.flush()
        return 0.0

    def _exchange(self, due: list[tuple[SharedGate, Visit]]) -> tuple[list[Reply], StoreDown | None]:
        try:
            with self.visiting:
                return self.store.visit([(gate.key, visit) for gate, visit in due]), None
        except StoreDown as down:
            return [], down
        except Exception as fault:
            return [], self._fault(fault)

    def _fault(self, fault: Exception) -> StoreDown:
        """A fault of ours or of a store's must not end the thread: the calls would wait for ever."""
        log.error("a visit to %s failed", self.store.where, exc_info=fault)
        return StoreDown(f"{self.store.where}: {type(fault).__name__}")

    def close(self) -> None:
        """Give back what is held, and leave. Whoever is used again joins again."""
        limiter = self.limiter
        if self.closed or limiter is None:
            return
        self.closed = True
        with limiter.lock:
            wake, thread, self._wake, self._thread = self._wake, self._thread, None, None
        if wake is not None:
            wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)
        with limiter.lock:
            now = self._now()
            last = [(gate, gate.visit(self.member, now, self._draw(), leaves=True)) for gate in self._gates.values()]
            for gate, _ in last:
                gate.leave_desk(now)
            self._gates.clear()
        if last and not self.is_down:
            _, error = self._exchange(last)
            if error is not None:
                log.debug("could not say good-bye: %s", error)
        if self._owns_store:
            with self.visiting:
                self.store.close()


def _run(sharing: weakref.ref[Sharing], wake: threading.Event) -> None:
    while True:
        mine = sharing()
        if mine is None or not mine.goes_on(wake):
            return
        wake.clear()
        try:
            wait = mine.step()
        except Exception:  # whatever it was: those who wait would wait for ever
            log.exception("a round of visits failed")
            wait = TRY_AGAIN_AT_MOST
        del mine
        if wait > 0:
            wake.wait(wait)


_ends_with_program: weakref.WeakSet[Sharing] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for sharing in list(_ends_with_program):
        sharing.close()
