"""Between a limiter and its store: one thread that exchanges with the coordinators of all keys in use.

    a client wants something ──wake──> step: collect requests ──one round trip──> replies ──> serve the queues
                                             under the lock       without it       under the lock

An exchange that fails makes every client go on alone (``LeaseClient.go_alone``); the thread goes on trying, and the
first exchange that succeeds brings all of them back.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .. import fork_safety
from ..config import RateLimitConfig
from ..core.decision import UNKNOWN
from ..core.gate import Gate
from ..core.gate_config import GateConfig
from .lease_client import IDLE_EVERY, LEAVE_AFTER, LeaseClient
from .membership import KeyRecord
from .protocol import SyncReply, SyncRequest
from .store import Store, StoreDown, member_name

log = logging.getLogger("headgate")

TRY_AGAIN = 0.02
TRY_AGAIN_AT_MOST = 0.1
"""Seconds between two attempts to reach a store that is down: twice as many each time. Few, for a process that is back
gets all that the limit allows, while others still take their shares of it; and still fewer attempts than exchanges."""
COUNTING, SLOW_COUNTING = 0.75, 3.0
"""Seconds after the first reply of the store, and times the longest exchange so far, after which a process knows how
many others there are. Before, no call leaves on credit: others may just be starting, and a share of what is known would
be too much."""


class LimiterPort(Protocol):
    """What the loop needs of the limiter whose keys it shares. ``owner`` is the limiter's own record of a key."""

    @property
    def lock(self) -> AbstractContextManager[Any]: ...

    @property
    def is_paused(self) -> bool: ...

    @property
    def draw(self) -> Callable[[], float]: ...

    def now(self) -> float: ...

    def serve(self, owner: Any, now: float) -> None:
        """Let through the waiters whose turn has come."""

    def note_synced(self, owner: Any, now: float) -> None:
        """The coordinator's reply was applied: emit what has changed."""

    def note_store(self, kind: str, owner: Any, now: float, reason: str) -> None:
        """The store was lost, or is back."""

    def flush_events(self) -> None:
        """Dispatch what was noted to listeners, with no lock held."""


class Wake(Protocol):
    """What a round waits for."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...


Due = list[tuple[LeaseClient, SyncRequest]]


class SyncLoop:
    """A store may bring its own rounds: one with a method ``drive`` is given this object and returns a ``Wake``."""

    def __init__(self, store: Store, limiter: LimiterPort, *, refuses: bool, owns_store: bool = False) -> None:
        self.store = store
        self.where = store.where
        self._owns_store = owns_store
        """Whether it was opened for this limiter alone, and is closed with it."""
        self.refuses = refuses
        """Whether nothing may start while the store is lost."""
        self.failures = 0
        """Exchanges that failed."""
        self.is_down = False
        self.settled_at = UNKNOWN
        self._first_reply_at, self._longest_exchange = UNKNOWN, 0.0
        self.asked_since = UNKNOWN
        self.member = member_name()
        self._limiter = weakref.ref(limiter)
        self._clients: dict[str, LeaseClient] = {}
        self._wake: Wake | None = None
        self._thread: threading.Thread | None = None
        self._requests = 0
        self.closed = False
        self.exchanging = fork_safety.lock(slow=True)
        """Held over an exchange, so that no fork falls into one."""
        self._retry_in = TRY_AGAIN
        self.draw = limiter.draw
        self._now = limiter.now
        _ends_with_program.add(self)

    @property
    def limiter(self) -> LimiterPort | None:
        return self._limiter()

    @property
    def is_paused(self) -> bool:
        limiter = self._limiter()
        return limiter is not None and limiter.is_paused

    def client(
        self, key: str, owner: KeyRecord, gate: Gate, config: RateLimitConfig, gate_config: GateConfig, now: float
    ) -> LeaseClient:
        """Share the quota of a key: from now on its gate goes by what the store grants."""
        return LeaseClient(key, owner, gate, config, gate_config, self, now)

    def is_this_thread(self) -> bool:
        """Whether the caller runs in the thread that talks to the store, as a listener may."""
        return self._thread is threading.current_thread()

    def wake(self, client: LeaseClient) -> None:
        """This client's exchange is due. Called under the limiter's lock."""
        if self._clients.get(client.key) is not client:
            self._clients[client.key] = client
            if self.is_down:
                client.go_alone(self._now())
        if self._wake is None:
            self._start()
        elif not self._wake.is_set():
            self._wake.set()

    def move(self, client: LeaseClient, key: str) -> None:
        """The client is another key's from now on, with its waiters. Called under the limiter's lock."""
        if self._clients.get(client.key) is client:
            del self._clients[client.key]
        client.key = key
        client.leave(self._now())
        if client.gate.has_waiters:
            client.want(self._now())

    def next_number(self) -> int:
        """The number of this member's next request, wherever it goes: a key that was forgotten may have been there."""
        self._requests += 1
        return self._requests

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
        self._thread = threading.Thread(target=_run, args=(weakref.ref(self), wake), name="headgate-sync", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # there is none to be had, or the program ends
            self._wake = self._thread = None
            self._lose(StoreDown(f"{self.where} cannot be reached: {error}"), self._now())

    def start_over(self) -> None:
        """This is the child of a process that was forked: another member, which holds nothing of its parent's."""
        self.member, self._wake, self._thread = member_name(), None, None
        self.settled_at, self._first_reply_at, self._longest_exchange = UNKNOWN, UNKNOWN, 0.0
        self.asked_since = UNKNOWN
        self._clients.clear()

    # ------------------------------------------------------------------ one round

    def collect(self, now: float) -> Due:
        """The clients whose exchange is due, and what they request. Under the limiter's lock."""
        due: Due = []
        for key, client in list(self._clients.items()):
            if client.sync_at <= now:
                leaves = client.is_idle and now >= max(client.gate.last_sent_at, client.owner.used_at) + LEAVE_AFTER
                due.append((client, client.request(now, self.draw(), leaves=leaves)))
                if leaves:
                    del self._clients[key]
                    client.leave(now)
        if due:
            self.asked_since = min(self.asked_since, now)
        return due

    def deliver(self, due: Due, replies: list[SyncReply], sent_at: float, now: float) -> None:
        """Hand each client its reply. Under the limiter's lock."""
        limiter = self.limiter
        if limiter is None:
            return
        self.asked_since = UNKNOWN
        if now < self.settled_at:
            self._first_reply_at = min(self._first_reply_at, now)
            self._longest_exchange = max(self._longest_exchange, now - sent_at)
            self.settled_at = self._first_reply_at + max(COUNTING, SLOW_COUNTING * self._longest_exchange)
        if self.is_down:
            self.is_down, self._retry_in = False, TRY_AGAIN
            log.info("%s is back", self.where)
            for client in self._clients.values():
                limiter.note_store("store_back", client.owner, now, f"{self.where} is back")
                client.sync_at = min(client.sync_at, now)
        for (client, request), reply in zip(due, replies, strict=True):
            if client.awaits != request.number:
                continue
            client.on_reply(reply, sent_at, now, self.draw())
            limiter.note_synced(client.owner, now)
            limiter.serve(client.owner, now)

    def fail(self, due: Due, error: Exception, now: float) -> None:
        """The store did not answer: all clients go on alone. Under the limiter's lock."""
        limiter = self.limiter
        if limiter is None:
            return
        self.asked_since = UNKNOWN
        self.failures += 1
        for client in self._lose(error, now):
            limiter.serve(client.owner, now)
        for client, _ in due:
            client.sync_at = now + self._retry_in
        self._retry_in = min(2 * self._retry_in, TRY_AGAIN_AT_MOST)

    def _lose(self, error: Exception, now: float) -> list[LeaseClient]:
        """All clients go on alone; returns those that did not before."""
        if not self.is_down:
            self.is_down = True
            log.warning("%s; %s", error, self._without_it())
        limiter = self.limiter
        left = [client for client in self._clients.values() if not client.alone]
        for client in left:
            client.go_alone(now)
            if limiter is not None:
                limiter.note_store("store_lost", client.owner, now, str(error))
        return left

    def _without_it(self) -> str:
        if self.refuses:
            return "calls are refused until it is back (without_store='refuse')"
        if any(client.most_members > 1 for client in self._clients.values()):
            return "continuing at this process's own share until it is back"
        return "continuing without shared limits until it can be reached; check store= (--store, HEADGATE_STORE)"

    def next_at(self) -> float:
        """When the next exchange is due."""
        return min((client.sync_at for client in self._clients.values()), default=UNKNOWN)

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
        limiter.flush_events()
        return 0.0

    def _exchange(self, due: Due) -> tuple[list[SyncReply], StoreDown | None]:
        try:
            with self.exchanging:
                return self.store.sync([(client.key, request) for client, request in due]), None
        except StoreDown as down:
            return [], down
        except Exception as fault:
            return [], self._fault(fault)

    def _fault(self, fault: Exception) -> StoreDown:
        """A fault of ours or of a store's must not end the thread: the calls would wait for ever."""
        log.error("an exchange with %s failed", self.where, exc_info=fault)
        return StoreDown(f"{self.where}: {type(fault).__name__}")

    def close(self) -> None:
        """Give back what is held, and leave. A limiter that is used again joins again."""
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
            last = [(one, one.request(now, self.draw(), leaves=True)) for one in self._clients.values()]
            for client, _ in last:
                client.leave(now)
            self._clients.clear()
        if last and not self.is_down:
            _, error = self._exchange(last)
            if error is not None:
                log.debug("the last exchange failed: %s", error)
        if self._owns_store:
            with self.exchanging:
                self.store.close()


def _run(loop: weakref.ref[SyncLoop], wake: threading.Event) -> None:
    while True:
        mine = loop()
        if mine is None or not mine.goes_on(wake):
            return
        wake.clear()
        try:
            wait = mine.step()
        except Exception:  # of any kind: callers would wait for ever
            log.exception("a round of exchanges failed")
            wait = TRY_AGAIN_AT_MOST
        del mine
        if wait > 0:
            wake.wait(wait)


_ends_with_program: weakref.WeakSet[SyncLoop] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for loop in list(_ends_with_program):
        loop.close()
