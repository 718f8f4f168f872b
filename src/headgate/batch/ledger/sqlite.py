"""A ledger in a file: it outlives its process, and several processes may work on it at once.

Everything that changes goes through one writing thread (``engine.database``), everything else through one
that reads, so the event loop never waits for the disk. What is claimed survives the death of the process;
what is recorded survives a power cut as well, before ``record`` returns (``durability="normal"`` gives
that up for speed). Rows of a process that has died are free again as soon as another looks (``process_lock``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar

from ...core.row_state import NO_HOLDER
from ...engine.database import UNREADABLE, GroupCommitWriter
from ...engine.output_file import length_of
from ...errors import ConfigError
from ...process_lock import ProcessLock, is_alive
from ..report import Failures
from . import Change, Claim, Counts, LedgerError, Row, RowState, Written
from .fast_path import claim_new, create_views, finish_all, is_simple
from .queries import (
    Holder,
    read_counts,
    read_failures,
    read_final,
    read_holders,
    read_named,
    read_note,
    read_unclaimed,
    read_unfinished,
)
from .schema import ledger_error, open_to_read, open_to_write, take_identity
from .transaction import LedgerTransaction

T = TypeVar("T")

PATIENCE = 0.01
"""Seconds: calls take far longer, and a commit takes half a millisecond of work, however little is in it."""


class SqliteLedger:
    """A ``Ledger`` in a file. One object stands for one process that works on it, from ``begin`` to ``close``."""

    patience = PATIENCE

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Literal["full", "normal"] = "full",
        wall: Callable[[], float] = time.time,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        if durability not in ("full", "normal"):
            raise ConfigError(f'durability={durability!r} must be "full" or "normal"')
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self._full_sync = durability == "full"
        self._wall = wall
        self._on_step = on_step
        self._process = NO_HOLDER
        self._is_new = False
        """Whether the file was made by this object."""
        self._lock: ProcessLock | None = None
        self._writing: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None
        self._writer: GroupCommitWriter[LedgerTransaction] | None = None
        self._reader: ThreadPoolExecutor | None = None

    async def begin(self, identity: Mapping[str, str]) -> Counts:
        if self._reader is not None:
            raise LedgerError(f"begin was already called for {self.path}")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="headgate-ledger-read")
        try:
            transaction = await asyncio.get_running_loop().run_in_executor(self._reader, self._open, dict(identity))
        except BaseException:
            self._release()
            raise
        self._writer = GroupCommitWriter(
            transaction, full_sync=self._full_sync, on_step=self._on_step, error_of=ledger_error
        )
        return await self.counts()

    async def claim(self, rows: Sequence[Row]) -> list[Claim | RowState]:
        future = self._write().submit(
            lambda transaction: transaction.claim(rows),
            fast=lambda transaction: claim_new(transaction, rows),
            about=[row.index for row in rows],
            durable=False,
            step="claim",
        )
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(self._return_claims)  # the caller is gone
            raise

    async def unfinished(self, first: int, digests: Sequence[bytes]) -> list[int]:
        return await self._read(lambda connection: read_unfinished(connection, first, digests))

    async def record(self, change: Change) -> bool:
        return (await self.record_all((change,)))[0]

    async def record_all(self, changes: Sequence[Change]) -> list[bool]:
        plain = [change for change in changes if is_simple(change)]
        if len(plain) in (0, len(changes)):
            return await self._record_lot(changes, bool(plain))
        odd = [change for change in changes if not is_simple(change)]
        kept = await asyncio.gather(self._record_lot(plain, True), self._record_lot(odd, False))
        of_plain, of_odd = map(iter, kept)
        return [next(of_plain if is_simple(change) else of_odd) for change in changes]

    def _record_lot(self, changes: Sequence[Change], are_plain: bool) -> asyncio.Future[list[bool]]:
        return self._write().submit(
            lambda transaction: transaction.record(changes),
            fast=(lambda transaction: finish_all(transaction, changes)) if are_plain else None,
            about=[change.index for change in changes],
        )

    async def abandoned(self, limit: int) -> list[int]:
        dead = await self._read(self._dead)
        if dead:
            await self._write().submit(lambda transaction: transaction.free_dead(dead), durable=False, step="claim")
        return await self._read(lambda connection: read_unclaimed(connection, limit))

    async def final(self, after: int, limit: int) -> list[Written]:
        return await self._read(lambda connection: read_final(connection, after, limit))

    async def checkpoint(self, number: int, offset: int) -> bool:
        def write(transaction: LedgerTransaction) -> bool:
            sql = "UPDATE output SET number = ?, offset = ? WHERE holder = ?"
            return transaction.connection.execute(sql, (number, offset, transaction.process)).rowcount == 1

        return await self._write().submit(write)

    async def output(self) -> tuple[int, int] | None:
        def take(transaction: LedgerTransaction) -> tuple[int, int] | None:
            holder, number, offset = transaction.connection.execute(
                "SELECT holder, number, offset FROM output"
            ).fetchone()
            if holder not in (NO_HOLDER, transaction.process) and transaction.is_alive(holder):
                return None
            transaction.connection.execute("UPDATE output SET holder = ?", (transaction.process,))
            return number, offset

        return await self._write().submit(take, durable=False, step="claim")

    async def note(self, name: str, text: str) -> None:
        """Keep a small text for the next run."""

        def write(transaction: LedgerTransaction) -> None:
            transaction.connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, text))

        await self._write().submit(write, durable=False, step="note")

    async def note_once(self, name: str, text: str) -> str:
        """Keep a text unless there is one under this name; what is kept is the same for all processes."""

        def write(transaction: LedgerTransaction) -> str:
            transaction.connection.execute("INSERT OR IGNORE INTO notes VALUES (?, ?)", (name, text))
            return read_note(transaction.connection, name)

        return await self._write().submit(write, durable=False, step="note")

    async def noted(self, name: str) -> str:
        """What was kept under this name; empty if nothing was."""
        return await self._read(lambda connection: read_note(connection, name))

    async def index_names(self) -> None:
        """Make ``rows_named`` quick, for an input whose rows have names of their own."""
        sql = "CREATE INDEX IF NOT EXISTS names ON rows (key)"
        await self._write().submit(lambda transaction: transaction.connection.execute(sql), durable=False, step="note")

    async def rows_named(self, names: Sequence[str]) -> list[tuple[int, str]]:
        """Index and name of the rows that have one of these names, in their order."""
        return await self._read(lambda connection: read_named(connection, names))

    async def failures(self) -> Failures:
        """Why rows are dead, or wait; reads through all of them."""
        return await self._read(read_failures)

    async def others(self) -> list[Holder]:
        """The other processes that work on this ledger and are alive."""
        found = await self._read(lambda connection: read_holders(connection, self.path, self._process))
        return [one for one in found if one.alive]

    async def counts(self) -> Counts:
        return await self._read(read_counts)

    async def close(self, *, unused: bool = False) -> None:
        """May be called again, and after a ``begin`` that failed.

        ``unused``: nothing came of it, so that a file that was made for it goes again, unless others work on it.
        """
        writer, self._writer = self._writer, None
        if writer is None:
            return
        is_empty = False
        try:
            leaving = writer.submit(self._close_process, durable=True)
            await writer.close()
            is_empty = await leaving
        finally:
            self._release()
        if unused and self._is_new and is_empty:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def _open(self, identity: dict[str, str]) -> LedgerTransaction:
        """Enter this process; its number is not seen before its lock is."""
        try:
            self._is_new = not length_of(self.path)
            self._writing = open_to_write(self.path)
            self._writing.execute("BEGIN IMMEDIATE")
            take_identity(self._writing, identity, self.path)
            entered = self._writing.execute(
                "INSERT INTO processes (pid, host, began_at) VALUES (?, ?, ?)",
                (os.getpid(), socket.gethostname(), self._wall()),
            )
            self._process = entered.lastrowid or NO_HOLDER
            self._lock = ProcessLock(self.path, self._process)
            self._writing.execute("COMMIT")
            create_views(self._writing)
            self._reading = open_to_read(self.path)
        except UNREADABLE as error:
            raise ledger_error(error, self.path) from None
        return LedgerTransaction(self._writing, self.path, process=self._process, wall=self._wall)

    def _close_process(self, transaction: LedgerTransaction) -> bool:
        """Whether the ledger has no row and no process any more."""
        transaction.free(transaction.process, is_returned=True)
        transaction.remove_process(transaction.process)
        sql = "SELECT NOT EXISTS (SELECT 1 FROM rows) AND NOT EXISTS (SELECT 1 FROM processes)"
        (is_empty,) = transaction.connection.execute(sql).fetchone()
        return bool(is_empty)

    def _release(self) -> None:
        if self._reader is not None:
            self._reader.shutdown(wait=True)
        if self._lock is not None:
            self._lock.end()  # before the lock on the file goes: a number that was not committed may be given out again
        for connection in (self._reading, self._writing):
            if connection is not None:
                connection.close()
        self._lock = self._reading = self._writing = self._reader = None

    def _dead(self, connection: sqlite3.Connection) -> list[int]:
        others = connection.execute("SELECT id FROM processes WHERE id != ?", (self._process,))
        return [holder for (holder,) in others if not is_alive(self.path, holder)]

    def _return_claims(self, claimed: asyncio.Future[list[Claim | RowState]]) -> None:
        if claimed.cancelled() or claimed.exception() or self._writer is None:
            return
        claims = [claim for claim in claimed.result() if isinstance(claim, Claim)]
        about = [claim.index for claim in claims]
        self._writer.submit(
            lambda transaction: transaction.return_claims(claims), about=about, durable=False, step="claim"
        )

    def _write(self) -> GroupCommitWriter[LedgerTransaction]:
        if self._writer is None:
            raise LedgerError(f"{self.path} is not open: call begin first, and nothing after close")
        return self._writer

    async def _read(self, look: Callable[[sqlite3.Connection], T]) -> T:
        self._write()

        def read() -> T:
            assert self._reading is not None
            try:
                return look(self._reading)
            except UNREADABLE as error:
                raise ledger_error(error, self.path) from None

        return await asyncio.get_running_loop().run_in_executor(self._reader, read)

    def __repr__(self) -> str:
        return f"SqliteLedger({self.path!r})"
