"""What must be known of a credential after a restart, and where it is kept.

A record holds no secret: a keyed hash says whose it is (``identity``). It belongs to one origin (``provider``): a key
that is refused at one address may well be accepted at another. Times in it are wall times,
the only ones that mean something to another process; a reader clamps them, so that
a clock that was moved can neither lengthen a rest nor make one of more than 31 days.

Several processes and an operator may write about the same credential. What they say is
merged, in whichever order it arrives: a newer era (an operator's "use it again") replaces an older one;
within an era the longer rest wins, and retired stays retired.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any, Protocol, runtime_checkable

from ..core.cooldown import SPEND_REST
from ..core.decision import LONGEST_WAIT, NEVER, UNKNOWN, Outcome
from ..identity import IDENTITY_DIGITS, Identities
from .credential import LONGEST_LABEL, Key

LONGEST_PROVIDER = 255
"""Characters; a host and its port fit."""
ANY_PROVIDER = "*"
"""The origin of what an operator has said of a key that no program has used yet: it counts at each until one has."""
PARKED, RETIRED = "parked by hand", "retired by hand"
"""What an operator has said, as the reason of a rest or a retirement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """How one credential stood when this was written."""

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
    """How a credential stands. While a call finds out whether its account can spend, it rests for other processes."""
    is_probing = key.limit_group.is_busy_probing and not key.retired
    until = now + SPEND_REST if is_probing else key.until
    return Record(
        identity=identity,
        label=key.label,
        provider=provider,
        group=key.group,
        written_at=wall,
        era=key.era,
        until=0.0 if until == NEVER else wall + until - now,
        retired=key.retired,
        reason=Outcome.SPEND.value if is_probing else key.reason,
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
