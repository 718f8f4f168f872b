"""How fast the ledger is: `python -m bench.ledger [--rows N] [--resume N] [--folder F]`.

| figure | what is timed                                                                                    |
|--------|--------------------------------------------------------------------------------------------------|
| items  | 50 workers that do nothing: claim in blocks, record each and wait until it is on disk (FULL)      |
| ahead  | the same, but a worker takes its next row while its last is being written, at most 8 of them      |
| busy   | the same as items while the event loop has other work for 70 % of its time                       |
| memory | NORMAL, 1,000,000 rows: what the process holds after each tenth                                  |
| resume | a file of 1,000,000 rows, 99 % done at random: from opening both to the first claim               |

The first line is what the disk itself allows: one small write and fsync after another.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from headgate.batch.ledger import Change, Claim, Row, RowState
from headgate.batch.ledger.sqlite import SqliteLedger

WORKERS = 50
BLOCK = 500
LINE = b'{"custom_id": "request-%d", "response": {"status_code": 200, "body": {"text": "' + b"x" * 150 + b'"}}}'


def digest_of(line: bytes) -> bytes:
    return blake2b(line, digest_size=16).digest()


async def work_through(ledger: SqliteLedger, rows: int, *, ahead: int = 1, marks: list[float] | None = None) -> float:
    """Items per second."""
    ready: asyncio.Queue[Claim | None] = asyncio.Queue(2 * BLOCK)
    done = 0

    async def read() -> None:
        for start in range(0, rows, BLOCK):
            block = [Row(i, f"request-{i}", digest_of(b"%d" % i)) for i in range(start, min(rows, start + BLOCK))]
            for claim in await ledger.claim(block):
                assert isinstance(claim, Claim)
                await ready.put(claim)
        for _ in range(WORKERS * ahead):
            await ready.put(None)

    async def worker() -> None:
        nonlocal done
        while (claim := await ready.get()) is not None:
            line = LINE % claim.index
            change = Change(index=claim.index, fence=claim.fence, state=RowState.DONE, attempts=1, result=line)
            assert await ledger.record(change)
            done += 1
            if marks is not None and done % (rows // 10) == 0:
                marks.append(resident())

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        for _ in range(WORKERS * ahead):
            group.create_task(worker())
    return rows / (time.perf_counter() - began)


async def items(folder: Path, rows: int, *, ahead: int = 1, busy: float = 0.0) -> float:
    ledger = SqliteLedger(folder / f"items-{ahead}-{busy}.ledger")
    await ledger.begin({"input": "bench"})
    stopped = False

    async def burn() -> None:
        while busy and not stopped:
            until = time.perf_counter() + 0.001 * busy
            while time.perf_counter() < until:
                pass
            await asyncio.sleep(0.001 * (1 - busy))

    burning = asyncio.create_task(burn())
    speed = await work_through(ledger, rows, ahead=ahead)
    stopped = True
    await burning
    await ledger.close()
    return speed


async def memory(folder: Path, rows: int) -> tuple[float, list[float]]:
    ledger = SqliteLedger(folder / "memory.ledger", durability="normal")
    await ledger.begin({"input": "bench"})
    marks: list[float] = []
    speed = await work_through(ledger, rows, marks=marks)
    await ledger.close()
    return speed, marks


def lines_of(path: Path) -> Iterator[list[bytes]]:
    with path.open("rb") as file:
        while lines := file.readlines(256 * 1024):
            yield lines


async def prepare(folder: Path, rows: int) -> tuple[Path, Path]:
    """An input and a ledger that is 99 % done, the open rows anywhere."""
    source, path = folder / "input.jsonl", folder / "resume.ledger"
    with source.open("wb") as file:
        file.writelines(
            b'{"custom_id": "request-%d", "body": {"prompt": "%s"}}\n' % (i, b"y" * 150) for i in range(rows)
        )
    ledger = SqliteLedger(path, durability="normal")
    await ledger.begin({"input": "bench"})
    draw = random.Random(1)
    index = 0
    for lines in lines_of(source):
        block = [Row(index + i, f"request-{index + i}", digest_of(line)) for i, line in enumerate(lines)]
        claims = await ledger.claim(block)
        changes = [
            Change(index=claim.index, fence=claim.fence, state=RowState.DONE, attempts=1, result=LINE % claim.index)
            for claim in claims
            if isinstance(claim, Claim) and draw.random() < 0.99
        ]
        await asyncio.gather(*map(ledger.record, changes))
        index += len(lines)
    await ledger.close()
    return source, path


async def resume(source: Path, path: Path) -> tuple[float, float]:
    """Seconds to the first claim, and to having passed by everything that is done."""
    began = time.perf_counter()
    ledger = SqliteLedger(path)
    await ledger.begin({"input": "bench"})
    index, first_at = 0, 0.0
    for lines in lines_of(source):
        digests = [digest_of(line) for line in lines]
        found = await ledger.unfinished(index, digests)
        if found and not first_at:
            (claim,) = await ledger.claim([Row(found[0], f"request-{found[0]}", digests[found[0] - index])])
            assert isinstance(claim, Claim)
            first_at = time.perf_counter() - began
        index += len(lines)
    through = time.perf_counter() - began
    await ledger.close()
    return first_at, through


def resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def fsyncs(folder: Path, times: int = 100) -> float:
    """What the disk takes for one, in milliseconds."""
    with (folder / "fsync").open("wb") as file:
        began = time.perf_counter()
        for _ in range(times):
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        return 1000 * (time.perf_counter() - began) / times


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ledger", description="Measure the ledger.")
    parser.add_argument("--rows", type=int, default=100_000, help="rows for the speeds")
    parser.add_argument("--resume", type=int, default=1_000_000, help="rows for memory and resuming; 0 leaves them out")
    parser.add_argument("--folder", type=Path, help="where the files shall be; the disk matters")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        print(f"disk    {fsyncs(folder):.2f} ms for one fsync; SQLite {sqlite3.sqlite_version}")
        print(f"items   {asyncio.run(items(folder, arguments.rows)):,.0f} items/s")
        print(f"ahead   {asyncio.run(items(folder, arguments.rows, ahead=8)):,.0f} items/s")
        print(f"busy    {asyncio.run(items(folder, arguments.rows // 5, busy=0.7)):,.0f} items/s")
        if not arguments.resume:
            return
        speed, marks = asyncio.run(memory(folder, arguments.resume))
        print(f"memory  {' '.join(f'{mark:.0f}' for mark in marks)} MB, at {speed:,.0f} items/s")
        source, path = asyncio.run(prepare(folder, arguments.resume))
        first_at, through = asyncio.run(resume(source, path))
        print(f"resume  first claim after {first_at:.3f} s, all passed by after {through:.2f} s")


if __name__ == "__main__":
    main()
