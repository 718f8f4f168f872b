"""A ledger for runs that need not survive their process: the same rules as on disk, in little memory.

Of a final row nothing is kept but its state and eight bytes of its digest, so millions of rows fit. Lines are
kept once the output is taken, until its checkpoint says that it has them; one that is never taken costs nothing.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from ...core.row_state import NO_HOLDER, Entry, FailureReason
from . import Change, Claim, Counts, LedgerError, Row, RowState, Written

THIS_PROCESS = 1
DIGEST_BYTES = 8
UNKNOWN = len(RowState)
STATES = tuple(RowState)


class MemoryLedger:
    """A ``Ledger`` in memory, for one process."""

    patience = 0.0

    def __init__(self, *, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._identity: dict[str, str] = {}
        self._open: dict[int, Entry] = {}
        self._final = bytearray()
        """The state of each row that is final, by index; UNKNOWN for all others."""
        self._digests = bytearray()
        self._reasons: Counter[str] = Counter()
        self._spent = Entry("", b"")
        """What all rows together have used up."""
        self._numbers = 0
        self._lines: deque[Written] | None = None
        self._moved: Counter[str] = Counter()
        self._checkpoint = (0, 0)
        self._notes: dict[str, str] = {}

    async def begin(self, identity: Mapping[str, str]) -> Counts:
        if self._final and self._identity != identity:
            raise LedgerError("this ledger holds the rows of another run; use a new MemoryLedger for this one")
        self._identity = dict(identity)
        return await self.counts()

    async def claim(self, rows: Sequence[Row]) -> list[Claim | RowState]:
        for row in rows:
            self._check(row.index, row.digest)
        return [self._claim(row) for row in rows]

    def _claim(self, row: Row) -> Claim | RowState:
        known = self._state(row.index)
        if known is not None:
            return known
        entry = self._open.get(row.index)
        if entry is None:
            entry = self._open[row.index] = Entry(row.key, row.digest)
            self._remember(row)
        elif not entry.free_for(THIS_PROCESS):
            return entry.state
        entry.claim(THIS_PROCESS)
        ready_at = entry.ready_from(self._wall())
        return Claim(row.index, entry.fence, entry.attempts, entry.rate_limited, ready_at, entry.path)

    async def unfinished(self, first: int, digests: Sequence[bytes]) -> list[int]:
        for index, digest in enumerate(digests, first):
            self._check(index, digest)
        return [index for index in range(first, first + len(digests)) if self._state(index) is None]

    async def record(self, change: Change) -> bool:
        return self._record(change)

    async def record_all(self, changes: Sequence[Change]) -> list[bool]:
        return [self._record(change) for change in changes]

    def _record(self, change: Change) -> bool:
        entry = self._open.get(change.index)
        if entry is None or not entry.accepts_fence(change.fence):
            return False
        self._spent.attempts += change.attempts - entry.attempts
        self._spent.spend(change.tokens, change.cost, change.waited)
        entry.move(change.state)
        entry.attempts, entry.rate_limited = change.attempts, change.rate_limited
        entry.put_off(change.ready_at, self._wall())
        entry.path = change.path or entry.path
        if change.state.final:
            self._finish(change)
        return True

    def _finish(self, change: Change) -> None:
        del self._open[change.index]
        self._final[change.index] = STATES.index(change.state)
        if change.moved and change.state is RowState.DONE:
            self._moved[change.moved] += 1
        if change.state is RowState.DEAD:
            self._reasons[FailureReason.parse(change.reason).category] += 1
        self._numbers += 1
        if self._lines is not None:
            self._lines.append(Written(self._numbers, change.index, change.state, change.result))

    async def abandoned(self, limit: int) -> list[int]:
        return sorted(index for index, entry in self._open.items() if entry.holder == NO_HOLDER)[:limit]

    async def final(self, after: int, limit: int) -> list[Written]:
        if not self._lines:
            return []
        start = max(0, after + 1 - self._lines[0].number)
        return list(islice(self._lines, start, start + limit))

    async def checkpoint(self, number: int, offset: int) -> bool:
        self._checkpoint = (number, offset)
        while self._lines and self._lines[0].number <= number:
            self._lines.popleft()
        return self._lines is not None

    async def output(self) -> tuple[int, int] | None:
        if self._lines is None:
            self._lines = deque()
            self._checkpoint = (self._numbers, self._checkpoint[1])
        return self._checkpoint

    async def note(self, name: str, text: str) -> None:
        self._notes[name] = text

    async def noted(self, name: str) -> str:
        return self._notes.get(name, "")

    async def counts(self) -> Counts:
        states = Counter(entry.state for entry in self._open.values())
        states.update({state: self._final.count(STATES.index(state)) for state in (RowState.DONE, RowState.DEAD)})
        return Counts(
            seen=states.total(),
            states={state: count for state, count in states.items() if count},
            reasons=dict(self._reasons),
            attempts=self._spent.attempts,
            tokens=self._spent.tokens,
            cost=self._spent.cost,
            waited=dict(self._spent.waited),
            moved=dict(self._moved),
        )

    async def close(self) -> None:
        for entry in self._open.values():
            entry.abandon()
            entry.fence += 1

    def _state(self, index: int) -> RowState | None:
        """The state of a final row; None for all others."""
        number = self._final[index] if index < len(self._final) else UNKNOWN
        return None if number == UNKNOWN else STATES[number]

    def _remember(self, row: Row) -> None:
        missing = row.index + 1 - len(self._final)
        self._final += bytes([UNKNOWN]) * missing
        self._digests += bytes(DIGEST_BYTES * max(0, missing))
        start = DIGEST_BYTES * row.index
        self._digests[start : start + DIGEST_BYTES] = row.digest[:DIGEST_BYTES].ljust(DIGEST_BYTES, b"\0")

    def _check(self, index: int, digest: bytes) -> None:
        if index not in self._open and self._state(index) is None:
            return
        start = DIGEST_BYTES * index
        if self._digests[start : start + DIGEST_BYTES] != digest[:DIGEST_BYTES].ljust(DIGEST_BYTES, b"\0"):
            raise LedgerError(f"row {index + 1} of the input has changed since it was first read")

    def __repr__(self) -> str:
        return f"<MemoryLedger of {len(self._final):,} rows, {len(self._open):,} open>"
