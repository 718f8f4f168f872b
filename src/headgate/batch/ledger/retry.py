"""Give dead rows another chance.

Their lines leave the ledger, so the output must be written anew: its checkpoint goes back to the
beginning and the next run writes it again, from what is kept. In the end each row stands in it once.

The output is compared first, and its fingerprint kept: the next run replaces that very file and no other.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing

from ...core.row_state import FailureReason
from ...engine.database import UNREADABLE
from ...engine.output_file import length_of
from ...process_lock import is_alive
from ..output import REPLACED, fingerprint
from .protocol import LedgerError
from .schema import DEAD, ledger_error, open_to_write, output_of
from .transaction import LedgerTransaction
from .verify import LedgerVerifier

ROWS_AT_ONCE = 1000


def reopen(path: str, only: str | None = None) -> int:
    """Make dead rows pending (those whose reason begins with the word ``only``); how many there were.

    Raises ``LedgerError`` while a run is under way, which would go on writing the old output, and where the output
    holds what the ledger does not know.
    """
    if not os.path.exists(path):
        raise LedgerError(f"there is no ledger at {path}")
    try:
        with closing(open_to_write(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            _check_alone(connection, path)
            dead = _dead(connection, only)
            if dead:
                _replace_output(connection, path)
                _reopen(connection, path, dead)
            connection.execute("COMMIT")
            return len(dead)
    except UNREADABLE as error:
        raise ledger_error(error, path) from None


def _check_alone(connection: sqlite3.Connection, path: str) -> None:
    for process, pid in connection.execute("SELECT id, pid FROM processes").fetchall():
        if is_alive(path, process):
            raise LedgerError(f"process {pid} works on {path}; stop it with Ctrl-C, then try again")


def _dead(connection: sqlite3.Connection, only: str | None) -> list[int]:
    rows = connection.execute("SELECT idx, reason FROM rows WHERE state = ? ORDER BY idx", (DEAD,))
    return [index for index, reason in rows if only is None or FailureReason.parse(reason).category == only]


def _replace_output(connection: sqlite3.Connection, path: str) -> None:
    """Let the next run replace the present output, if that is wholly ours."""
    output = output_of(path, dict(connection.execute("SELECT name, value FROM identity")))
    replaced = ""
    if output is not None and length_of(output):
        with LedgerVerifier(path, output) as verifier:
            verifier.check_output()
        lines = [finding for finding in verifier.result.findings if finding.problem.is_foreign]
        if lines:
            raise LedgerError(
                f"{lines[0].text}, and the next run would write the output again without it; nothing was changed. "
                "headgate verify names all such lines: take them out, or move the output away, then try again"
            )
        replaced = fingerprint(output)
    connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (REPLACED, replaced))
    connection.execute("UPDATE output SET holder = 0, number = 0, offset = 0")


def _reopen(connection: sqlite3.Connection, path: str, dead: list[int]) -> None:
    transaction = LedgerTransaction(connection, path)
    for start in range(0, len(dead), ROWS_AT_ONCE):
        part = dead[start : start + ROWS_AT_ONCE]
        transaction.load(part)
        transaction.reopen(part)
        transaction.flush()
        for table in ("results", "finals"):
            sql = f"DELETE FROM {table} WHERE idx IN (SELECT value FROM json_each(?))"  # noqa: S608 - our own words
            connection.execute(sql, (json.dumps(part),))
    _renumber(connection)


def _renumber(connection: sqlite3.Connection) -> None:
    """Close the gaps; the order stays."""
    connection.execute("CREATE TEMP TABLE kept AS SELECT idx FROM finals ORDER BY number")
    connection.execute("DELETE FROM finals")
    connection.execute("INSERT INTO finals (idx) SELECT idx FROM temp.kept ORDER BY rowid")
    connection.execute("DROP TABLE temp.kept")
