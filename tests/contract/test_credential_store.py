"""What every store of credentials promises, whatever it is made of: files, or a real server."""

import gc
import threading
from dataclasses import replace

import pytest

from headgate.credentials import FileStore, Record, redis_store
from headgate.credentials import stores as file_store
from headgate.credentials.redis_store import RedisCredentialStore

WALL = 1_800_000_000.0
ROUND_TRIP = 2.0
"""Seconds by which a server's time may make a rest longer: a busy machine is no fault of the store."""


@pytest.fixture(params=["sqlite", "json", "redis"])
def open_one(request, tmp_path):
    """Opens the same store again and again; each is another process as far as it can tell."""
    opened, server = [], None
    if request.param == "redis":
        gc.collect()  # a coordinator left by an earlier test would write its credentials again once they are gone
        server = request.getfixturevalue("redis_server")

    def open_one():
        if server is not None:
            opened.append(RedisCredentialStore(server.url, timeout=5.0))
            return opened[-1]
        return FileStore(tmp_path / ("keys.json" if request.param == "json" else "keys.db"))

    yield open_one
    for store in opened:
        store.close()


def record(**more):
    return Record(**{"identity": "ab" * 16, "label": "key-1", "written_at": WALL, **more})


def same(found, expected):
    """The same record, but for what a server's clock adds."""
    times = {name: getattr(expected, name) for name in ("written_at", "until", "budget_until")}
    for name, at in times.items():
        assert getattr(found, name) == pytest.approx(at, abs=ROUND_TRIP if at else 0.0), name
    return replace(found, **times) == expected


def test_a_new_one_is_empty(open_one):
    assert list(open_one().load()) == []


def test_what_one_has_written_another_reads(open_one):
    written = record(provider="p", group="g", era=3, until=WALL + 9.25, reason="auth", budget=7.5, budget_until=WALL)
    plain = record(identity="cd" * 16, label="größe 'x' \u2602")
    open_one().save([written, plain])
    found = sorted(open_one().load(), key=lambda one: one.identity)
    assert len(found) == 2
    assert same(found[0], written)
    assert same(found[1], plain)


def test_the_stamp_changes_with_every_change_and_with_nothing_else(open_one):
    store, other = open_one(), open_one()
    stamps = [store.stamp()]
    for until in (10.0, 20.0, 30.0):
        other.save([record(until=WALL + until)])
        stamps.append(store.stamp())
    assert len(set(stamps)) == 4
    list(store.load())
    assert store.stamp() == stamps[-1]


class TestMerging:
    def both(self, open_one, first, second):
        store = open_one()
        store.save([first])
        open_one().save([second])
        (found,) = store.load()
        return found

    @pytest.mark.parametrize("swap", [False, True])
    def test_the_longer_rest_wins(self, open_one, swap):
        said = [record(until=WALL + 5, reason="short"), record(until=WALL + 60, reason="long")]
        found = self.both(open_one, *(reversed(said) if swap else said))
        assert found.until == pytest.approx(WALL + 60, abs=ROUND_TRIP)
        assert found.reason == "long"

    @pytest.mark.parametrize("swap", [False, True])
    def test_retired_stays_retired(self, open_one, swap):
        said = [record(retired=True, reason="auth"), record(until=WALL + 60)]
        found = self.both(open_one, *(reversed(said) if swap else said))
        assert (found.retired, found.reason) == (True, "auth")

    @pytest.mark.parametrize("swap", [False, True])
    def test_a_newer_era_replaces_all_of_an_older_one(self, open_one, swap):
        said = [record(retired=True, label="old", budget=1.0), record(era=1, label="new")]
        found = self.both(open_one, *(reversed(said) if swap else said))
        assert (found.era, found.retired, found.label, found.budget) == (1, False, "new", None)

    def test_what_is_left_of_a_budget_is_as_the_last_writer_knows_it(self, open_one):
        long = record(until=WALL + 60, budget=9.0, budget_until=WALL + 100)
        found = self.both(open_one, long, record(budget=4.0, budget_until=WALL + 100, label="renamed"))
        assert (found.budget, found.label) == (4.0, "renamed")
        assert found.until == pytest.approx(WALL + 60, abs=ROUND_TRIP)


def test_many_writers_lose_nothing(open_one):
    def write(number):
        store = open_one()
        for turn in range(5):
            store.save([record(identity=f"{number:032x}", until=WALL + turn)])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [round(one.until - WALL - 4) for one in open_one().load()] == [0] * 6


def test_it_is_bounded_and_keeps_those_written_last(open_one, monkeypatch):
    for module in (file_store, redis_store):
        monkeypatch.setattr(module, "MOST_RECORDS", 5)
    store = open_one()
    for number in range(12):
        store.save([record(identity=f"{number:032x}", written_at=WALL + 100 * number)])
    assert sorted(int(one.identity, 16) for one in store.load()) == [7, 8, 9, 10, 11]
