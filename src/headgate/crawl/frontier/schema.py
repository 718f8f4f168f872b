"""The frontier's file: its tables, how it is opened, and the statements that change it.

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
from . import VisitState

SUFFIX = ".headgate"
"""A frontier is beside its output, under the same name with this suffix."""

STATES: Final = tuple(VisitState)
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
    absent="no crawl found at",
    empty="is an empty file without a crawl",
    elsewhere="choose another output",
    rescue="The pages in the output are safe. Restore the frontier from a copy, or move both files away to start over",
    cache=16_384,
)
open_to_write, open_to_read, ledger_error = FORM.open_to_write, FORM.open_to_read, FORM.ledger_error

# ---------------------------------------------------------------------- statements
# Each does one thing to any number of URLs or hosts. Many rows go in as one JSON text, or as ``VALUES`` where they have
# many columns, and come out as one JSON text: so each is one step for the database (``transaction.py`` says why).

KNOWN = "SELECT json_group_array(digest) FROM urls WHERE digest IN (SELECT value FROM json_each(?))"

# ---------------------------------------------------------------------- new URLs

NEW_HOSTS = "INSERT OR IGNORE INTO hosts (name) SELECT value FROM json_each(?)"
NEW_URLS = """
INSERT INTO urls (digest, host, depth, state, redirects, attempts, rate_limited, not_before, shape, url, found_on,
reason) SELECT column1, (SELECT id FROM hosts WHERE name = column2), column3, 0, column4, 0, 0, 0, column5, column6,
column7, '' FROM ({values}) WHERE column1 IS NOT NULL
"""
NEW_BY_HOST = """
SELECT json_group_array(json_array(host, n)) FROM
(SELECT host, count(*) AS n FROM urls WHERE id > ? GROUP BY host)
"""
NEW_SHAPES = """
INSERT INTO shapes SELECT host, shape, count(*) FROM urls WHERE id > ? AND shape != 0 GROUP BY host, shape
ON CONFLICT (host, shape) DO UPDATE SET urls = urls + excluded.urls
"""

# ---------------------------------------------------------------------- what becomes of URLs and hosts

END = """
UPDATE urls SET state = column2, attempts = attempts + column3, rate_limited = rate_limited + column4,
not_before = column5, reason = column6 FROM ({values}) WHERE id = column1
"""
MOVE = "UPDATE urls SET state = ? WHERE id IN (SELECT value FROM json_each(?))"
HOSTS = """
UPDATE hosts SET waiting = waiting + column2, taken = taken + column3, put_off = put_off + column4,
done = done + column5, lost = lost + column6,
next_at = CASE WHEN waiting + column2 > 0 AND taken + column3 < column8
  THEN max(rest_until, CASE WHEN column7 OR next_at IS NULL THEN column9 ELSE next_at END) END
FROM ({values}) WHERE id = column1
"""
"""A host that has had its turn (column7), or was not in line, goes to the back of the line."""
REST = """
UPDATE hosts SET rest_until = :until, reason = :reason, next_at = max(next_at, :until)
WHERE name = :host AND rest_until < :until
"""
ADD_UP = """
INSERT INTO totals SELECT * FROM ({values}) WHERE column1 IS NOT NULL
ON CONFLICT (name) DO UPDATE SET amount = amount + excluded.amount
"""

# ---------------------------------------------------------------------- what comes next

DUE = """
SELECT json_group_array(json_array(id, host)) FROM
(SELECT id, host FROM urls WHERE state = 2 AND not_before <= ? ORDER BY not_before LIMIT ?)
"""
NEXT_DUE = "SELECT min(not_before) FROM urls WHERE state = 2"
NEXT_HOST = "SELECT min(next_at) FROM hosts WHERE next_at IS NOT NULL"
IN_LINE = """
SELECT json_group_array(json_array(id, name, waiting, taken)) FROM
(SELECT id, name, waiting, taken FROM hosts WHERE next_at <= ? ORDER BY next_at LIMIT ?)
"""
FIRST_OF_EACH = """
SELECT json_group_array(json_array(value, json((SELECT json_group_array(json_array(id, url, depth, found_on, redirects,
attempts, rate_limited, reason)) FROM
(SELECT * FROM urls WHERE host = value AND state = 0 ORDER BY depth, id LIMIT ?)))))
FROM json_each(?)
"""

# ---------------------------------------------------------------------- what is known

COUNTS_OF = """
SELECT json_group_array(json_array(coalesce(waiting + taken + put_off + done + lost, 0), coalesce(urls, 0)))
FROM json_each(?) AS asked LEFT JOIN hosts ON name = json_extract(asked.value, '$[0]')
LEFT JOIN shapes ON shapes.host = hosts.id AND shape = json_extract(asked.value, '$[1]')
"""

# ---------------------------------------------------------------------- how long the outputs are

LENGTH = "SELECT offset FROM outputs WHERE name = ?"
NEW_LENGTH = "UPDATE outputs SET offset = ? WHERE name = ?"
