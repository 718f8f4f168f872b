"""Start or resume a crawl: be the only process at its file, make sure that it is the same crawl, and repair what a
process that died has left behind.

    lock ─> identity ─> what was taken waits again ─> outputs are cut back to what is done ─> COMMIT

All of it is one transaction. If any of it cannot be, the file is as it was, and no output has lost a page that is done.
"""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import stat
from collections.abc import Iterable, Mapping, Sequence

from ...engine.database import changed_values
from ...engine.output_file import STDOUT, OutputFile, length_of
from ...errors import LedgerError, OutputError
from ...process_lock import ProcessLock, is_alive, remove_lock
from ..output import Output
from .schema import ledger_error, open_to_write

log = logging.getLogger("headgate")

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
                f"process {pid} on {computer} is already crawling into {path}. "
                "Wait for it, stop it with Ctrl-C, or choose another output"
            )
        remove_lock(path, process)
    connection.execute("DELETE FROM processes")
    entered = connection.execute(
        "INSERT INTO processes (pid, computer, began_at) VALUES (?, ?, ?)", (os.getpid(), socket.gethostname(), now)
    )
    return ProcessLock(path, entered.lastrowid or 0)


def _take_identity(connection: sqlite3.Connection, identity: Mapping[str, str], path: str) -> None:
    """The URLs in the file belong to this crawl; raises if pages of another are written.

    Before the first page there is nothing to mix: a seed that was mistyped may be corrected, and the crawl starts over.
    """
    known = dict(connection.execute("SELECT name, value FROM identity"))
    if known == identity:
        return
    (pages,) = connection.execute("SELECT coalesce(sum(amount), 0) FROM totals WHERE name = 'pages'").fetchone()
    if pages:
        changed = "; ".join(f"{name} {how}" for name, how in changed_values(known, identity).items())
        raise LedgerError(
            f"{path} belongs to another crawl, with {pages:,} page{'s' * (pages > 1)} written: {changed}. Their "
            "pages would be mixed. Use the original options, or choose another output"
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


# ---------------------------------------------------------------------- the outputs
# An output grows before the frontier knows, and shrinks if the frontier never does:
#
#     write ─> on disk ─> the frontier's COMMIT ─> write ...
#                               └─ fails: close ─> opened again, and cut to the length that the frontier knows
#
# The frontier has URLs and no pages, so a page cannot be written again from it. An output that is missing, or shorter
# than the frontier knows, is therefore an error. So is one that is longer, unless the last process died or could not
# commit: only then is the rest this crawl's own, and its pages are fetched again.

_SAFE = "It has every page that was finished"


class PageFile:
    """One output's file. ``ours`` says that this frontier has written to it; otherwise it must be new or empty.

    ``died`` says that the last process at it has not left it in order: what is behind ``length`` is then cut off.
    """

    def __init__(self, output: Output, length: int, *, ours: bool, died: bool, frontier: str) -> None:
        self.name = name_of(output)
        self._output = output
        if length and output.path != STDOUT:
            _check_length(output.path, length, frontier)
        behind = (length_of(output.path) or 0) - length
        if ours and behind > 0:
            if not died:
                raise OutputError(
                    f"{output.path}: the data after byte {length:,} was not written by this crawl; nothing was "
                    "changed. Move it to another file first"
                )
            log.warning(
                "%s: removing %d bytes of an interrupted write; their pages are fetched again",
                output.path,
                behind,
            )
        self._file: OutputFile | None = self._open(length, ours=ours)

    def write(self, records: Iterable[bytes], known: int) -> int:
        """Append these to the length that the frontier knows, and have them on disk; returns how long it is then.

        Raises ``OutputError``.
        """
        file = self._file = self._file or self._open(known, ours=True)
        if not known:
            file.append(self._output.head())
        for record in records:
            file.append(record)
        return file.sync()

    def _open(self, length: int, *, ours: bool) -> OutputFile:
        output = self._output
        return OutputFile(output.path, length, ours=ours, is_packed=output.packs, advice=_SAFE)

    def close(self) -> None:
        """What follows the length that the frontier knows is cut off when it is next written to."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def name_of(output: Output) -> str:
    """What the frontier knows it by: both may be moved to another folder together."""
    return STDOUT if output.path == STDOUT else os.path.basename(output.path)


def _check_length(path: str, length: int, frontier: str) -> None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        there = "is gone"
    except OSError:
        return  # opening it will say why
    else:
        if not stat.S_ISREG(status.st_mode) or status.st_size >= length:
            return
        there = f"has {status.st_size:,} bytes"
    raise LedgerError(
        f"{path} {there}, but {length:,} bytes of pages were written to it. Restore it, or delete "
        f"{frontier} and the rest of the output to start over"
    )
