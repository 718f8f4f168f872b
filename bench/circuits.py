"""What a breaker does when half-open under many callers, when polled while open, and under many threads."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

from bench.contenders.breakers import ASYNC_BREAKERS, SYNC_BREAKERS
from bench.pacing import FOREVER, Figures

FAILURES_TO_TRIP = 5


class TargetDownError(Exception):
    pass


def crowd_at_half_open(contender: str, quick: bool) -> Figures:
    """A hundred tasks call at once when the circuit half-opens: how many calls reach the target?"""
    callers, recovery, call_lasts = 100, 0.2, 0.05
    reached = 0

    async def fail() -> None:
        raise TargetDownError

    async def answer() -> None:
        nonlocal reached
        reached += 1
        await asyncio.sleep(call_lasts)

    async def run() -> Figures:
        call = await ASYNC_BREAKERS[contender](FAILURES_TO_TRIP, recovery)
        for _ in range(FAILURES_TO_TRIP):
            with suppress(Exception):
                await call(fail)
        await asyncio.sleep(recovery + 0.05)
        await asyncio.gather(*(call(answer) for _ in range(callers)), return_exceptions=True)
        return {"calls": reached}

    return asyncio.run(run())


def eight_threads_through(contender: str, quick: bool) -> Figures:
    """Eight threads each make a call of 50 ms through one closed breaker: how long do they take together?"""
    threads, call_lasts = 8, 0.05
    call = SYNC_BREAKERS[contender](FAILURES_TO_TRIP, 30.0)
    workers = [
        threading.Thread(target=call, args=(lambda: time.sleep(call_lasts),), daemon=True) for _ in range(threads)
    ]
    started_at = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {"took": time.perf_counter() - started_at}


def polled_while_open(contender: str, quick: bool) -> Figures:
    """The circuit rests 0.3 s and is called every 50 ms meanwhile: when does a call get through again?"""
    recovery, poll, patience = 0.3, 0.05, 3.0
    call = SYNC_BREAKERS[contender](FAILURES_TO_TRIP, recovery)

    def fail() -> None:
        raise TargetDownError

    for _ in range(FAILURES_TO_TRIP):
        with suppress(Exception):
            call(fail)
    opened_at = time.perf_counter()
    while (passed := time.perf_counter() - opened_at) < patience:
        with suppress(Exception):
            call(lambda: None)
            return {"recovered": passed}
        time.sleep(poll)
    return {"recovered": FOREVER}
