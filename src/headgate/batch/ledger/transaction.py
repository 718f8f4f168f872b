"""A transaction of the ledger: rows are loaded once, changed by the rules of ``core.row_state``, and written once.

However many rows a transaction is about, it takes the same few statements, each of them one step for the
database. Python gives up its lock at every step, and a busy event loop takes milliseconds to hand it back:
with a step for each row, a busy program would hardly record anything.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...core.row_state import NO_HOLDER, Entry, FailureReason
from ...engine.database import UNREADABLE, storable
from ...process_lock import is_alive, remove_lock
from . import Change, Claim, Row, RowState
from .schema import NUMBER_OF, STATES, changed_row, ledger_error

ROWS_PER_STATEMENT = 256
"""Also the most values: 14 for each row, of the 32,766 that a statement may have."""

TOTAL_OF = {state: f"state.{state.value}" for state in RowState}
ANY_DIGEST = b""
"""Of a dead row that was opened again: whatever the input holds now in its place is the row."""
LONGEST_REASON = 2000
"""Characters kept of it."""

LOAD = """
SELECT json_group_array(json_array(idx, key, hex(digest), state, fence, holder, attempts, rate_limited, ready_at,
said_at, reason, tokens, cost, waited)) FROM rows WHERE {which}
"""
NAMED = LOAD.format(which="idx IN (SELECT value FROM json_each(?))")
HELD = LOAD.format(which="holder = ? AND state < 4")
PUT = "INSERT OR REPLACE INTO rows SELECT * FROM ({values}) WHERE column1 IS NOT NULL"
CHANGE = """
UPDATE rows SET (state, fence, holder, attempts, rate_limited, ready_at, said_at, reason, tokens, cost, waited) =
(column2, column3, column4, column5, column6, column7, column8, column9, column10, column11, column12)
FROM ({values}) WHERE idx = column1
"""
"""Leaves alone what a row is called and looks like, and with it any index of that."""
RESULT = "INSERT INTO results SELECT * FROM ({values}) WHERE column1 IS NOT NULL"
NUMBER = "INSERT INTO finals (idx) SELECT column1 FROM ({values}) WHERE column1 IS NOT NULL"
ADD_UP = (
    "INSERT INTO totals SELECT * FROM ({values}) WHERE column1 IS NOT NULL "
    "ON CONFLICT (name) DO UPDATE SET amount = amount + excluded.amount"
)

CREATE_PATHS = "CREATE TABLE IF NOT EXISTS paths (idx INTEGER PRIMARY KEY, path TEXT NOT NULL)"
"""Made with the first row that another target is to take: no other ledger has it."""
HAS_PATHS = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'paths')"
SELECT_PATHS = "SELECT idx, path FROM paths WHERE idx IN (SELECT value FROM json_each(?))"


class LedgerTransaction:
    """What the writing thread works on. Nothing is written before ``flush``; ``forget`` discards it all."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: str,
        *,
        process: int = NO_HOLDER,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.connection = connection
        self.path = path
        self.process = process
        self.wall = wall
        self._entries: dict[int, Entry] = {}
        self._changed: set[int] = set()
        self._named: set[int] = set()
        """Those of the changed rows that are new, or are called or look otherwise than before."""
        self._wanted: set[int] = set()
        """Rows to load before the first of them is looked at."""
        self.lines: dict[int, tuple[RowState, bytes]] = {}
        self.totals: defaultdict[str, float] = defaultdict(float)
        self.paths: dict[int, str] = {}
        """Which targets have refused a row, of those that are at hand."""
        self._has_moved = False
        self._living: dict[int, bool] = {}

    @property
    def is_begun(self) -> bool:
        """Whether rows are at hand that may be changed: then it is not the file that knows how they stand."""
        return bool(self._entries)

    def load(self, indexes: Iterable[int]) -> None:
        """Have these rows at hand, as far as they are known, when the first of them is needed."""
        self._wanted.update(indexes)

    def _load_wanted(self) -> None:
        missing = self._wanted - self._entries.keys()
        self._wanted.clear()
        if missing:
            self._load_rows(self.connection.execute(NAMED, (json.dumps(list(missing)),)))

    def claim(self, rows: Sequence[Row]) -> list[Claim | RowState]:
        self._load_wanted()
        for row in rows:
            self._check(row)
        self.free_dead({entry.holder for row in rows if (entry := self._entries.get(row.index))})
        self._load_paths([row.index for row in rows if row.index in self._entries])
        return [self._claim(row) for row in rows]

    def _check(self, row: Row) -> None:
        entry = self._entries.get(row.index)
        if entry is not None and entry.digest not in (row.digest, ANY_DIGEST):
            raise changed_row(row.index, entry.key, dead=entry.state is RowState.DEAD)

    def _claim(self, row: Row) -> Claim | RowState:
        entry = self._entries.get(row.index)
        if entry is None:
            entry = self._entries[row.index] = Entry(storable(row.key), row.digest)
            self._named.add(row.index)
        elif not entry.free_for(self.process):
            return entry.state
        else:
            if entry.digest == ANY_DIGEST:
                entry.key, entry.digest = storable(row.key), row.digest
                self._named.add(row.index)
            self._count(entry, -1)
        entry.claim(self.process)
        self._count(entry, 1)
        self._changed.add(row.index)
        ready_at = entry.ready_from(self.wall())
        return Claim(
            row.index, entry.fence, entry.attempts, entry.rate_limited, ready_at, self.paths.get(row.index, "")
        )

    def record(self, changes: Sequence[Change]) -> list[bool]:
        self._load_wanted()
        return [self._record(change) for change in changes]

    def _record(self, change: Change) -> bool:
        entry = self._entries.get(change.index)
        if entry is None or not entry.accepts_fence(change.fence):
            return False
        self._count(entry, -1)
        entry.move(change.state)
        entry.attempts, entry.rate_limited = change.attempts, change.rate_limited
        entry.put_off(change.ready_at, self.wall())
        if change.reason or entry.state.final:  # one that is given back keeps what it failed of last
            entry.reason = storable(change.reason[:LONGEST_REASON])
        entry.spend(change.tokens, change.cost, change.waited)
        if change.path and not entry.state.final:
            self.paths[change.index] = change.path
            self._has_moved = True
        if change.moved and entry.state is RowState.DONE:
            self.totals[f"moved.{change.moved}"] += 1
        self._count(entry, 1)
        self._changed.add(change.index)
        if entry.state.final:
            self.lines[change.index] = (entry.state, change.result)
        return True

    def reopen(self, indexes: Iterable[int]) -> None:
        """Let dead rows be tried again as if for the first time, corrected or not; what they have cost stays."""
        indexes = list(indexes)
        self._load_wanted()
        for index in indexes:
            entry = self._entries[index]
            self._count(entry, -1)
            entry.move(RowState.PENDING)
            entry.attempts = entry.rate_limited = 0
            entry.ready_at, entry.reason, entry.digest = 0.0, "", ANY_DIGEST
            self._count(entry, 1)
            self._changed.add(index)
            self._named.add(index)
        if self._has_paths():
            self.paths.update(dict.fromkeys(indexes, ""))
            self._has_moved = True

    def _has_paths(self) -> bool:
        (found,) = self.connection.execute(HAS_PATHS).fetchone()
        return bool(found)

    def _load_paths(self, indexes: Sequence[int]) -> None:
        """Load the paths of rows that were claimed before; in most ledgers none has one."""
        if indexes and self._has_paths():
            known = self.connection.execute(SELECT_PATHS, (json.dumps(indexes),)).fetchall()
            self.paths = {**dict(known), **self.paths}

    def return_claims(self, claims: Iterable[Claim]) -> None:
        """The caller that claimed these is gone; nothing was done."""
        self._load_wanted()
        for claim in claims:
            entry = self._entries.get(claim.index)
            if entry is not None and entry.accepts_fence(claim.fence):
                self._count(entry, -1)
                entry.move(RowState.PENDING)
                self._count(entry, 1)
                self._changed.add(claim.index)

    def free_dead(self, holders: Iterable[int]) -> None:
        """Free the rows of those processes that are dead."""
        for holder in holders:
            if holder not in (NO_HOLDER, self.process) and not self.is_alive(holder):
                self.free(holder)
                self.remove_process(holder)
                remove_lock(self.path, holder)

    def remove_process(self, holder: int) -> None:
        """This process does not work on the ledger any more."""
        self.connection.execute("UPDATE output SET holder = 0 WHERE holder = ?", (holder,))
        self.connection.execute("DELETE FROM processes WHERE id = ?", (holder,))

    def is_alive(self, holder: int) -> bool:
        if holder not in self._living:
            self._living[holder] = is_alive(self.path, holder)
        return self._living[holder]

    def free(self, holder: int, *, is_returned: bool = False) -> None:
        """Free the rows of a process. If it gave them back itself, its changes count no longer."""
        held = set(self._load_rows(self.connection.execute(HELD, (holder,))))
        held |= {index for index in self._changed if self._entries[index].holder == holder}
        for index in held:
            entry = self._entries[index]
            if entry.holder == holder:
                self._count(entry, -1)
                entry.abandon()
                entry.fence += is_returned
                self._count(entry, 1)
                self._changed.add(index)

    def flush(self) -> None:
        entries, named = self._entries, self._named
        self.put(PUT, [(i, entries[i].key, entries[i].digest, *as_values(entries[i])) for i in sorted(named)])
        self.put(CHANGE, [(i, *as_values(entries[i])) for i in sorted(self._changed - named)])
        self.put(RESULT, [(index, NUMBER_OF[state], line) for index, (state, line) in self.lines.items()])
        self.put(NUMBER, [(index,) for index in self.lines])
        self.put(ADD_UP, [(name, amount) for name, amount in self.totals.items() if amount])
        if self._has_moved:
            self.connection.execute(CREATE_PATHS)
            self.connection.executemany("INSERT OR REPLACE INTO paths VALUES (?, ?)", list(self.paths.items()))
        self.forget()

    def forget(self) -> None:
        caches = (self._entries, self._wanted, self._changed, self._named, self.lines, self.totals, self._living)
        for kept in caches:
            kept.clear()
        self.paths.clear()
        self._has_moved = False

    def _count(self, entry: Entry, sign: int) -> None:
        """Take a row out of the totals (-1) before it changes, and into them (1) afterwards."""
        totals = self.totals
        totals[TOTAL_OF[entry.state]] += sign
        totals["attempts"] += sign * entry.attempts
        if entry.tokens or entry.cost:
            totals["tokens"] += sign * entry.tokens
            totals["cost"] += sign * entry.cost
        if entry.state is RowState.DEAD:
            totals[f"reason.{FailureReason.parse(entry.reason).category}"] += sign
        for why, seconds in entry.waited.items():
            totals[f"waited.{why}"] += sign * seconds

    def _load_rows(self, found: sqlite3.Cursor) -> list[int]:
        taken = []
        try:
            for index, key, digest, state, *others, waited in json.loads(found.fetchone()[0]):
                taken.append(index)
                if index not in self._entries:  # what this transaction has changed already is newer
                    self._entries[index] = Entry(key, bytes.fromhex(digest), STATES[state], *others)
                    self._entries[index].waited = json.loads(waited) if waited else {}
        except UNREADABLE as error:
            raise ledger_error(error, self.path) from None
        return taken

    def put(self, statement: str, rows: list[tuple[Any, ...]]) -> int:
        """Write all of these; how many rows that were. Statements come in few sizes, filled up with empty rows."""
        written = 0
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            part = rows[start : start + ROWS_PER_STATEMENT]
            size = 1 << (len(part) - 1).bit_length()
            width = len(part[0])
            row = f"({', '.join('?' * width)})"
            values = [value for row_values in part for value in row_values] + [None] * (width * (size - len(part)))
            sql = statement.format(values="VALUES " + ", ".join([row] * size))
            written += self.connection.execute(sql, values).rowcount
        return written


def as_values(entry: Entry) -> tuple[Any, ...]:
    """All of it that changes as it goes."""
    waited = json.dumps(entry.waited) if entry.waited else ""
    return (
        *(NUMBER_OF[entry.state], entry.fence, entry.holder, entry.attempts, entry.rate_limited, entry.ready_at),
        *(entry.said_at, entry.reason, entry.tokens, entry.cost, waited),
    )
