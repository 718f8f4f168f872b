"""The machine store's file: shared by processes, closed to others; whatever happens to it is told or mended in time."""

import json
import logging
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time

import pytest

from headgate.distributed.backends import sqlite
from headgate.distributed.backends.sqlite import SqliteStore
from headgate.distributed.protocol import QuotaTerms, SyncRequest
from headgate.distributed.store import FORGOTTEN_AFTER, AdaptiveTimeout, StoreDown

TERMS = QuotaTerms(rate=1000.0, burst=4.0, most=1e6)
NOBODY_IN_PARTICULAR = 65534

HAMMER = """
import json, sys, time
from headgate.distributed.protocol import QuotaTerms, SyncRequest
from headgate.distributed.backends.sqlite import SqliteStore

path, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
store, terms = SqliteStore(path, timeout=20.0), QuotaTerms(rate=5000.0, burst=4.0, most=1e6)
ranges, number, era, answered_at = [], 0, 0, time.monotonic()
end_at = answered_at + seconds
print("ready", flush=True)
while not number or time.monotonic() < end_at:
    number, now = number + 1, time.monotonic()
    request = SyncRequest(member=name, number=number, elapsed=now - answered_at, terms=terms, asks=((50, {}),), era=era)
    (reply,) = store.sync([("api", request)])
    answered_at, era = now, reply.era
    if reply.granted:
        ranges.append((reply.first, reply.granted))
print(json.dumps([number, ranges, reply.line, reply.now]), flush=True)
"""

HOLD_THE_LOCK = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


class Clock:
    def __init__(self):
        self.at = 1000.0

    def now(self):
        return self.at

    def wall(self):
        return 1_700_000_000.0 + self.at


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "state" / "shared.db")


@pytest.fixture
def opened(path):
    stores = []

    def make(at=path, **options):
        stores.append(SqliteStore(at, **{"timeout": 2.0, **options}))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


def sync(store, number=1, name="a", key="api", **more):
    said = SyncRequest(member=name, number=number, elapsed=60.0, terms=TERMS, asks=((1, {}),), **more)
    (reply,) = store.sync([(key, said)])
    return reply


def started(script, *arguments):
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ended(process):
    """What it still had to say."""
    with process:
        process.stdin.close()
        return process.stdout.read()


class TestProcesses:
    def test_several_at_once_get_no_number_twice_and_no_more_than_the_rate(self, path, opened):
        """One of them is killed on its way, which leaves the others undisturbed."""
        began_at = time.monotonic()
        workers = [started(HAMMER, path, f"m{number}", "1.5" if number else "30") for number in range(4)]
        assert [worker.stdout.readline() for worker in workers] == ["ready\n"] * 4
        time.sleep(0.3)
        workers[0].send_signal(signal.SIGKILL)
        said = [ended(worker) for worker in workers]
        assert [worker.returncode for worker in workers] == [-signal.SIGKILL, 0, 0, 0]
        results = [json.loads(text) for text in said[1:]]
        numbers = [first + offset for _, ranges, _, _ in results for first, count in ranges for offset in range(count)]
        assert len(numbers) == len(set(numbers)) > 0
        (coordinator,) = opened().snapshot()
        assert max(numbers) < coordinator.issued
        assert coordinator.line <= 5000.0 * (time.monotonic() - began_at) + 4.0
        assert coordinator.issued - coordinator.line <= 5000.0
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()

    def test_several_that_make_the_file_at_once_find_each_other(self, path):
        workers = [started(HAMMER, path, f"m{number}", "0.2") for number in range(3)]
        assert [worker.stdout.readline() for worker in workers] == ["ready\n"] * 3
        results = [json.loads(ended(worker)) for worker in workers]
        firsts = [first for _, ranges, _, _ in results for first, _ in ranges]
        assert len(firsts) == len(set(firsts))

    def test_a_child_does_not_use_what_its_parent_has_open(self, path, opened):
        store = opened()
        sync(store, 1, "parent")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                os.write(writing, json.dumps([sync(store, number, "child").first for number in (1, 2)]).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        assert json.loads(said) == [1.0, 2.0]
        assert sync(store, 2, "parent").first == 3.0

    def test_two_stores_of_one_process_leave_each_other_their_locks(self, path, opened):
        for _ in range(2):
            sync(opened())
        before = os.stat(f"{path}-wal").st_ino
        come_and_go = (
            "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM desks').connection.close()"
        )
        subprocess.run([sys.executable, "-c", come_and_go, path], check=True)
        assert os.stat(f"{path}-wal").st_ino == before, "the last to leave takes it away; others are still there"

    def test_a_lock_that_another_holds_is_told_in_time(self, path, opened):
        store = opened(timeout=0.05)
        while True:  # a busy machine may need more than one try to make the file
            try:
                sync(store)
                break
            except StoreDown:
                pass
        other = started(HOLD_THE_LOCK, path)
        assert other.stdout.readline() == "held\n"
        began_at = time.monotonic()
        with pytest.raises(StoreDown) as caught:
            sync(store, 2)
        assert 0.04 < time.monotonic() - began_at < 5.0, "the lock is held for as long as it takes"
        assert str(caught.value) == f"machine ({path}): other processes have held its lock for 50 ms"
        ended(other)
        store._timeout = AdaptiveTimeout(2.0)
        assert sync(store, 3).first == 1.0

    def test_a_holder_that_is_not_scheduled_for_a_moment_does_not_lose_the_store(self, path, monkeypatch):
        """It is waited for as long as for any store, by the clock: nothing here really sleeps."""
        at = [0.0]
        monkeypatch.setattr(sqlite.time, "monotonic", lambda: at[0])
        store = SqliteStore(path)
        sync(store)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")

        def sleep(seconds):
            at[0] += seconds
            if at[0] > 0.15 and holder.in_transaction:
                holder.execute("COMMIT")

        monkeypatch.setattr(sqlite.time, "sleep", sleep)
        sync(store, 2)
        assert 0.15 < at[0] < 0.25
        holder.close()
        store.close()


class TestPermissions:
    def test_the_folder_and_all_files_are_their_owners_only(self, path, opened):
        sync(opened())
        folder = os.path.dirname(path)
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        names = sorted(os.listdir(folder))
        assert names == ["shared.db", "shared.db-shm", "shared.db-wal"]
        assert {stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) for name in names} == {0o600}

    def test_a_file_that_others_could_read_is_closed_to_them(self, path, opened, caplog):
        sync(opened())
        os.chmod(path, 0o644)
        sync(opened(), 2)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert "was accessible to other users" in caplog.text

    @pytest.mark.parametrize("made_before", [True, False])
    def test_where_nothing_may_be_written_it_says_so(self, tmp_path, made_before):
        folder = tmp_path / "state"
        folder.mkdir()
        path = str(folder / "shared.db")
        if made_before:
            store = SqliteStore(path)
            sync(store)
            store.close()
            os.chmod(path, 0o444)
        os.chmod(folder, 0o555)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            said = b"nothing"
            try:
                if os.getuid() == 0:
                    for above in (folder, *folder.parents):
                        if not os.stat(above).st_mode & 0o001:
                            os.chmod(above, 0o755)
                    os.setuid(NOBODY_IN_PARTICULAR)
                sync(SqliteStore(path))
            except StoreDown as down:
                said = str(down).encode()
            finally:
                os.write(writing, said)
                os._exit(0)
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:
            why = (
                "is not writable; check its permissions"
                if made_before
                else "cannot be opened or created (Permission denied)"
            )
            assert pipe.read() == f"machine ({path}): it {why}"
        os.waitpid(child, 0)
        os.chmod(folder, 0o755)

    def test_what_stands_in_the_file_names_no_key(self, path, opened):
        store = opened()
        sync(store, key="openai|sk-live-SECRET")
        store.close()
        with open(path, "rb") as file:
            assert b"SECRET" not in file.read()


class TestFaults:
    def test_a_full_disk_is_told_and_it_goes_on_when_there_is_room(self, opened):
        store = opened()
        sync(store)
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreDown, match="the disk is full"):
            sync(store, 2, note="x" * 60_000)
        assert sync(store, 3).first == 1.0

    @pytest.mark.parametrize("how", ["file", "folder"])
    def test_a_file_that_was_removed_is_made_anew_for_all(self, path, opened, how):
        one, two = opened(), opened()
        era = sync(one, 1, "one").era
        sync(two, 1, "two")
        if how == "folder":
            shutil.rmtree(os.path.dirname(path))
        else:
            for name in (path, f"{path}-wal", f"{path}-shm"):
                os.unlink(name)
        first = sync(one, 2, "one")
        assert (first.first, first.members) == (0.0, 1)
        assert first.era > era
        second = sync(two, 2, "two")
        assert (second.first, second.members) == (1.0, 2)

    @pytest.mark.parametrize("where", ["header", "middle", "all"])
    def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(self, monkeypatch, tmp_path, caplog, where):
        monkeypatch.setenv("HEADGATE_STATE", str(tmp_path))
        store = SqliteStore(timeout=2.0)
        for number in range(1, 4):
            sync(store, number, note="x" * 5000)
        store.close()
        path = store.path
        with open(path, "r+b") as file:
            size = os.path.getsize(path)
            begin, end = {"header": (0, 60), "middle": (4096, size), "all": (0, size)}[where]
            file.seek(begin)
            file.write(b"\xa5" * (end - begin))
        with caplog.at_level(logging.WARNING, "headgate"):
            assert sync(store, 4).first == 0.0
        assert f"{path} was damaged" in caplog.text
        assert os.path.exists(f"{path}.broken")
        assert sync(store, 5).first == 1.0
        store.close()

    def test_one_that_is_damaged_while_it_is_open_is_replaced_too(self, path, opened):
        one, two = opened(), opened()
        sync(one, 1, "one")
        with sqlite3.connect(path) as connection:
            connection.execute("DROP TABLE desks")
        connection.close()
        assert sync(one, 2, "one").first == 0.0
        assert sync(two, 1, "two").first == 1.0

    def test_an_emptied_file_is_filled_again(self, path, opened):
        store = opened()
        sync(store)
        store.close()
        with open(path, "wb"):
            pass
        assert sync(store, 2).first == 0.0

    def test_a_file_of_another_program_is_left_alone(self, tmp_path, opened):
        text, database = tmp_path / "notes.txt", tmp_path / "other.db"
        text.write_text("notes of mine\n" * 500)
        with sqlite3.connect(database) as connection:
            connection.execute("CREATE TABLE desks (a)")
        connection.close()
        with pytest.raises(StoreDown, match="it is not a database"):
            sync(opened(str(text)))
        with pytest.raises(StoreDown, match="a database of another program"):
            sync(opened(str(database)))
        assert text.read_text().startswith("notes of mine")
        assert sorted(os.listdir(tmp_path)) == ["notes.txt", "other.db"]

    def test_one_of_another_version_is_left_alone(self, path, opened):
        store = opened()
        sync(store)
        store.close()
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
        with pytest.raises(StoreDown, match="another version of headgate"):
            sync(store, 2)
        with pytest.raises(StoreDown, match="another version of headgate"):
            store.snapshot()

    def test_a_state_that_cannot_be_read_begins_anew(self, path, opened):
        store = opened()
        sync(store)
        with sqlite3.connect(path) as connection:
            connection.execute("""UPDATE desks SET state = '{"seats": 3}'""")
        connection.close()
        assert store.snapshot() == []
        assert sync(store, 2).first == 0.0

    def test_a_folder_in_its_place_is_told(self, tmp_path, opened):
        with pytest.raises(StoreDown, match="cannot be opened"):
            sync(opened(str(tmp_path)))


class TestSize:
    def test_quotas_that_are_not_used_are_removed(self, opened):
        clock = Clock()
        store = opened(clock=clock)
        sync(store, key="old", note="n")
        clock.at += FORGOTTEN_AFTER - 10
        sync(store, key="new")
        clock.at += 20
        store.close()
        sync(store, 2, key="new")
        assert len(store.snapshot()) == 1
        assert store._connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)

    def test_of_too_many_the_oldest_go(self, opened, monkeypatch):
        monkeypatch.setattr(sqlite, "MOST_KEYS", 3)
        clock = Clock()
        store = opened(clock=clock)
        for number in range(6):
            clock.at += 1
            sync(store, key=f"key{number}")
        store.close()
        assert sync(store, 2, key="key5").first == 1.0
        assert len(store.snapshot()) == 3

    @pytest.mark.no_cover
    def test_it_does_not_grow_with_the_requests(self, path, opened):
        store = opened()
        for number in range(1, 800):
            sync(store, number, note="x" * 100)
        assert os.path.getsize(path) + os.path.getsize(f"{path}-wal") < 6_000_000
