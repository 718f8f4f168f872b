"""The two ways that nearly all rows go: claimed as the first to be seen, and done at the first try.

Whole lots of them go in one statement each, without being loaded, weighed and changed one by one. A lot
that turns out not to be all of that kind goes the long way (``sqlite_book``), as if nothing had been tried.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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

_quoted = json.encoder.encode_basestring_ascii


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
    now, connection = book.wall(), book.connection
    rows = [
        (one.index, one.fence, one.attempts, one.rate_limited, now, one.tokens, one.cost, _written(one.waited))
        for one in changes
    ]
    connection.execute("SAVEPOINT plain")
    fits = book.put(FINISH, rows) == len(rows)
    if not fits:
        connection.execute("ROLLBACK TO plain")
    else:
        _add_up(book, changes)
    return fits


def _add_up(book: Book, changes: Sequence[Change]) -> None:
    totals, lines = book.totals, book.lines
    totals["state.leased"] -= len(changes)
    totals["state.done"] += len(changes)
    totals["attempts"] += sum([one.attempts for one in changes])
    totals["tokens"] += sum([one.tokens for one in changes])
    totals["cost"] += sum([one.cost for one in changes])
    for one in changes:
        lines[one.index] = (RowState.DONE, one.result)
        for why, seconds in one.waited.items():
            totals[f"waited.{why}"] += seconds


def _written(waited: Mapping[str, float]) -> str:
    """As JSON, like everybody's who has waited."""
    if not waited:
        return ""
    return "{" + ", ".join([f"{_quoted(why)}: {float(seconds)!r}" for why, seconds in waited.items()]) + "}"
