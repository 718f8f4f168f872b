"""Rows for an event loop. A thread reads them, so these tests run in real time, and wait only for each other."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from pathlib import Path

import pytest

from headgate.batch.formats import InputError, Rows, rows_for_loop

LINE = b'{"custom_id": "%d", "body": {}}\n'


def run(coroutine: object) -> object:
    return asyncio.run(asyncio.wait_for(coroutine, 20))  # type: ignore[arg-type]


def test_all_rows_come_in_order_and_a_file_gives_them_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(LINE % number for number in range(5_000)))

    async def main() -> None:
        rows = rows_for_loop(Rows(str(path)))
        for _ in range(2):
            assert [row.key async for row in rows] == [str(number) for number in range(5_000)]

    run(main())


def test_a_row_from_a_slow_pipe_is_not_held_back() -> None:
    reading, writing = os.pipe()

    async def main() -> None:
        with open(reading, "rb") as pipe:
            os.write(writing, LINE % 0)
            rows = aiter(rows_for_loop(Rows("-", stdin=pipe)))
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
            rows = rows_for_loop(Rows("-", stdin=pipe))
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
                thread.join(10)


def test_only_so_many_rows_wait_for_a_slow_taker(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(LINE % number for number in range(50_000)))
    source = Rows(str(path))

    async def main() -> None:
        rows = aiter(rows_for_loop(source))
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
        with pytest.raises(InputError, match="cut off"):
            async for _ in rows_for_loop(Rows("-", stdin=pipe)):
                seen += 1
        assert seen >= 100

    run(main())
