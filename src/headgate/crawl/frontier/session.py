"""Take up a crawl: be the only process at its file, make sure that it is the same crawl, and put right what a process
that died has left behind.

    lock ─> identity ─> what was taken waits again ─> outputs are cut back to what is done ─> COMMIT

All of it is one transaction. If any of it cannot be, the file is as it was, and no output has lost a page that is done.
"""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Mapping, Sequence

from ...errors import LedgerError
from ...process_lock import ProcessLock, is_alive, remove_lock
from ...wire.redact import redact
from ..output.page import Output
from ..output.page_file import PageFile, name_of
from .schema import ledger_error, open_to_write

LONGEST_SHOWN = 80
"""Characters of each value in the message that says what has changed."""

GIVE_BACK = (
    "UPDATE urls SET state = 0 WHERE state = 1",
    "INSERT INTO totals SELECT 'waiting', coalesce(sum(taken), 0) FROM hosts WHERE true "
    "ON CONFLICT (name) DO UPDATE SET amount = amount + excluded.amount",
    "UPDATE totals SET amount = 0 WHERE name = 'taken'",
    "UPDATE hosts SET waiting = waiting + taken, taken = 0, next_at = max(rest_until, coalesce(next_at, ?)) "
    "WHERE taken > 0",
)
"""The process that has taken these is gone: they wait again, and their hosts are in line."""


class FrontierSession:
    """A crawl's file and outputs, held by this process until ``let_go``. Raises ``LedgerError`` and
    ``OutputError``."""

    def __init__(self, path: str, identity: Mapping[str, str], outputs: Sequence[Output], now: float) -> None:
        self.pages: list[PageFile] = []
        self._life: ProcessLock | None = None
        try:
            self.connection = open_to_write(path)
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                (died,) = self.connection.execute("SELECT EXISTS (SELECT 1 FROM processes)").fetchone()
                self._life = _enter(self.connection, path, now)
                _take_identity(self.connection, {**identity, "output": ", ".join(map(name_of, outputs))}, path)
                recover(self.connection, now)
                self._open(outputs, path, died=bool(died))
                self.connection.execute("COMMIT")
            except BaseException:
                self.let_go()
                raise
        except (sqlite3.Error, OSError) as error:
            raise ledger_error(error, path) from None

    def let_go(self) -> None:
        for pages in self.pages:
            pages.close()
        if self._life is not None:
            self._life.end()  # before the file is unlocked: a number that was not committed may be given out again
        self.connection.close()

    def _open(self, outputs: Sequence[Output], path: str, *, died: bool) -> None:
        """``died``: whether the last process at the file has not left it in order."""
        known = dict(self.connection.execute("SELECT name, offset FROM outputs"))
        for output in outputs:
            name = name_of(output)
            self.pages.append(PageFile(output, known.get(name, 0), ours=name in known, died=died, frontier=path))
            self.connection.execute("INSERT OR IGNORE INTO outputs VALUES (?, 0)", (name,))


def _enter(connection: sqlite3.Connection, path: str, now: float) -> ProcessLock:
    """Be the one process at this file, within the transaction that is open; raises ``LedgerError`` if another is."""
    for process, pid, computer in connection.execute("SELECT id, pid, computer FROM processes").fetchall():
        if is_alive(path, process):
            raise LedgerError(
                f"process {pid} on {computer} is crawling into {path} already, and one crawl has one process. "
                "Wait for it, stop it with Ctrl-C, or name another output"
            )
        remove_lock(path, process)
    connection.execute("DELETE FROM processes")
    entered = connection.execute(
        "INSERT INTO processes (pid, computer, began_at) VALUES (?, ?, ?)", (os.getpid(), socket.gethostname(), now)
    )
    return ProcessLock(path, entered.lastrowid or 0)


def _take_identity(connection: sqlite3.Connection, identity: Mapping[str, str], path: str) -> None:
    """The URLs in the file belong to this crawl; raises if pages of another are written.

    Before the first page there is nothing to mix: a seed that was mistyped may be put right, and it begins anew.
    """
    known = dict(connection.execute("SELECT name, value FROM identity"))
    if known == identity:
        return
    (pages,) = connection.execute("SELECT coalesce(sum(amount), 0) FROM totals WHERE name = 'pages'").fetchone()
    if pages:
        changed = "; ".join(
            f"{name} was {_shown(known.get(name))} and is now {_shown(identity.get(name))}"
            for name in sorted({*known, *identity})
            if known.get(name) != identity.get(name)
        )
        raise LedgerError(
            f"{path} belongs to another crawl, with {pages:,} page{'s' * (pages > 1)} written: {changed}. Pages of "
            "both would be mixed. Run it as it was, or name another output"
        )
    for table in ("identity", "urls", "hosts", "shapes", "totals"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own words
    connection.executemany("INSERT INTO identity VALUES (?, ?)", identity.items())


def recover(connection: sqlite3.Connection, now: float) -> None:
    """What a process that died had taken waits again; instants that a clock set back has moved away come nearer."""
    for statement in GIVE_BACK:
        connection.execute(statement, (now,) * statement.count("?"))
    (seen_at,) = connection.execute("SELECT coalesce(max(amount), 0) FROM totals WHERE name = 'seen_at'").fetchone()
    if now < seen_at:
        late = seen_at - now
        connection.execute("UPDATE urls SET not_before = not_before - ? WHERE state = 2", (late,))
        connection.execute("UPDATE hosts SET rest_until = rest_until - ?, next_at = next_at - ?", (late, late))


def _shown(value: str | None) -> str:
    if value is None:
        return "not given"
    text = redact(value)
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")
