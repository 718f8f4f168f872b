"""Give dead rows another chance.

Their lines leave the ledger, so the output must be written anew: its checkpoint goes back to the
beginning and the next run writes it again, from what is kept. In the end each row stands in it once.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing

from ..core.ledger import first_word
from .ledger import LedgerError
from .sqlite_alive import is_alive
from .sqlite_book import Book
from .sqlite_file import DEAD, in_words, open_to_write

ROWS_AT_ONCE = 1000


def reopen(path: str, only: str | None = None) -> int:
    """Make dead rows pending (those whose reason begins with the word ``only``); how many there were.

    Raises ``LedgerError`` while a run is under way: it would go on writing the old output.
    """
    if not os.path.exists(path):
        raise LedgerError(f"there is no ledger at {path}")
    try:
        with closing(open_to_write(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            count = _reopen(connection, path, only)
            connection.execute("COMMIT")
            return count
    except (sqlite3.Error, OSError) as error:
        raise in_words(error, path) from None


def _reopen(connection: sqlite3.Connection, path: str, only: str | None) -> int:
    for process, pid in connection.execute("SELECT id, pid FROM processes").fetchall():
        if is_alive(path, process):
            raise LedgerError(f"process {pid} works on {path}; stop it with Ctrl-C, then try again")
    dead = [
        index
        for index, reason in connection.execute("SELECT idx, reason FROM rows WHERE state = ? ORDER BY idx", (DEAD,))
        if only is None or first_word(reason) == only
    ]
    book = Book(connection, path)
    for start in range(0, len(dead), ROWS_AT_ONCE):
        part = dead[start : start + ROWS_AT_ONCE]
        book.load(part)
        book.reopen(part)
        book.flush()
        for table in ("results", "finals"):
            sql = f"DELETE FROM {table} WHERE idx IN (SELECT value FROM json_each(?))"  # noqa: S608 - our own words
            connection.execute(sql, (json.dumps(part),))
    if dead:
        _number_anew(connection)
        connection.execute("UPDATE output SET holder = 0, number = 0, offset = 0")
    return len(dead)


def _number_anew(connection: sqlite3.Connection) -> None:
    """Close the gaps; the order stays."""
    connection.execute("CREATE TEMP TABLE kept AS SELECT idx FROM finals ORDER BY number")
    connection.execute("DELETE FROM finals")
    connection.execute("INSERT INTO finals (idx) SELECT idx FROM temp.kept ORDER BY rowid")
    connection.execute("DROP TABLE temp.kept")
