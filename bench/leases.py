"""How exactly a quota is kept against the length of a lease: `python -m bench.leases [--write]`.

64 processes in virtual time, each a whole limiter with tasks of its own, share one quota over a store at the end of a
network that delays and loses messages. What was sent is counted as a server would count it: in every window.
`--write` puts the table into docs/machines.md.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import time
from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from bench.delayed_store import DelayedStore
from bench.report import put_between
from headgate.config import RateLimitConfig
from headgate.distributed.grants import PERIOD
from headgate.events import Event
from headgate.lab.virtual_time import LoopClock, run
from headgate.limiter.limiter import AdaptiveRateLimiter

PAGE = Path(__file__).parent.parent / "docs" / "machines.md"
LEASES = (0.01, 0.03, 0.1, 0.25)
NETWORKS = (
    (0.001, 0.0, "1 ms"),
    (0.001, 0.001, "1 ms, 0.1 % lost"),
    (0.01, 0.0, "10 ms"),
    (0.01, 0.01, "10 ms, 1 % lost"),
)
SEEDS = 2

# -- one run of many processes

Listener = Callable[[Event], None]

WARM_UP = 2.0
"""Seconds that are not judged: all processes start at once."""
FEWEST_TO_JUDGE = 200
"""A window that is judged has room for so many calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    processes: int = 64
    tasks: int = 4
    limit: float = 1000.0
    """Calls a second that all have together."""
    seconds: float = 20.0
    lease: float = PERIOD
    """For how many seconds of the limit a lease lasts, all together."""
    delay: float = 0.001
    """Seconds that one way to the store takes, give or take a half."""
    loss: float = 0.0
    """Share of messages that never arrive."""
    call: float = 0.02
    """Seconds that a call takes."""
    comes_and_goes: bool = False
    """Whether processes fall silent and come back, one each second."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdResult:
    used: float
    """Share of the limit that was used."""
    fullest: float
    """What the fullest window held, as a share of the limit."""
    fairness: float
    """What the process that got least got of what the one that got most did."""
    trips: float
    """Exchanges with the store for each call."""
    losses: int
    """How often a process lost the store."""


def run_crowd(crowd: Crowd) -> CrowdResult:
    return run(lambda clock: _run(crowd, clock), start=1000.0)


async def _run(crowd: Crowd, clock: LoopClock) -> CrowdResult:
    rng = random.Random(crowd.seed)
    store = DelayedStore(
        clock,
        rng,
        delay=lambda rng: crowd.delay * rng.uniform(0.5, 1.5),
        loss=crowd.loss,
        lease=crowd.lease,
    )
    config = RateLimitConfig(strategy="fixed", limits={"requests": f"{crowd.limit:.6f}/s"})
    losses = 0

    def count(event: Event) -> None:
        nonlocal losses
        losses += event.kind == "store_lost"

    ends_at = clock.now() + crowd.seconds
    members = [
        _Process(config, store, clock, random.Random(f"{crowd.seed} {number}"), count)
        for number in range(crowd.processes)
    ]
    at_work = [asyncio.create_task(one.work(crowd.call, ends_at)) for one in members for _ in range(crowd.tasks)]
    if crowd.comes_and_goes:
        at_work.append(asyncio.create_task(_come_and_go(members, clock, rng)))
    judged_from = clock.now() + WARM_UP
    await clock.sleep_async(crowd.seconds)
    for task in at_work:
        task.cancel()
    await asyncio.gather(*at_work, return_exceptions=True)
    await store.finish()
    return _judge(crowd, members, judged_from, ends_at, store.exchanges, losses)


class _Process:
    def __init__(
        self, config: RateLimitConfig, store: DelayedStore, clock: LoopClock, rng: random.Random, listener: Listener
    ) -> None:
        self.limiter = AdaptiveRateLimiter(config, clock=clock, rng=rng, store=store, on_event=listener)
        self.clock = clock
        self.sent: list[float] = []
        self.is_busy = True

    async def work(self, call: float, ends_at: float) -> None:
        while self.clock.now() < ends_at:
            if not self.is_busy:
                await self.clock.sleep_async(0.1)
                continue
            permit = await self.limiter.acquire_async("api")
            self.sent.append(self.clock.now())
            await self.clock.sleep_async(call)
            permit.report(status_code=200)


async def _come_and_go(members: list[_Process], clock: LoopClock, rng: random.Random) -> None:
    while True:
        await clock.sleep_async(1.0)
        one = rng.choice(members)
        one.is_busy = not one.is_busy


def _judge(
    crowd: Crowd, members: list[_Process], judged_from: float, ends_at: float, exchanges: int, losses: int
) -> CrowdResult:
    sent = sorted(at for one in members for at in one.sent)
    window = max(1.0, FEWEST_TO_JUDGE / crowd.limit)
    fullest = max((bisect_left(sent, at + window) - index for index, at in enumerate(sent)), default=0)
    shares = [len(one.sent) - bisect_left(one.sent, judged_from) for one in members]
    return CrowdResult(
        used=sum(shares) / (crowd.limit * (ends_at - judged_from)),
        fullest=fullest / (crowd.limit * window),
        fairness=min(shares) / max(max(shares), 1),
        trips=exchanges / max(len(sent), 1),
        losses=losses,
    )


# -- the table

CROWD = Crowd(processes=64, tasks=8, limit=4000.0, seconds=8.0)


def worst(lease: float, delay: float, loss: float) -> CrowdResult:
    """The least good of each figure over all seeds."""
    results = [run_crowd(replace(CROWD, lease=lease, delay=delay, loss=loss, seed=seed)) for seed in range(SEEDS)]
    return CrowdResult(
        used=min(one.used for one in results),
        fullest=max(one.fullest for one in results),
        fairness=min(one.fairness for one in results),
        trips=max(one.trips for one in results),
        losses=max(one.losses for one in results),
    )


def table() -> str:
    cells = [(lease, delay, loss, name) for delay, loss, name in NETWORKS for lease in LEASES]
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(worst, *zip(*((lease, delay, loss) for lease, delay, loss, _ in cells), strict=True)))
    lines = [
        "| one way to the store | lease | fullest second | used | least share of the largest | exchanges per call |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for (lease, _, _, name), result in zip(cells, results, strict=True):
        shown = f"{1000 * lease:.0f} ms{' (ours)' if lease == 0.03 else ''}"
        figures = f"{result.fullest:.2%} | {result.used:.1%} | {result.fairness:.2f} | {result.trips:.2f}"
        lines.append(f"| {name} | {shown} | {figures} |")
    return "\n".join(lines)


FLEETS = ((1, 222.0), (4, 222.0), (8, 100.0), (100, 222.0), (100, 2000.0))
"""Workers and calls a second, as sizes of a fleet."""


def fleet_table() -> str:
    crowds = [
        Crowd(processes=workers, tasks=math.ceil(limit / workers), limit=limit, call=0.5) for workers, limit in FLEETS
    ]
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(run_crowd, crowds))
    lines = ["| workers | quota | exchanges per call | exchanges/s |", "|---:|---:|---:|---:|"]
    for crowd, result in zip(crowds, results, strict=True):
        a_second = result.trips * result.used * crowd.limit
        lines.append(f"| {crowd.processes} | {crowd.limit:g}/s | {result.trips:.2f} | {a_second:,.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="How exactly a quota is kept against the length of a lease.")
    parser.add_argument("--write", action="store_true", help="put the table into docs/machines.md")
    options = parser.parse_args()
    began = time.perf_counter()
    text = (
        f"{table()}\n\n{CROWD.processes} processes with {CROWD.tasks} tasks each, a limit of {CROWD.limit:g}/s, "
        f"{CROWD.seconds:g} s of virtual time, the worst of {SEEDS} seeds; `python -m bench.leases --write`. "
        "A share of 0.00 is a process whose very first message was lost: it waits for a first answer for 10 s, longer "
        f"than this run.\n\nBy the number of workers, at 1 ms:\n\n{fleet_table()}"
    )
    print(f"{text}\n{time.perf_counter() - began:.0f} s")
    if options.write:
        put_between(PAGE, "leases", text)


if __name__ == "__main__":
    main()
