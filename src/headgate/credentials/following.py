"""What follows a decision, once the lock is free: it is told, and written down for a restart and for others.

decided ──> told to logs and listeners ──> written to the store
ever so often ──> what others have written is taken ──> decided

A file is read and written by whoever happens to ask for a credential or waits for one. A store on another machine is
left to a thread (``messenger.py``), so that nobody ever waits for it. What could not be written is written later.
"""

from __future__ import annotations

from collections.abc import Iterable

from .. import fork_safety
from ..clock import Clock
from ..core.cooldown import ExponentialCooldown, FixedCooldown
from ..core.decision import UNKNOWN
from .credential import Credential, Key
from .handing import Handing
from .keeping import LOOK_AGAIN, LOOK_EVERY, WRITE_AGAIN_EVERY, WRITE_BUDGETS_EVERY, Keeping
from .messenger import Messenger
from .record import CredentialStore, FarCredentialStore
from .telling import Telling

PATIENT_LOOKS = 3
"""How often a far store is tried at the beginning and at the end of a program."""


class Following(Handing):
    """Between the handing out and the ``CredentialCoordinator``."""

    _telling: Telling

    def __init__(
        self,
        credentials: Iterable[Credential],
        at_once: int | None,
        name: str,
        clock: Clock | None,
        cooldown: FixedCooldown | ExponentialCooldown,
    ) -> None:
        super().__init__(credentials, at_once, name, clock, cooldown)
        self._keeping: Keeping | None = None
        self._messenger: Messenger | None = None
        self._at_store = fork_safety.lock(slow=True)
        """Held by the one who looks after the store."""
        self._unwritten: dict[Key, None] = {}
        self._from_others: dict[Key, None] = {}
        """Whose change was read in the store, and need not be written there."""
        self._write_budgets_at = self._write_again_at = 0.0

    @property
    def store_failures(self) -> int:
        """How often the store could not be used."""
        return 0 if self._keeping is None else self._keeping.failures

    def _keep_in(self, store: CredentialStore, provider: str) -> None:
        """Take what the store knows, and tell it of those it has never heard of."""
        self._keeping = Keeping(store, self._telling, provider, self._pool.slots)
        if isinstance(store, FarCredentialStore):
            self._messenger = Messenger(self)
        self._look_patiently()

    def _look_patiently(self, wait: float = 0.0) -> None:
        """At the beginning and at the end there is one chance only: a server that is merely busy gets a second one."""
        for _ in range(PATIENT_LOOKS):
            self.look_at_store(wait)
            if self._keeping is None or not self._keeping.is_down or self._messenger is None:
                return

    def _after(self) -> None:
        super()._after()
        changed: dict[Key, None] = {}
        while self._told:
            try:
                kind, key, seconds, reason = self._told.popleft()
            except IndexError:  # another thread was faster
                break
            if key is not None and self._from_others.pop(key, self) is self:
                changed[key] = None
            self._telling.tell(kind, key, seconds, reason)
        if changed and self._keeping is not None:
            self._unwritten |= changed
            if self._messenger is None:
                self._write()
            else:
                self._messenger.poke(self)

    def _look_if_due(self) -> None:
        if self._keeping is None or self._now() < self._look_at:
            return
        if self._messenger is None:
            self.look_at_store()
        else:
            self._look_at = self._now() + (LOOK_AGAIN if self._keeping.is_down else LOOK_EVERY)
            self._messenger.poke()

    def look_at_store(self, wait: float = 0.0) -> None:
        """Take what other processes and operators have written; write what they do not know.

        ``wait``: for how long, while another thread is at it.
        """
        keeping = self._keeping
        if keeping is None or not self._at_store.acquire(timeout=wait):
            return
        try:
            self._look_at = self._now() + LOOK_EVERY
            news = keeping.fetch(self.clock.wall())
            if news is not None:
                with self._lock:
                    now = self._begin()
                    away, back = keeping.take(news, self._pool, now, self.clock.wall())
                    self._from_others = dict.fromkeys((*away, *back))
                    self._told.extend(("credential_back", key, 0.0, "freed by hand") for key in back)
                    self._follow(away, now)
                    self._torn = False
                self._note_what_is_due(keeping, now)
                if not self._unwritten or self._write():
                    keeping.is_back()
            if keeping.is_down:
                self._look_at = self._now() + LOOK_AGAIN
        finally:
            self._at_store.release()
        self._after()

    def write_the_rest(self, wait: float) -> None:
        """The program ends: write what is not written yet, or see to it that it is."""
        if self._unwritten or self._at_store.locked():
            self._look_patiently(wait)

    def _note_what_is_due(self, keeping: Keeping, now: float) -> None:
        if keeping.behind and now >= self._write_again_at:
            self._write_again_at = now + WRITE_AGAIN_EVERY
            self._unwritten |= dict.fromkeys(keeping.behind)
            keeping.behind = []
        if now >= self._write_budgets_at and (known := [key for key in self._pool.slots if key.budget != UNKNOWN]):
            self._write_budgets_at = now + WRITE_BUDGETS_EVERY
            self._unwritten |= dict.fromkeys(known)

    def _write(self) -> bool:
        """Write how those stand whose change is not in the store yet. False if that must be done again."""
        keeping, keys = self._keeping, list(self._unwritten)
        if keeping is None:
            return True
        for key in keys:
            self._unwritten.pop(key, None)
        with self._lock:
            records = keeping.records(keys, self._now(), self.clock.wall())
        if keeping.save(records):
            return True
        self._unwritten |= dict.fromkeys(keys)
        return False
