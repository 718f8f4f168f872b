"""The store of one machine: a file in the user's state folder, through which processes find each other by themselves.

A visit is one transaction. Who finds the file locked tries again after a fraction of a millisecond, a few times
as long each time: the database's own way of waiting is too coarse for transactions that take a tenth of one.

All processes of a machine have the same monotonic clock, so it is the desk's. After a restart of the machine it
starts over; the desk then goes on from where it was, and the time of day says for how long the machine was off.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from ..clock import Clock, SystemClock
from ..core.sharing.desk import MOST_NOTES, Desk
from ..core.sharing.visit import Errand, Note, Reply, Visit
from ..identity import Identities, state_folder
from .contract import DeskView, StoreDown, view_of
from .naming import shown
from .patience import LEAST
from .sqlite_file import (
    MOST_DESKS,
    OfAnother,
    all_of,
    identity_of,
    in_words,
    is_broken,
    is_locked,
    is_ours,
    move_aside,
    open_file,
    sweep,
)

FIRST_PAUSE, LONGEST_PAUSE = 0.0001, 0.0005
"""Seconds between two tries at a locked file."""
LOOK_PATIENCE = 1.0
"""Seconds for which whoever only looks, a person, may wait for a lock."""
SWEEP_EVERY = 1_000
"""New desks between two sweeps."""
NAMES_KEPT = 4_096
_inherited: list[sqlite3.Connection] = []
"""Connections of a parent process: not ours to use, nor to close."""

PUT = """
INSERT INTO desks VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state, used_at = excluded.used_at
"""
GIVE = (
    "SELECT number, at, member, text FROM notes WHERE name = ? AND number > ? AND member <> ? ORDER BY number LIMIT ?"
)


class SqliteStore:
    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, timeout: float = LEAST, clock: Clock | None = None
    ) -> None:
        self._is_default = path is None
        chosen = os.path.join(state_folder(), "shared.db") if path is None else os.fspath(path)
        self.path = os.path.abspath(os.path.expanduser(chosen))
        self.where = f"machine ({self.path})"
        self._timeout = timeout
        self._clock = SystemClock() if clock is None else clock
        self._name_of: Callable[[str], str] | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Which file is open, or was tried."""
        self._files: tuple[tuple[int, int] | None, ...] = ()
        """... with those beside it."""
        self._made = 0
        """New desks so far."""

    def visit(self, visits: Sequence[tuple[str, Visit]]) -> list[Reply]:
        """One transaction for all. Raises ``StoreDown`` if the file stays locked or cannot be used."""
        if not visits:
            return []
        give_up_at = time.monotonic() + self._timeout
        if self._process != os.getpid():
            self._begin_anew()
        if not self._lock.acquire(timeout=self._timeout):
            raise StoreDown(f"{self.where}: another thread is still waiting for it")
        try:
            if self._name_of is None:
                self._name_of = lru_cache(NAMES_KEPT)(Identities.of_user().of)
            for last_try in (False, True):
                try:
                    return self._try(visits, give_up_at)
                except (sqlite3.Error, OSError, OfAnother) as error:
                    self._drop()
                    if last_try or not is_broken(error) or not self._replace():
                        raise StoreDown(f"{self.where}: {in_words(error, self.path)}") from None
        finally:
            self._lock.release()
        raise AssertionError("one of the two tries has ended it")

    def look(self) -> list[DeskView]:
        if not os.path.exists(self.path):
            return []
        try:
            connection = open_file(self.path, LOOK_PATIENCE)
            try:
                rows = connection.execute(
                    "SELECT name, state FROM desks ORDER BY name LIMIT ?", (MOST_DESKS,)
                ).fetchall()
            finally:
                connection.close()
        except (sqlite3.Error, OSError, OfAnother) as error:
            raise StoreDown(f"{self.where}: {in_words(error, self.path)}") from None
        now, wall = self._clock.now(), self._clock.wall()
        desks = [(name, _read(state)) for name, state in rows]
        return [view_of(shown(name), desk, now, wall) for name, desk in desks if desk is not None]

    def close(self) -> None:
        if self._process != os.getpid():
            self._begin_anew()
        with self._lock:
            self._drop()

    def __repr__(self) -> str:
        return f"<SqliteStore: {self.path}>"

    # ------------------------------------------------------------------ the file

    def _try(self, visits: Sequence[tuple[str, Visit]], give_up_at: float) -> list[Reply]:
        if self._connection is not None and all_of(self.path) != self._files:  # removed or replaced
            self._drop()
        pause = FIRST_PAUSE
        while True:
            try:
                connection = self._opened()
                connection.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.Error as error:
                if not is_locked(error):
                    raise
            left = give_up_at - time.monotonic()
            if left <= 0:
                raise StoreDown(f"{self.where}: another process has locked it for {1000 * self._timeout:.0f} ms")
            time.sleep(min(left, pause * (0.5 + random.random())))
            pause = min(2 * pause, LONGEST_PAUSE)
        try:
            replies = [self._visit(connection, key, visit) for key, visit in visits]
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return replies

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._file = identity_of(self.path)
            connection = open_file(self.path)
            try:
                connection.execute("BEGIN IMMEDIATE")
                sweep(connection, self._clock.wall())
                connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
            self._connection, self._file, self._files = connection, identity_of(self.path), all_of(self.path)
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _replace(self) -> bool:
        """Put a broken file of ours out of the way."""
        if not self._is_default and not is_ours(self.path):
            return False
        try:
            move_aside(self.path, self._file)
        except OSError:
            return False
        return True

    def _begin_anew(self) -> None:
        """What the parent has open is the parent's, and so is a lock that it held."""
        if self._connection is not None:
            _inherited.append(self._connection)
        self._process, self._lock, self._connection = os.getpid(), threading.Lock(), None

    # ------------------------------------------------------------------ a visit

    def _visit(self, connection: sqlite3.Connection, key: str, visit: Visit) -> Reply:
        assert self._name_of is not None
        name = self._name_of(key)
        row = connection.execute("SELECT state, used_at FROM desks WHERE name = ?", (name,)).fetchone()
        now, wall = self._clock.now(), self._clock.wall()
        desk = None if row is None else _read(row[0])
        if desk is not None:
            desk.restart(now, wall - row[1])
        if desk is None:
            desk = Desk(visit.terms, now)
            self._made += 1
            if self._made % SWEEP_EVERY == 0:
                sweep(connection, wall)
            connection.execute("DELETE FROM notes WHERE name = ?", (name,))
            connection.execute("DELETE FROM learned WHERE name = ?", (name,))
        covered = desk.covers
        reply, errand = desk.visit(visit, now, wall)
        connection.execute(PUT, (name, json.dumps(desk.to_state(), separators=(",", ":")), wall))
        if errand.forget_to > covered:
            connection.execute("DELETE FROM notes WHERE name = ? AND number <= ?", (name, errand.forget_to))
        return _run(errand, connection, name, reply)


def _run(errand: Errand, connection: sqlite3.Connection, name: str, reply: Reply) -> Reply:
    if errand.keep is not None:
        note = errand.keep
        connection.execute(
            "INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?, ?)", (name, note.number, note.at, note.member, note.text)
        )
    if errand.save:
        connection.execute("INSERT OR REPLACE INTO learned VALUES (?, ?)", (name, errand.save))
    if errand.give_after >= 0:
        rows = connection.execute(GIVE, (name, errand.give_after, errand.but_not_of, MOST_NOTES)).fetchall()
        if rows:
            notes = [Note(number=number, at=at, member=member, text=text) for number, at, member, text in rows]
            reply = replace(reply, notes=tuple(notes))
    if errand.give_learned:
        row = connection.execute("SELECT text FROM learned WHERE name = ?", (name,)).fetchone()
        reply = replace(reply, learned="" if row is None else row[0])
    return reply


def _read(state: str) -> Desk | None:
    """None if it was written by a version that put desks otherwise."""
    try:
        return Desk.from_state(json.loads(state))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
