"""The two ways that nearly all rows go: claimed as the first to be seen, and done at the first try.

A lot of them is one statement, and that statement is the transaction: a view takes the lot in, and its triggers put
each row where it belongs. Python gives up its lock at every statement, and a busy event loop takes its time to
hand it back, so one instead of eight shows in how fast everything runs. The first row that is not of that kind
undoes all of it, and the lot goes the long way (``transaction``), as if nothing had been tried.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

from ...core.row_state import MOST_TOKENS
from ...engine.database import storable
from . import Change, Claim, Row, RowState

if TYPE_CHECKING:
    from .transaction import LedgerTransaction

LARGEST_LOT = 2048
"""Rows; a statement holds at most 32,766 values, and a row has up to nine."""
MOST_TOTALS = 16
"""Totals in a lot; there are six, and a few more where rows have waited for several things."""

VIEWS = (
    """
CREATE TEMP VIEW claiming AS SELECT NULL AS idx, NULL AS key, NULL AS digest, NULL AS holder
""",
    """
CREATE TEMP TRIGGER claim_row INSTEAD OF INSERT ON claiming WHEN NEW.idx IS NOT NULL BEGIN
INSERT INTO rows VALUES (NEW.idx, NEW.key, NEW.digest, 1, 1, NEW.holder, 0, 0, 0.0, 0.0, '', 0, 0.0, '');
END
""",
    """
CREATE TEMP TRIGGER claim_total INSTEAD OF INSERT ON claiming WHEN NEW.idx IS NULL AND NEW.key IS NOT NULL BEGIN
INSERT INTO totals VALUES (NEW.key, NEW.holder) ON CONFLICT (name) DO UPDATE SET amount = amount + excluded.amount;
END
""",
    """
CREATE TEMP VIEW finishing AS SELECT NULL AS idx, NULL AS fence, NULL AS attempts, NULL AS rate_limited,
NULL AS said_at, NULL AS tokens, NULL AS cost, NULL AS waited, NULL AS line
""",
    """
CREATE TEMP TRIGGER finish_row INSTEAD OF INSERT ON finishing WHEN NEW.idx IS NOT NULL BEGIN
UPDATE rows SET (state, holder, attempts, rate_limited, said_at, tokens, cost, waited) =
(4, 0, NEW.attempts, NEW.rate_limited, NEW.said_at, NEW.tokens, NEW.cost, NEW.waited)
WHERE idx = NEW.idx AND fence = NEW.fence
AND state = 1 AND attempts = 0 AND rate_limited = 0 AND ready_at = 0 AND tokens = 0 AND cost = 0 AND reason = ''
AND waited = '';
SELECT RAISE(ABORT, 'not plain') WHERE changes() = 0;
INSERT INTO results VALUES (NEW.idx, 4, NEW.line);
INSERT INTO finals (idx) VALUES (NEW.idx);
END
""",
    """
CREATE TEMP TRIGGER finish_total INSTEAD OF INSERT ON finishing WHEN NEW.idx IS NULL AND NEW.waited IS NOT NULL BEGIN
INSERT INTO totals VALUES (NEW.waited, NEW.cost) ON CONFLICT (name) DO UPDATE SET amount = amount + excluded.amount;
END
""",
)
"""Only rows that are finished of which nothing is known but that they are claimed: what they add to the totals is what
is new. A total is in the same lot, in a row without an index; rows of NULL fill a lot up."""

_quoted = json.encoder.encode_basestring_ascii


def create_views(connection: sqlite3.Connection) -> None:
    """Once for each connection that claims and finishes."""
    for statement in VIEWS:
        connection.execute(statement)


def claim_new(transaction: LedgerTransaction, rows: Sequence[Row]) -> list[Claim | RowState] | None:
    """Claim rows that are not in the ledger; None, and nothing is written, if any of them is."""
    if not rows:
        return []
    values: list[Any] = []
    for row in rows:
        values += (row.index, storable(row.key), row.digest, transaction.process)
    values += (None, "state.leased", None, len(rows))
    return [Claim(row.index, 1) for row in rows] if _put(transaction, "claiming", 4, values) else None


def finish_all(transaction: LedgerTransaction, changes: Sequence[Change]) -> list[bool] | None:
    """Write down rows that are done and plain; None, and nothing is written, if any was not newly claimed."""
    now = transaction.wall()
    values: list[Any] = []
    for one in changes:
        values += (
            *(one.index, one.fence, one.attempts, one.rate_limited, now, one.tokens, one.cost),
            *(_written(one.waited), one.result),
        )
    for name, amount in _totals(changes).items():
        if amount:
            values += (None, None, None, None, None, None, amount, name, None)
    return [True] * len(changes) if _put(transaction, "finishing", 9, values) else None


def _put(transaction: LedgerTransaction, view: str, width: int, values: list[Any]) -> bool:
    rows = len(values) // width
    size = MOST_TOTALS + (1 << max(0, rows - MOST_TOTALS - 1).bit_length())  # lots are of few sizes, filled up
    if size > LARGEST_LOT + MOST_TOTALS or transaction.is_begun:
        return False
    values += [None] * (width * (size - rows))
    try:
        transaction.connection.execute(_statement(view, width, size), values)
    except sqlite3.IntegrityError:
        return False
    return True


@lru_cache(maxsize=64)
def _statement(view: str, width: int, size: int) -> str:
    """There are few, and the database remembers what it has made of each."""
    rows = ", ".join([f"({', '.join('?' * width)})"] * size)
    return f"INSERT INTO {view} VALUES {rows}"  # noqa: S608 - the names are ours


def is_simple(change: Change) -> bool:
    """Whether the row may be one that was done at the first try."""
    return (
        change.state is RowState.DONE
        and change.attempts <= 1
        and not change.rate_limited
        and not change.reason
        and not change.ready_at > 0
        and change.tokens <= MOST_TOKENS
        and isfinite(change.cost)
        and all(map(isfinite, change.waited.values()))
    )


def _totals(changes: Sequence[Change]) -> dict[str, float]:
    waited: defaultdict[str, float] = defaultdict(float)
    attempts, tokens, cost = 0, 0.0, 0.0
    for one in changes:
        attempts += one.attempts
        tokens += one.tokens
        cost += one.cost
        for why, seconds in one.waited.items():
            waited[f"waited.{why}"] += seconds
        if one.moved:
            waited[f"moved.{one.moved}"] += 1
    ended = len(changes)
    return {"state.leased": -ended, "state.done": ended, "attempts": attempts, "tokens": tokens, "cost": cost, **waited}


def _written(waited: Mapping[str, float]) -> str:
    """As JSON."""
    if not waited:
        return ""
    return "{" + ", ".join([f"{_quoted(why)}: {float(seconds)!r}" for why, seconds in waited.items()]) + "}"
