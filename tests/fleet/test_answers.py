"""What is remembered, and when it is written."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headgate.distributed.store import StoreDown
from headgate.fleet import answers as answers_module
from headgate.fleet.answers import FLUSH_AT, FLUSH_EVERY, AnswerBuffer, NoAnswers, Taken
from headgate.fleet.row_result import RowEnd, RowResult
from headgate.lab.virtual_time import run

KEY = bytes(16)


def key(number):
    return number.to_bytes(16, "big")


def test_a_result_is_packed_and_unpacked_as_it_was():
    full = RowResult(
        response='{"a": "☃ \\ud800"}', error="x", attempts=2, tokens_in=1, tokens_out=0, cost=0.5, state=RowEnd.FAILED
    )
    for one in (full, RowResult(), RowResult(response="a" * 100_000)):
        assert RowResult.unpack(one.pack()) == one
    assert len(RowResult(response="a" * 100_000).pack()) < 1_000


@pytest.mark.parametrize("packed", [b"", b"2abc", b"1abc", RowResult().pack()[:-4]])
def test_what_is_no_result_is_said(packed):
    with pytest.raises(ValueError):
        RowResult.unpack(packed)


def buffered(scenario, put):
    """Run a scenario with a buffer in virtual time; what was put, with the instants."""

    async def main(_):
        loop = asyncio.get_running_loop()
        puts = []

        async def note(some):
            await put(some, loop.time())
            puts.append((loop.time(), [int.from_bytes(one[0], "big") for one in some]))

        buffer = AnswerBuffer(note)
        task = asyncio.create_task(buffer.run())
        began = loop.time()
        await scenario(buffer)
        buffer.close()
        await task
        return [(round(at - began, 3), keys) for at, keys in puts]

    return run(main)


async def fine(some, at):
    pass


def test_an_answer_is_written_after_a_tenth_of_a_second():
    async def scenario(buffer):
        written = buffer.add(key(1), b"a")
        await asyncio.sleep(FLUSH_EVERY / 2)
        buffer.add(key(2), b"b")
        await written

    assert buffered(scenario, fine) == [(FLUSH_EVERY, [1, 2])]


def test_fifty_answers_are_written_at_once():
    async def scenario(buffer):
        await asyncio.gather(*(buffer.add(key(number), b"a") for number in range(FLUSH_AT)))

    assert buffered(scenario, fine) == [(0.0, list(range(FLUSH_AT)))]


def test_a_memory_that_is_down_gets_the_same_answers_again(caplog):
    async def down_at_first(some, at):
        fails.append(at)
        if len(fails) < 3:
            raise StoreDown("gone")

    fails = []

    async def scenario(buffer):
        await buffer.add(key(1), b"a")

    with caplog.at_level(logging.WARNING):
        ((at, keys),) = buffered(scenario, down_at_first)
    assert keys == [1]
    assert at == FLUSH_EVERY + 2 * answers_module.RETRY_FLUSH_AFTER
    assert len(caplog.records) == 1


def test_closing_writes_what_is_left():
    async def scenario(buffer):
        buffer.add(key(1), b"a")

    ((_, keys),) = buffered(scenario, fine)
    assert keys == [1]


def test_without_a_memory_all_rows_are_called():
    none = NoAnswers()
    none.open("x")
    none.put([(KEY, b"a")])
    none.release([KEY])
    none.renew()
    assert none.take([KEY, KEY]) == [Taken.MINE] * 2
    none.close()
