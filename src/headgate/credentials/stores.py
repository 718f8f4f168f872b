"""The files in which records of credentials are kept, for their owner only: SQLite or JSON, by the name."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from ..clock import Clock
from ..errors import ConfigError, HeadgateError
from ..private_files import (
    OWNER_ONLY,
    create_private,
    make_private_folder,
    restrict_to_owner,
    state_folder,
    write_private,
)
from .record import CredentialStore, Record, by_name

if TYPE_CHECKING:
    import sqlite3


MOST_RECORDS = 10_000
"""Credentials a store remembers; of more, those written last."""
LARGEST_FILE = 16 * 1024 * 1024
CHANGES_AT = 24
"""Where a database has the number of its changes, in four bytes."""
LONGEST_LOCK = 1.0
"""Seconds to wait for another process that writes; an event loop may be blocked meanwhile."""


class StoreError(HeadgateError):
    """The file could not be read or written; the message says which and why."""

    is_busy = False
    """Whether other processes have kept it locked all the time: nothing is wrong with it."""


class FileStore:
    """Records in a file that only its owner can read: SQLite, or JSON if the name ends in ``.json``.

    SQLite is the default for it can be shared on every system; JSON is for reading by people, and is
    shared safely where there is ``fcntl`` (not on Windows).
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        chosen = os.path.join(state_folder(), "credentials.db") if path is None else os.fspath(path)
        self.path = os.path.expanduser(chosen)
        self._read_and_write = _json_file if self.path.endswith(".json") else _sqlite_file

    def load(self) -> list[Record]:
        """All that is known; nothing if there is no file yet."""
        if not os.path.exists(self.path):
            return []
        with self._opened(writes=False) as file:
            return list(file.records().values())

    def save(self, records: Iterable[Record]) -> None:
        """Merge these into what is there; the file is made if need be."""
        with self._opened() as file:
            known = file.records()
            merged = {
                record.name: known[record.name].merged(record) if record.name in known else record for record in records
            }
            changed = {name: record for name, record in merged.items() if known.get(name) != record}
            if changed:
                file.put(changed, known | changed)

    def stamp(self) -> object:
        """When and how the file was last written; None if there is none."""
        try:
            with open(self.path, "rb") as file:
                status, head = os.fstat(file.fileno()), file.read(CHANGES_AT + 4)
        except OSError:
            return None
        # a date is too coarse for two changes at once; SQLite counts its own
        return status.st_mtime_ns, status.st_size, status.st_ino, head[CHANGES_AT:]

    @contextmanager
    def _opened(self, *, writes: bool = True) -> Iterator[_File]:
        try:
            make_private_folder(self.path)
            with self._read_and_write(self.path, writes) as file:
                yield file
            restrict_to_owner(self.path)  # not before it has proved to be one of ours
        except (OSError, ValueError) as error:
            failure = StoreError(f"{self.path} cannot be used as a credential store ({error})")
            failure.is_busy = isinstance(error, BlockingIOError)
            raise failure from None

    def __repr__(self) -> str:
        return f"FileStore({self.path!r})"


class _File(Protocol):
    def records(self) -> dict[str, Record]: ...

    def put(self, changed: dict[str, Record], everything: dict[str, Record]) -> None: ...


class _Json:
    def __init__(self, path: str) -> None:
        self._path = path

    def records(self) -> dict[str, Record]:
        import json

        if not os.path.exists(self._path):
            return {}
        if os.path.getsize(self._path) > LARGEST_FILE:
            raise ValueError(f"it is larger than {LARGEST_FILE // 2**20} MiB")
        with open(self._path, encoding="utf-8") as file:
            content = json.load(file)
        rows = content.get("credentials") if isinstance(content, dict) else None
        if not isinstance(rows, list):
            raise ValueError("unexpected content")
        return by_name(rows)

    def put(self, changed: dict[str, Record], everything: dict[str, Record]) -> None:
        import json

        newest = sorted(everything.values(), key=lambda record: record.written_at)[-MOST_RECORDS:]
        content = {"headgate": 1, "credentials": [asdict(record) for record in newest]}
        write_private(self._path, json.dumps(content, indent=1).encode())


@contextmanager
def _json_file(path: str, writes: bool) -> Iterator[_File]:
    try:
        import fcntl
    except ImportError:  # Windows: the file is still replaced as a whole, but two writers may overlook each other
        yield _Json(path)
        return
    if not writes:  # it is replaced as a whole
        yield _Json(path)
        return
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, OWNER_ONLY)
    try:
        give_up_at = time.monotonic() + LONGEST_LOCK
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.005)
        yield _Json(path)
    finally:
        os.close(lock)


class _Sqlite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def records(self) -> dict[str, Record]:
        import json

        rows = self._connection.execute("SELECT record FROM credentials LIMIT ?", (MOST_RECORDS,))
        return by_name(json.loads(row) for (row,) in rows)

    def put(self, changed: dict[str, Record], everything: dict[str, Record]) -> None:
        import json

        self._connection.executemany(
            "REPLACE INTO credentials VALUES (?, ?, ?)",
            [(one.name, one.written_at, json.dumps(asdict(one))) for one in changed.values()],
        )
        if len(everything) >= MOST_RECORDS:
            keep = "SELECT identity FROM credentials ORDER BY written_at DESC LIMIT ?"
            self._connection.execute(
                f"DELETE FROM credentials WHERE identity NOT IN ({keep})",  # noqa: S608
                (MOST_RECORDS,),
            )


@contextmanager
def _sqlite_file(path: str, writes: bool) -> Iterator[_File]:
    import sqlite3  # here, because most programs keep no records

    from ..sqlite_file import connect, is_locked

    if not os.path.exists(path):
        create_private(path, b"")  # SQLite gives its journal the same permissions
    connection = connect(path, lock_timeout=LONGEST_LOCK)
    try:
        # An event loop may be blocked meanwhile. What a power cut takes is learned again from the next refusal.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")  # readers lock each other out in vain
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        if tables and ("credentials",) not in tables:
            raise ValueError("unexpected content")
        if not tables:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS credentials (identity TEXT PRIMARY KEY, written_at REAL, record TEXT)"
            )
        yield _Sqlite(connection)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise (BlockingIOError if is_locked(error) else OSError)(str(error)) from None
    finally:
        connection.close()


# ---------------------------------------------------------------------- opening a store by name

_KNOWN = "'machine', a redis:// address, or a store such as FileStore(path)"


def open_credential_store(where: str | CredentialStore, clock: Clock | None = None) -> CredentialStore:
    """The one that is named, or the one that is given. Nothing is opened or connected before it is used.

    ``clock``: the one by which records are written.
    """
    if not isinstance(where, str):
        if not all(callable(getattr(where, name, None)) for name in ("load", "save", "stamp")):
            raise ConfigError(f"store={type(where).__name__} must be {_KNOWN}")
        return where
    if where == "machine":
        return FileStore()
    if where.startswith(("redis://", "rediss://", "redis+", "rediss+")):
        from .redis_store import RedisCredentialStore

        return RedisCredentialStore(where, clock=clock)
    raise ConfigError(f"store: not a credential store; expected {_KNOWN}")  # not repeated: it may be a secret
