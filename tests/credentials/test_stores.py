"""What survives a restart, in both kinds of files; and that only its owner can read it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import stat
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from headgate import Limit, Outcome, Signal
from headgate.core.decision import LONGEST_WAIT
from headgate.credentials import (
    Credential,
    CredentialCoordinator,
    FileStore,
    Identities,
    Record,
    StoreError,
)
from headgate.credentials import stores as store_module
from headgate.credentials.record import MOST_BUSY, YIELD
from headgate.credentials.store_sync import CHECK_EVERY, WRITE_BUDGETS_EVERY
from headgate.events import ResilienceEvent
from headgate.lab.virtual_time import LoopClock, VirtualClock, run

both = pytest.mark.parametrize("name", ["keys.db", "keys.json"])
WALL = 1_800_000_000.0
STOPPED, FINE = Signal(outcome=Outcome.SPEND), Signal(outcome=Outcome.OK)


def mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def record(**more: object) -> Record:
    return Record(**{"identity": "ab" * 16, "label": "key-1", "written_at": WALL, **more})  # type: ignore[arg-type]


@both
class TestRestart:
    def test_a_rest_goes_on(self, name: str, tmp_path: Path) -> None:
        clock = VirtualClock(wall=WALL)
        keys = CredentialCoordinator(["sa", "sb"], clock=clock, store=FileStore(tmp_path / name))
        keys.release_credential(keys.get_credential() or "", rate_limited=True, backoff_seconds=60)
        later = VirtualClock(start=5000.0, wall=WALL + 40)
        again = CredentialCoordinator(["sa", "sb"], clock=later, store=FileStore(tmp_path / name))
        assert [again.get_credential(), again.get_credential()] == ["sb", None]
        later.advance(19.9)
        assert again.get_credential() is None
        later.advance(0.1)
        assert again.get_credential() == "sa"

    def test_so_does_that_of_a_group_and_retirement(self, name: str, tmp_path: Path) -> None:
        given = [Credential("a", "sa", "org"), Credential("b", "sb", "org"), Credential("c", "sc")]
        keys = CredentialCoordinator(given, clock=VirtualClock(wall=WALL), store=FileStore(tmp_path / name))
        keys.acquire().report(signal=Signal(outcome=Outcome.RATE_LIMITED, retry_after=60.0))
        keys.retire("c")
        again = CredentialCoordinator(given, clock=VirtualClock(wall=WALL), store=FileStore(tmp_path / name))
        assert [(one.state, one.reason) for one in again.states()] == [
            ("resting", "rate_limited"),
            ("resting", "rate_limited"),
            ("retired", "retired by hand"),
        ]

    def test_a_new_key_under_an_old_label_is_not_retired(self, name: str, tmp_path: Path) -> None:
        CredentialCoordinator(["old"], store=FileStore(tmp_path / name)).retire("key-1")
        again = CredentialCoordinator(["new"], store=FileStore(tmp_path / name))
        assert again.get_credential() == "new"

    def test_budgets_are_written_from_time_to_time(self, name: str, tmp_path: Path) -> None:
        clock = VirtualClock(wall=WALL)
        keys = CredentialCoordinator(["sa"], clock=clock, store=FileStore(tmp_path / name))
        left = Signal(outcome=Outcome.OK, limits=(Limit(remaining=7.0, reset=3600.0),))
        keys.acquire().report(signal=left)
        clock.advance(WRITE_BUDGETS_EVERY)
        keys.states()
        again = CredentialCoordinator(["sa"], clock=VirtualClock(wall=WALL), store=FileStore(tmp_path / name))
        assert again.states()[0].budget == 7

    @pytest.mark.parametrize("jump", [-3600.0, -1e9])
    def test_a_clock_that_went_back_lengthens_nothing(self, name: str, tmp_path: Path, jump: float) -> None:
        FileStore(tmp_path / name).save([record(identity=Identities.of_user().of("sa"), until=WALL + 60)])
        clock = VirtualClock(wall=WALL + jump)
        keys = CredentialCoordinator(["sa"], clock=clock, store=FileStore(tmp_path / name))
        assert keys.states()[0].back_in == 60

    def test_nothing_stored_rests_for_more_than_31_days(self, name: str, tmp_path: Path) -> None:
        FileStore(tmp_path / name).save([record(identity=Identities.of_user().of("sa"), until=WALL + 1e12)])
        keys = CredentialCoordinator(["sa"], clock=VirtualClock(wall=WALL), store=FileStore(tmp_path / name))
        assert keys.states()[0].back_in == LONGEST_WAIT

    def test_a_wall_clock_that_moves_while_it_runs_changes_nothing(self, name: str, tmp_path: Path) -> None:
        class Moved(VirtualClock):
            offset = 0.0

            def wall(self) -> float:
                return super().wall() + self.offset

        for offset in (3600.0, -3600.0):
            path = tmp_path / f"{offset}{name}"
            clock = Moved(wall=WALL)
            keys = CredentialCoordinator(["sa", "sb"], clock=clock, store=FileStore(path))
            keys.release_credential("sa", rate_limited=True, backoff_seconds=60)
            clock.advance(30)
            clock.offset = offset
            FileStore(path).save([record()])  # somebody else writes, so the file is read again
            keys.states()
            clock.advance(29.9)
            assert [keys.states()[0].state, keys.get_quarantine_count()] == ["resting", 1]
            clock.advance(0.1)
            assert keys.states()[0].state == "free"

    def test_no_secret_is_in_any_file(self, name: str, tmp_path: Path, state_folder: Path) -> None:
        keys = CredentialCoordinator(["sk-canary-1", "☂"], store=FileStore(tmp_path / name))
        keys.acquire().report(signal=Signal(outcome=Outcome.RATE_LIMITED, retry_after=60.0))
        keys.retire("☂")
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert {path.name for path in files} >= {name, "identity.key"}
        for path in files:
            content = path.read_bytes()
            assert b"canary" not in content
            assert "☂".encode() not in content
            assert b"\\u2602" not in content


@both
class TestFiles:
    @pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
    def test_they_are_their_owners_only(self, name: str, tmp_path: Path, state_folder: Path) -> None:
        before = os.umask(0)
        try:
            CredentialCoordinator(["sa"], store=FileStore(tmp_path / "made" / name)).park("key-1", 5)
        finally:
            os.umask(before)
        assert mode(tmp_path / "made") == mode(state_folder) == 0o700
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert len(files) >= 2
        assert {mode(path) for path in files} == {0o600}

    @pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
    def test_one_that_is_open_to_others_is_closed(
        self, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        FileStore(tmp_path / name).save([record()])
        os.chmod(tmp_path / name, 0o644)
        FileStore(tmp_path / name).load()
        assert mode(tmp_path / name) == 0o600
        assert "only its owner has access now" in caplog.text

    def test_what_is_written_is_read(self, name: str, tmp_path: Path) -> None:
        written = record(
            provider="p", group="g", era=3, until=WALL + 9.25, reason="auth", budget=7.5, budget_until=WALL
        )
        store = FileStore(tmp_path / name)
        assert store.load() == []
        before = store.stamp()
        store.save([written])
        assert store.load() == [written]
        assert store.stamp() != before

    def test_many_writers_lose_nothing(self, name: str, tmp_path: Path) -> None:
        def write(number: int) -> None:
            for turn in range(5):
                FileStore(tmp_path / name).save([record(identity=f"{number:032x}", until=WALL + turn)])

        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [one.until for one in FileStore(tmp_path / name).load()] == [WALL + 4] * 8

    def test_it_is_bounded(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store_module, "MOST_RECORDS", 5)
        store = FileStore(tmp_path / name)
        for number in range(12):
            store.save([record(identity=f"{number:032x}", written_at=WALL + number)])
        assert sorted(int(one.identity, 16) for one in store.load()) == [7, 8, 9, 10, 11]

    def test_a_broken_file_is_an_error_that_names_it(self, name: str, tmp_path: Path) -> None:
        (tmp_path / name).write_bytes(b"this is neither\0" * 100)
        with pytest.raises(StoreError, match=name):
            FileStore(tmp_path / name).load()

    def test_and_the_coordinator_goes_on_without_it(
        self, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / name).write_bytes(b"this is neither\0" * 100)
        events: list[ResilienceEvent] = []
        clock = VirtualClock()
        keys = CredentialCoordinator(["sa"], clock=clock, store=FileStore(tmp_path / name), on_event=events.append)
        keys.release_credential(keys.get_credential() or "", rate_limited=True, backoff_seconds=60)
        clock.advance(30)
        assert keys.get_credential() is None
        assert keys.store_failures >= 1
        assert caplog.text.count("cannot save key state") == 1
        assert [event.event_type for event in events] == ["store_failed", "credential_rested"]


@pytest.mark.skipif(os.name != "posix", reason="fcntl")
@both
def test_another_process_that_holds_the_file_is_waited_for_only_so_long(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr(store_module, "LONGEST_LOCK", 0.1)
    store = FileStore(tmp_path / name)
    store.save([record()])
    if name.endswith("json"):
        with open(f"{store.path}.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(StoreError):
                store.save([record()])
    else:
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            store.save([record()])
        other.close()
    store.save([record(until=WALL + 1)])
    assert store.load()[0].until == WALL + 1


def test_a_file_that_others_write_is_tried_again_and_told_of_only_if_that_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_module, "LONGEST_LOCK", 0.01)
    clock, store = VirtualClock(wall=WALL), FileStore(tmp_path / "keys.db")
    keys = CredentialCoordinator(["sa", "sb"], clock=clock, store=store)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        keys.park("key-1", 60)
        assert len(FileStore(store.path).load()) == 2, "who only reads is not kept out"
        assert (keys.store_failures, caplog.text) == (1, "")
    clock.advance(CHECK_EVERY)
    keys.check_store()
    assert {one.label: one.until for one in store.load()} == {"key-1": WALL + 60, "key-2": 0.0}, "nothing is lost"
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        keys.park("key-2", 60)
        for _ in range(MOST_BUSY):
            keys.check_store()
        assert "database is locked" in caplog.text


def test_hostile_records_are_left_out(tmp_path: Path) -> None:
    fine = {"identity": "ab" * 16, "label": "a", "written_at": 1.0}
    wrong = [
        7,
        None,
        {},
        {**fine, "identity": "zz" * 16},
        {**fine, "identity": "short"},
        {**fine, "label": "\x1b[2J"},
        {**fine, "label": "x" * 1000},
        {**fine, "until": float("nan")},
        {**fine, "until": "soon"},
        {**fine, "era": 1.5},
        {**fine, "retired": "no"},
        {**fine, "budget": float("inf")},
    ]
    (tmp_path / "keys.json").write_text(json.dumps({"credentials": [*wrong, fine]}))
    assert FileStore(tmp_path / "keys.json").load() == [Record(identity="ab" * 16, label="a", written_at=1.0)]


def test_the_default_file_is_in_the_users_folder(state_folder: Path) -> None:
    store = FileStore()
    store.save([record()])
    assert store.path == str(state_folder / "credentials.db")
    with closing(sqlite3.connect(store.path)) as file:
        assert file.execute("SELECT count(*) FROM credentials").fetchone() == (1,)


class TestMerging:
    def test_in_whichever_order_the_longer_rest_wins(self) -> None:
        short, long = record(until=WALL + 5, reason="s"), record(until=WALL + 60, reason="l")
        assert short.merged(long).until == long.merged(short).until == WALL + 60
        assert long.merged(short).reason == "l"

    def test_retired_stays_retired_and_a_newer_era_replaces(self) -> None:
        retired, rests, freed = record(retired=True), record(until=WALL + 60), record(era=1)
        assert retired.merged(rests).retired
        assert rests.merged(retired).retired
        assert retired.merged(freed) == freed.merged(retired) == freed


class TestOthersWords:
    """What an operator or another process writes reaches a program that runs."""

    def test_within_a_moment(self, tmp_path: Path) -> None:
        clock = VirtualClock(wall=WALL)
        store = FileStore(tmp_path / "keys.db")
        keys = CredentialCoordinator(["sa"], clock=clock, store=store)
        (known,) = store.load()
        parked = record(identity=known.identity, until=WALL + 600, reason="parked by hand")
        store.save([parked])
        clock.advance(CHECK_EVERY)
        assert (keys.get_credential(), keys.states()[0].reason) == (None, "parked by hand")
        store.save([record(identity=known.identity, era=1)])
        clock.advance(CHECK_EVERY)
        assert keys.get_credential() == "sa"

    def test_also_while_everybody_waits(self, tmp_path: Path) -> None:
        async def main(clock: LoopClock) -> float:
            store = FileStore(tmp_path / "keys.json")
            keys = CredentialCoordinator(["sa"], clock=clock, store=store)
            keys.park("key-1", 7200)
            waiting = asyncio.create_task(keys.acquire_async())
            await asyncio.sleep(100)
            (known,) = store.load()
            store.save([record(identity=known.identity, era=known.era + 1)])
            await waiting
            return clock.now()

        assert 100 < run(main) <= 100 + CHECK_EVERY

    def test_one_that_is_freed_serves_whoever_waits_while_another_is_parked(self, tmp_path: Path) -> None:
        async def main(clock: LoopClock) -> str:
            store = FileStore(tmp_path / "keys.json")
            keys = CredentialCoordinator(["sa", "sb"], clock=clock, store=store)
            keys.park("key-1", 50)
            keys.park("key-2", 50)
            waiting = asyncio.create_task(keys.acquire_async(timeout=60))
            await asyncio.sleep(1)
            one, other = sorted(store.load(), key=lambda known: known.label)
            parked = replace(one, until=one.until + 500)
            freed = replace(other, era=other.era + 1, until=0.0)
            store.save([parked, freed])
            return (await waiting).label

        assert run(main) == "key-2"

    def test_two_programs_rest_together(self, tmp_path: Path) -> None:
        clock = VirtualClock()
        one, other = (CredentialCoordinator(["sa"], clock=clock, store=FileStore(tmp_path / "k.db")) for _ in range(2))
        one.acquire().report(signal=Signal(outcome=Outcome.RATE_LIMITED, retry_after=60.0))
        clock.advance(CHECK_EVERY)
        assert other.get_credential() is None
        clock.advance(60 - CHECK_EVERY)
        assert other.get_credential() == "sa"


@both
class TestSpendingStops:
    def test_one_process_asks_for_all_whether_the_account_can_spend_again(self, name: str, tmp_path: Path) -> None:
        clock = VirtualClock(wall=WALL)
        all_of_them = [CredentialCoordinator(["sa"], clock=clock, store=FileStore(tmp_path / name)) for _ in range(4)]
        stopped = Signal(outcome=Outcome.SPEND, limits=(Limit(remaining=50.0, reset=7200.0),))
        for lease in [keys.acquire() for keys in all_of_them]:
            lease.report(signal=stopped)  # budgets are written again and again

        def calls(seconds: float, answer: Signal) -> list[tuple[float, int]]:
            """When which process has got its key, each of them trying all the time; an answer takes a second."""
            found: list[tuple[float, int]] = []
            out = []
            for _ in range(int(seconds / 0.5)):
                clock.advance(0.5)
                for ends_at, lease in [one for one in out if one[0] <= clock.now()]:
                    lease.report(signal=answer)
                    out.remove((ends_at, lease))
                for number, keys in enumerate(all_of_them):
                    lease = keys.try_acquire()
                    if lease is not None:
                        found.append((clock.now(), number))
                        out.append((clock.now() + 1.0, lease))
                if answer is FINE and len({number for _, number in found}) == len(all_of_them):
                    break
            for _, lease in out:
                lease.report(signal=answer)
            return found

        probes = [at for at, _ in calls(1_900.0, stopped)]
        assert len(probes) == 2, "one in 15 minutes, however many want to know"
        assert (probes[0], 0.0 <= probes[1] - 1801.0 <= YIELD[1]) == (900.0, True)
        (asked_at, _), *others = calls(2_000.0, FINE)
        assert {number for _, number in others} == set(range(4)), "the others are told that it can"
        assert others[-1][0] - asked_at <= 1.0 + 2 * CHECK_EVERY + 1.0

    def test_a_process_that_waits_for_a_key_asks(self, name: str, tmp_path: Path) -> None:
        async def main(clock: LoopClock) -> float:
            keys = CredentialCoordinator(["sa"], clock=clock, store=FileStore(tmp_path / name))
            keys.acquire().report(signal=STOPPED)
            lease = await keys.acquire_async()
            assert keys.back_in("key-1") == pytest.approx(900.0, abs=1.0)
            assert not lease.is_void
            lease.report(signal=FINE)
            assert keys.back_in("key-1") == 0.0
            return clock.now()

        assert 900 <= run(main) <= 901

    def test_a_store_that_stays_away_forbids_nothing(self, name: str, tmp_path: Path) -> None:
        class Broken(FileStore):
            def save(self, records: object) -> None:
                raise OSError("no such folder")

        clock = VirtualClock(wall=WALL)
        keys = CredentialCoordinator(["sa"], clock=clock, store=Broken(tmp_path / name))
        keys.acquire().report(signal=STOPPED)
        clock.advance(901)
        assert keys.try_acquire() is not None

    def test_a_key_that_is_lent_alone_proves_nothing(self, name: str, tmp_path: Path) -> None:
        clock = VirtualClock(wall=WALL)
        keys = CredentialCoordinator(["sa"], clock=clock, store=FileStore(tmp_path / name))
        keys.acquire().report(signal=STOPPED)
        clock.advance(901)
        for _ in range(2):
            assert [keys.get_credential(), keys.try_acquire()] == ["sa", None]
            keys.release_credential("sa")
        lease = keys.try_acquire()
        assert lease is not None, "the next call may ask, and still but one"
        assert keys.try_acquire() is None
        assert FileStore(tmp_path / name).load()[0].era == 0

    @pytest.mark.parametrize("by", ["an operator", "another process"])
    def test_what_frees_one_key_of_the_account_frees_all(self, name: str, tmp_path: Path, by: str) -> None:
        given = [Credential("a", "sa", "org"), Credential("b", "sb", "org"), Credential("c", "sc", "org")]
        clock = VirtualClock(wall=WALL)
        keys = CredentialCoordinator(given, clock=clock, store=FileStore(tmp_path / name))
        keys.acquire().report(signal=STOPPED)
        keys.retire("c")
        other = CredentialCoordinator(given[:1], clock=clock, store=FileStore(tmp_path / name))
        if by == "an operator":
            keys.free("a")
        else:
            clock.advance(895)
            assert (keys.try_acquire(), other.try_acquire()) == (None, None)
            other.free("a")
        clock.advance(CHECK_EVERY)
        assert [one.state for one in keys.states()] == ["free", "free", "retired"]
        for label in ("a", "b", "a", "b"):
            lease = keys.try_acquire(label, only=True)
            assert lease is not None
        lease.report(signal=STOPPED)
        assert [one.state for one in keys.states()] == ["resting", "resting", "retired"]

    def test_a_key_that_is_parked_elsewhere_frees_no_account(self, name: str, tmp_path: Path) -> None:
        given = [Credential("a", "sa", "org"), Credential("b", "sb", "org")]
        clock = VirtualClock(wall=WALL)
        one, other = (CredentialCoordinator(given, clock=clock, store=FileStore(tmp_path / name)) for _ in range(2))
        one.acquire().report(signal=STOPPED)
        one.free("a")
        one.park("a", 3600)
        one.acquire(prefer="b").report(signal=STOPPED)
        clock.advance(CHECK_EVERY)
        assert [(key.state, key.reason) for key in other.states()] == [
            ("resting", "parked by hand"),
            ("resting", "spend"),
        ]

    def test_a_call_that_was_not_sent_leaves_the_question_to_the_next(self, name: str, tmp_path: Path) -> None:
        clock = VirtualClock(wall=WALL)
        keys = CredentialCoordinator(["sa"], clock=clock, store=FileStore(tmp_path / name))
        keys.acquire().report(signal=STOPPED)
        clock.advance(901)
        for _ in range(3):
            lease = keys.try_acquire()
            assert lease is not None
            assert (lease.is_void, keys.try_acquire()) == (False, None)
            lease.release()
            clock.advance(CHECK_EVERY)
        lost = keys.try_acquire()
        assert lost is not None
        del lost
        asks = keys.try_acquire()
        assert asks is not None, "nor does one that is forgotten"
        asks.report(signal=Signal(outcome=Outcome.TRANSIENT))
        assert keys.back_in("key-1") == pytest.approx(900.0), "an answer that says nothing of it is one"

    def test_a_clock_that_is_set_back_delays_no_question(self, name: str, tmp_path: Path) -> None:
        class SetBack(VirtualClock):
            back = 0.0

            def wall(self) -> float:
                return super().wall() - self.back

        clock = SetBack(wall=WALL)
        keys = CredentialCoordinator(["sa"], clock=clock, store=FileStore(tmp_path / name))
        keys.acquire().report(signal=STOPPED)
        clock.back = 6 * 3600.0
        for _ in range(2):
            clock.advance(895)
            assert keys.try_acquire() is None
            clock.advance(5 + YIELD[1])
            lease = keys.try_acquire()
            assert lease is not None
            lease.report(signal=STOPPED)

    def test_what_comes_back_from_a_store_far_away_is_no_news(self, name: str, tmp_path: Path) -> None:
        class Far(FileStore):
            def load(self) -> list[Record]:
                return [replace(one, until=one.until + 0.2) if one.until else one for one in super().load()]

        clock = VirtualClock(wall=WALL)
        keys = CredentialCoordinator(["sa"], clock=clock, store=Far(tmp_path / name))
        keys.acquire().report(signal=STOPPED)
        probes = []
        for _ in range(4000):
            clock.advance(1)
            lease = keys.try_acquire()
            if lease is not None:
                clock.advance(CHECK_EVERY)
                keys.check_store()
                assert not lease.is_void
                probes.append(clock.now())
                if len(probes) % 2:
                    lease.release()
                else:
                    lease.report(signal=STOPPED)
        assert len(probes) == 8, "each is asked again at once after one that was given back"


class TestIdentity:
    def test_it_is_made_once_and_kept(self, state_folder: Path) -> None:
        assert Identities.of_user().of("sk-1") == Identities.of_user().of("sk-1")
        assert len((state_folder / "identity.key").read_bytes()) == 32
        assert [path.name for path in state_folder.iterdir()] == ["identity.key"]

    def test_it_has_128_bits_and_depends_on_the_key(self) -> None:
        assert len(bytes.fromhex(Identities(b"k").of("sk-1"))) == 16
        assert len({Identities(key).of(secret) for key in (b"k", b"l") for secret in ("a", "b")}) == 4

    def test_where_no_file_can_be_kept_it_lasts_for_the_process(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").write_text("in the way")
        monkeypatch.setenv("HEADGATE_STATE", str(tmp_path / "file" / "folder"))
        assert Identities.of_user().of("a") == Identities.of_user().of("a")  # all parts of a process agree
        assert len(caplog.records) == 1

    def test_a_key_that_is_damaged_is_not_used(self, state_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        state_folder.mkdir(mode=0o700)
        (state_folder / "identity.key").write_bytes(b"short")
        assert Identities.of_user().of("a")
        assert "remove it" in caplog.text

    def test_nothing_is_written_for_a_program_that_neither_logs_nor_stores(self, state_folder: Path) -> None:
        logging.getLogger("headgate").setLevel(logging.ERROR)
        try:
            CredentialCoordinator(["sa"]).park("key-1", 5)
        finally:
            logging.getLogger("headgate").setLevel(logging.NOTSET)
        assert not state_folder.exists()
