"""How fast a batch is from end to end: `python -m bench.batch [items|http|memory|resume ...] [--rows N] [--folder F]`.

| figure | what is timed                                                                                       |
|--------|-----------------------------------------------------------------------------------------------------|
| items  | `BatchRunner`, 50 workers that do nothing, a ledger on disk (FULL); beside a bare queue with 50 workers |
| http   | a whole job over loopback, file to file, the server in a process of its own; beside a bare aiohttp loop |
| memory | a job of 1,000,000 rows that are not sent: the most memory the process held                           |
| resume | a job of 1,000,000 rows of which all but the last 1 % are done: from the start to its first call       |

`memory` and `resume` run in processes of their own; in a job every row is read, claimed, encoded, recorded and written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.config import BatchConfig
from headgate.batch.formats import Rows
from headgate.batch.job import Job, Send
from headgate.batch.runner import BatchRunner
from headgate.batch.sqlite_ledger import SqliteLedger
from headgate.batch.target import TargetConfig

WORKERS = 50
MILLION = 1_000_000
UNPACED = RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=1e6)
BODY = {"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Say something about gates. " * 4}]}
ANSWER = {
    "id": "x",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Gates. " * 20}}],
    "usage": {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50},
}


def make_rows(path: Path, rows: int) -> None:
    with path.open("w") as file:
        for number in range(rows):
            file.write(json.dumps({"custom_id": f"row-{number}", "url": "/v1/chat/completions", "body": BODY}) + "\n")


def not_sent(_: Send) -> Send:
    line = json.dumps({"custom_id": "row", "response": {"status_code": 200, "body": ANSWER}, "error": None}).encode()

    async def answer(row: Any, ctx: Any) -> bytes:
        return line + b"\n"

    return answer


def job_of(folder: Path, url: str = "http://127.0.0.1:9/v1", around: Callable[[Send], Send] | None = None) -> Job:
    return Job(
        Rows(str(folder / "rows.jsonl")),
        TargetConfig(to=url),
        output=str(folder / "out.jsonl"),
        limiter=AdaptiveRateLimiter(UNPACED),
        workers=WORKERS,
        around=around,
    )


# ---------------------------------------------------------------------- a worker that does nothing


async def items(folder: Path, rows: int) -> None:
    async def worker(item: int, ctx: Any) -> bytes:
        return b"x" * 200

    async def through_runner() -> None:
        ledger = SqliteLedger(folder / "items.ledger")
        runner = BatchRunner(worker, workers=WORKERS, ledger=ledger, limiter=AdaptiveRateLimiter(UNPACED))
        report = await runner.run(range(rows))
        assert report.done == rows
        await ledger.close()

    async def through_queue() -> None:
        queue: asyncio.Queue[int | None] = asyncio.Queue(1000)

        async def work() -> None:
            while (item := await queue.get()) is not None:
                await worker(item, None)

        working = [asyncio.create_task(work()) for _ in range(WORKERS)]
        for item in [*range(rows), *[None] * WORKERS]:
            await queue.put(item)
        await asyncio.gather(*working)

    bare = await rate(through_queue, rows)
    ours = await rate(through_runner, rows)
    print(f"items   {ours:>9,.0f}/s with a durable ledger, {bare:,.0f}/s a bare queue (which loses all of it)")


async def rate(work: Callable[[], Awaitable[None]], rows: int) -> float:
    began = time.perf_counter()
    await work()
    return rows / (time.perf_counter() - began)


# ---------------------------------------------------------------------- over loopback


def serve(port: Any) -> None:
    from aiohttp import web

    text = json.dumps(ANSWER)

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(text=text, content_type="application/json")

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port.put(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())


async def http(folder: Path, rows: int, rounds: int = 3) -> None:
    import aiohttp

    make_rows(folder / "rows.jsonl", rows)
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    server = context.Process(target=serve, args=(told,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{told.get(timeout=60)}/v1"
    body = json.dumps(BODY).encode()

    async def bare() -> None:
        left = iter(range(rows))

        async def work(session: aiohttp.ClientSession) -> None:
            for _ in left:
                async with session.post(f"{url}/chat/completions", data=body, headers=JSON) as response:
                    json.loads(await response.read())

        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(work(session) for _ in range(WORKERS)))

    async def ours() -> None:
        for name in ("out.jsonl", "out.jsonl.ledger", "out.jsonl.ledger-wal", "out.jsonl.ledger-shm"):
            (folder / name).unlink(missing_ok=True)
        report = await job_of(folder, url).run()
        assert (report.complete, report.done) == (True, rows), report

    pairs = [(await rate(bare, rows), await rate(ours, rows)) for _ in range(rounds)]
    server.kill()
    best_bare, best_ours = (max(speeds) for speeds in zip(*pairs, strict=True))
    print(f"http    {best_ours:>9,.0f}/s file to file, {best_bare:,.0f}/s a bare loop: {best_ours / best_bare:.0%}")


JSON = {"Content-Type": "application/json"}


# ---------------------------------------------------------------------- a million rows


def resident() -> float:
    """MB, at the most so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


async def memory(folder: Path, rows: int) -> None:
    make_rows(folder / "rows.jsonl", rows)
    before = resident()
    job = job_of(folder, around=not_sent)
    speed = await rate(lambda: finish(job), rows)
    print(f"memory  {resident():>9,.0f} MB at the most over {rows:,} rows ({before:.0f} MB before), {speed:,.0f}/s")


async def finish(job: Job) -> None:
    report = await job.run()
    assert report.complete, report


async def resume(folder: Path, rows: int) -> None:
    """Made by a run that is stopped by its input: the last rows are added afterwards, and claimed but not done."""
    make_rows(folder / "rows.jsonl", rows)
    whole = (folder / "rows.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    (folder / "rows.jsonl").write_bytes(b"".join(lines[: rows - rows // 100]))
    job = Job(
        Rows(str(folder / "rows.jsonl")),
        TargetConfig(to="http://127.0.0.1:9/v1"),
        output=str(folder / "out.jsonl"),
        limiter=AdaptiveRateLimiter(UNPACED),
        workers=1000,
        config=BatchConfig(durability="normal"),
        around=not_sent,
    )
    await finish(job)
    (folder / "rows.jsonl").write_bytes(whole)
    script = "import sys; from bench.batch import first_call; first_call(sys.argv[1])"
    said = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True)
    print(f"resume  {said.stdout.strip()} of {rows:,} rows, all but the last {rows // 100:,} of which are done")


def first_call(folder: str) -> None:
    began = time.perf_counter()

    def around(send: Send) -> Send:
        async def called(row: Any, ctx: Any) -> bytes:
            print(f"{time.perf_counter() - began:>9.2f} s to the first call", flush=True)
            os._exit(0)

        return called

    asyncio.run(job_of(Path(folder), around=around).run())


FIGURES: dict[str, tuple[Callable[[Path, int], Awaitable[None]], int]] = {
    "items": (items, 100_000),
    "http": (http, 10_000),
    "memory": (memory, MILLION),
    "resume": (resume, MILLION),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.batch", description="Measure batches from end to end.")
    parser.add_argument("figures", nargs="*", choices=[*FIGURES, []], help=f"some of {', '.join(FIGURES)}; all of them")
    parser.add_argument("--rows", type=int, help="instead of each figure's own number")
    parser.add_argument("--folder", type=Path, help="where to write; a new one below it is used and removed")
    arguments = parser.parse_args()
    for name in arguments.figures or FIGURES:
        figure, rows = FIGURES[name]
        with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-batch-") as folder:
            if len(arguments.figures) == 1:
                asyncio.run(figure(Path(folder), arguments.rows or rows))  # type: ignore[arg-type]
            else:
                more = ["--rows", str(arguments.rows)] if arguments.rows else []
                subprocess.run([sys.executable, "-m", "bench.batch", name, "--folder", folder, *more], check=True)


if __name__ == "__main__":
    main()
