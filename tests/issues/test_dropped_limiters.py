"""A limiter that is dropped without ``close()`` closes the store that was opened for it, and no other."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest

from headgate import AdaptiveRateLimiter
from headgate.distributed.backends.sqlite import SqliteStore

LONGEST = 20.0
"""Seconds for the thread that talks to the store to end its round; most often none is under way."""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path))


def store_of_dropped_limiter(given: str | SqliteStore) -> SqliteStore:
    limiter = AdaptiveRateLimiter(store=given)
    limiter.acquire("api").report(status_code=200)
    assert limiter._sync is not None
    store = limiter._sync.store
    assert isinstance(store, SqliteStore)
    wait_until(lambda: store._connection is not None)
    return store


def wait_until(true) -> None:  # type: ignore[no-untyped-def]
    ends_at = time.monotonic() + LONGEST
    while not true():
        assert time.monotonic() < ends_at
        gc.collect()
        time.sleep(0.01)


def test_its_own_store_is_closed() -> None:
    store = store_of_dropped_limiter("machine")
    wait_until(lambda: store._connection is None)


def test_a_store_that_was_given_stays_open_for_others() -> None:
    store = SqliteStore()
    with_another = AdaptiveRateLimiter(store=store)
    store_of_dropped_limiter(store)
    gc.collect()
    with_another.acquire("api").report(status_code=200)
    assert store._connection is not None
    with_another.close()
    store.close()
