"""A limiter that is dropped without ``close()``, and with it its store, leaves no open connection to a file.

Python 3.13 reports one as a ``ResourceWarning``.
"""

from __future__ import annotations

import gc
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate import AdaptiveRateLimiter
from headgate.distributed.backends.sqlite import SqliteStore

LONGEST = 20.0
"""Seconds for the thread that talks to the store to end its round; most often none is under way."""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path))


def connection_of(limiter: AdaptiveRateLimiter) -> sqlite3.Connection:
    """... once it has been used."""
    limiter.acquire("api").report(status_code=200)
    assert limiter._sync is not None
    store = limiter._sync.store
    assert isinstance(store, SqliteStore)
    wait_until(lambda: store._connection is not None)
    assert store._connection is not None
    return store._connection


def wait_until(is_so: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + LONGEST
    while not is_so():
        assert time.monotonic() < ends_at
        gc.collect()
        time.sleep(0.01)


def is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


def test_a_dropped_limiter_closes_its_store() -> None:
    connection = connection_of(AdaptiveRateLimiter(store="machine"))
    wait_until(lambda: is_closed(connection))


def test_a_store_that_is_still_referenced_stays_open() -> None:
    store = SqliteStore()
    connection = connection_of(AdaptiveRateLimiter(store=store))
    gc.collect()
    assert not is_closed(connection)
    store.close()
    assert is_closed(connection)


def test_a_forked_child_leaves_its_parents_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = connection_of(limiter := AdaptiveRateLimiter(store=(store := SqliteStore())))
    limiter.close()
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: -1)
        store.close()
    assert not is_closed(connection)
    connection.close()
