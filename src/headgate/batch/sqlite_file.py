"""The ledger's file: its tables, and how it is opened.

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

from typing import Final

from .ledger import LedgerError, RowState
from .sqlite_opening import Form

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
    name="ledger",
    absent="there is no ledger at",
    empty="is an empty file, not a ledger",
    elsewhere="name another file for the ledger",
    rescue="The results that are in the output are safe. Bring back a copy of the ledger, or move it away with its "
    "other files (mkdir damaged; mv {path}* damaged) and run the same headgate run command with --recover: it makes a "
    "new ledger from the output, and sends only the rows that are not in it",
)
open_to_write, open_to_read, in_words = FORM.open_to_write, FORM.open_to_read, FORM.in_words
check_log = FORM.check_log


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
