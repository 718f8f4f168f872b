"""Rows for an event loop. A thread reads them, so these tests run in real time, and wait only for each other."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import threading
from pathlib import Path

import pytest

from headgate.batch.input import InputError, Rows, Template, read_in_thread
from headgate.batch.input.readers import MOST_BYTES, BatchReader

LINE = b'{"custom_id": "%d", "body": {}}\n'


def run(coroutine: object) -> object:
    return asyncio.run(asyncio.wait_for(coroutine, 20))  # type: ignore[arg-type]


def test_all_rows_come_in_order_and_a_file_gives_them_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(LINE % number for number in range(5_000)))

    async def main() -> None:
        rows = Rows(str(path))
        for _ in range(2):
            assert [row.key async for row in read_in_thread(rows)] == [str(number) for number in range(5_000)]

    run(main())


def test_a_row_from_a_slow_pipe_is_not_held_back() -> None:
    reading, writing = os.pipe()

    async def main() -> None:
        with open(reading, "rb") as pipe:
            os.write(writing, LINE % 0)
            rows = aiter(read_in_thread(Rows("-", stdin=pipe)))
            assert (await anext(rows)).key == "0"
            os.write(writing, (LINE % 1) + b'{"custom_id": "2", ')
            assert (await anext(rows)).key == "1"
            os.write(writing, b'"body": {}}')
            os.close(writing)
            assert (await anext(rows)).key == "2"
            with pytest.raises(StopAsyncIteration):
                await anext(rows)

    run(main())


def test_the_loop_is_free_and_can_stop_while_the_pipe_is_silent() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as pipe:

        async def main() -> None:
            os.write(writing, LINE % 0)
            rows = read_in_thread(Rows("-", stdin=pipe))
            came = asyncio.Event()

            async def take() -> None:
                async for _ in rows:
                    came.set()

            task = asyncio.create_task(take())
            await came.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        run(main())
        os.close(writing)  # only now can the thread go on
        for thread in threading.enumerate():
            if thread.name == "headgate-input":
                thread.join(60)


def test_only_so_many_rows_wait_for_a_slow_taker(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(LINE % number for number in range(50_000)))
    source = Rows(str(path))

    async def main() -> None:
        rows = aiter(read_in_thread(source))
        await anext(rows)
        reader = next(thread for thread in threading.enumerate() if thread.name == "headgate-input")
        reader.join(0.3)  # long enough to read everything, if nothing held it
        assert reader.is_alive()
        await rows.aclose()  # type: ignore[attr-defined]
        await asyncio.to_thread(reader.join, 10)
        assert not reader.is_alive()

    run(main())


def test_what_reading_raises_comes_after_the_rows_before_it() -> None:
    import gzip

    packed = gzip.compress(b"".join(LINE % number for number in range(100)))
    pipe = io.BufferedReader(io.BytesIO(packed + packed[:-30]))

    async def main() -> None:
        seen = 0
        with pytest.raises(InputError, match="truncated"):
            async for _ in read_in_thread(Rows("-", stdin=pipe)):
                seen += 1
        assert seen >= 100

    run(main())


# ------------------------------------------------------------- Rows in stretches are the rows one by one, and cost less


def facts(row):
    return row.index, row.line, row.raw, row.digest, row.problem


def skimmed(rows, most):
    reading, found, stretches = BatchReader(rows), [], 0
    while stretch := reading.take(most):
        assert len(stretch) <= most
        found += [facts(row) for row in stretch]
        stretches += 1
        digests = getattr(stretch, "digests", [row.digest for row in stretch])
        assert list(digests) == [row.digest for row in stretch]
    reading.close()
    return found, stretches


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_they_are_the_same_as_one_by_one(tmp_path, most):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n   \n{"b": 2}\n' + b'{"c": "%b"}\n' % (b"x" * 90) + b'{"d": 4}')
    rows = Rows(str(path), longest=50)
    assert skimmed(rows, most)[0] == [facts(row) for row in Rows(str(path), longest=50)]
    assert skimmed(rows, most)[0] == [facts(row) for row in rows]  # and again
    assert rows.line_of(3) == 6


def test_records_of_a_csv_too(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('text\n"a\nb"\nc\nd\n')
    rows = Rows(str(path), template=Template('{"input": "{text}"}'))
    found, stretches = skimmed(rows, 2)
    assert (found, stretches) == ([facts(row) for row in rows], 2)


def test_a_stretch_of_large_rows_is_short(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": "%b"}\n' % (b"x" * (MOST_BYTES // 2)) * 4)
    assert skimmed(Rows(str(path)), 1000)[1] == 2


def test_what_stands_before_damage_is_given_before_it_is_told(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n' * 1000) + b"no gzip")
    reading = BatchReader(Rows(str(path)))
    assert len(reading.take(5000)) == 1000
    for _ in range(2):
        with pytest.raises(InputError, match="damaged or truncated after line 1,000"):
            reading.take(5000)
    reading.close()
