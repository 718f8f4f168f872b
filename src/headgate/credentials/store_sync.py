"""Keeps a pool and its store in step: changes are written at once, and what others have written is read ever so often.

    a change ──note()──> unwritten ──write──> store
    store ──check()──> news ──> the pool, under the queue's lock

A file is read and written by whichever caller asks for a credential or waits for one. A store on another machine is
used by a thread of its own (``SyncThread``), so that no caller waits for the network. What could not be written is
written later.

A store that fails fails no call: it is logged and dispatched once for each outage, and the program goes on by what it
knows; no rest that is known is cut short by it.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Iterable
from typing import Protocol

from .. import fork_safety
from ..core.decision import UNKNOWN
from .credential import Key
from .events import Change, ChangeKind
from .lease_queue import LeaseQueue
from .record import Record, StoreRecords

log = logging.getLogger("headgate")

CHECK_EVERY = 0.1
"""Seconds between two looks at the store, for what others have written: a file's date, or one small question."""
CHECK_FAILED_EVERY = 1.0
"""... at one that failed."""
CHECK_IDLE_EVERY = 2.0
"""... of the thread, while no caller asks."""
WRITE_BUDGETS_EVERY = 10.0
"""Seconds between two writes of what is left of budgets; rests are written at once."""
WRITE_AGAIN_EVERY = 1.0
"""Seconds between two writes of what the store has forgotten: one that is too small forgets all the time."""
MOST_ATTEMPTS = 3
"""How often a store on another machine is tried at the beginning and at the end of a program."""
LAST_WAIT = 1.0
"""Seconds for which the end of a program waits for a look that is under way."""


class StoreSync:
    """Writes the changes of one queue's pool to its store, and applies what others have written."""

    def __init__(self, records: StoreRecords, queue: LeaseQueue, thread: SyncThread | None = None) -> None:
        """With a ``thread``, callers use ``note`` and ``check_if_due`` alone, and the thread does the rest."""
        self._records = records
        self._queue = queue
        self._thread = thread
        self._clock = queue.clock
        self._at_store = fork_safety.lock(slow=True)
        """Held while the store is read and written."""
        self._unwritten: dict[Key, None] = {}
        self._write_budgets_at = self._write_again_at = 0.0

    @property
    def failures(self) -> int:
        """How often the store could not be used."""
        return self._records.failures

    def note(self, changes: Iterable[Change]) -> None:
        """These changes were made here: write them, unless they were read from the store."""
        changed = {change.key: None for change in changes if change.key is not None and not change.from_store}
        if changed:
            self._unwritten |= changed
            if self._thread is None:
                self._write()
            else:
                self._thread.wake(has_writes=True)

    def check_if_due(self) -> None:
        """Look at the store if that is due; a store on another machine is left to the thread."""
        if self._clock.now() < self._queue.store_check_at:
            return
        if self._thread is None:
            self.check()
        else:
            self._schedule()
            self._thread.wake()

    def check_with_retries(self, wait: float = 0.0) -> None:
        """At the beginning and at the end there is one chance only: a server that is merely busy gets a second one."""
        for _ in range(MOST_ATTEMPTS):
            self.check(wait)
            if not self._records.is_down or self._thread is None:
                return

    def check(self, wait: float = 0.0) -> None:
        """Apply what other processes and operators have written; write what they do not know.

        ``wait``: for how long, while another thread is at it.
        """
        fork_safety.run_locked(self._at_store, wait, self._check)

    def _check(self) -> None:
        records, queue = self._records, self._queue
        queue.store_check_at = self._clock.now() + CHECK_EVERY
        news = records.fetch(self._clock.wall())
        if news is not None:
            self._note_due(queue.decide(lambda now: self._apply(news, now)))
            if not self._unwritten or self._write():
                records.note_success()
        if records.is_down:
            self._schedule()

    def flush(self, wait: float) -> None:
        """The program ends: write what is not written yet, or wait until another thread has."""
        if self._unwritten or self._at_store.locked():
            self.check_with_retries(wait)

    def _schedule(self) -> None:
        every = CHECK_FAILED_EVERY if self._records.is_down else CHECK_EVERY
        self._queue.store_check_at = self._clock.now() + every

    def _apply(self, news: dict[str, Record], now: float) -> float:
        queue = self._queue
        away, back = self._records.take(news, queue.pool, now, self._clock.wall())
        queue.changes.extend(Change(ChangeKind.BACK, key, 0.0, "freed by hand", from_store=True) for key in back)
        queue.apply(away, now, from_store=True)
        return now

    def _note_due(self, now: float) -> None:
        """Note what has to be written although it has not changed: what the store has forgotten, and budgets."""
        records = self._records
        if records.behind and now >= self._write_again_at:
            self._write_again_at = now + WRITE_AGAIN_EVERY
            self._unwritten |= dict.fromkeys(records.behind)
            records.behind = []
        keys = self._queue.pool.slots
        if now >= self._write_budgets_at and (known := [key for key in keys if key.budget != UNKNOWN]):
            self._write_budgets_at = now + WRITE_BUDGETS_EVERY
            self._unwritten |= dict.fromkeys(known)

    def _write(self) -> bool:
        """Write the states that are not in the store yet. False if that must be done again."""
        keys = list(self._unwritten)
        for key in keys:
            self._unwritten.pop(key, None)
        wall = self._clock.wall()
        if self._records.save(self._queue.read(lambda now: self._records.records(keys, now, wall))):
            return True
        self._unwritten |= dict.fromkeys(keys)
        return False


class Synced(Protocol):
    """What a sync thread works for."""

    def check_store(self) -> None: ...

    def flush_store(self, wait: float) -> None: ...


class SyncThread:
    """A thread that looks after a store on another machine.

    It works when it is woken: by callers that ask for a credential, a few times a second at most, and at once for what
    has to be written. Left alone it looks now and then. It ends with its coordinator, and what is still to be written
    when the program ends is written then.
    """

    def __init__(self, target: Synced) -> None:
        self._target = weakref.ref(target)
        self._writes: Synced | None = None
        """Kept alive until what it has to write is written."""
        self._wakeup = threading.Event()
        self._is_started = False
        fork_safety.reset_in_child(self._reset_in_child)

    def wake(self, *, has_writes: bool = False) -> None:
        if has_writes:
            self._writes = self._target()
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run, args=(self._wakeup,), name="headgate-credentials", daemon=True).start()
            atexit.register(_flush, self._target)
        self._wakeup.set()

    def _reset_in_child(self) -> None:
        """In a forked child there is no such thread yet."""
        self._wakeup, self._is_started = threading.Event(), False

    def _run(self, wakeup: threading.Event) -> None:
        while self._check():
            wakeup.wait(CHECK_IDLE_EVERY)
            wakeup.clear()

    def _check(self) -> bool:
        """False if there is nothing to look after any more."""
        target, self._writes = self._writes or self._target(), None
        if target is None:
            return False
        try:
            target.check_store()
        except Exception:  # a fault of ours must not end the thread: nothing would be shared any more
            log.exception("the sync with the credential store failed")
        return True


def _flush(target: weakref.ref[Synced]) -> None:
    synced = target()
    if synced is not None:
        synced.flush_store(LAST_WAIT)
