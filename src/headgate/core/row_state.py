"""The states of a row in a batch's ledger, and which process may change them.

    pending --claim--> leased --> done, dead: final
       ^                  +-----> failed, parked: put aside until ``ready_at``
       +-- given back, or its holder died --+

Two numbers guard a row. Its *holder* is the process that has it, and keeps it while it is failed or
parked; as long as that process lives no other may claim the row. Its *fence* grows with every claim and whenever the
row is given back; a change counts only under the newest. So a process that was thought dead and comes back may still
record while no other has taken its row, and never afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import isfinite
from typing import NamedTuple

from .decision import LONGEST_WAIT

NO_HOLDER = 0
"""The holder of a row that is free to take."""
MOST_TOKENS = 2**53
"""So that sums of a few stay whole numbers wherever they are kept."""
LONGEST_CATEGORY = 40
"""Characters of a reason that it is counted by."""


class RowState(Enum):
    PENDING = "pending"
    LEASED = "leased"
    PARKED = "parked"
    FAILED = "failed"
    DONE = "done"
    DEAD = "dead"

    __hash__ = object.__hash__
    """There is one of each, and it is looked up several times for every row; an Enum's own hash is slow."""

    @property
    def final(self) -> bool:
        return self is RowState.DONE or self is RowState.DEAD


class FailureReason(NamedTuple):
    """Why a row failed: a category for programs, and a detail for people. Ledgers and outputs keep it as one text."""

    category: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.category}: {self.detail}" if self.detail else self.category

    @classmethod
    def parse(cls, text: str) -> FailureReason:
        """Of the text that was kept; the only place that takes it apart."""
        words = text.split(None, 1)
        category = words[0].rstrip(":,;.")[:LONGEST_CATEGORY] if words else ""
        return cls(category or "unknown", text.partition(":")[2].strip())


@dataclass(slots=True)
class Entry:
    """One row in the ledger."""

    key: str
    digest: bytes
    state: RowState = RowState.PENDING
    fence: int = 0
    holder: int = NO_HOLDER
    attempts: int = 0
    rate_limited: int = 0
    ready_at: float = 0.0
    said_at: float = 0.0
    """When ``ready_at`` was recorded, by the same clock."""
    reason: str = ""
    tokens: int = 0
    cost: float = 0.0
    waited: Mapping[str, float] = field(default_factory=dict)
    path: str = ""
    """Which targets have refused it; a ledger in a file keeps it beside the row."""

    def free_for(self, process: int) -> bool:
        """Whether this process may claim it: no process has it, or this one has put it aside."""
        if self.state.final:
            return False
        return self.holder == NO_HOLDER or (self.holder == process and self.state is not RowState.LEASED)

    def claim(self, process: int) -> None:
        self.state, self.holder = RowState.LEASED, process
        self.fence += 1

    def accepts_fence(self, fence: int) -> bool:
        """Whether a change under this fence still counts."""
        return fence == self.fence and not self.state.final

    def move(self, state: RowState) -> None:
        """Change its state; a process that gives it back, or is done with it, holds it no more."""
        self.state = state
        if state is RowState.PENDING or state.final:
            self.holder = NO_HOLDER
        if state is RowState.PENDING:
            self.fence += 1

    def put_off(self, ready_at: float, wall: float) -> None:
        """Not before this instant, but within 31 days; one that is no number is none."""
        self.ready_at = min(ready_at, wall + LONGEST_WAIT) if ready_at > 0 else 0.0
        self.said_at = wall

    def spend(self, tokens: int, cost: float, waited: Mapping[str, float]) -> None:
        """Add what was used up since the last change; what cannot be added up is left out."""
        self.tokens = min(self.tokens + tokens, MOST_TOKENS)
        self.cost += cost if isfinite(cost) else 0.0
        if waited:
            sums = dict(self.waited)
            for why, seconds in waited.items():
                sums[why] = sums.get(why, 0.0) + (seconds if isfinite(seconds) else 0.0)
            self.waited = sums

    def abandon(self) -> None:
        """Its holder has died. The fence stays: if it lives after all, its changes count until the next claim."""
        self.holder = NO_HOLDER
        if self.state is RowState.LEASED:
            self.state = RowState.PENDING

    def ready_from(self, wall: float) -> float:
        """``ready_at`` on a clock that may have been moved: never further off than it was, nor than 31 days."""
        wait = min(self.ready_at - wall, self.ready_at - self.said_at, LONGEST_WAIT)
        return wall + wait if wait > 0 else 0.0
