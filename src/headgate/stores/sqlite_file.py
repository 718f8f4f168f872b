"""The machine store's file: its tables, how it is opened for its owner only, and how a broken one is replaced.

| table   | holds                                                                        |
|---------|------------------------------------------------------------------------------|
| desks   | one row for each key, under its keyed hash: the whole desk as JSON            |
| notes   | what members saw and their leader may not have read yet                       |
| learned | what a leader saved                                                           |

Nothing in it is dear: whoever shares a quota can learn it again. So a file that is damaged is moved aside
(``.broken``, one of them is kept) and a new one is begun, with a warning.

``synchronous=NORMAL`` with a write-ahead log: a commit waits for no disk, only a checkpoint does. A power cut may cost
the last visits, as it costs those who made them; it does not damage the file.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from urllib.parse import quote

from ..identity import close_to_others, make_folder_for, make_for_owner
from .contract import FORGOTTEN_AFTER

log = logging.getLogger("headgate")

APPLICATION = 0x48475348  # "HGSH"
SCHEMA = 1
MOST_DESKS = 10_000
MOST_PAGES = 131_072
"""Of 4 KiB: half a gigabyte, which nobody comes near."""
CACHED_STATEMENTS = 32
MARK_AT, MARK_BYTES = 68, 4
"""Where a database says whose it is."""
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

TABLES = """
CREATE TABLE desks (name TEXT PRIMARY KEY, state TEXT NOT NULL, used_at REAL NOT NULL);
CREATE TABLE notes (name TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, member TEXT NOT NULL,
  text TEXT NOT NULL, PRIMARY KEY (name, number)) WITHOUT ROWID;
CREATE TABLE learned (name TEXT PRIMARY KEY, text TEXT NOT NULL)
"""


class OfAnother(Exception):  # noqa: N818 - a finding
    """The file is there, and not ours to write in."""


def open_file(path: str, patience: float = 0.0) -> sqlite3.Connection:
    """Open the file; it is made for its owner only. Raises ``sqlite3.Error``, ``OSError`` or ``OfAnother``."""
    make_folder_for(path)
    if not os.path.exists(path):  # and not opened otherwise: closing it would free all locks this process has on it
        make_for_owner(path, b"")  # the files beside it get the same permissions
    connection = sqlite3.connect(
        f"file:{quote(os.path.abspath(path))}?mode=rw",
        timeout=patience,
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
    )
    try:
        if _version(connection, path) == 0:
            connection.execute("PRAGMA journal_mode = WAL")
            _make_tables(connection, path)
        close_to_others(path)  # not before it has proved to be one of ours
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA max_page_count = {MOST_PAGES}")
    except BaseException:
        connection.close()
        raise
    return connection


def sweep(connection: sqlite3.Connection, wall: float) -> None:
    """Remove desks that nobody has visited for long, and the oldest of too many. In a transaction of the caller's."""
    connection.execute("DELETE FROM desks WHERE used_at < ?", (wall - FORGOTTEN_AFTER,))
    connection.execute(
        "DELETE FROM desks WHERE name IN (SELECT name FROM desks ORDER BY used_at DESC LIMIT -1 OFFSET ?)",
        (MOST_DESKS,),
    )
    connection.execute("DELETE FROM notes WHERE name NOT IN (SELECT name FROM desks)")
    connection.execute("DELETE FROM learned WHERE name NOT IN (SELECT name FROM desks)")


def is_broken(error: Exception) -> bool:
    """Whether the file itself is at fault: damaged, or without the tables that it had."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in BROKEN or (code == sqlite3.SQLITE_ERROR and "no such table" in str(error))


def is_locked(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_ours(path: str) -> bool:
    """Whether what is left of a file bears our mark."""
    try:
        with open(path, "rb") as file:
            return file.read(MARK_AT + MARK_BYTES)[MARK_AT:] == APPLICATION.to_bytes(MARK_BYTES, "big")
    except OSError:
        return False


def move_aside(path: str, identity: tuple[int, int] | None) -> None:
    """Make room for a new file, unless somebody has done so since this one was opened."""
    if identity_of(path) != identity:
        return
    for beside in ("-wal", "-shm"):  # first: what is in them must never get into the new file
        if os.path.exists(path + beside):
            os.unlink(path + beside)
    os.replace(path, f"{path}.broken")
    log.warning("%s was damaged; it is now %s.broken, and what is shared is learned anew", path, path)


def identity_of(path: str) -> tuple[int, int] | None:
    """Which file that name stands for now; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def all_of(path: str) -> tuple[tuple[int, int] | None, ...]:
    """Which files it consists of now. Whoever has the same file open and another log than others does not see them."""
    return tuple(identity_of(path + beside) for beside in ("", "-wal", "-shm"))


def in_words(error: Exception, path: str) -> str:
    """Why the file cannot be used, for a person."""
    if isinstance(error, OSError):
        return f"it cannot be opened or made ({error.strerror or error})"
    sentences = {
        sqlite3.SQLITE_FULL: "the disk is full",
        sqlite3.SQLITE_IOERR: "it cannot be read or written: the disk is full or broken",
        sqlite3.SQLITE_READONLY: "it may not be written to; see to its permissions",
        sqlite3.SQLITE_CANTOPEN: f"it cannot be opened; see to the permissions of {os.path.dirname(path)}",
        sqlite3.SQLITE_CORRUPT: "it is damaged",
        sqlite3.SQLITE_NOTADB: "it holds something else",
    }
    return sentences.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, str(error))


def _version(connection: sqlite3.Connection, path: str) -> int:
    """0 for an empty file."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables == 0:
        return 0
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise OfAnother("it is a database of another program")
    if version != SCHEMA:
        raise OfAnother(f"it was made by another version of headgate (its form is {version}, here it is {SCHEMA})")
    return int(version)


def _make_tables(connection: sqlite3.Connection, path: str) -> None:
    """All of them or none, though several processes may come upon the empty file at once."""
    connection.execute("BEGIN IMMEDIATE")
    if _version(connection, path) == 0:
        for statement in TABLES.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute("COMMIT")
