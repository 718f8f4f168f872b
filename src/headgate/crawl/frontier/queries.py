"""Looking at a frontier, from the crawl itself or from outside while it runs, without holding anything up."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from .records import FrontierCounts, HostCounts, LostUrl
from .schema import STATES, ledger_error, open_to_read

T = TypeVar("T")

_REASON = "reason."


def look(path: str, read: Callable[[sqlite3.Connection], T]) -> T:
    """What ``read`` finds in the file at one moment. Raises ``LedgerError``; blocks."""
    try:
        with closing(open_to_read(path)) as connection:
            connection.execute("BEGIN")
            return read(connection)
    except (sqlite3.Error, OSError) as error:
        raise ledger_error(error, path) from None


def read_counts(connection: sqlite3.Connection) -> FrontierCounts:
    totals = {name: int(amount) for name, amount in connection.execute("SELECT name, amount FROM totals")}
    (hosts,) = connection.execute("SELECT coalesce(max(id), 0) FROM hosts").fetchone()
    return FrontierCounts(
        hosts=hosts,
        pages=totals.get("pages", 0),
        reasons={name.removeprefix(_REASON): n for name, n in totals.items() if name.startswith(_REASON)},
        **{state.value: totals.get(state.value, 0) for state in STATES},
    )


def read_hosts(connection: sqlite3.Connection, top: int) -> list[HostCounts]:
    """Those with the most that is still to be done, the most first."""
    found = connection.execute(
        "SELECT name, waiting, taken, put_off, done, lost, next_at, rest_until, reason FROM hosts "
        "ORDER BY waiting + taken + put_off DESC, id LIMIT ?",
        (top,),
    )
    names = ("host", "waiting", "taken", "put_off", "done", "lost", "next_at", "resting_until", "reason")
    return [HostCounts(**dict(zip(names, row, strict=True))) for row in found]


def read_lost(connection: sqlite3.Connection, after: int, limit: int) -> list[LostUrl]:
    """Failed and refused URLs in the order of their numbers, beginning behind ``after``."""
    found = connection.execute(
        "SELECT id, url, state, reason, attempts, found_on FROM urls WHERE state > 3 AND id > ? ORDER BY id LIMIT ?",
        (after, limit),
    )
    return [LostUrl(number, url, STATES[state], *others) for number, url, state, *others in found]
