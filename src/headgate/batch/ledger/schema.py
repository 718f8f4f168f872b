"""The ledger's file: its tables, and how it is opened.

| table     | holds                                                                    |
|-----------|--------------------------------------------------------------------------|
| rows      | where each row is, by its position; thin, for it is read through at every start |
| results   | the line of each final row                                               |
| finals    | the order in which rows became final: 1, 2, 3, ... without a gap          |
| totals    | counts and sums over all rows, kept with every change                    |
| processes | which processes have the file open to work on it                         |
| output    | how far the output is written, and by which process                      |
| identity  | what the rows belong to: input, template, target                         |
| notes     | small texts that a run leaves for the next                               |
| paths     | which targets have refused an open row; made with the first such row     |

The row's payload is not in it: the input is read again at every start.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from typing import Final

from ...engine.database import DatabaseFormat, changed_values
from ...engine.output_file import STDOUT
from ...process_lock import is_alive
from ...sqlite_file import Schema
from . import LedgerError, RowState

SUFFIX = ".ledger"
"""A ledger is beside its output, under the same name with this suffix."""

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


FORM = DatabaseFormat(
    schema=Schema(application=0x48474C44, version=1, tables=TABLES),  # "HGLD"
    name="ledger",
    absent="there is no ledger at",
    empty="is an empty file, not a ledger",
    elsewhere="choose another file for the ledger",
    rescue="The results in the output are safe. Restore a copy of the ledger, or move it away with its other files "
    "(mkdir damaged; mv {path}* damaged) and run the same headgate run command with --recover: it rebuilds the ledger "
    "from the output and sends only the missing rows",
)
open_to_write, open_to_read, ledger_error = FORM.open_to_write, FORM.open_to_read, FORM.ledger_error
check_log = FORM.check_log


def changed_row(index: int, key: str, *, dead: bool) -> LedgerError:
    if dead:
        return LedgerError(
            f"row {index + 1} of the input ({key!r}) has failed, and its line was changed since. If it is corrected, "
            "reopen failed rows with headgate retry, then run the same command again"
        )
    return LedgerError(
        f"row {index + 1} of the input ({key!r}) has changed since it was first read: the ledger belongs to another "
        "input. Restore the input, or choose another ledger and output"
    )


# ---------------------------------------------------------------------- identity
#
# What a ledger's rows belong to: their input, template and target, so that results of two runs are never mixed. Where
# there is no result yet there is nothing to mix: a mistyped address may be corrected, and the ledger is used on.

_BESIDE_THE_INPUT = frozenset(("target", "template", "names"))
"""What rows are made of besides their lines."""


def take_identity(connection: sqlite3.Connection, identity: Mapping[str, str], path: str) -> None:
    """The rows in the ledger belong to this; raises if they belong to something else."""
    known = dict(connection.execute("SELECT name, value FROM identity"))
    if known == identity:
        return
    (rows,) = connection.execute("SELECT EXISTS (SELECT 1 FROM rows)").fetchone()
    if rows:
        changed = changed_values(known, identity)
        (done,) = connection.execute("SELECT EXISTS (SELECT 1 FROM results WHERE state = ?)", (DONE,)).fetchone()
        (dead,) = connection.execute("SELECT EXISTS (SELECT 1 FROM results)").fetchone()
        processes = connection.execute("SELECT id FROM processes").fetchall()
        open_to_change = (
            not done and _BESIDE_THE_INPUT.issuperset(changed) and not any(is_alive(path, one) for (one,) in processes)
        )
        if dead or not open_to_change:
            was = [f"the {name} {how}" for name, how in changed.items()]
            instead = ", or run headgate retry and then this command: no row is done yet" if open_to_change else ""
            raise LedgerError(
                f"the rows in {path} belong to another run: {'; '.join(was)}. Results of both would be mixed. "
                f"Repeat the earlier command, or choose another ledger and output{instead}"
            )
        connection.execute("UPDATE rows SET digest = x''")  # what they are called may be another thing now
    connection.execute("DELETE FROM identity")
    connection.executemany("INSERT INTO identity VALUES (?, ?)", identity.items())


def output_of(ledger: str, identity: Mapping[str, str]) -> str | None:
    """Where the run has put its output, by default under the ledger's name. None for standard output."""
    named = identity.get("output", os.path.basename(ledger).removesuffix(SUFFIX))
    return None if named == STDOUT else beside(ledger, named)


def beside(ledger: str, name: str) -> str:
    """Files are named as seen from the ledger, so that all of them may be moved together."""
    return os.path.join(os.path.dirname(ledger), name)
