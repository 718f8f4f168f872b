"""Opening SQLite files: the one place that connects, creates tables and recognises files of other programs.

    connect ──> schema_version: 0 (empty)? ──> enable_wal, create_tables
                     │ another application_id: ForeignDatabaseError
                     └ any other version: the caller decides whether it can read it

A file carries a mark (``application_id``) and the version of its tables (``user_version``). Durability is each caller's
choice: a ledger waits for the disk, a store that can learn its content again does not.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from urllib.parse import quote

CACHED_STATEMENTS = 256
MAGIC = b"SQLite format 3\0"
"""How every SQLite file begins."""
MARK_AT, MARK_BYTES = 68, 4
"""Where a SQLite file has its ``application_id``."""
RETRY_WAL_EVERY = 0.01
"""Seconds between two attempts to switch a file to its write-ahead log."""


class ForeignDatabaseError(sqlite3.DatabaseError):
    """The file belongs to another program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The tables of one kind of file, and the mark by which it is recognised."""

    application: int
    version: int
    tables: str
    """Statements, separated by ``;`` at the end of a line."""


def connect(path: str, *, lock_timeout: float, mode: str = "rwc") -> sqlite3.Connection:
    """Open a file in autocommit, usable from any thread. ``mode``: ``ro``, ``rw``, or ``rwc`` to create it."""
    return sqlite3.connect(
        f"file:{quote(path)}?mode={mode}",
        timeout=lock_timeout,
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
    )


def scratch() -> sqlite3.Connection:
    """An unnamed file on disk that is removed when it is closed."""
    return sqlite3.connect("")


def schema_version(connection: sqlite3.Connection, schema: Schema) -> int:
    """The version of the tables in the file, 0 if it is empty. Raises ``ForeignDatabaseError``."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables == 0:
        return 0
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != schema.application:
        raise ForeignDatabaseError("it is a database of another program")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def create_tables(connection: sqlite3.Connection, schema: Schema) -> None:
    """Create all tables or none, though several processes may find the empty file at once."""
    connection.execute("BEGIN IMMEDIATE")
    if schema_version(connection, schema) == 0:
        for statement in schema.tables.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {schema.application}")
        connection.execute(f"PRAGMA user_version = {schema.version}")
    connection.execute("COMMIT")


def enable_wal(connection: sqlite3.Connection, *, lock_timeout: float) -> None:
    """Switch to a write-ahead log. Where several processes do so at once SQLite does not wait by itself."""
    give_up_at = time.monotonic() + lock_timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_locked(error) or time.monotonic() > give_up_at:
                raise
            time.sleep(RETRY_WAL_EVERY)


def error_code(error: BaseException) -> int:
    """The primary result code of an error, 0 where SQLite gave none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_locked(error: BaseException) -> bool:
    return error_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_database(path: str) -> bool:
    """Whether this file is a SQLite file, of whatever program."""
    return _head(path, len(MAGIC)) == MAGIC


def has_mark(path: str, schema: Schema) -> bool:
    """Whether what is left of a file carries this mark; for one that cannot be opened any more."""
    return _head(path, MARK_AT + MARK_BYTES)[MARK_AT:] == schema.application.to_bytes(MARK_BYTES, "big")


def _head(path: str, length: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(length)
    except OSError:
        return b""
