"""What a fleet run costs its store: commands for each row, bytes for each run, reports and permits a second.

    python -m bench.fleet

One process plays all workers against a real server on loopback. The numbers are upper bounds for the cost and lower
bounds for what a server carries: client and server share this machine.
"""

from __future__ import annotations

import asyncio
import time

from bench.redis_server import RedisServer
from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.distributed.backends.redis import RedisStore, Request
from headgate.fleet.member import FleetMember, MemberReport
from headgate.fleet.protocol import Caps
from headgate.fleet.redis_state import RUNS, RedisRunState
from headgate.limiter.key_lines import KeyLine

WORKERS = (1, 10, 100, 1000)
SECONDS = 5.0


def commands(server: RedisStore) -> int:
    """Commands that the server has carried out, those inside of scripts included."""
    (text,) = server.ask(Request(RUNS, ("INFO", "commandstats")))
    lines = [line for line in text.decode().splitlines() if line.startswith("cmdstat_")]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


def reports(server: RedisStore, workers: int) -> tuple[float, float, int]:
    """Reports a second, commands inside the server for each, and the bytes of the run."""
    run, state = f"bench-{workers}", RedisRunState(server)
    key = KeyLine(key="openai/gpt-4o-mini key-1", rate=222.0, said=230.0, sent=10**6, reason="paced at 222 calls/s")
    members = [
        FleetMember(state, run, caps=Caps(max_cost=1e6), report=lambda: MemberReport(done=10**6, keys=(key,)))
        for _ in range(workers)
    ]
    for member in members:
        member.step()
    before, began, done = commands(server), time.monotonic(), 0
    while time.monotonic() < began + SECONDS:
        members[done % workers].step()
        done += 1
    took = time.monotonic() - began
    each = (commands(server) - before) / done
    (size,) = server.ask(Request(RUNS, ("MEMORY", "USAGE", f"{RUNS}:{run}", "SAMPLES", "0")))
    return done / took, each, size


async def permits(url: str, server: RedisStore, limiters: int) -> tuple[float, float]:
    """Permits a second of several limiters on one key without a limit in reach, and commands for each."""
    config = RateLimitConfig(strategy="fixed", initial_rps=1e6)
    all_of_them = [AdaptiveRateLimiter(config, store=url) for _ in range(limiters)]
    ends, count = time.monotonic() + SECONDS, 0

    async def work(limiter: AdaptiveRateLimiter) -> None:
        nonlocal count
        while time.monotonic() < ends:
            (await limiter.acquire_async("api")).report(status_code=200)
            count += 1

    before, began = commands(server), time.monotonic()
    await asyncio.gather(*(work(limiter) for limiter in all_of_them for _ in range(20)))
    took = time.monotonic() - began
    each = (commands(server) - before) / max(1, count)
    for limiter in all_of_them:
        limiter.close()
    return count / took, each


def main() -> None:
    with RedisServer() as started:
        server = RedisStore(started.url, timeout=5.0)
        print("| workers | reports/s | commands in the server per report | bytes of the run |\n|---:|---:|---:|---:|")
        for workers in WORKERS:
            rate, each, size = reports(server, workers)
            print(f"| {workers:,} | {rate:,.0f} | {each:.1f} | {size:,} |", flush=True)
        print("\n| limiters | permits/s | commands per permit |\n|---:|---:|---:|")
        for limiters in (1, 8, 64):
            rate, each = asyncio.run(permits(started.url, server, limiters))
            print(f"| {limiters} | {rate:,.0f} | {each:.4f} |", flush=True)


if __name__ == "__main__":
    main()
