"""What a shared limit costs: `python -m bench.sharing [--write]`.

| figure  | what is timed                                                                                        |
|---------|------------------------------------------------------------------------------------------------------|
| redis   | permits a second of one process with 50 tasks on a real Redis or Valkey on loopback, beside the peers |
| machine | permits a second of four processes together, through the machine store                                |

All are set to a million calls a second, so no call waits for the limit: what is measured is what asking costs. Each
contender runs in a process of its own, they take turns, and each one's best round counts. Commands are the
server's own count. `--write` keeps the run in `bench/SHARING.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.contenders.shared import WAYS, Make, ours
from bench.redis_server import RedisServer
from bench.report import circumstances

RESULTS = Path(__file__).with_name("SHARING.md")
ROUNDS = 5
SECONDS = 2.0
TASKS = 50
PROCESSES = 4


async def drive(make: Make, where: str) -> tuple[int, float]:
    """Permits, and in how many seconds."""
    acquire = await make(where)
    await acquire()
    done, began = 0, time.perf_counter()
    until = began + SECONDS

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < until:
            await acquire()
            done += 1

    await asyncio.gather(*(work() for _ in range(TASKS)))
    return done, time.perf_counter() - began


def apart(name: str, where: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.sharing", "--one", name, where]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})


def result_of(process: subprocess.Popen[str]) -> tuple[int, float]:
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    done, seconds = json.loads(said.splitlines()[-1])
    return done, seconds


def commands_of(server: RedisServer) -> int:
    """How many commands the server has run, those of scripts not counted."""
    answer = server.ask(b"INFO stats") or b""
    line = next(line for line in answer.split(b"\r\n") if line.startswith(b"total_commands_processed"))
    return int(line.split(b":")[1])


def on_redis() -> dict[str, dict[str, float]]:
    best: dict[str, dict[str, float]] = {}
    with RedisServer() as server:
        for _ in range(ROUNDS):
            for name in WAYS:
                before = commands_of(server)
                done, seconds = result_of(apart(name, server.url))
                figures = {"permits_s": done / seconds, "commands": (commands_of(server) - before) / done}
                if name not in best or figures["permits_s"] > best[name]["permits_s"]:
                    best[name] = figures
                print(
                    f"{name:16} {done / seconds:10,.0f} permits/s, {figures['commands']:.4f} commands each", flush=True
                )
    return best


def on_machine() -> float:
    best = 0.0
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            running = [apart("headgate", "machine", {"HEADGATE_STATE": folder}) for _ in range(PROCESSES)]
            together = sum(done / seconds for done, seconds in map(result_of, running))
        print(f"machine, {PROCESSES} processes {together:10,.0f} permits/s together", flush=True)
        best = max(best, together)
    return best


def page(redis: dict[str, dict[str, float]], machine: float) -> str:
    mine, rival = redis["headgate"]["permits_s"], max(redis[name]["permits_s"] for name in list(WAYS)[1:4])
    rows = [
        f"| {name} | {figures['permits_s']:,.0f} | {mine / figures['permits_s']:.1f} | {figures['commands']:.4f} |"
        for name, figures in redis.items()
    ]
    return "\n".join(
        [
            "# What a shared limit costs",
            "",
            f"One process, {TASKS} tasks, a real server on loopback, the best of {ROUNDS} rounds of {SECONDS:g} s.",
            "",
            "| through Redis | permits/s | headgate is faster by | commands per permit |",
            "|---|---:|---:|---:|",
            *rows,
            "",
            f"Mark: at least 100,000 permits/s: **{'met' if mine >= 100_000 else 'missed'}** ({mine:,.0f}, "
            f"{mine / rival:.1f} times the best peer).",
            "",
            f"{PROCESSES} processes with {TASKS} tasks each on the machine store: {machine:,.0f} permits/s together. "
            f"Mark: at least 20,000: **{'met' if machine >= 20_000 else 'missed'}**.",
            "",
            circumstances("python -m bench.sharing --write"),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What a shared limit costs.")
    parser.add_argument("--write", action="store_true", help=f"keep the run in bench/{RESULTS.name}")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "WHERE"), help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    if options.one:
        print(json.dumps(asyncio.run(drive(WAYS.get(options.one[0], ours), options.one[1]))))
        return
    text = page(on_redis(), on_machine())
    print(f"\n{text}")
    if options.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
