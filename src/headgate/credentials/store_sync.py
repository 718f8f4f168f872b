"""Keeps a pool and its store in step: changes are written at once, and what others have written is read ever so often.

    a change ──note()──> unwritten ──write──> store
    store ──check()──> news ──> the pool, under the queue's lock

A file is read and written by whichever caller asks for a credential or waits for one. A store on another machine is
used by a thread of its own (``SyncThread``), so that no caller waits for the network. What could not be written is
written later.

``StoreRecords`` turns the pool's states into records and back. Only news counts: a record that says more than anything
read or written before. What the store turns out to know less of (it was wiped, or its server failed over) is noted in
``behind`` and written again. A store that fails fails no call: it is logged and dispatched once for each outage, and
the program goes on by what it knows; no rest that is known is cut short by it.
"""

from __future__ import annotations

import atexit
import logging
import random
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from .. import fork_safety
from ..core.credential_pool import Pool
from ..core.decision import NEVER, UNKNOWN, Outcome
from ..identity import Identities
from .credential import Key
from .events import Change, ChangeKind, CredentialEvents
from .lease_queue import LeaseQueue
from .record import ANY_PROVIDER, CredentialStore, FarCredentialStore, Record, record_name, record_of

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


YIELD = (0.5, 30.0)
"""Seconds, drawn once, by which the process that was told that an account cannot spend is the first to ask again."""
LONGER = 0.05
"""Seconds by which a rest must end later to be news: clocks of hosts are compared no better than that."""
_NOTHING_KNOWN = (-1, False, 0.0)


class StoreRecords:
    """The records of one pool in one store."""

    def __init__(
        self,
        store: CredentialStore,
        provider: str,
        keys: Iterable[Key],
        events: CredentialEvents,
        identities: Identities,
    ) -> None:
        self.failures = 0
        """How often the store could not be used."""
        self.is_down = False
        self.behind: list[Key] = []
        """Those of which the store knew less than the pool when it was read last."""
        self._store = store
        self._provider = provider
        self._keys = tuple(keys)
        self._events = events
        self._own_names = identities
        self._groups: defaultdict[str, list[Key]] = defaultdict(list)
        for key in self._keys:
            if key.group is not None:
                self._groups[key.group].append(key)
        self._names: Identities | None = None
        self._identity_of: dict[Key, str] = {}
        self._seen: dict[str, Record] = {}
        """What was read or written last; only what differs from it is news."""
        self._most_known: dict[str, tuple[int, bool, float]] = {}
        """The most that was read or written of each: era, retired, until. Only more is news; a rest that is over stays
        in the store, and where the wall clock went back it would seem to begin again."""
        self._stamp: object = self  # no store returns this one
        self._yields_for = YIELD[0] + (YIELD[1] - YIELD[0]) * random.random()

    # ------------------------------------------------------------------ reading

    def fetch(self, wall: float) -> dict[str, Record] | None:
        """What others have written since the last look; None if the store cannot be used."""
        try:
            stamp = self._store.stamp()
            self._name_all()
            if stamp == self._stamp:
                return {}
            found = {record.name: record for record in self._store.load()}
        except Exception as error:
            self._failed(error)
            return None
        self._stamp = stamp
        named = {key: self._name_of(key) for key in self._identity_of}
        self.behind = [key for key, name in named.items() if self._says_less(found.get(name), name, wall)]
        self._take_over(found)
        ours = set(named.values())
        news = {
            name: record
            for name, record in found.items()
            if (name in ours or self._is_of_our_group(record)) and self._seen.get(name) != record
        }
        self._seen |= news
        return news

    def take(self, news: dict[str, Record], pool: Pool[Key], now: float, wall: float) -> tuple[list[Key], list[Key]]:
        """Put news into the pool. Returns what was sent away by it, and what was brought back."""
        away: list[Key] = []
        back: list[Key] = []
        for key in self._identity_of if news else ():
            record = news.pop(self._name_of(key), None)
            if record is None:
                continue
            was_away = key.retired or key.until != NEVER
            rest = record.rests_for(wall)
            if rest > 0.0 and record.reason == Outcome.SPEND.value:
                rest += self._yields_for
            if self._is_more(record) or (rest > 0.0 and record.reason == Outcome.SPEND.value == key.reason):
                away += pool.restore(key, record.era, rest, record.retired, record.reason, now)
            if was_away and not key.retired and key.until == NEVER:
                back.append(key)
            if key.budget == UNKNOWN and (left := record.budget_at(wall)) is not None:
                pool.know(key, left, now + record.budget_until - wall)
        for record in news.values():  # of others, in one group with ours: they share one limit
            if self._is_more(record) and not record.retired:
                away += pool.rest(self._groups[record.group or ""], record.rests_for(wall), now, record.reason)
        return away, back

    def _is_of_our_group(self, record: Record) -> bool:
        is_of_all = record.reason in (Outcome.RATE_LIMITED.value, Outcome.SPEND.value)  # others concern one alone
        return is_of_all and record.provider == self._provider and record.group in self._groups

    # ------------------------------------------------------------------ writing

    def records(self, keys: Iterable[Key], now: float, wall: float) -> list[Record]:
        """Their states as records; none while the store's names for them are not known."""
        known = keys if self._identity_of else ()
        return [record_of(key, self._identity_of[key], self._provider, now, wall) for key in known]

    def save(self, records: Sequence[Record]) -> bool:
        if not records:
            return False
        try:
            self._store.save(records)
        except Exception as error:
            self._failed(error)
            return False
        self._seen.update((record.name, record) for record in records)
        self._stamp = self  # a store that goes back to what was there before this has another one
        for record in records:
            self._is_more(record)
        return True

    def note_success(self) -> None:
        """It could be read, and written where there was something to write."""
        if self.is_down:
            self.is_down = False
            self._events.store_back()

    # ------------------------------------------------------------------ inside

    def _name_all(self) -> None:
        """Name each credential as the store does. A server that lost its data may have other names."""
        store = self._store
        names = store.identities() if isinstance(store, FarCredentialStore) else self._own_names
        if names is self._names:
            return
        before, self._names = self._identity_of, names
        self._identity_of = {key: names.of(key.credential.secret) for key in self._keys}
        known, self._seen, self._stamp = self._most_known, {}, self
        kept = {key: known.get(record_name(identity, self._provider)) for key, identity in before.items()}
        self._most_known = {self._name_of(key): most for key, most in kept.items() if most is not None}

    def _name_of(self, key: Key) -> str:
        return record_name(self._identity_of[key], self._provider)

    def _take_over(self, found: dict[str, Record]) -> None:
        """Use what an operator wrote about a key before any program had used it, when its origin was not known."""
        for key, identity in self._identity_of.items():
            spoken = found.get(record_name(identity, ANY_PROVIDER))
            if spoken is not None:
                found.setdefault(self._name_of(key), replace(spoken, provider=self._provider))

    def _says_less(self, record: Record | None, name: str, wall: float) -> bool:
        """Whether the store has forgotten something that still counts."""
        if record is None:
            return True
        era, retired, until = self._most_known.get(name, _NOTHING_KNOWN)
        if era != record.era:
            return era > record.era
        return (retired and not record.retired) or (until > max(record.until + LONGER, wall) and not record.retired)

    def _is_more(self, record: Record) -> bool:
        """Whether it says more than all before it; from now on that is known."""
        era, retired, until = self._most_known.get(record.name, _NOTHING_KNOWN)
        more = (record.era, record.retired) > (era, retired) or (
            (record.era, record.retired) == (era, retired) and record.until > until + LONGER
        )
        if more:
            self._most_known[record.name] = record.era, record.retired, record.until
        return more

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if not self.is_down:
            self.is_down = True
            self._events.store_failed(error)


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
