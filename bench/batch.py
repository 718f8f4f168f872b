"""How fast a batch is from end to end: `python -m bench.batch [items|http|memory|resume ...] [--write]`.

| figure | what is timed                                                                                          |
|--------|--------------------------------------------------------------------------------------------------------|
| items  | 50 workers that do nothing: `BatchRunner` with and without a ledger on disk, a bare queue and the rival |
| http   | a whole job over loopback, file to file, the server in a process of its own; beside a bare aiohttp loop |
| memory | a job of 1,000,000 rows that are not sent: the most memory the process held                             |
| resume | a job of 1,000,000 rows of which all but the last 1 % are done: from the start to its first call         |

Every figure is taken in a process of its own; contenders take turns, and each one's best round counts. In a job
every row is read, claimed, encoded, recorded and written. `--write` keeps a whole run in `bench/BATCH.md` and its JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.contenders.batches import UNPACED, WAYS, WORKERS
from bench.report import Section, circumstances, markdown, marks_met, show, verdict
from headgate import AdaptiveRateLimiter
from headgate.batch.config import BatchConfig
from headgate.batch.input import Rows
from headgate.batch.job import Job, Send
from headgate.batch.target import TargetConfig

Figures = dict[str, float]

RESULTS = Path(__file__).with_name("BATCH.md")
MILLION = 1_000_000
ROUNDS = 5
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


def job_of(folder: Path, url: str = "http://127.0.0.1:9/v1", **options: Any) -> Job:
    return Job(
        Rows(str(folder / "rows.jsonl")),
        TargetConfig(to=url),
        output=str(folder / "out.jsonl"),
        limiter=AdaptiveRateLimiter(UNPACED),
        **{"workers": WORKERS, **options},
    )


async def finish(job: Job) -> None:
    report = await job.run()
    assert report.complete, report


def seconds_of(work: Awaitable[None]) -> float:
    async def timed() -> float:
        began = time.perf_counter()
        await work
        return time.perf_counter() - began

    return asyncio.run(timed())


# ---------------------------------------------------------------------- a worker that does nothing


def items(folder: Path, rows: int) -> Figures:
    """Items a second of each contender; 0 for one that is not installed."""
    best = dict.fromkeys(WAYS, 0.0)
    for turn in range(ROUNDS):
        for name, (way, most) in WAYS.items():
            place = folder / f"{turn}-{len(name)}"
            place.mkdir()
            count = min(rows, most)
            try:
                best[name] = max(best[name], count / seconds_of(way(place, count)))
            except ModuleNotFoundError as error:
                print(f"{name}: {error}", file=sys.stderr)
    return best


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


@contextmanager
def chat_api() -> Iterator[str]:
    """The address of a server without limits, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    server = context.Process(target=serve, args=(told,), daemon=True)
    server.start()
    try:
        yield f"http://127.0.0.1:{told.get(timeout=60)}/v1"
    finally:
        server.kill()


async def bare_loop(folder: Path, url: str) -> None:
    """What one would write by hand: 50 workers, a request for each line, its answer as a line; nothing is kept safe."""
    import aiohttp

    with (folder / "rows.jsonl").open() as lines, (folder / "bare.jsonl").open("w") as out:

        async def work(session: aiohttp.ClientSession) -> None:
            for line in lines:
                row = json.loads(line)
                async with session.post(f"{url}/chat/completions", json=row["body"]) as response:
                    answer = {"status_code": response.status, "body": await response.json()}
                out.write(json.dumps({"custom_id": row["custom_id"], "response": answer, "error": None}) + "\n")

        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(work(session) for _ in range(WORKERS)))


async def whole_job(folder: Path, url: str) -> None:
    for path in folder.glob("out.jsonl*"):
        path.unlink()
    await finish(job_of(folder, url))


def http(folder: Path, rows: int) -> Figures:
    """Rows a second."""
    make_rows(folder / "rows.jsonl", rows)
    ways = {"bare": bare_loop, "headgate": whole_job}
    best = dict.fromkeys(ways, 0.0)
    with chat_api() as url:
        for _ in range(ROUNDS):
            for name, way in ways.items():
                best[name] = max(best[name], rows / seconds_of(way(folder, url)))
    return best


# ---------------------------------------------------------------------- a million rows


def resident() -> float:
    """MB, at the most so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def memory(folder: Path, rows: int) -> Figures:
    make_rows(folder / "rows.jsonl", rows)
    before = resident()
    took = seconds_of(finish(job_of(folder, around=not_sent)))
    return {"rows": rows, "before_mb": before, "peak_mb": resident(), "rows_per_second": rows / took}


def resume(folder: Path, rows: int) -> Figures:
    """Made by a run whose input had only the rows that are done; the last ones are added afterwards."""
    make_rows(folder / "rows.jsonl", rows)
    make_rows(folder / "few.jsonl", rows - rows // 100)
    whole = (folder / "rows.jsonl").rename(folder / "whole.jsonl")
    (folder / "few.jsonl").rename(folder / "rows.jsonl")
    config = BatchConfig(durability="normal")
    asyncio.run(finish(job_of(folder, workers=1000, config=config, around=not_sent)))
    whole.rename(folder / "rows.jsonl")
    script = "import sys; from bench.batch import first_call; first_call(sys.argv[1])"
    said = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True)
    return {"rows": rows, "first_call_seconds": float(said.stdout)}


def first_call(folder: str) -> None:
    began = time.perf_counter()

    def around(send: Send) -> Send:
        async def called(row: Any, ctx: Any) -> bytes:
            print(time.perf_counter() - began, flush=True)
            os._exit(0)

        return called

    asyncio.run(job_of(Path(folder), around=around).run())


# ---------------------------------------------------------------------- the report

OURS = "headgate, durable ledger"
ITEMS_PER_SECOND = 10_000
SHARE_OF_BARE = 0.6
PEAK_MB = 150
SECONDS_TO_FIRST_CALL = 3.0
ITEMS_NOTES = [
    "A bare queue keeps nothing: it is what asyncio itself allows, not a way to do it.",
    "Both SQLite stores commit with synchronous=FULL; the ledger also claims each row, with a fence, before it starts.",
]


@dataclass(slots=True)
class BatchReport:
    command: str
    rounds: int
    figures: dict[str, Figures] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return "Batches from end to end"

    def circumstances(self) -> list[str]:
        beside = ", ".join(f"{name} {_version(name)}" for name in ("async-batch-llm", "aiohttp"))
        return [
            circumstances(self.command),
            f"Beside {beside}. Contenders take turns; of {self.rounds} rounds each one's best counts.",
        ]

    def sections(self) -> list[Section]:
        found = []
        if "items" in self.figures:
            found.append(self._items(self.figures["items"]))
        whole = [row for row in (self._http(), self._memory(), self._resume()) if row is not None]
        if whole:
            found.append(Section("Whole jobs", ("job", "measured", "mark", "met"), whole, []))
        return found

    def verdicts(self) -> dict[str, bool]:
        """Each mark by its figure's name, and whether it is met."""
        met = {}
        if items := self.figures.get("items"):
            met["items"] = items[OURS] >= ITEMS_PER_SECOND
        if http := self.figures.get("http"):
            met["http"] = http["headgate"] >= SHARE_OF_BARE * http["bare"]
        if memory := self.figures.get("memory"):
            met["memory"] = memory["peak_mb"] < PEAK_MB
        if resume := self.figures.get("resume"):
            met["resume"] = resume["first_call_seconds"] <= SECONDS_TO_FIRST_CALL
        return met

    def summary(self) -> str:
        return marks_met([*self.verdicts().items()])

    def as_json(self) -> dict[str, object]:
        return {
            "command": self.command,
            "rounds": self.rounds,
            "python": platform.python_version(),
            "versions": {name: _version(name) for name in ("headgate", "async-batch-llm", "aiohttp")},
            "figures": self.figures,
            "marks": self.verdicts(),
        }

    def _items(self, speeds: Figures) -> Section:
        rows = [
            (
                name,
                f"{speed:,.0f}" if speed else "not installed",
                f"{speeds[OURS] / speed:.3g} x" if speed else "",
                f">= {ITEMS_PER_SECOND:,}" if name == OURS else "",
                verdict(self.verdicts()["items"]) if name == OURS else "",
            )
            for name, speed in speeds.items()
        ]
        head = ("50 workers that do nothing", "items/s", "the ledger beside it", "mark", "met")
        return Section("Items a second", head, rows, ITEMS_NOTES)

    def _http(self) -> tuple[str, ...] | None:
        if (speeds := self.figures.get("http")) is None:
            return None
        share = speeds["headgate"] / speeds["bare"]
        told = f"{speeds['headgate']:,.0f}/s, {share:.0%} of a bare aiohttp loop's {speeds['bare']:,.0f}/s"
        title = "over loopback HTTP, file to file"
        return (title, told, f">= {SHARE_OF_BARE:.0%}", verdict(self.verdicts()["http"]))

    def _memory(self) -> tuple[str, ...] | None:
        if (found := self.figures.get("memory")) is None:
            return None
        told = f"{found['peak_mb']:.0f} MB at the most ({found['before_mb']:.0f} before), "
        told += f"{found['rows_per_second']:,.0f} rows/s"
        return (f"{found['rows']:,.0f} rows", told, f"< {PEAK_MB} MB", verdict(self.verdicts()["memory"]))

    def _resume(self) -> tuple[str, ...] | None:
        if (found := self.figures.get("resume")) is None:
            return None
        told = f"{found['first_call_seconds']:.2f} s to the first call"
        title = f"going on with {found['rows']:,.0f} rows, 99 % of them done"
        return (title, told, f"<= {SECONDS_TO_FIRST_CALL:g} s", verdict(self.verdicts()["resume"]))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


# ---------------------------------------------------------------------- all of them

FIGURES: dict[str, tuple[Callable[[Path, int], Figures], int]] = {
    "items": (items, 200_000),
    "http": (http, 30_000),
    "memory": (memory, MILLION),
    "resume": (resume, MILLION),
}


def measured(name: str, rows: int, below: Path | None) -> Figures:
    """A figure, taken in a process of its own."""
    with tempfile.TemporaryDirectory(dir=below, prefix="bench-batch-") as folder:
        script = "import sys, json; from bench.batch import FIGURES; from pathlib import Path; name, folder, rows = "
        script += "sys.argv[1:]; print(json.dumps(FIGURES[name][0](Path(folder), int(rows))))"
        command = [sys.executable, "-c", script, name, folder, str(rows)]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: Figures = json.loads(said.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.batch", description="Measure batches from end to end.")
    parser.add_argument("figures", nargs="*", choices=[*FIGURES, []], help=f"some of {', '.join(FIGURES)}; all of them")
    parser.add_argument("--rows", type=int, help="instead of each figure's own number")
    parser.add_argument("--folder", type=Path, help="where to write; a new one below it is used and removed")
    parser.add_argument("--write", action="store_true", help=f"write a run of all figures to {RESULTS.name}")
    arguments = parser.parse_args()
    if arguments.write and (arguments.figures or arguments.rows):
        parser.error("--write is for a run of all figures, each with its own number of rows")
    report = BatchReport(command=" ".join(["python -m bench.batch", *sys.argv[1:]]), rounds=ROUNDS)
    for name in arguments.figures or FIGURES:
        report.figures[name] = measured(name, arguments.rows or FIGURES[name][1], arguments.folder)
    show(report)
    if arguments.write:
        RESULTS.write_text(markdown(report))
        RESULTS.with_suffix(".json").write_text(json.dumps(report.as_json(), indent=2) + "\n")


if __name__ == "__main__":
    main()
