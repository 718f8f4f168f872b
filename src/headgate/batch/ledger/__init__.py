"""The ledger of a batch: which row is where, so that none is lost and none is done twice.

    pending --claim--> leased --+--> done      with its result, final
       ^                        +--> dead      with a reason, final until ``headgate retry``
       |                        +--> failed    to be tried again at ``ready_at``
       |                        +--> parked    rate limited; to be tried again at ``ready_at``
       +---- given back, or its holder died ----+

A row is known by its position in the input. A claim carries a *fence*, a number that grows with every claim; a change
counts only under the newest fence, so a process that was thought dead and comes back late cannot overwrite its
successor. What ``record`` has returned from is on disk.

Two classes keep this contract: ``MemoryLedger`` for runs that need not survive their process, and
``SqliteLedger`` for those that must, which several processes may share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...core.row_state import RowState as RowState
from ...errors import LedgerError as LedgerError


@dataclass(frozen=True, slots=True)
class Row:
    """A row as the input has it."""

    index: int
    """Its position, from 0."""
    key: str
    """The name its result goes by: a ``custom_id``, or its position."""
    digest: bytes
    """16 bytes that change when its content does."""


@dataclass(slots=True)
class Claim:
    """The right to work on one row."""

    index: int
    fence: int
    attempts: int = 0
    rate_limited: int = 0
    ready_at: float = 0.0
    """Unix time before which it should not be tried; 0 for at once."""
    path: str = ""
    """Which targets have refused it, and why, as it was recorded; empty if none has."""


@dataclass(slots=True, kw_only=True)
class Change:
    """What became of a claimed row."""

    index: int
    fence: int
    state: RowState
    attempts: int
    rate_limited: int = 0
    ready_at: float = 0.0
    reason: str = ""
    """For people and for ``retry --only``: rate_limited, too_large, invalid, deadline, ... with a sentence after it."""
    result: bytes = b""
    """One line of output, for done and dead rows."""
    tokens: int = 0
    """Used since the row's last change, as are ``cost`` and ``waited``: the ledger adds them up."""
    cost: float = 0.0
    waited: Mapping[str, float] = field(default_factory=dict)
    """Seconds by what was waited for: pace, floor, credential, ..."""
    path: str = ""
    """Which targets have refused the row, for the process that claims it next."""
    moved: str = ""
    """The target that has answered a done row, and why that one; empty for the primary."""


@dataclass(slots=True)
class Written:
    """A final row in the order in which rows became final; ``number`` counts from 1 without a gap."""

    number: int
    index: int
    state: RowState
    result: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many rows are where. ``seen`` is how many the input has shown so far."""

    seen: int = 0
    states: Mapping[RowState, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Dead rows by the first word of their reason."""
    attempts: int = 0
    tokens: int = 0
    cost: float = 0.0
    waited: Mapping[str, float] = field(default_factory=dict)
    """Seconds by what was waited for, of all rows."""
    moved: Mapping[str, int] = field(default_factory=dict)
    """Done rows by ``Change.moved``."""

    @property
    def open(self) -> int:
        """Rows that are not final."""
        return self.seen - self.states.get(RowState.DONE, 0) - self.states.get(RowState.DEAD, 0)


class Ledger(Protocol):
    """What a runner needs of a ledger. All of it may be called from one event loop; nothing blocks it."""

    patience: float
    """Seconds that changes may be kept back to be recorded with others: 0 where that makes nothing cheaper."""

    async def begin(self, identity: Mapping[str, str]) -> Counts:
        """Open the ledger for a run that is known by ``identity`` (input, template, target, ...).

        Raises ``LedgerError`` naming what has changed since the rows in it were made.
        """
        ...

    async def claim(self, rows: Sequence[Row]) -> list[Claim | RowState]:
        """Take these rows, in one transaction: a claim for each that is ours to do now, else where it is.

        Raises ``LedgerError`` with the row's number if one is not what it was when it was first seen.
        """
        ...

    async def unfinished(self, first: int, digests: Sequence[bytes]) -> list[int]:
        """Of the rows from index ``first`` on, known by their digests, those that may be worth a claim.

        The quick way past what is final: it says nothing of holders, and needs no ``Row`` for each.
        Raises as ``claim`` does.
        """
        ...

    async def record(self, change: Change) -> bool:
        """Write down what became of a row; returns once it is durable. False: a newer claim has it, nothing changed.

        A row that is parked or failed stays with its holder, which goes on under the same fence or claims it again;
        one that is pending again is given back. A final row changes no more.

        Changes that are recorded at the same time are committed together.
        """
        ...

    async def record_all(self, changes: Sequence[Change]) -> list[bool]:
        """The same for many rows at once; each counts or not by itself."""
        ...

    async def abandoned(self, limit: int) -> list[int]:
        """Open rows that no living process holds, by index: they may be claimed when they are read again."""
        ...

    async def final(self, after: int, limit: int) -> list[Written]:
        """Final rows after number ``after``, in order: at most ``limit``; fewer if they are large, but never none."""
        ...

    async def checkpoint(self, number: int, offset: int) -> bool:
        """The output holds everything up to row ``number`` and is ``offset`` bytes long; durable on return.

        False: another process writes the output now.
        """
        ...

    async def output(self) -> tuple[int, int] | None:
        """Take over the output: the last checkpoint, or None while another living process writes it."""
        ...

    async def note(self, name: str, text: str) -> None:
        """Keep a small text for the next run; it survives the process."""
        ...

    async def noted(self, name: str) -> str:
        """What was kept under this name; empty if nothing was."""
        ...

    async def counts(self) -> Counts: ...

    async def close(self) -> None:
        """Give back what is claimed, write everything down, and close."""
        ...
