"""What can be read out of a ledger, by the run itself and by other programs.

As in ``transaction``, a question is one step for the database, however many rows the answer has.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from ...core.row_state import NO_HOLDER, FailureReason
from ...engine.database import UNREADABLE
from ...engine.output_file import length_of
from ...process_lock import is_alive
from ..item import display_name
from ..output import REPLACED
from ..report import FailureGroup, Failures, FailureSummary
from . import Counts, RowState, Written
from .schema import DEAD, DONE, STATES, changed_row, ledger_error, open_to_read, output_of
from .transaction import ANY_DIGEST

MOST_BYTES = 8 * 1024 * 1024
"""Bytes of lines read at once, and one line more."""

UNFINISHED = """
SELECT CAST(group_concat(digest, '') AS BLOB), json_group_array(idx) FILTER (WHERE state < 4), count(*)
FROM (SELECT idx, digest, state FROM rows WHERE idx >= ? AND idx < ? ORDER BY idx)
"""
FINAL = """
SELECT json_group_array(json_array(number, idx, state, length(line))), CAST(group_concat(line, '') AS BLOB) FROM (
  SELECT *, sum(length(line)) OVER (ORDER BY number) - length(line) AS before FROM (
    SELECT number, idx, state, line FROM finals JOIN results USING (idx) WHERE number > ? ORDER BY number LIMIT ?)
) WHERE before < ?
"""
UNCLAIMED = """
SELECT json_group_array(idx) FROM (SELECT idx FROM rows WHERE holder = 0 AND state < 4 ORDER BY idx LIMIT ?)
"""


NAMED = "SELECT idx, key FROM rows WHERE key IN (SELECT value FROM json_each(?))"


def read_unfinished(connection: sqlite3.Connection, first: int, digests: Sequence[bytes]) -> list[int]:
    """The open ones and the unknown ones among these rows; raises if one has changed."""
    end = first + len(digests)
    known, unfinished, count = connection.execute(UNFINISHED, (first, end)).fetchone()
    if count == len(digests) and known == b"".join(digests):
        found: list[int] = json.loads(unfinished)
        return found
    rows = connection.execute("SELECT idx, key, digest, state FROM rows WHERE idx >= ? AND idx < ?", (first, end))
    past = set()
    for index, key, digest, state in rows:
        if digest not in (digests[index - first], ANY_DIGEST):
            raise changed_row(index, key, dead=STATES[state] is RowState.DEAD)
        if STATES[state].final:
            past.add(index)
    return [index for index in range(first, end) if index not in past]


def read_unclaimed(connection: sqlite3.Connection, limit: int) -> list[int]:
    found: list[int] = json.loads(connection.execute(UNCLAIMED, (limit,)).fetchone()[0])
    return found


def read_final(connection: sqlite3.Connection, after: int, limit: int) -> list[Written]:
    found, lines = connection.execute(FINAL, (after, limit, MOST_BYTES)).fetchone()
    written, end = [], 0
    for number, index, state, length in json.loads(found):
        start, end = end, end + length
        written.append(Written(number, index, STATES[state], lines[start:end]))
    return written


def read_named(connection: sqlite3.Connection, names: Sequence[str]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = connection.execute(NAMED, (json.dumps(names),)).fetchall()
    return sorted(found)


def read_note(connection: sqlite3.Connection, name: str) -> str:
    found = connection.execute("SELECT text FROM notes WHERE name = ?", (name,)).fetchone()
    return found[0] if found else ""


def read_counts(connection: sqlite3.Connection) -> Counts:
    totals = dict(connection.execute("SELECT name, amount FROM totals"))

    def named(kind: str) -> dict[str, float]:
        return {name[len(kind) :]: amount for name, amount in totals.items() if name.startswith(kind) and amount}

    states = {RowState(name): int(amount) for name, amount in named("state.").items()}
    return Counts(
        seen=sum(states.values()),
        states=states,
        reasons={word: int(amount) for word, amount in named("reason.").items()},
        attempts=int(totals.get("attempts", 0)),
        tokens=int(totals.get("tokens", 0)),
        cost=totals.get("cost", 0.0),
        waited=named("waited."),
        moved={target: int(rows) for target, rows in named("moved.").items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that is entered in the transaction."""

    pid: int
    host: str
    began_at: float
    alive: bool
    rows: int
    """How many it holds."""
    writes_output: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStatus:
    """The state of a ledger at one instant."""

    path: str
    identity: dict[str, str]
    counts: Counts
    holders: list[Holder]
    written: int
    """Rows that are in the output."""
    offset: int
    """Its length then, in bytes."""
    output: str | None
    """Where it is; None for standard output."""
    output_length: int | None
    """How long it really is; None if it is not there, or is no file."""
    is_replaced: bool
    """Whether it is an old one, from before ``headgate retry``, that the next run writes again."""
    next_at: float | None
    """When the first of the rows that were put aside is to be tried again."""


def read_holders(connection: sqlite3.Connection, path: str, but: int = NO_HOLDER) -> list[Holder]:
    """All processes that work on the ledger, but this one."""
    ((writer,),) = connection.execute("SELECT holder FROM output")
    held = dict(connection.execute("SELECT holder, count(*) FROM rows WHERE state < 4 GROUP BY holder"))
    processes = connection.execute("SELECT id, pid, host, began_at FROM processes ORDER BY id").fetchall()
    return [
        Holder(
            pid=pid,
            host=host,
            began_at=began_at,
            alive=is_alive(path, process),
            rows=held.get(process, 0),
            writes_output=writer == process != NO_HOLDER,
        )
        for process, pid, host, began_at in processes
        if process != but
    ]


def read_status(path: str) -> LedgerStatus:
    """The present state of the ledger; processes that work on it are not disturbed."""
    try:
        connection = open_to_read(path)
        try:
            connection.execute("BEGIN")
            return _read_status(connection, path)
        finally:
            connection.close()
    except UNREADABLE as error:
        raise ledger_error(error, path) from None


FAILURES = """
SELECT reason, count(*), min(idx) FROM rows WHERE state {states} AND reason != '' GROUP BY reason
ORDER BY count(*) DESC LIMIT 1000
"""
MOST_EXAMINED = 10
"""Kinds of failures of which an example's answer is read."""


def failures_of(path: str) -> Failures:
    """Reads through all rows."""
    try:
        with closing(open_to_read(path)) as connection:
            connection.execute("BEGIN")
            return read_failures(connection)
    except UNREADABLE as error:
        raise ledger_error(error, path) from None


def read_failures(connection: sqlite3.Connection) -> Failures:
    return Failures(dead=_failures(connection, f"= {DEAD}"), waiting=_failures(connection, f"< {DONE}"))


def _failures(connection: sqlite3.Connection, states: str) -> list[FailureGroup]:
    grouped, firsts = FailureSummary(), dict[FailureReason, int]()
    for text, count, first in connection.execute(FAILURES.format(states=states)).fetchall():
        reason = FailureReason.parse(text)
        grouped.note(reason, "", count)
        firsts.setdefault(reason, first)
    found = grouped.all()
    for one in found[:MOST_EXAMINED]:
        if (index := firsts.get(one.reason)) is not None:
            one.example, one.status = _example(connection, index)
    return found


def _example(connection: sqlite3.Connection, index: int) -> tuple[str, int | None]:
    """What a row is called, and the status of its answer."""
    ((name, line),) = connection.execute(
        "SELECT key, line FROM rows LEFT JOIN results USING (idx) WHERE idx = ?", (index,)
    ).fetchall()
    try:
        status = json.loads(line)["response"]["status_code"]
    except (ValueError, TypeError, LookupError):
        status = None
    return display_name(index, name), status if isinstance(status, int) else None


def _read_status(connection: sqlite3.Connection, path: str) -> LedgerStatus:
    _, written, offset = connection.execute("SELECT holder, number, offset FROM output").fetchone()
    (next_at,) = connection.execute("SELECT min(ready_at) FROM rows WHERE state IN (2, 3)").fetchone()
    identity = dict(connection.execute("SELECT name, value FROM identity"))
    output = output_of(path, identity)
    return LedgerStatus(
        path=path,
        identity=identity,
        counts=read_counts(connection),
        holders=read_holders(connection, path),
        written=written,
        offset=offset,
        output=output,
        output_length=None if output is None else length_of(output),
        is_replaced=bool(read_note(connection, REPLACED)),
        next_at=next_at,
    )
