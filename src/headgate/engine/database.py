"""How a file of ours is opened, and what its faults mean to a person.

It is made if there is none, known by its mark, and shared with other processes.
"""

from __future__ import annotations

import errno
import os
import shlex
import sqlite3
from dataclasses import dataclass

from ..errors import LedgerError
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
                f"{log} holds the last changes of a {self.name} that is not there. Bring {path} back, or move {log} "
                "to where it is now, then try again; nothing was changed"
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
            code, why = sqlite3.SQLITE_CORRUPT, f"it holds what no {self.name} does: {type(error).__name__}"
        elif not isinstance(error, sqlite3.ProgrammingError):
            code = error_code(error) or sqlite3.SQLITE_CORRUPT
            code = sqlite3.SQLITE_CORRUPT if code in _DAMAGE else code
        folder = os.path.dirname(os.path.abspath(path))
        damaged = f"{path} is damaged ({why.encode('ascii', 'backslashreplace').decode()}). {self.rescue}"
        sentences = {
            sqlite3.SQLITE_FULL: f"the disk is full: {path} cannot grow. What was recorded is safe; make room in "
            f"{folder}",
            sqlite3.SQLITE_IOERR: f"{path} cannot be read or written ({why}): the disk is full or broken. What was "
            f"recorded is safe; check {folder}",
            sqlite3.SQLITE_READONLY: f"{path} may not be written to: see to its permissions, or {self.elsewhere}",
            sqlite3.SQLITE_CANTOPEN: self._why_not_opened(path, folder),
            sqlite3.SQLITE_NOTADB: f"{path} is not a {self.name}: it holds something else; name another file. If it "
            f"was one and is damaged: {self.rescue}",
            sqlite3.SQLITE_CORRUPT: damaged,
            sqlite3.SQLITE_BUSY: f"{path} was locked by another program for {LONGEST_LOCK:g} s; end that program",
        }
        text = sentences.get(code, f"{path} cannot be used as a {self.name} ({why})")
        return LedgerError(text.replace("{path}", shlex.quote(path)))

    def _why_not_opened(self, path: str, folder: str) -> str:
        if not os.path.isdir(folder):
            return f"there is no folder {folder} for the {self.name}; make it, or name another file"
        if os.path.isdir(path):
            return f"{path} is a folder; name a file for the {self.name}"
        return f"{path} cannot be opened or made: see to the permissions of {folder}, or {self.elsewhere}"

    def _version(self, connection: sqlite3.Connection, path: str) -> int:
        """0 for an empty file."""
        try:
            version = schema_version(connection, self.schema)
        except ForeignDatabaseError:
            raise LedgerError(f"{path} is a database of another program; {self.elsewhere}") from None
        if version > self.schema.version:
            raise LedgerError(
                f"{path} was made by a newer headgate (its form is {version}, known here are up to "
                f"{self.schema.version}); use that one, or {self.elsewhere}"
            )
        return version


def storable(text: str) -> str:
    """Text from outside may hold what no database takes: half characters, and zeros that end it early."""
    if text.isascii() and text.isprintable():
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
