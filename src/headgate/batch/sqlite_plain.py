"""The two ways that nearly all rows go: claimed as the first to be seen, and done at the first try.

Whole lots of them go in one statement each, without being loaded, weighed and changed one by one. A lot
that turns out not to be all of that kind goes the long way (``sqlite_book``), as if nothing had been tried.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from ..core.ledger import MOST_TOKENS
from .ledger import Change, Claim, Row, RowState
from .sqlite_file import storable

if TYPE_CHECKING:
    from .sqlite_book import Book

ANY_KNOWN = "SELECT EXISTS (SELECT 1 FROM rows WHERE idx BETWEEN ? AND ?)"
CLAIM = """
INSERT INTO rows SELECT column1, column2, column3, 1, 1, column4, 0, 0, 0.0, 0.0, '', 0, 0.0, '' FROM ({values})
WHERE column1 IS NOT NULL
"""
FINISH = """
UPDATE rows SET (state, holder, attempts, rate_limited, said_at, tokens, cost, waited) =
(4, 0, column3, column4, column5, column6, column7, column8)
FROM ({values}) WHERE idx = column1 AND fence = column2
AND state = 1 AND attempts = 0 AND rate_limited = 0 AND ready_at = 0 AND tokens = 0 AND cost = 0 AND reason = ''
AND waited = ''
"""
"""Only rows of which nothing is known but that they are claimed: what they add to the totals is what is new."""

_encode = json.JSONEncoder().encode


def claim_new(book: Book, rows: Sequence[Row]) -> list[Claim] | None:
    """Claim rows that nobody has seen before; None if any of them, or of those in between, is in the book."""
    indexes = [row.index for row in rows]
    if not indexes or len(set(indexes)) < len(indexes):
        return None
    if book.connection.execute(ANY_KNOWN, (min(indexes), max(indexes))).fetchone()[0]:
        return None
    process = book.process
    book.put(CLAIM, [(row.index, storable(row.key), row.digest, process) for row in rows])
    book.totals["state.leased"] += len(indexes)
    return [Claim(index, 1) for index in indexes]


def is_plain(change: Change) -> bool:
    return (
        change.state is RowState.DONE
        and not change.reason
        and not change.ready_at > 0
        and change.tokens <= MOST_TOKENS
        and isfinite(change.cost)
        and all(map(isfinite, change.waited.values()))
    )


def finish_all(book: Book, changes: Sequence[Change]) -> bool:
    """Write down rows that are done, all of them plain. False, and nothing is written, if any was not newly claimed."""
    if len({change.index for change in changes}) < len(changes):
        return False
    now, connection, totals = book.wall(), book.connection, book.totals
    rows = [
        (
            *(change.index, change.fence, change.attempts, change.rate_limited, now, change.tokens, change.cost),
            _encode(change.waited) if change.waited else "",
        )
        for change in changes
    ]
    connection.execute("SAVEPOINT plain")
    fits = book.put(FINISH, rows) == len(rows)
    if not fits:
        connection.execute("ROLLBACK TO plain")
    connection.execute("RELEASE plain")
    if fits:
        totals["state.leased"] -= len(rows)
        totals["state.done"] += len(rows)
        for change in changes:
            totals["attempts"] += change.attempts
            totals["tokens"] += change.tokens
            totals["cost"] += change.cost
            for why, seconds in change.waited.items():
                totals[f"waited.{why}"] += seconds
            book.lines[change.index] = (RowState.DONE, change.result)
    return fits
