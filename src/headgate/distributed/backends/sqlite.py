"""The store of one machine: a file in the user's state folder, through which processes find each other by themselves.

An exchange is one transaction. A process that finds the file locked tries again after part of a millisecond, and later
after a part of the time that it has waited: the database's own way of waiting is too coarse for transactions that take
less than one, and many processes that try all the time would take the processor from the one that holds the lock.

All processes of a machine have the same monotonic clock, so it is the coordinators'. After a restart of the machine it
starts over; they then go on from where they were, and the time of day says for how long the machine was off.

| table   | holds                                                                        |
|---------|------------------------------------------------------------------------------|
| desks   | one row for each key, under its keyed hash: its whole coordinator as JSON     |
| notes   | what members saw and their leader may not have read yet                       |
| learned | what a leader saved                                                           |

Nothing in it is precious: members of a quota can learn it again. So a file that is damaged is moved aside
(``.broken``, one of them is kept) and a new one is begun, with a warning.

``synchronous=NORMAL`` with a write-ahead log: a commit waits for no disk, only a checkpoint does. A power cut may cost
the last requests, as it costs those that made them; it does not damage the file.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from ...clock import Clock, SystemClock
from ...fork_safety import run_locked
from ...identity import Identities
from ...private_files import create_private, make_private_folder, restrict_to_owner, state_folder
from ...sqlite_file import Schema, connect, create_tables, enable_wal, error_code, has_mark, is_locked, schema_version
from ..coordinator import MOST_NOTES, QuotaCoordinator
from ..protocol import Note, StoreActions, SyncReply, SyncRequest
from ..store import FORGOTTEN_AFTER, PATIENCE, AdaptiveTimeout, FormerStoreNames, QuotaView, StoreDown, shown, view_of

log = logging.getLogger("headgate")

MOST_KEYS = 10_000
MOST_PAGES = 131_072
"""Of 4 KiB: half a gigabyte, which no use comes near."""
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

SCHEMA = Schema(
    application=0x48475348,  # "HGSH"
    version=1,
    tables="""
CREATE TABLE desks (name TEXT PRIMARY KEY, state TEXT NOT NULL, used_at REAL NOT NULL);
CREATE TABLE notes (name TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, member TEXT NOT NULL,
  text TEXT NOT NULL, PRIMARY KEY (name, number)) WITHOUT ROWID;
CREATE TABLE learned (name TEXT PRIMARY KEY, text TEXT NOT NULL)
""",
)
FIRST_PAUSE, LONGEST_PAUSE = 0.0002, 0.01
"""Seconds between two tries at a locked file ..."""
PAUSE_SHARE = 0.3
"""... and as a share of the time that was waited already."""
SNAPSHOT_LOCK_TIMEOUT = 1.0
"""Seconds for which a reader, a person, may wait for a lock."""
SWEEP_EVERY = 1_000
"""New keys between two sweeps."""
NAMES_KEPT = 4_096
_inherited: list[sqlite3.Connection] = []
"""Connections of a parent process: not ours to use, nor to close."""

PUT = """
INSERT INTO desks VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state, used_at = excluded.used_at
"""
GIVE = (
    "SELECT number, at, member, text FROM notes WHERE name = ? AND number > ? AND member <> ? ORDER BY number LIMIT ?"
)


class SqliteStore(FormerStoreNames):
    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``timeout``: seconds to wait for its lock; by default ``PATIENCE``, and more at first. On a busy machine the
        process that holds it may not run for a tenth of a second, and many may be in line; members that took this for
        a lost store would start their share on top of the others'."""
        self._is_default = path is None
        chosen = os.path.join(state_folder(), "shared.db") if path is None else os.fspath(path)
        self.path = os.path.abspath(os.path.expanduser(chosen))
        self.where = f"machine ({self.path})"
        self._timeout = AdaptiveTimeout(timeout, least=PATIENCE)
        self._clock = SystemClock() if clock is None else clock
        self._name_of: Callable[[str], str] | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._closing: weakref.finalize[[sqlite3.Connection, int], SqliteStore] | None = None
        """Closes the connection of a store that is dropped without ``close()``, as a limiter's may be."""
        self._file: tuple[int, int] | None = None
        """Which file is open, or was tried."""
        self._files: tuple[tuple[int, int] | None, ...] = ()
        """... with those beside it."""
        self._is_swept = False
        """Whether old keys were removed since it was opened."""
        self._made = 0
        """New keys so far."""

    def sync(self, requests: Sequence[tuple[str, SyncRequest]]) -> list[SyncReply]:
        """One transaction for all. Raises ``StoreDown`` if the file stays locked or cannot be used."""
        if not requests:
            return []
        began, timeout = time.monotonic(), self._timeout
        if self._process != os.getpid():
            self._start_over()
        replies: list[SyncReply] = []
        if not run_locked(self._lock, timeout.seconds, lambda: replies.extend(self._exchange(requests, began))):
            raise StoreDown(f"{self.where}: another thread is still using it")
        timeout.answered(time.monotonic() - began)
        return replies

    def _exchange(self, requests: Sequence[tuple[str, SyncRequest]], began: float) -> list[SyncReply]:
        if self._name_of is None:
            self._name_of = lru_cache(NAMES_KEPT)(Identities.of_user().of)
        for last_try in (False, True):
            try:
                return self._try(requests, began)
            except (sqlite3.Error, OSError) as error:
                self._drop()
                if last_try or not is_broken(error) or not self._replace():
                    raise StoreDown(f"{self.where}: {in_words(error, self.path)}") from None
        raise AssertionError("the second try neither returned nor raised")

    def snapshot(self) -> list[QuotaView]:
        if not os.path.exists(self.path):
            return []
        try:
            connection = open_file(self.path, SNAPSHOT_LOCK_TIMEOUT)
            try:
                rows = connection.execute(
                    "SELECT name, state FROM desks ORDER BY name LIMIT ?", (MOST_KEYS,)
                ).fetchall()
            finally:
                connection.close()
        except (sqlite3.Error, OSError) as error:
            raise StoreDown(f"{self.where}: {in_words(error, self.path)}") from None
        now, wall = self._clock.now(), self._clock.wall()
        found = [(name, _read(state)) for name, state in rows]
        return [view_of(shown(name), one, now, wall) for name, one in found if one is not None]

    def close(self) -> None:
        if self._process != os.getpid():
            self._start_over()
        with self._lock:
            self._drop()

    def __repr__(self) -> str:
        return f"<SqliteStore: {self.path}>"

    # ------------------------------------------------------------------ the file

    def _try(self, requests: Sequence[tuple[str, SyncRequest]], began: float) -> list[SyncReply]:
        if self._connection is not None and all_of(self.path) != self._files:  # removed or replaced
            self._drop()
        while True:
            try:
                connection = self._opened()
                connection.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.Error as error:
                if not is_locked(error):
                    raise
            waited, patience = time.monotonic() - began, self._timeout.seconds
            if waited >= patience:
                self._timeout.failed()
                raise StoreDown(f"{self.where}: other processes have held its lock for {1000 * patience:.0f} ms")
            pause = min(max(FIRST_PAUSE, PAUSE_SHARE * waited), LONGEST_PAUSE)
            time.sleep(min(patience - waited, pause * (0.5 + random.random())))
        try:
            if not self._is_swept:
                sweep(connection, self._clock.wall())
            replies = [self._sync(connection, key, request) for key, request in requests]
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._is_swept = True
        return replies

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._file = identity_of(self.path)
            self._connection = connection = open_file(self.path)
            self._file, self._files, self._is_swept = identity_of(self.path), all_of(self.path), False
            self._closing = weakref.finalize(self, _close_in_process, connection, os.getpid())
            self._closing.atexit = False
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None and self._closing is not None:
            self._closing()
            self._connection = None

    def _replace(self) -> bool:
        """Put a broken file of ours out of the way."""
        if not self._is_default and not has_mark(self.path, SCHEMA):
            return False
        try:
            move_aside(self.path, self._file)
        except OSError:
            return False
        return True

    def _start_over(self) -> None:
        """What the parent has open is the parent's, and so is a lock that it held."""
        if self._closing is not None:
            self._closing()
        self._process, self._lock, self._connection = os.getpid(), threading.Lock(), None

    # ------------------------------------------------------------------ one request

    def _sync(self, connection: sqlite3.Connection, key: str, request: SyncRequest) -> SyncReply:
        assert self._name_of is not None
        name = self._name_of(key)
        row = connection.execute("SELECT state, used_at FROM desks WHERE name = ?", (name,)).fetchone()
        now, wall = self._clock.now(), self._clock.wall()
        coordinator = None if row is None else _read(row[0])
        if coordinator is not None:
            coordinator.restart(now, wall - row[1])
        if coordinator is None:
            coordinator = QuotaCoordinator(request.terms, now)
            self._made += 1
            if self._made % SWEEP_EVERY == 0:
                sweep(connection, wall)
            connection.execute("DELETE FROM notes WHERE name = ?", (name,))
            connection.execute("DELETE FROM learned WHERE name = ?", (name,))
        covered = coordinator.covers
        reply, actions = coordinator.sync(request, now, wall)
        connection.execute(PUT, (name, json.dumps(coordinator.to_state(), separators=(",", ":")), wall))
        if actions.forget_to > covered:
            connection.execute("DELETE FROM notes WHERE name = ? AND number <= ?", (name, actions.forget_to))
        return _run(actions, connection, name, reply)


def _close_in_process(connection: sqlite3.Connection, process: int) -> None:
    if os.getpid() == process:
        connection.close()
    else:
        _inherited.append(connection)


def _run(actions: StoreActions, connection: sqlite3.Connection, name: str, reply: SyncReply) -> SyncReply:
    if actions.keep is not None:
        note = actions.keep
        connection.execute(
            "INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?, ?)", (name, note.number, note.at, note.member, note.text)
        )
    if actions.save:
        connection.execute("INSERT OR REPLACE INTO learned VALUES (?, ?)", (name, actions.save))
    if actions.give_after >= 0:
        rows = connection.execute(GIVE, (name, actions.give_after, actions.but_not_of, MOST_NOTES)).fetchall()
        if rows:
            notes = [Note(number=number, at=at, member=member, text=text) for number, at, member, text in rows]
            reply = replace(reply, notes=tuple(notes))
    if actions.give_learned:
        row = connection.execute("SELECT text FROM learned WHERE name = ?", (name,)).fetchone()
        reply = replace(reply, learned="" if row is None else row[0])
    return reply


def _read(state: str) -> QuotaCoordinator | None:
    """None if it was written by a version that wrote its state otherwise."""
    try:
        return QuotaCoordinator.from_state(json.loads(state))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


# ------------------------------------------------------------------ the file


class IncompatibleVersionError(sqlite3.DatabaseError):
    """The file has tables of another version."""


def open_file(path: str, lock_timeout: float = 0.0) -> sqlite3.Connection:
    """Open the file; it is made for its owner only. Raises ``sqlite3.Error`` or ``OSError``."""
    make_private_folder(path)
    if not os.path.exists(path):  # and not opened otherwise: closing it would free all locks this process has on it
        create_private(path, b"")  # the files beside it get the same permissions
    connection = connect(os.path.abspath(path), mode="rw", lock_timeout=lock_timeout)
    try:
        version = schema_version(connection, SCHEMA)
        if version == 0:
            enable_wal(connection, lock_timeout=lock_timeout)
            create_tables(connection, SCHEMA)
        elif version != SCHEMA.version:
            raise IncompatibleVersionError(
                f"it was written by another version of headgate (format {version}, expected {SCHEMA.version})"
            )
        restrict_to_owner(path)  # not before it has proved to be one of ours
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA max_page_count = {MOST_PAGES}")
    except BaseException:
        connection.close()
        raise
    return connection


def sweep(connection: sqlite3.Connection, wall: float) -> None:
    """Remove keys that were not used for long, and the oldest of too many. In a transaction of the caller's."""
    connection.execute("DELETE FROM desks WHERE used_at < ?", (wall - FORGOTTEN_AFTER,))
    connection.execute(
        "DELETE FROM desks WHERE name IN (SELECT name FROM desks ORDER BY used_at DESC LIMIT -1 OFFSET ?)",
        (MOST_KEYS,),
    )
    connection.execute("DELETE FROM notes WHERE name NOT IN (SELECT name FROM desks)")
    connection.execute("DELETE FROM learned WHERE name NOT IN (SELECT name FROM desks)")


def is_broken(error: Exception) -> bool:
    """Whether the file itself is at fault: damaged, or without the tables that it had."""
    code = error_code(error)
    return code in BROKEN or (code == sqlite3.SQLITE_ERROR and "no such table" in str(error))


def move_aside(path: str, identity: tuple[int, int] | None) -> None:
    """Make room for a new file, unless another process has done so since this one was opened."""
    if identity_of(path) != identity:
        return
    for beside in ("-wal", "-shm"):  # first: what is in them must never get into the new file
        if os.path.exists(path + beside):
            os.unlink(path + beside)
    os.replace(path, f"{path}.broken")
    log.warning("%s was damaged and is now %s.broken; limits are learned again", path, path)


def identity_of(path: str) -> tuple[int, int] | None:
    """Which file has that name now; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def all_of(path: str) -> tuple[tuple[int, int] | None, ...]:
    """Which files it consists of now. A process with the same file and another log than others does not see them."""
    return tuple(identity_of(path + beside) for beside in ("", "-wal", "-shm"))


def in_words(error: Exception, path: str) -> str:
    """Why the file cannot be used, for a person."""
    if isinstance(error, OSError):
        return f"it cannot be opened or created ({error.strerror or error})"
    sentences = {
        sqlite3.SQLITE_FULL: "the disk is full",
        sqlite3.SQLITE_IOERR: "it cannot be read or written: the disk is full or broken",
        sqlite3.SQLITE_READONLY: "it is not writable; check its permissions",
        sqlite3.SQLITE_CANTOPEN: f"it cannot be opened; check the permissions of {os.path.dirname(path)}",
        sqlite3.SQLITE_CORRUPT: "it is damaged",
        sqlite3.SQLITE_NOTADB: "it is not a database",
    }
    return sentences.get(error_code(error), str(error))
