"""Opening SQLite files: tables are created once, files of other programs are recognised, locks are waited for."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headgate.sqlite_file import (
    ForeignDatabaseError,
    Schema,
    connect,
    create_tables,
    enable_wal,
    error_code,
    has_mark,
    is_database,
    is_locked,
    schema_version,
    scratch,
)

SCHEMA = Schema(application=0x48475454, version=3, tables="CREATE TABLE a (x);\nCREATE TABLE b (y)")


def made(path: Path) -> str:
    with closing(connect(str(path), lock_timeout=1.0)) as connection:
        enable_wal(connection, lock_timeout=1.0)
        create_tables(connection, SCHEMA)
    return str(path)


def test_an_empty_file_gets_its_tables_mark_and_version(tmp_path: Path) -> None:
    with closing(connect(str(tmp_path / "a.db"), lock_timeout=1.0)) as connection:
        assert schema_version(connection, SCHEMA) == 0
        create_tables(connection, SCHEMA)
        create_tables(connection, SCHEMA)  # a second process that found it empty
        assert schema_version(connection, SCHEMA) == 3
        assert connection.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall() == [("a",), ("b",)]


def test_a_name_with_special_characters_is_that_very_file(tmp_path: Path) -> None:
    path = made(tmp_path / "50% of #1? yes.db")
    assert is_database(path)
    assert has_mark(path, SCHEMA)


def test_a_file_of_another_program_is_recognised(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db")
    other = Schema(application=1, version=1, tables="")
    with closing(connect(path, mode="ro", lock_timeout=1.0)) as connection, pytest.raises(ForeignDatabaseError):
        schema_version(connection, other)
    assert not has_mark(path, other)


def test_a_file_that_must_exist_is_not_created(tmp_path: Path) -> None:
    for mode in ("ro", "rw"):
        with pytest.raises(sqlite3.OperationalError) as found:
            connect(str(tmp_path / "a.db"), mode=mode, lock_timeout=1.0)
        assert error_code(found.value) == sqlite3.SQLITE_CANTOPEN
    assert not is_database(str(tmp_path / "a.db"))


def test_a_lock_of_another_connection_is_told_from_other_errors(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db")
    with closing(connect(path, lock_timeout=0.0)) as one, closing(connect(path, lock_timeout=0.0)) as other:
        one.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as found:
            other.execute("BEGIN IMMEDIATE")
        assert is_locked(found.value)
    assert not is_locked(OSError())


def test_switching_to_the_log_gives_up_in_time(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    with closing(connect(path, lock_timeout=0.0)) as one, closing(connect(path, lock_timeout=0.0)) as other:
        one.execute("CREATE TABLE a (x)")
        one.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError):
            enable_wal(other, lock_timeout=0.02)


def test_a_scratch_file_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(scratch()) as connection:
        connection.execute("CREATE TABLE a (x)")
    assert not list(tmp_path.iterdir())
