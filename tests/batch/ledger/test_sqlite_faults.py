"""What can be wrong with a ledger's file is told in a sentence, and what was recorded stays recorded."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headgate.batch.ledger import Change, LedgerError, Row, RowState
from headgate.batch.ledger.queries import read_status
from headgate.batch.ledger.sqlite import SqliteLedger
from headgate.engine import database as sqlite_opening

UNPRIVILEGED = 65534


def rows(count):
    return [Row(i, str(i), b"%016d" % i) for i in range(count)]


def done(claim, line=b"line"):
    return Change(index=claim.index, fence=claim.fence, state=RowState.DONE, attempts=1, result=line)


def begin(path):
    """What is said about this file."""

    async def main():
        ledger = SqliteLedger(path)
        await ledger.begin({"input": "a"})
        await ledger.close()

    with pytest.raises(LedgerError) as caught:
        asyncio.run(main())
    return str(caught.value)


class TestOpening:
    def test_a_file_that_holds_something_else(self, tmp_path):
        path = tmp_path / "notes.txt"
        path.write_text("these are notes, not a ledger\n" * 100)
        assert begin(path).startswith(f"{path} is not a ledger; choose another file. ")
        assert path.read_text().startswith("these are notes")

    def test_a_database_of_another_program(self, tmp_path):
        path = tmp_path / "other.db"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE rows (a)")
        connection.close()
        assert "is a database of another program" in begin(path)

    def test_a_newer_form(self, tmp_path):
        path = tmp_path / "run.ledger"

        async def make():
            ledger = SqliteLedger(path)
            await ledger.begin({})
            await ledger.close()

        asyncio.run(make())
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
        assert "was made by a newer headgate (format 99" in begin(path)
        with pytest.raises(LedgerError, match="newer headgate"):
            read_status(str(path))

    def test_a_folder_that_is_not_there(self, tmp_path):
        assert begin(tmp_path / "no" / "run.ledger").startswith(f"there is no folder {tmp_path / 'no'} for the ledger")

    def test_a_folder_in_its_place(self, tmp_path):
        assert begin(tmp_path) == f"{tmp_path} is a folder; choose a file for the ledger"

    def test_a_damaged_file(self, tmp_path):
        path = tmp_path / "run.ledger"

        async def fill():
            ledger = SqliteLedger(path)
            await ledger.begin({"input": "a"})
            for claim in await ledger.claim(rows(500)):
                await ledger.record(done(claim)) if claim.index % 100 == 0 else None
            await ledger.close()

        asyncio.run(fill())
        content = bytearray(path.read_bytes())
        content[4096:] = b"\xa5" * (len(content) - 4096)
        path.write_bytes(content)
        assert "is damaged" in begin(path)

    def test_begun_twice(self, tmp_path):
        async def main():
            ledger = SqliteLedger(tmp_path / "run.ledger")
            await ledger.begin({})
            with pytest.raises(LedgerError, match="begin was already called"):
                await ledger.begin({})
            await ledger.close()

        asyncio.run(main())

    @pytest.mark.parametrize("name", ["a b?c#d%41.ledger", "größe.ledger"])
    def test_any_file_name_will_do(self, tmp_path, name):
        async def main():
            ledger = SqliteLedger(tmp_path / name)
            await ledger.begin({})
            await ledger.close()

        asyncio.run(main())
        assert os.listdir(tmp_path) == [name]

    @pytest.mark.skipif(os.name == "nt", reason="permissions as POSIX has them")
    @pytest.mark.parametrize("made_before", [False, True])
    def test_a_folder_that_may_not_be_written_to(self, made_before):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "run.ledger"
            if made_before:
                asyncio.run(_made(path))
                path.chmod(0o444)
            Path(name).chmod(0o555)
            said = _as_somebody_else(_try_to_begin, path)
            assert f"{path}" in said
            assert "permissions" in said


async def _made(path):
    ledger = SqliteLedger(path)
    await ledger.begin({"input": "a"})
    await ledger.claim(rows(1))
    await ledger.close()


def _try_to_begin(path):
    try:
        asyncio.run(_made(path))
    except LedgerError as error:
        return str(error)
    return "it could"


def _as_somebody_else(call, argument):
    """What it returns in a child that is not root, for root may write anywhere."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setuid(UNPRIVILEGED)
            os.write(writing, call(argument).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


class TestNoRoom:
    def test_a_full_database_refuses_and_goes_on_when_there_is_room(self, tmp_path):
        async def main():
            ledger = SqliteLedger(tmp_path / "run.ledger")
            await ledger.begin({"input": "a"})
            one, two, three = await ledger.claim(rows(3))
            assert await ledger.record(done(one))
            (pages,) = ledger._writing.execute("PRAGMA page_count").fetchone()
            ledger._writing.execute(f"PRAGMA max_page_count = {pages + 2}")
            together = await asyncio.gather(
                ledger.record(done(two, b"x" * 100_000)), ledger.record(done(three)), return_exceptions=True
            )
            assert all("the disk is full" in str(error) for error in together)
            assert together[0] is not together[1]
            assert (await ledger.counts()).states == {RowState.DONE: 1, RowState.LEASED: 2}
            ledger._writing.execute("PRAGMA max_page_count = 1000000")
            assert await ledger.record(done(two, b"x" * 100_000))
            assert await ledger.record(done(three))
            assert [one.number for one in await ledger.final(0, 10)] == [1, 2, 3]
            await ledger.close()

        asyncio.run(main())

    FILL = """
import asyncio, resource, sys
from headgate.batch.ledger import *
from headgate.batch.ledger.sqlite import SqliteLedger

async def main():
    ledger = SqliteLedger(sys.argv[1])
    await ledger.begin({"input": "a"})
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
    recorded = 0
    try:
        for index in range(10_000):
            (claim,) = await ledger.claim([Row(index, str(index), b"%016d" % index)])
            change = Change(index=index, fence=claim.fence, state=RowState.DONE, attempts=1, result=b"x" * 20_000)
            recorded += await ledger.record(change)
    except LedgerError as error:
        print(recorded, error)
    try:
        await ledger.close()
    except LedgerError:
        pass

asyncio.run(main())
"""

    @pytest.mark.skipif(os.name == "nt", reason="limits as POSIX has them")
    def test_a_disk_that_takes_no_more_loses_nothing(self, tmp_path):
        path = tmp_path / "run.ledger"
        ran = subprocess.run([sys.executable, "-c", self.FILL, path], capture_output=True, text=True, timeout=60)
        recorded, _, said = ran.stdout.partition(" ")
        assert "full" in said, ran.stderr
        assert "What was recorded is safe" in said
        assert int(recorded) > 10
        assert read_status(str(path)).counts.states[RowState.DONE] == int(recorded)

        async def go_on():
            ledger = SqliteLedger(path)
            await ledger.begin({"input": "a"})
            assert len(await ledger.abandoned(100)) <= 1
            assert len(await ledger.final(0, 10_000)) > 0
            (claim,) = await ledger.claim([Row(20_000, "x", b"0" * 16)])
            assert await ledger.record(done(claim))
            await ledger.close()

        asyncio.run(go_on())


def test_a_lock_that_is_never_let_go(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_opening, "LONGEST_LOCK", 0.05)
    path = tmp_path / "run.ledger"

    async def main():
        ledger = SqliteLedger(path)
        await ledger.begin({"input": "a"})
        blocking = sqlite3.connect(path, isolation_level=None)
        blocking.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"was locked by another program for 0\.05 s"):
            await ledger.claim(rows(1))
        assert (await ledger.counts()).seen == 0
        blocking.execute("ROLLBACK")
        blocking.close()
        assert len(await ledger.claim(rows(1))) == 1
        await ledger.close()

    asyncio.run(main())


def test_onlookers_are_told_that_there_is_no_ledger(tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger at"):
        read_status(str(tmp_path / "run.ledger"))
    (tmp_path / "empty").touch()
    with pytest.raises(LedgerError, match="an empty file, not a ledger"):
        read_status(str(tmp_path / "empty"))
