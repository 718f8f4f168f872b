"""What must be known of a credential after a restart, where it is kept, and the records of one pool there.

A record holds no secret: a keyed hash says whose it is (``identity``). It belongs to one origin (``provider``): a key
that is refused at one address may well be accepted at another. Times in it are wall times,
the only ones that mean something to another process; a reader clamps them, so that
a clock that was moved can neither lengthen a rest nor make one of more than 31 days.

Several processes and an operator may write about the same credential. What they say is
merged, in whichever order it arrives: a newer era (an operator's "use it again") replaces an older one;
within an era the longer rest wins, and retired stays retired.

``StoreRecords`` turns the pool's states into records and back. Only news counts: a record that says more than anything
read or written before. What the store turns out to know less of (it was wiped, or its server failed over) is noted in
``behind``, to be written again.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any, Protocol, runtime_checkable

from ..core.credential_pool import Pool
from ..core.decision import LONGEST_WAIT, NEVER, UNKNOWN, Outcome
from ..identity import IDENTITY_DIGITS, Identities
from .credential import LONGEST_LABEL, Key
from .events import CredentialEvents

LONGEST_PROVIDER = 255
"""Characters; a host and its port fit."""
ANY_PROVIDER = "*"
"""The origin of what an operator has said of a key that no program has used yet: it counts at each until one has."""
PARKED, RETIRED = "parked by hand", "retired by hand"
"""What an operator has said, as the reason of a rest or a retirement."""
LONGER = 0.05
"""Seconds by which a rest must end later to be news: clocks of hosts are compared no better than that."""
SAME_STOP = 2.0
"""... of an account that cannot spend: what a process wrote itself comes back from a server later by a round trip."""
YIELD = (5.0, 30.0)
"""Seconds, drawn once, by which a process that reads that an account cannot spend asks later than the one that wrote
so: it hears first what that one finds."""
MOST_BUSY = 5
"""How often in a row a file may be locked, for a second each, before that is a failure."""
_NOTHING_KNOWN = (-1, False, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The state of one credential when this was written."""

    identity: str
    label: str
    provider: str = ""
    group: str | None = None
    written_at: float
    era: int = 0
    until: float = 0.0
    """Until when it rests, 0 if it does not."""
    retired: bool = False
    reason: str = ""
    budget: float | None = None
    budget_until: float = 0.0

    @property
    def name(self) -> str:
        """What it is kept under: one credential at one origin."""
        return record_name(self.identity, self.provider)

    def rests_for(self, wall: float) -> float:
        """Seconds it still has to rest. A clock that went back since makes them no more than they were."""
        return max(0.0, min(self.until - wall, self.until - self.written_at, LONGEST_WAIT))

    def budget_at(self, wall: float) -> float | None:
        """Calls that are left, as far as that is still known."""
        return self.budget if wall < self.budget_until else None

    def merged(self, newer: Record) -> Record:
        """Both, as one."""
        if newer.era != self.era:
            return max(self, newer, key=lambda record: record.era)
        ruling = newer if newer.retired or (newer.until >= self.until and not self.retired) else self
        return replace(
            newer, written_at=ruling.written_at, until=ruling.until, retired=ruling.retired, reason=ruling.reason
        )


class CredentialStore(Protocol):
    """Where records are kept. An exception is logged; the coordinator then continues with what it knows."""

    def load(self) -> Iterable[Record]:
        """All that is known."""

    def save(self, records: Iterable[Record]) -> None:
        """Merge these into what is there."""

    def stamp(self) -> object:
        """A value that differs once any process has saved; asked for often, so it must be cheap."""


@runtime_checkable
class FarCredentialStore(CredentialStore, Protocol):
    """One that is shared across machines: it is asked by a thread of its own, and has its own names for secrets."""

    def identities(self) -> Identities:
        """What makes its names; another object once they are others."""


def record_name(identity: str, provider: str) -> str:
    return f"{identity}@{provider}"


def record_of(key: Key, identity: str, provider: str, now: float, wall: float) -> Record:
    """The state of a credential."""
    return Record(
        identity=identity,
        label=key.label,
        provider=provider,
        group=key.group,
        written_at=wall,
        era=key.era,
        until=0.0 if key.until == NEVER else wall + key.until - now,
        retired=key.retired,
        reason=key.reason,
        budget=None if key.budget == UNKNOWN else key.budget,
        budget_until=0.0 if key.budget == UNKNOWN else wall + key.limit_group.budget_until - now,
    )


def by_name(rows: Iterable[Any]) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for row in rows:
        record = _record(row)
        if record is not None:
            found[record.name] = found[record.name].merged(record) if record.name in found else record
    return found


_NAMES = {field.name for field in fields(Record)}
_NUMBERS = ("written_at", "until", "budget_until", "era")


def _record(row: Any) -> Record | None:
    """A record as it was written; None for what cannot be one."""
    try:
        record = Record(**{name: row[name] for name in _NAMES & set(row)})
        texts = (record.label, record.reason, record.group or "")
        fine = (
            all(isinstance(text, str) and text.isprintable() and len(text) <= LONGEST_LABEL for text in texts)
            and record.provider.isprintable()
            and len(record.provider) <= LONGEST_PROVIDER
            and len(record.identity) == IDENTITY_DIGITS
            and int(record.identity, 16) >= 0
            and all(isfinite(getattr(record, name)) for name in _NUMBERS)
            and isinstance(record.era, int)
            and isinstance(record.retired, bool)
            and (record.budget is None or isfinite(record.budget))
        )
    except (TypeError, ValueError, AttributeError, OverflowError):
        return None
    return record if fine else None


# ---------------------------------------------------------------------- the records of one pool


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
        self._busy = 0
        """How often in a row other processes had it locked."""
        self._yields_for = random.uniform(*YIELD)

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
        were_away = [key for key in self._identity_of if key.retired or key.until != NEVER] if news else []
        for key in self._identity_of if news else ():
            record = news.pop(self._name_of(key), None)
            if record is None:
                continue
            rest = self._rest_of(record, wall)
            is_same_stop = record.reason == Outcome.SPEND.value == key.reason and record.written_at <= wall
            if self._is_more(record) or (is_same_stop and now + rest > key.until + SAME_STOP):
                away += pool.restore(key, record.era, rest, record.retired, record.reason, now)
            if key.budget == UNKNOWN and (left := record.budget_at(wall)) is not None:
                pool.know(key, left, now + record.budget_until - wall)
        for record in news.values():  # of others, in one group with ours: they share one limit
            if self._is_more(record) and not record.retired:
                away += pool.rest(self._groups[record.group or ""], self._rest_of(record, wall), now, record.reason)
        return away, [key for key in were_away if not key.retired and key.until == NEVER]

    def _rest_of(self, record: Record, wall: float) -> float:
        rest = record.rests_for(wall)
        return rest + self._yields_for if rest > 0.0 and record.reason == Outcome.SPEND.value else rest

    def _is_of_our_group(self, record: Record) -> bool:
        is_of_all = record.reason in (Outcome.RATE_LIMITED.value, Outcome.SPEND.value)  # others concern one alone
        return is_of_all and record.provider == self._provider and record.group in self._groups

    # ------------------------------------------------------------------ writing

    def records(self, keys: Iterable[Key], now: float, wall: float) -> list[Record]:
        """Their states as records; none while the store's names for them are not known."""
        known = keys if self._identity_of else ()
        return [self._without_yield(record_of(key, self._identity_of[key], self._provider, now, wall)) for key in known]

    def _without_yield(self, record: Record) -> Record:
        """What was read is not written back longer by what this process waits: the others would add theirs to it."""
        era, _, until = self._most_known.get(record.name, _NOTHING_KNOWN)
        is_same = era == record.era and 0.0 < record.until - until <= self._yields_for + SAME_STOP
        return replace(record, until=until) if is_same and record.reason == Outcome.SPEND.value else record

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
        self._busy = 0
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
        longer = SAME_STOP if record.reason == Outcome.SPEND.value else LONGER
        more = (record.era, record.retired) > (era, retired) or (
            (record.era, record.retired) == (era, retired) and record.until > until + longer
        )
        if more:
            self._most_known[record.name] = record.era, record.retired, record.until
        return more

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self._busy = self._busy + 1 if getattr(error, "is_busy", False) else MOST_BUSY
        if not self.is_down and self._busy >= MOST_BUSY:
            self.is_down = True
            self._events.store_failed(error)
