"""Many processes on one quota, in virtual time: how exactly is it kept, and how fairly is it shared?

Each process is a whole limiter with tasks of its own; they have nothing in common but a store at the end of a
simulated network. What was sent is counted as a server would count it: in every window.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from headgate.config import RateLimitConfig
from headgate.distributed.grants import PERIOD
from headgate.events import Event
from headgate.lab.delayed_store import DelayedStore
from headgate.lab.virtual_time import LoopClock, run
from headgate.limiter.limiter import AdaptiveRateLimiter

Listener = Callable[[Event], None]

WARM_UP = 2.0
"""Seconds that are not judged: everybody arrives at once."""
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
