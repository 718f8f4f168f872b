"""The frontier's statements: each does one thing to any number of URLs or hosts.

Many rows come as one text of JSON, or as ``VALUES`` where they have many columns; many go out as one text of JSON.
So each is one step for the database (``transaction.py`` says why that counts).
"""

from __future__ import annotations

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

TALLY = """
SELECT json_group_array(json_array(coalesce(waiting + taken + put_off + done + lost, 0), coalesce(urls, 0)))
FROM json_each(?) AS asked LEFT JOIN hosts ON name = json_extract(asked.value, '$[0]')
LEFT JOIN shapes ON shapes.host = hosts.id AND shape = json_extract(asked.value, '$[1]')
"""

# ---------------------------------------------------------------------- how long the outputs are

LENGTH = "SELECT offset FROM outputs WHERE name = ?"
NEW_LENGTH = "UPDATE outputs SET offset = ? WHERE name = ?"
