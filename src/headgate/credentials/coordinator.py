"""``CredentialCoordinator``: several API keys used as one, none of them while it must rest.

    coordinator ──> lease_queue ──> core.credential_pool      which credential a caller gets, and when
         ├──> store_sync ──> a store                          over a restart, and with other processes
         └──> events                                          logs and listeners

Each decision is made in the queue, under its lock; what follows from it (events, writes to the store) is done here,
without the lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from math import nan

from ..checks import WHOLE, check, is_whole, number
from ..clock import Clock, SystemClock
from ..core.cooldown import ExponentialCooldown, FixedCooldown
from ..core.credential_pool import SILENT_REST, Pool
from ..core.decision import LONGEST_WAIT, NEVER
from ..core.shared_budget import GROUPINGS
from ..core.signal import Signal
from ..errors import ConfigError
from ..events import ResilienceEvent
from ..identity import Identities
from ..waiters import TaskWaiter, ThreadWaiter
from .credential import BySecret, Credential, CredentialState, Key, labelled, state_of
from .events import Change, ChangeKind, CredentialEvents
from .lease import Lease
from .lease_queue import LeaseQueue, LeaseRequest
from .record import ANY_PROVIDER, LONGEST_PROVIDER, PARKED, RETIRED, CredentialStore, FarCredentialStore, StoreRecords
from .store_sync import StoreSync, SyncThread
from .stores import open_credential_store

log = logging.getLogger("headgate")


class CredentialCoordinator:
    """Hands out credentials, never one that is resting or disabled.

    Leases share a credential, unless ``at_once`` bounds how many hold it at the same time; ``get_credential`` lends it
    exclusively. Safe for threads and asyncio at once, without a thread of its own (unless its store is elsewhere).

        keys = CredentialCoordinator(["sk-...", "sk-..."])
        with keys.lease() as lease:
            lease.report(requests.get(url, headers={"Authorization": f"Bearer {lease.secret}"}))
    """

    def __init__(
        self,
        credentials: Iterable[str | Credential],
        *,
        at_once: int | None = None,
        provider: str = "",
        clock: Clock | None = None,
        store: CredentialStore | str | None = None,
        on_event: Callable[[ResilienceEvent], None] | None = None,
        cooldown: FixedCooldown | ExponentialCooldown = SILENT_REST,
        groups: str = "headers",
        identities: Identities | None = None,
    ) -> None:
        """``at_once``: how many leases may hold one credential at the same time; None for any number.
        ``store`` keeps how they stand over a restart and shares it with others: "machine", "redis://..." or an object.
        ``groups``: "headers" joins keys whose headers show that they share a limit, "auto" also those that are refused
        together, "off" neither.
        ``cooldown`` says how long to rest after a refusal that does not; ``identities`` names credentials in
        logs and stores, by default with a random key of this user.
        """
        check("at_once", at_once, at_once is None or is_whole(at_once), f"{WHOLE}, or None for no limit")
        fine = isinstance(provider, str) and provider.isprintable() and len(provider) <= LONGEST_PROVIDER
        range_ = f"printable text of at most {LONGEST_PROVIDER} characters, not {ANY_PROVIDER}"
        check("provider", provider, fine and provider != ANY_PROVIDER, range_)
        known = isinstance(cooldown, FixedCooldown | ExponentialCooldown)
        check("cooldown", cooldown, known, "a FixedCooldown or an ExponentialCooldown")
        check("groups", groups, groups in GROUPINGS, f"one of {', '.join(GROUPINGS)}")
        self.provider = provider
        self.name = provider or "credentials"
        self.clock: Clock = SystemClock() if clock is None else clock
        names = Identities.of_user() if identities is None else identities
        self._pool = Pool([Key(credential) for credential in labelled(credentials)], at_once, cooldown)
        self.labels = tuple(key.label for key in self._pool.slots)
        self._by_secret = BySecret((key.credential.secret, key) for key in self._pool.slots)
        self._queue = LeaseQueue(self._pool, self.clock, self.name, groups)
        self._events = CredentialEvents(self.name, provider, self.clock, on_event, names)
        self._sync: StoreSync | None = None
        if store is not None:
            opened = open_credential_store(store, self.clock)
            records = StoreRecords(opened, provider, self._pool.slots, self._events, names)
            thread = SyncThread(self) if isinstance(opened, FarCredentialStore) else None
            self._sync = StoreSync(records, self._queue, thread)
            self._sync.check_with_retries()
            self._after()

    # ------------------------------------------------------------------ leases

    def lease(self, timeout: float | None = None) -> Lease:
        """For ``with`` and ``async with``: takes a credential on entering and gives it back on leaving.

        It waits for the first that is free or back; for ``timeout`` seconds at most, and not at all if none can be by
        then: ``NoCredentialError`` says when the first is back.
        """
        return Lease(self, _checked(timeout))

    def acquire(self, timeout: float | None = None, prefer: str | None = None) -> Lease:
        """Wait, in this thread, for a credential; for the one labelled ``prefer`` if it is free when its turn comes."""
        lease = Lease(self)
        self.take(lease, _checked(timeout), prefer)
        return lease

    async def acquire_async(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - it refuses what could never come in time
        prefer: str | None = None,
    ) -> Lease:
        """Wait, in this task, for a credential. Cancelling the wait takes nothing."""
        lease = Lease(self)
        await self.take_async(lease, _checked(timeout), prefer)
        return lease

    def try_acquire(self, prefer: str | None = None, *, only: bool = False) -> Lease | None:
        """A lease if a credential is free this instant and no caller waits for it, else None.

        ``only`` the preferred one will do.
        """
        lease = Lease(self)
        return lease if self._try_take(lease, prefer, only=only) else None

    def take(self, lease: Lease, timeout: float | None, prefer: str | None = None) -> None:
        """Wait, in this thread, until the lease has a credential."""
        if self._try_take(lease, prefer):
            return
        waiter = ThreadWaiter(self.clock)
        request = LeaseRequest(waiter, lease, prefer)
        try:
            self._queue.join(request, timeout)
            self._after()
            while not waiter.settled:
                waiter.sleep()
                self._tick(request)
        except BaseException:
            self._queue.leave(request)
            raise
        if request.refusal is not None:
            raise request.refusal

    async def take_async(  # the timeout refuses what could never come in time; cancelling cannot
        self,
        lease: Lease,
        timeout: float | None,  # noqa: ASYNC109
        prefer: str | None = None,
    ) -> None:
        """Wait, in this task, until the lease has a credential. Cancelling the wait takes nothing."""
        if self._try_take(lease, prefer):
            return
        waiter = TaskWaiter(self.clock)
        request = LeaseRequest(waiter, lease, prefer)
        try:
            self._queue.join(request, timeout)
            self._after()
            while not waiter.settled:
                await waiter.future
                if not waiter.settled:
                    self._tick(request)
        except BaseException:
            self._queue.leave(request)
            raise
        finally:
            waiter.disarm()
        if request.refusal is not None:
            raise request.refusal

    def _try_take(self, lease: Lease, prefer: str | None = None, *, only: bool = False) -> bool:
        if self._sync is not None:
            self._sync.check_if_due()
        is_taken = self._queue.try_take(lease, prefer, only=only)
        if self._queue.has_news:
            self._after()
        return is_taken

    def _tick(self, request: LeaseRequest) -> None:
        self._queue.tick(request)
        self._after()
        self._check_if_due()

    def end(self, lease: Lease, signal: Signal | None) -> None:
        """Take a lease back, with what the answer said, if there was one. Called by the lease."""
        self._queue.end(lease, signal)
        if self._queue.has_news:
            self._after()

    def end_later(self, key: Key, use: int, generation: int) -> None:
        """A lease was garbage-collected."""
        self._queue.end_later(key, use, generation)

    @property
    def generation(self) -> int:
        """Grows in a forked child: leases of the parent mean nothing there."""
        return self._queue.generation

    # ------------------------------------------------------------------ labels

    def paced_by(self, label: str) -> str:
        """The name its pace is learned under: its group, whose members share one budget, or its label."""
        return self._labelled(label).paced_by

    def shared_names(self, identities: Identities) -> dict[str, str]:
        """The names that processes share, by what ``paced_by`` returns: for a credential its keyed hash, which does not
        depend on its label, for a group its name."""
        leading = (key for key in self._pool.slots if key.credential.group or key.paced_by == key.label)
        return {key.paced_by: key.credential.group or identities.of(key.credential.secret) for key in leading}

    @property
    def regrouped(self) -> int:
        """How often credentials were found to share a limit and joined: what ``paced_by`` says may have changed."""
        return self._queue.groups.changes

    def back_in(self, label: str) -> float | None:
        """In how many seconds this one has rested; 0 if it does not rest, None if it is retired."""
        self._check_if_due()
        key = self._labelled(label)
        return None if key.retired else max(0.0, key.until - self.clock.now()) if key.until != NEVER else 0.0

    def rests_because(self, label: str) -> str:
        """Why this one rests or is retired, in a word: rate_limited, quota_exhausted, spend, auth, ...; else empty."""
        return self._labelled(label).reason

    # ------------------------------------------------------------------ bare strings

    def get_credential(self) -> str | None:
        """A credential that has no holder, or None; lent to this caller alone until ``release_credential``."""
        if self._sync is not None:
            self._sync.check_if_due()
        key = self._queue.try_take_exclusive()
        if self._queue.has_news:
            self._after()
        return None if key is None else key.credential.secret

    def release_credential(
        self, credential: str, *, rate_limited: bool = False, backoff_seconds: float | None = 0
    ) -> None:
        """Give a credential back; if it was rate limited, it and its group rest for ``backoff_seconds``.

        None (or nan): the server has not said for how long, so ``cooldown`` does; 31 days at most. A longer rest stays.
        A release of what is not lent is logged and changes nothing, but a rate limit counts. An unknown credential
        is a ``ConfigError``; so is a backoff that is no number, after the credential has been given back.
        """
        key = self._by_secret.get(credential) if isinstance(credential, str) else None
        if key is None:
            raise ConfigError(f"{self.name}: the released credential is not in this pool; nothing changed")
        is_number = isinstance(backoff_seconds, int | float) and not isinstance(backoff_seconds, bool)
        seconds = min(backoff_seconds or 0.0, LONGEST_WAIT) if is_number else nan
        rests = seconds if rate_limited and not seconds <= 0 else None
        was_lent = self._queue.end_exclusive(key, rests)
        if not was_lent and rests is None:
            log.warning("%s: %s was released, but is not leased; nothing changed", self.name, key.label)
        if self._queue.has_news:
            self._after()
        if rate_limited and backoff_seconds is not None:
            check("backoff_seconds", backoff_seconds, is_number, "a number of seconds, or None if it is not known")

    def get_available_count(self) -> int:
        """How many are free this instant: ``get_credential`` could hand them out."""
        return self._count(lambda: sum(not key.holders for key in self._pool.free))

    def get_quarantine_count(self) -> int:
        """How many rest."""
        return self._count(lambda: len(self._pool.resting))

    # ------------------------------------------------------------------ what an operator may do

    def retire(self, credential: str | Credential) -> None:
        """Stop using this one, given by its label or itself."""
        self._change(self._find(credential), lambda key, _: self._pool.retire(key, RETIRED))

    def park(self, label: str, seconds: float) -> None:
        """Let this one rest for so long, alone."""
        check("seconds", seconds, number(seconds) >= 0, "a number of seconds, 0 or more")
        self._change(self._find(label), lambda key, now: self._pool.rest((key,), seconds, now, PARKED))

    def free(self, label: str) -> None:
        """Use this one again at once, whether it rested or was retired; and all others of an account without credit."""

        def bring_back(key: Key, now: float) -> list[Key]:
            back = self._pool.bring_back(key)
            self._queue.changes.extend(Change(ChangeKind.BACK, one, 0.0, "freed by hand") for one in back)
            return []

        self._change(self._find(label), bring_back)

    @property
    def on_event(self) -> Callable[[ResilienceEvent], None] | None:
        """The listener for events; may be changed at any time."""
        return self._events.listener

    @on_event.setter
    def on_event(self, listener: Callable[[ResilienceEvent], None] | None) -> None:
        self._events.listener = listener

    @property
    def waiting(self) -> int:
        """How many callers wait for one."""
        return len(self._queue)

    def states(self) -> list[CredentialState]:
        """The state of each."""
        self._check_if_due()
        shown = {key: self._events.shown(key) for key in self._pool.slots}

        def read(now: float) -> list[CredentialState]:
            return [state_of(key, shown[key], key in self._pool.resting, now) for key in self._pool.slots]

        states = self._queue.decide(read)
        self._after()
        return states

    def __repr__(self) -> str:
        return f"<CredentialCoordinator {self.name!r} of {len(self._pool.slots)}>"

    # ------------------------------------------------------------------ the store

    @property
    def store_failures(self) -> int:
        """How often the store could not be used."""
        return 0 if self._sync is None else self._sync.failures

    def check_store(self, wait: float = 0.0) -> None:
        """Apply what other processes and operators have written to the store, now; write what they do not know.

        ``wait``: for how long, while another thread is at it.
        """
        if self._sync is not None:
            self._sync.check(wait)
            self._after()

    def flush_store(self, wait: float) -> None:
        """Write what is not in the store yet; called when the program ends."""
        if self._sync is not None:
            self._sync.flush(wait)
            self._after()

    def _check_if_due(self) -> None:
        if self._sync is not None:
            self._sync.check_if_due()
            self._after()

    # ------------------------------------------------------------------ inside

    def _after(self) -> None:
        """Do what follows from decisions and must not be done under the lock."""
        queue = self._queue
        queue.catch_up()
        changes: list[Change] = []
        while queue.changes:
            try:
                change = queue.changes.popleft()
            except IndexError:  # another thread was faster
                break
            changes.append(change)
            if change.kind is not ChangeKind.PROBED:
                self._events.dispatch(change)
        if changes and self._sync is not None:
            self._sync.note(changes)

    def _count(self, count: Callable[[], int]) -> int:
        self._check_if_due()
        found = self._queue.decide(lambda _: count())
        self._after()
        return found

    def _labelled(self, label: str) -> Key:
        return self._pool.by_label.get(label) or self._find(label)

    def _find(self, credential: str | Credential) -> Key:
        """By its label, by its secret, or itself. The argument is not repeated in the error: it may be a secret."""
        for key in self._pool.slots:
            if credential in (key.label, key.credential.secret, key.credential):
                return key
        known = ", ".join(key.label for key in self._pool.slots[:10])
        raise ConfigError(f"{self.name}: unknown credential; known are {known}")

    def _change(self, key: Key, change: Callable[[Key, float], list[Key]]) -> None:
        self._queue.decide(lambda now: self._queue.apply(change(key, now), now))
        self._after()


def _checked(timeout: float | None) -> float | None:
    fine = timeout is None or number(timeout) >= 0
    check("timeout", timeout, fine, "a number of seconds, 0 or more, or None to wait without limit")
    return timeout
