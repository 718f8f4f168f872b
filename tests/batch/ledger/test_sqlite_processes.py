"""Several processes at one ledger: each row has one holder, the dead are noticed at once, the fenced have no say."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress

import pytest

from headgate.batch.ledger import Change, Claim, LedgerError, Row, RowState
from headgate.batch.ledger.sqlite import SqliteLedger
from headgate.process_lock import is_alive, lock_path

IDENTITY = {"input": "a"}
HOLD_ROWS = """
import asyncio, os, signal, sys, time
from headgate.batch.ledger import Row, RowState, Change
from headgate.batch.ledger.sqlite import SqliteLedger

async def main(path):
    ledger = SqliteLedger(path)
    await ledger.begin({"input": "a"})
    one, two, three = await ledger.claim([Row(i, str(i), b"%016d" % i) for i in range(3)])
    await ledger.record(Change(index=1, fence=two.fence, state=RowState.PARKED, attempts=1, ready_at=time.time() + 99))
    await ledger.record(Change(index=2, fence=three.fence, state=RowState.DONE, attempts=1, result=b"two"))
    await ledger.output()
    await ledger.checkpoint(1, 3)
    print(os.getpid(), flush=True)
    await asyncio.sleep(60)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that have ended are gone at once
for line in sys.stdin:
    if os.fork() == 0:
        asyncio.run(main(line.rstrip("\\n")))
"""
PATIENCE = 60.0


def rows(count=3):
    return [Row(i, str(i), b"%016d" % i) for i in range(count)]


def done(claim, line=b"line"):
    return Change(index=claim.index, fence=claim.fence, state=RowState.DONE, attempts=1, result=line)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "run.ledger")


@asynccontextmanager
async def opened(path, **options):
    ledger = SqliteLedger(path, **options)
    await ledger.begin(IDENTITY)
    try:
        yield ledger
    finally:
        await ledger.close()


class Process:
    """A child of the module's forking process."""

    def __init__(self, pid):
        self.pid = pid

    def send_signal(self, number):
        os.kill(self.pid, number)

    def is_there(self):
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self):
        """Returns once it is gone."""
        give_up_at = time.monotonic() + PATIENCE
        while self.is_there():
            assert time.monotonic() < give_up_at
            with suppress(ProcessLookupError):
                self.send_signal(signal.SIGKILL)
            time.sleep(0.001)


@pytest.fixture(scope="module")
def forking():
    """A process that forks one that holds rows for each path it is told: starting each anew takes 0.3 s."""
    command = [sys.executable, "-c", HOLD_ROWS]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    yield process
    process.communicate()


@pytest.fixture
def other(path, forking):
    """Another process: it holds row 0, has parked row 1, has done row 2 and writes the output."""
    forking.stdin.write(f"{path}\n")
    process = Process(int(forking.stdout.readline()))
    yield process
    process.kill()


def lose_sign_of_life(path, process=1):
    """What a process looks like to others when its sign of life is lost, though it lives."""
    os.unlink(lock_path(path, process))


class TestTheLiving:
    def test_their_rows_and_their_output_are_theirs(self, path, other):
        async def main():
            async with opened(path) as ledger:
                assert await ledger.claim(rows(4)) == [RowState.LEASED, RowState.PARKED, RowState.DONE, Claim(3, 1)]
                assert await ledger.abandoned(10) == []
                assert await ledger.output() is None
                assert await ledger.checkpoint(9, 9) is False

        asyncio.run(main())

    def test_one_that_is_stopped_still_lives(self, path, other):
        other.send_signal(signal.SIGSTOP)

        async def main():
            async with opened(path) as ledger:
                assert await ledger.abandoned(10) == []
                assert await ledger.claim(rows(1)) == [RowState.LEASED]

        asyncio.run(main())

    def test_looking_does_not_disturb(self, path, other):
        assert all(is_alive(path, 1) for _ in range(100))


class TestTheDead:
    def test_their_rows_are_free_at_once(self, path, other):
        other.kill()

        async def main():
            async with opened(path) as ledger:
                assert await ledger.abandoned(10) == [0, 1]
                first, parked, last = await ledger.claim(rows())
                assert (first, last) == (Claim(0, 2), RowState.DONE)
                assert (parked.fence, parked.attempts) == (2, 1)
                assert parked.ready_at > 0
                assert not os.path.exists(lock_path(path, 1))

        asyncio.run(main())

    def test_a_claim_notices_them_without_asking_for_the_abandoned(self, path, other):
        other.kill()

        async def main():
            async with opened(path) as ledger:
                assert (await ledger.claim(rows(1))) == [Claim(0, 2)]

        asyncio.run(main())

    def test_they_are_noticed_while_we_work(self, path, other):
        async def main():
            async with opened(path) as ledger:
                assert await ledger.abandoned(10) == []
                other.kill()
                assert await ledger.abandoned(10) == [0, 1]
                counts = await ledger.counts()
                assert counts.states == {RowState.PENDING: 1, RowState.PARKED: 1, RowState.DONE: 1}

        asyncio.run(main())

    def test_their_output_is_taken_over_where_it_was(self, path, other):
        other.kill()

        async def main():
            async with opened(path) as ledger:
                assert await ledger.output() == (1, 3)
                assert [one.result for one in await ledger.final(0, 10)] == [b"two"]

        asyncio.run(main())

    def test_a_process_number_that_was_given_out_again_changes_nothing(self, path, other):
        other.kill()
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE processes SET pid = ?", (os.getpid(),))
        connection.close()

        async def main():
            async with opened(path) as ledger:
                assert await ledger.abandoned(10) == [0, 1]

        asyncio.run(main())

    @pytest.mark.parametrize("moved", [-365 * 86400.0, 365 * 86400.0])
    def test_nor_does_a_clock_that_was_moved(self, path, other, moved):
        async def main():
            async with opened(path, wall=lambda: time.time() + moved) as ledger:
                assert await ledger.abandoned(10) == []
                other.kill()
                assert await ledger.abandoned(10) == [0, 1]

        asyncio.run(main())

    def test_a_ledger_copied_elsewhere_has_no_holders(self, path, other, tmp_path):
        other.kill()
        copy = tmp_path / "copy.ledger"
        with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
            source.backup(target)
        source.close()
        target.close()

        async def main():
            async with opened(copy) as ledger:
                assert await ledger.abandoned(10) == [0, 1]

        asyncio.run(main())


class TestThoughtDead:
    @pytest.mark.no_cover
    def test_its_word_counts_until_another_process_has_the_row_and_not_after(self, path):
        async def main():
            async with opened(path) as first, opened(path) as second:
                mine, theirs = await first.claim(rows(2))
                lose_sign_of_life(path)
                assert await second.abandoned(10) == [0, 1]
                assert await first.record(done(mine)) is True
                (successor,) = await second.claim(rows(2)[1:])
                assert await first.record(done(theirs, b"late")) is False
                assert await second.record(done(successor, b"right")) is True
                assert await first.record(done(theirs, b"later")) is False
                assert [one.result for one in await second.final(0, 10)] == [b"line", b"right"]

        asyncio.run(main())

    def test_it_cannot_say_how_far_the_output_is_once_another_writes_it(self, path):
        async def main():
            async with opened(path) as first, opened(path) as second:
                assert await first.output() == (0, 0)
                assert await first.checkpoint(0, 5)
                assert await second.output() is None
                lose_sign_of_life(path)
                assert await second.output() == (0, 5)
                assert await first.checkpoint(3, 30) is False
                assert await second.checkpoint(4, 40) is True
                assert await first.output() is None

        asyncio.run(main())


class TestClosing:
    def test_everything_is_given_back(self, path):
        async def main():
            async with opened(path) as ledger:
                one, two, _ = await ledger.claim(rows())
                await ledger.record(done(one))
                await ledger.record(Change(index=1, fence=two.fence, state=RowState.FAILED, attempts=1, ready_at=5.0))
                await ledger.output()
                await ledger.checkpoint(1, 4)
            async with opened(path) as ledger:
                assert await ledger.abandoned(10) == [1, 2]
                counts = await ledger.counts()
                assert counts.states == {RowState.DONE: 1, RowState.FAILED: 1, RowState.PENDING: 1}
                assert await ledger.output() == (1, 4)

        asyncio.run(main())

    def test_nothing_but_the_ledger_is_left(self, path, tmp_path):
        async def main():
            async with opened(path) as ledger:
                await ledger.claim(rows())

        asyncio.run(main())
        assert os.listdir(tmp_path) == ["run.ledger"]

    def test_afterwards_it_is_closed(self, path):
        async def main():
            async with opened(path) as ledger:
                pass
            with pytest.raises(LedgerError, match="not open"):
                await ledger.claim(rows())
            with pytest.raises(LedgerError, match="not open"):
                await ledger.counts()
            await ledger.close()

        asyncio.run(main())

    def test_what_was_asked_for_before_is_written(self, path):
        async def main():
            async with opened(path) as ledger:
                claims = await ledger.claim(rows(20))
                recording = [asyncio.create_task(ledger.record(done(claim))) for claim in claims]
                await asyncio.sleep(0)
            assert await asyncio.gather(*recording) == [True] * 20

        asyncio.run(main())


@pytest.mark.parametrize("turn", range(2))
def test_many_may_begin_a_new_ledger_at_the_same_time(path, turn):
    async def main():
        ledgers = [SqliteLedger(path) for _ in range(12)]
        await asyncio.gather(*(ledger.begin(IDENTITY) for ledger in ledgers))
        claims = await asyncio.gather(*(ledger.claim(rows(1)) for ledger in ledgers))
        assert sum(isinstance(claim, Claim) for (claim,) in claims) == 1
        await asyncio.gather(*(ledger.close() for ledger in ledgers))

    asyncio.run(main())
