"""A SQLite file that several processes work on: how it is opened, what its faults mean, and the thread that writes.

    task ──submit──> gathered ──one lot──> writing thread ── BEGIN, all of them, COMMIT ──> the tasks' futures

``DatabaseFormat`` makes the file if there is none, and tells a user what is wrong with it. A commit takes
milliseconds, because the disk must confirm it. While one is under way, more is submitted; ``GroupCommitWriter``
commits all of that together, so a busy store pays once for many.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from ..errors import LedgerError
from ..formatting import redact
from ..sqlite_file import ForeignDatabaseError, Schema, connect, create_tables, enable_wal, error_code, schema_version
from .output_file import length_of

LONGEST_LOCK = 30.0
"""Seconds to wait for another process's commit."""
PAGES_PER_CHECKPOINT = 4096
"""Pages (4 KiB each) that gather in the write-ahead log before they are moved into the file."""
UNREADABLE = (sqlite3.Error, OSError, ValueError, TypeError, LookupError, AttributeError)
"""What reading a file may raise that is damaged in a way the database does not see: a state that there is not, half a
character, a table without its row."""
_DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_FORMAT)
"""A table that is gone, a row that is there twice, a text where a number was: no statement of ours is at fault."""


LONGEST_SHOWN = 80
"""Characters of each value in the message that says what has changed."""


def changed_values(known: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What a file's rows belong to and no longer fits, by name: ``was 'a.jsonl' and is now 'b.jsonl'``."""
    changed = [name for name in sorted({*known, *given}) if known.get(name) != given.get(name)]
    return {name: f"was {_shown(known.get(name))} and is now {_shown(given.get(name))}" for name in changed}


def _shown(value: str | None) -> str:
    if value is None:
        return "not given"
    text = redact(value)
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFormat:
    """What one kind of file holds, and what is said of files that are not of this kind."""

    schema: Schema
    name: str
    """What people call it."""
    absent: str
    """Said before the path of a file that is not there."""
    empty: str
    """Said after the path of one with nothing in it."""
    elsewhere: str
    """What to do with one that is not of this kind."""
    rescue: str
    """What to do where one is damaged; ``{path}`` is its name."""
    cache: int | None = None
    """KiB of the file that are kept in memory; None is what the database thinks best."""

    def open_to_write(self, path: str) -> sqlite3.Connection:
        """The connection of the one thread that writes; makes the file if there is none."""
        self.check_log(path)
        connection = connect(path, lock_timeout=LONGEST_LOCK)
        try:
            if self._version(connection, path) == 0:
                enable_wal(connection, lock_timeout=LONGEST_LOCK)
                create_tables(connection, self.schema)
            connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES_PER_CHECKPOINT}")
            if self.cache is not None:
                connection.execute(f"PRAGMA cache_size = -{self.cache}")
            connection.execute("PRAGMA temp_store = FILE")
        except BaseException:
            connection.close()
            raise
        return connection

    def check_log(self, path: str) -> None:
        """Raise where a write-ahead log has lost its file: a new file there would take over or delete its content."""
        log = path + "-wal"
        if length_of(log) and not length_of(path):  # in this order: a file is made before its log
            raise LedgerError(
                f"{log} holds the last changes of a {self.name} that is missing. Restore {path}, or move {log} to "
                "where it is now, then try again; nothing was changed"
            )

    def open_to_read(self, path: str) -> sqlite3.Connection:
        """A connection that changes nothing; there must be a file already."""
        if not os.path.exists(path):
            raise LedgerError(f"{self.absent} {path}")
        connection = connect(path, mode="ro", lock_timeout=LONGEST_LOCK)
        try:
            if self._version(connection, path) == 0:
                raise LedgerError(f"{path} {self.empty}")
        except BaseException:
            connection.close()
            raise
        return connection

    def ledger_error(self, error: Exception, path: str) -> LedgerError:
        """What has gone wrong with the file and what to do, without the database's own words where ours are clearer.

        What makes no sense to the code that reads the file (``UNREADABLE``) is damage that the database has not seen.
        """
        code, why = 0, str(error)
        if isinstance(error, OSError):
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            code, why = (sqlite3.SQLITE_FULL if full else 0), error.strerror or str(error)
        elif not isinstance(error, sqlite3.Error):
            code, why = sqlite3.SQLITE_CORRUPT, f"unexpected content: {type(error).__name__}"
        elif not isinstance(error, sqlite3.ProgrammingError):
            code = error_code(error) or sqlite3.SQLITE_CORRUPT
            code = sqlite3.SQLITE_CORRUPT if code in _DAMAGE else code
        folder = os.path.dirname(os.path.abspath(path))
        damaged = f"{path} is damaged ({why.encode('ascii', 'backslashreplace').decode()}). {self.rescue}"
        sentences = {
            sqlite3.SQLITE_FULL: f"the disk is full: {path} cannot grow. What was recorded is safe; free some "
            f"space in {folder}",
            sqlite3.SQLITE_IOERR: f"{path} cannot be read or written ({why}): the disk is full or broken. What was "
            f"recorded is safe; check {folder}",
            sqlite3.SQLITE_READONLY: f"{path} is not writable: check its permissions, or {self.elsewhere}",
            sqlite3.SQLITE_CANTOPEN: self._why_not_opened(path, folder),
            sqlite3.SQLITE_NOTADB: f"{path} is not a {self.name}; choose another file. If it is a damaged one: "
            f"{self.rescue}",
            sqlite3.SQLITE_CORRUPT: damaged,
            sqlite3.SQLITE_BUSY: f"{path} was locked by another program for {LONGEST_LOCK:g} s; stop that program",
        }
        text = sentences.get(code, f"{path} cannot be used as a {self.name} ({why})")
        return LedgerError(text.replace("{path}", shlex.quote(path)))

    def _why_not_opened(self, path: str, folder: str) -> str:
        if not os.path.isdir(folder):
            return f"there is no folder {folder} for the {self.name}; create it, or choose another file"
        if os.path.isdir(path):
            return f"{path} is a folder; choose a file for the {self.name}"
        return f"cannot open or create {path}: check the permissions of {folder}, or {self.elsewhere}"

    def _version(self, connection: sqlite3.Connection, path: str) -> int:
        """0 for an empty file."""
        try:
            version = schema_version(connection, self.schema)
        except ForeignDatabaseError:
            raise LedgerError(f"{path} is a database of another program; {self.elsewhere}") from None
        if version > self.schema.version:
            raise LedgerError(
                f"{path} was made by a newer headgate (format {version}; this version reads up to "
                f"{self.schema.version}); upgrade, or {self.elsewhere}"
            )
        return version


def storable(text: str) -> str:
    """Text from outside may hold what no database takes: half characters, and zeros that end it early."""
    if text.isascii() and text.isprintable():
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


# ---------------------------------------------------------------------- the thread that writes


class Transaction(Protocol):
    """What the thread works on: nothing is written before ``flush``, and ``forget`` discards it all."""

    @property
    def connection(self) -> sqlite3.Connection: ...
    @property
    def path(self) -> str: ...
    def load(self, numbers: Iterable[int], /) -> None: ...
    def flush(self) -> None: ...
    def forget(self) -> None: ...


T = TypeVar("T")
W = TypeVar("W", bound=Transaction)

FEW = 16
"""Rows that are not worth a statement of their own in a transaction with others."""
MOST_PER_COMMIT = 1024
"""Jobs in one transaction; as many may wait as there are tasks that wait."""


@dataclass(slots=True, eq=False)
class WriteJob(Generic[W]):
    work: Callable[[W], Any]
    """Does it all or raises ``LedgerError`` before it has done anything."""
    fast: Callable[[W], Any] | None
    """Does the same in one statement, which may be all of a transaction; None if it cannot, and nothing is done."""
    about: Collection[int]
    """The rows it is about."""
    durable: bool
    """Whether it must survive a power cut; if not, it survives the death of the process."""
    step: str
    future: asyncio.Future[Any]
    outcome: Any = None
    is_reported: bool = False


class GroupCommitWriter(Generic[W]):
    def __init__(
        self,
        transaction: W,
        *,
        full_sync: bool,
        on_step: Callable[[str], None] | None,
        error_of: Callable[[Exception, str], LedgerError],
    ) -> None:
        self._transaction = transaction
        self._error_of = error_of
        self._full_sync = full_sync
        self._on_step = on_step
        self._synchronous = ""
        self._loop = asyncio.get_running_loop()
        self._gathered: list[WriteJob[W]] = []
        self._queue: SimpleQueue[list[WriteJob[W]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headgate-ledger", daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Callable[[W], T],
        *,
        fast: Callable[[W], T | None] | None = None,
        about: Collection[int] = (),
        durable: bool = True,
        step: str = "commit",
    ) -> asyncio.Future[T]:
        """Do this in the next transaction; the future is done once that is committed."""
        future: asyncio.Future[T] = self._loop.create_future()
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(WriteJob(work, fast, about, durable, step, future))
        return future

    async def close(self) -> None:
        """Write what is left, and end the thread."""
        self._hand_over()
        self._queue.put(None)
        try:
            await self._loop.run_in_executor(None, self._thread.join)
        except asyncio.CancelledError:
            self._thread.join()  # the files are closed next; it takes as long as a commit
            raise

    def _hand_over(self) -> None:
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered = []

    def _run(self) -> None:
        while (jobs := self._queue.get()) is not None:
            last = False
            while len(jobs) < MOST_PER_COMMIT and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    last = True
                    break
                jobs += more
            self._commit(jobs)
            with contextlib.suppress(RuntimeError):  # the loop may be closed: then no task waits
                self._loop.call_soon_threadsafe(_resolve, jobs)
            if last:
                return

    def _commit(self, jobs: list[WriteJob[W]]) -> None:
        """A lot that is alone of its kind goes fast, if it can; many share the price of one transaction.

        None of these jobs has been answered yet, so none depends on another, and their order is ours to choose.
        """
        transaction, connection, undone = self._transaction, self._transaction.connection, list(jobs)
        lots = Counter(job.step for job in jobs if job.fast is not None)
        try:
            for job in jobs:
                if lots[job.step] == 1 and self._did_fast(job):
                    undone.remove(job)
            if undone:
                self._do_together(undone)
        except Exception as error:
            transaction.forget()
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error | OSError):
                error = self._error_of(error, transaction.path)
            for job in undone:
                job.outcome = LedgerError(*error.args) if isinstance(error, LedgerError) else error

    def _did_fast(self, job: WriteJob[W]) -> bool:
        if job.fast is None or self._transaction.connection.in_transaction:
            return False
        self._set_durability(self._full_sync and job.durable)
        self._report_step([job])
        job.outcome = job.fast(self._transaction)
        if job.outcome is None:
            return False
        if self._on_step:
            self._on_step("committed")
        return True

    def _do_together(self, jobs: list[WriteJob[W]]) -> None:
        transaction, connection = self._transaction, self._transaction.connection
        self._set_durability(self._full_sync and any(job.durable for job in jobs))
        connection.execute("BEGIN IMMEDIATE")
        transaction.load({index for job in jobs for index in job.about})
        for job in jobs:
            try:
                if job.fast is not None and len(job.about) > FEW and len(jobs) > 1:
                    job.outcome = job.fast(transaction)
                if job.outcome is None:
                    job.outcome = job.work(transaction)
            except LedgerError as error:
                job.outcome = error
        transaction.flush()
        self._report_step(jobs)
        connection.execute("COMMIT")
        if self._on_step:
            self._on_step("committed")

    def _set_durability(self, durable: bool) -> None:
        wanted = "FULL" if durable else "NORMAL"
        if wanted != self._synchronous:
            self._transaction.connection.execute(f"PRAGMA synchronous = {wanted}")
            self._synchronous = wanted

    def _report_step(self, jobs: list[WriteJob[W]]) -> None:
        if self._on_step:
            for step in {job.step for job in jobs if not job.is_reported}:
                self._on_step(step)
            for job in jobs:
                job.is_reported = True


def _resolve(jobs: list[WriteJob[Any]]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if isinstance(job.outcome, Exception):
            job.future.set_exception(job.outcome)
        else:
            job.future.set_result(job.outcome)
