"""The ledger's file: its tables, how it is opened, and what its faults mean to a person.

| table     | holds                                                                    |
|-----------|--------------------------------------------------------------------------|
| rows      | where each row is, by its position; thin, for it is read through at every start |
| results   | the line of each final row                                               |
| finals    | the order in which rows became final: 1, 2, 3, ... without a gap          |
| totals    | counts and sums over all rows, kept with every change                    |
| processes | who has the file open to work on it                                      |
| output    | how far the output is written, and by whom                               |
| identity  | what the rows belong to: input, template, target                         |
| notes     | small texts that a run leaves for the next                               |

The row's payload is not in it: the input is read again at every start.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import Final

from .ledger import LedgerError, RowState
from .sqlite_opening import LONGEST_LOCK, Form

SUFFIX = ".ledger"
"""A ledger stands beside its output, under the same name with this after it."""

STATES: Final = tuple(RowState)
NUMBER_OF: Final = {state: number for number, state in enumerate(STATES)}
DONE, DEAD = NUMBER_OF[RowState.DONE], NUMBER_OF[RowState.DEAD]
"""Whatever is below DONE is open."""

TABLES = """
CREATE TABLE rows (idx INTEGER PRIMARY KEY, key TEXT NOT NULL, digest BLOB NOT NULL, state INTEGER NOT NULL,
  fence INTEGER NOT NULL, holder INTEGER NOT NULL, attempts INTEGER NOT NULL, rate_limited INTEGER NOT NULL,
  ready_at REAL NOT NULL, said_at REAL NOT NULL, reason TEXT NOT NULL, tokens INTEGER NOT NULL, cost REAL NOT NULL,
  waited TEXT NOT NULL);
CREATE INDEX open_rows ON rows (holder) WHERE state < 4;
CREATE TABLE results (idx INTEGER PRIMARY KEY, state INTEGER NOT NULL, line BLOB NOT NULL);
CREATE TABLE finals (number INTEGER PRIMARY KEY, idx INTEGER NOT NULL);
CREATE TABLE totals (name TEXT PRIMARY KEY, amount REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE processes (id INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, host TEXT NOT NULL,
  began_at REAL NOT NULL);
CREATE TABLE output (one INTEGER PRIMARY KEY CHECK (one = 1), holder INTEGER NOT NULL, number INTEGER NOT NULL,
  offset INTEGER NOT NULL);
CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE notes (name TEXT PRIMARY KEY, text TEXT NOT NULL);
INSERT INTO output VALUES (1, 0, 0, 0);
"""


FORM = Form(
    application=0x48474C44,  # "HGLD"
    schema=1,
    tables=TABLES,
    absent="there is no ledger at",
    empty="is an empty file, not a ledger",
    elsewhere="name another file for the ledger",
)
open_to_write, open_to_read = FORM.open_to_write, FORM.open_to_read


def in_words(error: sqlite3.Error | OSError, path: str) -> LedgerError:
    """What has gone wrong with the file and what to do, without the database's own words where ours are clearer."""
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        code, why = (sqlite3.SQLITE_FULL if full else 0), error.strerror or str(error)
    else:
        code, why = getattr(error, "sqlite_errorcode", 0), str(error)
    folder = os.path.dirname(os.path.abspath(path))
    sentences = {
        sqlite3.SQLITE_FULL: f"the disk is full: {path} cannot grow. What was recorded is safe; make room in {folder} "
        "and run it again",
        sqlite3.SQLITE_IOERR: f"{path} cannot be read or written ({why}): the disk is full or broken. What was "
        f"recorded is safe; see to {folder} and run it again",
        sqlite3.SQLITE_READONLY: f"{path} may not be written to: see to its permissions, or name another file for the "
        "ledger",
        sqlite3.SQLITE_CANTOPEN: _why_not_opened(path, folder),
        sqlite3.SQLITE_NOTADB: f"{path} is not a ledger: it holds something else; name another file",
        sqlite3.SQLITE_CORRUPT: f"{path} is damaged ({why}); the output that is written is not. Move the ledger away "
        "and start anew, or bring back a copy of it",
        sqlite3.SQLITE_BUSY: f"{path} was locked by another program for {LONGEST_LOCK:g} s; end that program, and run "
        "it again",
    }
    return LedgerError(sentences.get(code & 0xFF, f"{path} cannot be used as a ledger ({why})"))


def _why_not_opened(path: str, folder: str) -> str:
    if not os.path.isdir(folder):
        return f"there is no folder {folder} for the ledger; make it, or name another file"
    if os.path.isdir(path):
        return f"{path} is a folder; name a file for the ledger"
    return f"{path} cannot be opened or made: see to the permissions of {folder}, or name another file for the ledger"


def storable(text: str) -> str:
    """Text from outside may hold what no database takes: half characters, and zeros that end it early."""
    if text.isascii() and text.isprintable():
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def changed_row(index: int, key: str, *, dead: bool) -> LedgerError:
    if dead:
        return LedgerError(
            f"row {index + 1} of the input ({key!r}) is dead in the ledger, and its line was changed since. If you "
            "have put it right, headgate retry opens dead rows again; then the same command sends them as they are now"
        )
    return LedgerError(
        f"row {index + 1} of the input ({key!r}) is not what it was when it was first read: the ledger belongs to "
        "another input. Bring the input back as it was, or name another ledger and output"
    )
