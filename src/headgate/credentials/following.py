"""What follows a decision, once the lock is free: it is told, and written down for a restart and for others.

decided ──> told to logs and listeners ──> written to the store
every few seconds ──> what others have written is taken ──> decided
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ..clock import Clock
from ..core.cooldown import ExponentialCooldown, FixedCooldown
from ..core.decision import UNKNOWN
from .credential import Credential, Key
from .handing import Handing
from .keeping import LOOK_EVERY, WRITE_BUDGETS_EVERY, Keeping
from .record import CredentialStore
from .telling import Telling


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
        self._at_store = threading.Lock()
        """Held by the one who looks after the store."""
        self._write_budgets_at = 0.0

    @property
    def store_failures(self) -> int:
        """How often the store could not be used."""
        return 0 if self._keeping is None else self._keeping.failures

    def _keep_in(self, store: CredentialStore, provider: str) -> None:
        """Take what the store knows, and tell it of those it has never heard of."""
        self._keeping = Keeping(store, self._telling, provider, self._pool.slots)
        self._look_at = self._now()
        self._look_if_due()
        self._write(self._keeping.unknown(self._pool.slots))

    def _after(self) -> None:
        super()._after()
        changed: dict[Key, None] = {}
        while self._told:
            try:
                kind, key, seconds, reason = self._told.popleft()
            except IndexError:  # another thread was faster
                break
            changed[key] = None
            self._telling.tell(kind, key, seconds, reason)
        if changed:
            self._write(list(changed))

    def _write(self, keys: list[Key]) -> None:
        if self._keeping is None or not keys:
            return
        with self._lock:
            records = self._keeping.records(keys, self._now(), self.clock.wall())
        self._keeping.save(records)

    def _look_if_due(self) -> None:
        """Take what other processes and operators have written, and write what is left of budgets from time to time."""
        if self._keeping is None or self._now() < self._look_at or not self._at_store.acquire(blocking=False):
            return
        try:
            self._look_at = self._now() + LOOK_EVERY
            news = self._keeping.fetch()
            with self._lock:
                now = self._begin()
                away, back = self._keeping.take(news, self._pool, now, self.clock.wall())
                self._told.extend(("credential_back", key, 0.0, "freed by hand") for key in back)
                self._follow(away, now)
                self._torn = False
            budgets = [key for key in self._pool.slots if key.budget != UNKNOWN]
            if budgets and now >= self._write_budgets_at:
                self._write_budgets_at = now + WRITE_BUDGETS_EVERY
                self._write(budgets)
        finally:
            self._at_store.release()
        self._after()

    def _start_over_in_child(self) -> None:
        super()._start_over_in_child()
        self._at_store = threading.Lock()
