"""The frontier's file: its tables, and how it is opened.

| table     | holds                                                                                 |
|-----------|---------------------------------------------------------------------------------------|
| hosts     | how many addresses of each are where, and ``next_at``: when its turn is (the queue)     |
| urls      | every address once, by a digest; what became of it and why                            |
| shapes    | how many addresses of a host differ in nothing but numbers                            |
| robots    | robots.txt of each host as it was answered                                            |
| outputs   | how long each output is, up to the last page that is done                             |
| totals    | counts over all addresses, kept with every change                                     |
| processes | who has the file open to work on it: one at a time                                    |
| identity  | what is crawled: seeds and scope                                                      |

A host is in the queue (has a ``next_at``) while addresses of it wait and not too many of them are taken. Whoever
has waited longest is first; to be served, or to be told to rest, is to go to the back.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Final
from urllib.parse import quote

from ..batch.ledger import LedgerError
from ..batch.sqlite_file import CACHED_STATEMENTS, LONGEST_LOCK, PAGES_PER_CHECKPOINT, use_log
from .frontier_records import VisitState

SUFFIX = ".headgate"
"""A frontier stands beside its output, under the same name with this after it."""
APPLICATION = 0x48474352
"""Marks the file as a frontier of ours ("HGCR")."""
SCHEMA = 1
CACHE = 16_384
"""KiB of the file that are kept in memory."""

STATES: Final = tuple(VisitState)
NUMBER_OF: Final = {state: number for number, state in enumerate(STATES)}
WAITING, TAKEN, PUT_OFF, DONE, FAILED, REFUSED = range(len(STATES))

TABLES = """
CREATE TABLE hosts (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, waiting INTEGER NOT NULL DEFAULT 0,
  taken INTEGER NOT NULL DEFAULT 0, put_off INTEGER NOT NULL DEFAULT 0, done INTEGER NOT NULL DEFAULT 0,
  lost INTEGER NOT NULL DEFAULT 0, rest_until REAL NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '', next_at REAL);
CREATE INDEX hosts_in_line ON hosts (next_at) WHERE next_at IS NOT NULL;
CREATE TABLE urls (id INTEGER PRIMARY KEY, digest INTEGER NOT NULL UNIQUE, host INTEGER NOT NULL,
  depth INTEGER NOT NULL, state INTEGER NOT NULL, redirects INTEGER NOT NULL, attempts INTEGER NOT NULL,
  rate_limited INTEGER NOT NULL, not_before REAL NOT NULL, shape INTEGER NOT NULL, url TEXT NOT NULL,
  found_on TEXT NOT NULL, reason TEXT NOT NULL);
CREATE INDEX urls_waiting ON urls (host, depth, id) WHERE state = 0;
CREATE INDEX urls_taken ON urls (id) WHERE state = 1;
CREATE INDEX urls_put_off ON urls (not_before) WHERE state = 2;
CREATE INDEX urls_lost ON urls (id) WHERE state > 3;
CREATE TABLE shapes (host INTEGER NOT NULL, shape INTEGER NOT NULL, urls INTEGER NOT NULL, PRIMARY KEY (host, shape))
  WITHOUT ROWID;
CREATE TABLE robots (host TEXT PRIMARY KEY, status INTEGER NOT NULL, body BLOB NOT NULL, fetched_at REAL NOT NULL);
CREATE TABLE outputs (name TEXT PRIMARY KEY, offset INTEGER NOT NULL);
CREATE TABLE totals (name TEXT PRIMARY KEY, amount INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE processes (id INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, computer TEXT NOT NULL,
  began_at REAL NOT NULL);
CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


def open_to_write(path: str) -> sqlite3.Connection:
    """The connection of the one thread that writes; makes the file if there is none."""
    connection = _connect(path, "rwc")
    try:
        if _version(connection, path) == 0:
            use_log(connection)
            _make_tables(connection, path)
        connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES_PER_CHECKPOINT}")
        connection.execute(f"PRAGMA cache_size = -{CACHE}")
        connection.execute("PRAGMA temp_store = FILE")
    except BaseException:
        connection.close()
        raise
    return connection


def open_to_read(path: str) -> sqlite3.Connection:
    """A connection that changes nothing; there must be a frontier already."""
    if not os.path.exists(path):
        raise LedgerError(f"there is no crawl at {path}")
    connection = _connect(path, "ro")
    try:
        if _version(connection, path) == 0:
            raise LedgerError(f"{path} is an empty file; no crawl has begun in it")
    except BaseException:
        connection.close()
        raise
    return connection


def _make_tables(connection: sqlite3.Connection, path: str) -> None:
    """All of them or none, though two processes may come upon the empty file at once."""
    connection.execute("BEGIN IMMEDIATE")
    if _version(connection, path) == 0:
        for statement in TABLES.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute("COMMIT")


def _connect(path: str, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
    )
    connection.execute(f"PRAGMA busy_timeout = {1000 * LONGEST_LOCK:.0f}")
    return connection


def _version(connection: sqlite3.Connection, path: str) -> int:
    """0 for an empty file."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables == 0:
        return 0
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise LedgerError(f"{path} is a database of another program; name another output")
    if version > SCHEMA:
        raise LedgerError(
            f"{path} was made by a newer headgate (its form is {version}, known here are up to {SCHEMA}); "
            "use that one, or name another output"
        )
    return int(version)
