"""A pool and the records of its store: what the store says goes into the pool, what the pool knows becomes records.

Only news counts: a record that says more than anything read or written before. What the store turns out to know less
of (it was wiped, or its server failed over) is noted in ``behind`` and written again.

A store that fails fails no call: it is logged and dispatched once for each outage, counted, and the program goes on by
what it knows; no rest that is known is cut short by it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..core.credential_pool import Pool
from ..core.decision import NEVER, UNKNOWN, Outcome
from ..identity import Identities
from .credential import Key
from .events import CredentialEvents
from .record import ANY_PROVIDER, CredentialStore, FarCredentialStore, Record, record_name

LONGER = 0.05
"""Seconds by which a rest must end later to be news: clocks of hosts are compared no better than that."""
_NOTHING_HEARD = (-1, False, 0.0)


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
        self._heard: dict[str, tuple[int, bool, float]] = {}
        """The most that was read or written of each: era, retired, until. Only more is news; a rest that is over stays
        in the store, and where the wall clock went back it would seem to begin again."""
        self._stamp: object = self  # no store returns this one

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
            if self._is_more(record):
                rest = record.rests_for(wall)
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
        is_limit = record.reason == Outcome.RATE_LIMITED.value  # any other rest concerns one credential alone
        return is_limit and record.provider == self._provider and record.group in self._groups

    # ------------------------------------------------------------------ writing

    def records(self, keys: Iterable[Key], now: float, wall: float) -> list[Record]:
        """Their states as records; none while the store's names for them are not known."""
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
                budget_until=0.0 if key.budget == UNKNOWN else wall + key.limit_group.budget_until - now,
            )
            for key in (keys if self._identity_of else ())
        ]

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
        heard, self._seen, self._stamp = self._heard, {}, self
        kept = {key: heard.get(record_name(identity, self._provider)) for key, identity in before.items()}
        self._heard = {self._name_of(key): most for key, most in kept.items() if most is not None}

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
        era, retired, until = self._heard.get(name, _NOTHING_HEARD)
        if era != record.era:
            return era > record.era
        return (retired and not record.retired) or (until > max(record.until + LONGER, wall) and not record.retired)

    def _is_more(self, record: Record) -> bool:
        """Whether it says more than all before it; from now on that is known."""
        era, retired, until = self._heard.get(record.name, _NOTHING_HEARD)
        more = (record.era, record.retired) > (era, retired) or (
            (record.era, record.retired) == (era, retired) and record.until > until + LONGER
        )
        if more:
            self._heard[record.name] = record.era, record.retired, record.until
        return more

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if not self.is_down:
            self.is_down = True
            self._events.store_failed(error)
