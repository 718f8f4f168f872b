"""Between a coordinator and its store: rests survive a restart, and an operator's word reaches a running program.

The store is read at the start, written when somebody rests, retires or comes back, and
looked at again every few seconds by whoever happens to ask for a credential or waits for one.
A store that fails is a fault of ours: it is logged and told once, counted, and the program goes on by what
it knows itself; no rest that is known is cut short by it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from ..core.decision import NEVER, UNKNOWN
from ..core.quarantine import Pool
from .credential import Key
from .record import CredentialStore, Record
from .telling import Telling

log = logging.getLogger("headgate")

LOOK_EVERY = 2.0
"""Seconds between two looks at the store, for what others have written."""
WRITE_BUDGETS_EVERY = 10.0
"""Seconds between two writes of what is left of budgets; rests are written at once."""


class Keeping:
    def __init__(self, store: CredentialStore, telling: Telling, provider: str, keys: Iterable[Key]) -> None:
        self.failures = 0
        """How often the store could not be used."""
        self._store = store
        self._telling = telling
        self._provider = provider
        self._identity_of = {key: telling.identities.of(key.credential.secret) for key in keys}
        self._seen: dict[str, Record] = {}
        """What was read or written last; only what differs from it is news."""
        self._heard: dict[str, tuple[int, bool, float]] = {}
        """The most that was read or written of each: era, retired, until. Only more is news; a rest that has been
        served stays in the store, and where the wall clock went back it would seem to begin anew."""
        self._stamp: object = None

    def fetch(self) -> dict[str, Record]:
        """What others have written since the last look."""
        try:
            stamp = self._store.stamp()
            if stamp == self._stamp:
                return {}
            found = {record.identity: record for record in self._store.load()}
        except Exception as error:
            self._failed(error)
            return {}
        self._stamp = stamp
        ours = {identity: found[identity] for identity in self._identity_of.values() if identity in found}
        news = {identity: record for identity, record in ours.items() if self._seen.get(identity) != record}
        self._seen |= news
        return news

    def take(self, news: dict[str, Record], pool: Pool[Key], now: float, wall: float) -> tuple[list[Key], list[Key]]:
        """Put news into the pool. Returns who was sent away by it, and who was brought back."""
        away: list[Key] = []
        back: list[Key] = []
        for key, identity in self._identity_of.items():
            record = news.get(identity)
            if record is None:
                continue
            was_away = key.retired or key.until != NEVER
            if self._is_more(record):
                rest = record.rests_for(wall)
                away += pool.restore(key, record.era, rest, record.retired, record.reason, now)
            if was_away and not key.retired and key.until == NEVER:
                back.append(key)
            if key.budget == UNKNOWN and (left := record.budget_at(wall)) is not None:
                pool.know(key, left, now + record.budget_until - wall)
        return away, back

    def unknown(self, keys: Iterable[Key]) -> list[Key]:
        """Those the store has never heard of."""
        return [key for key in keys if self._identity_of[key] not in self._seen]

    def records(self, keys: Iterable[Key], now: float, wall: float) -> list[Record]:
        return [
            Record(
                identity=self._identity_of[key],
                label=key.label,
                provider=self._provider,
                group=key.group,
                written_at=wall,
                era=key.era,
                until=0.0 if key.until == NEVER else wall + key.until - now,
                retired=key.retired,
                reason=key.reason,
                budget=None if key.budget == UNKNOWN else key.budget,
                budget_until=0.0 if key.budget == UNKNOWN else wall + key.family.budget_until - now,
            )
            for key in keys
        ]

    def save(self, records: Sequence[Record]) -> bool:
        try:
            self._store.save(records)
        except Exception as error:
            self._failed(error)
            return False
        self._seen.update((record.identity, record) for record in records)
        for record in records:
            self._is_more(record)
        return True

    def _is_more(self, record: Record) -> bool:
        """Whether it says more than all before it; from now on that is known."""
        said = (record.era, record.retired, record.until)
        more = said > self._heard.get(record.identity, (-1, False, 0.0))
        if more:
            self._heard[record.identity] = said
        return more

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            log.warning("credentials are not kept, but go on being used: %s", error)
            self._telling.pass_on("store_failed", type(error).__name__)
