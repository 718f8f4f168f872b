"""What a fleet run costs its store, and what a row costs its worker.

    python -m bench.fleet [--write]           the store: commands and bytes of a report, reports and permits a second
    python -m bench.fleet rows [--write]      a row in an actor of Ray's beside `headgate run`

For the store one process plays all workers against a real server on loopback. The numbers are upper bounds for the cost
and lower bounds for what a server carries: client and server share this machine. For the rows the API is a bare server
without a limit, in a process of its own; all ways have the same rows and template. `--write` puts the tables into
bench/fleet.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.batch import chat_api
from bench.clusters import TEMPLATE, PlainRows, environment
from bench.redis_server import RedisServer
from bench.report import put_between
from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.distributed.backends.redis import RedisStore, Request
from headgate.fleet.member import FleetMember, MemberReport
from headgate.fleet.protocol import Caps
from headgate.fleet.redis_state import RUNS, RedisRunState
from headgate.limiter.key_lines import KeyLine

RESULTS = Path(__file__).with_name("fleet.md")
WORKERS = (1, 10, 100, 1000)
SECONDS = 5.0
ROWS, FEW_ROWS = int(os.environ.get("FLEET_ROWS", "10000")), 100


# ---------------------------------------------------------------------- the store


def reports(started: RedisServer, server: RedisStore, workers: int) -> tuple[float, float, int]:
    """Reports a second, commands inside the server for each, and the bytes of the run."""
    run, state = f"bench-{workers}", RedisRunState(server)
    key = KeyLine(key="openai/gpt-4o-mini key-1", rate=222.0, said=230.0, sent=10**6, reason="paced at 222 calls/s")
    members = [
        FleetMember(state, run, caps=Caps(max_cost=1e6), report=lambda: MemberReport(done=10**6, keys=(key,)))
        for _ in range(workers)
    ]
    for member in members:
        member.step()
    before, began, done = started.carried(), time.monotonic(), 0
    while time.monotonic() < began + SECONDS:
        members[done % workers].step()
        done += 1
    took = time.monotonic() - began
    each = started.carried().since(before).commands / done
    (size,) = server.ask(Request(RUNS, ("MEMORY", "USAGE", f"{RUNS}:{run}", "SAMPLES", "0")))
    return done / took, each, size


async def permits(started: RedisServer, limiters: int) -> tuple[float, float]:
    """Permits a second of several limiters on one key without a limit in reach, and commands for each."""
    config = RateLimitConfig(strategy="fixed", initial_rps=1e6)
    all_of_them = [AdaptiveRateLimiter(config, store=started.url) for _ in range(limiters)]
    ends, count = time.monotonic() + SECONDS, 0

    async def work(limiter: AdaptiveRateLimiter) -> None:
        nonlocal count
        while time.monotonic() < ends:
            (await limiter.acquire_async("api")).report(status_code=200)
            count += 1

    before, began = started.carried(), time.monotonic()
    await asyncio.gather(*(work(limiter) for limiter in all_of_them for _ in range(20)))
    took = time.monotonic() - began
    each = started.carried().since(before).commands / max(1, count)
    for limiter in all_of_them:
        limiter.close()
    return count / took, each


def store_tables() -> str:
    lines = ["| workers | reports/s | commands in the server per report | bytes of the run |", "|---:|---:|---:|---:|"]
    with RedisServer() as started:
        server = RedisStore(started.url, timeout=5.0)
        for workers in WORKERS:
            rate, each, size = reports(started, server, workers)
            lines.append(f"| {workers:,} | {rate:,.0f} | {each:.1f} | {size:,} |")
        lines += ["", "| limiters | permits/s | commands per permit |", "|---:|---:|---:|"]
        for limiters in (1, 8, 64):
            rate, each = asyncio.run(permits(started, limiters))
            lines.append(f"| {limiters} | {rate:,.0f} | {each:.4f} |")
    return "\n".join(lines)


# ---------------------------------------------------------------------- a row


class Spent(NamedTuple):
    rows: int
    cpu: float
    """Seconds of processor of the worker's process."""
    wall: float


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Measured:
    """A callable for ``map_batches`` that writes down what its actor has spent since its first block."""

    def __init__(self, note: str, plain: bool, options: dict[str, Any]) -> None:
        from headgate.integrations.ray import Rows

        self._call: Any = PlainRows(**options) if plain else Rows(**options)
        self._note, self._rows, self._began = note, 0, (0.0, 0.0)

    async def __call__(self, batch: Any) -> Any:
        if not any(self._began):
            self._began = cpu_seconds(), time.monotonic()
        answers = await self._call(batch)
        self._rows += len(batch["id"])
        cpu, at = self._began
        Path(self._note).write_text(json.dumps([self._rows, cpu_seconds() - cpu, time.monotonic() - at]))
        return answers


def in_actor(folder: Path, name: str, *, plain: bool = False, **options: Any) -> Spent:
    import ray

    rows = ray.data.from_items([{"id": n, "text": f"text {n}"} for n in range(ROWS)], override_num_blocks=ROWS // 250)
    note = str(folder / f"{name}.json")
    told = {"note": note, "plain": plain, "options": options}
    answered = rows.map_batches(
        Measured,
        fn_constructor_kwargs=told,
        batch_size=256,
        batch_format="numpy" if plain else "pyarrow",
        compute=ray.data.ActorPoolStrategy(size=1),
    ).materialize()
    assert {row["headgate_state"] for row in answered.select_columns(["headgate_state"]).iter_rows()} == {"done"}
    return Spent(*json.loads(Path(note).read_text()))


def by_command(folder: Path, name: str, url: str, *more: str) -> Spent:
    """`headgate run`, without what the same command takes for a few rows: to start, and to end."""

    def once(rows: int) -> tuple[float, float]:
        lines = [json.dumps({"id": n, "text": f"text {n}"}) + "\n" for n in range(rows)]
        (folder / f"{name}-{rows}.jsonl").write_text("".join(lines))
        (folder / "template.json").write_text(json.dumps(TEMPLATE))
        words = ["run", f"{name}-{rows}.jsonl", "-o", f"{name}-{rows}.out", "--to", url, "--template", "template.json"]
        words += ["--name-field", "id", "--keys", "env:HEADGATE_BENCH_KEY", "--quiet", *more]
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, "-m", "headgate", *words], cwd=folder, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        assert status == 0, (words, status)
        return used.ru_utime + used.ru_stime, time.monotonic() - began

    few, many = once(FEW_ROWS), once(ROWS)
    return Spent(ROWS - FEW_ROWS, many[0] - few[0], many[1] - few[1])


def row_table() -> str:
    import ray

    os.environ |= environment() | {"RAY_worker_niceness": "0"}
    lines = [
        "| way | processor | time | rows/s | commands | scripts | bytes on the wire | bytes kept |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    with tempfile.TemporaryDirectory() as place, RedisServer() as started, chat_api() as url:
        folder = Path(place)
        ours = {"to": url, "template": TEMPLATE, "id_column": "id", "keys": "env:HEADGATE_BENCH_KEY"}
        in_redis = {**ours, "store": started.url}
        ways: dict[str, Callable[[str], Spent]] = {
            "`headgate run`": lambda name: by_command(folder, name, url),
            "`headgate run --store redis://`": lambda name: by_command(folder, name, url, "--store", started.url),
            "actor, plain Ray Data (16 at once)": lambda name: in_actor(
                folder, name, plain=True, url=url, path="/chat/completions"
            ),
            'actor, `answers="none"`': lambda name: in_actor(folder, name, **in_redis, answers="none", run=name),
            "actor, answers in a folder": lambda name: in_actor(
                folder, name, **in_redis, answers=str(folder / "answers"), run=name
            ),
            "actor, answers in Redis": lambda name: in_actor(folder, name, **in_redis, run=name),
        }
        for place_in, (way, measure) in enumerate(ways.items()):
            before = started.carried()
            spent = measure(f"way-{place_in}")
            cost = started.carried().since(before)
            rows, cpu, wall = spent
            each = f"{1e6 * cpu / rows:,.0f} us | {1e6 * wall / rows:,.0f} us | {rows / wall:,.0f}"
            store = f"{cost.commands / rows:.3f} | {cost.scripts / rows:.3f} | {cost.wire / rows:,.0f} | "
            store += f"{max(0, cost.memory) / rows:,.0f}"
            lines.append(f"| {way} | {each} | {store if cost.scripts else ' | | |'} |")
            print(lines[-1], flush=True)
    ray.shutdown()
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("store", "rows"), default="store")
    parser.add_argument("--write", action="store_true", help="put the tables into bench/fleet.md")
    options = parser.parse_args()
    text = store_tables() if options.what == "store" else row_table()
    print(text)
    if options.write:
        put_between(RESULTS, options.what, text)


if __name__ == "__main__":
    main()
