"""The frontier's file: its tables, and how it is opened.

| table     | holds                                                                                 |
|-----------|---------------------------------------------------------------------------------------|
| hosts     | how many URLs of each are where, and ``next_at``: when its turn is (the queue)        |
| urls      | every URL once, by a digest; what became of it and why                                |
| shapes    | how many URLs of a host differ in nothing but numbers                                 |
| robots    | robots.txt of each host as it was answered                                            |
| outputs   | how long each output is, up to the last page that is done                             |
| totals    | counts over all URLs, kept with every change                                          |
| processes | which process has the file open to work on it: one at a time                          |
| identity  | what is crawled: seeds and scope                                                      |

A host is in the queue (has a ``next_at``) while URLs of it wait and not too many of them are taken. The
host that has waited longest is first; one that is served, or has to rest, goes to the back.
"""

from __future__ import annotations

from typing import Final

from ...engine.database import DatabaseFormat
from ...sqlite_file import Schema
from .records import VisitState

SUFFIX = ".headgate"
"""A frontier stands beside its output, under the same name with this after it."""

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

FORM = DatabaseFormat(
    schema=Schema(application=0x48474352, version=1, tables=TABLES),  # "HGCR"
    name="frontier",
    absent="there is no crawl at",
    empty="is an empty file; no crawl has begun in it",
    elsewhere="name another output",
    rescue="The pages that are in the output are safe. Bring back a copy of the frontier, or move both away and begin "
    "anew",
    cache=16_384,
)
open_to_write, open_to_read, ledger_error = FORM.open_to_write, FORM.open_to_read, FORM.ledger_error
