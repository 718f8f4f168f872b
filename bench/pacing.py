"""What a limiter and a breaker do under load, with real threads, real event loops and the real clock.

Each test takes one contender's name and returns figures; ``behaviours`` says what they should be.
All run in a process that may be ended at any time, so none of them cleans up after itself.
"""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress

from bench.contenders.breakers import ASYNC_BREAKERS, SYNC_BREAKERS
from bench.contenders.limiters import ASYNC_LIMITERS, BUDGETS, SYNC_LIMITERS, AsyncAcquire

Figures = dict[str, float]

FOREVER = float("inf")
"""The figure of a wait that had not ended when the test did."""


def eight_threads(contender: str, quick: bool) -> Figures:
    """Eight threads share 200/s with a burst of 1: the rate, the fairness, the bunching."""
    rate, threads, lasts = 200, 8, 1.0 if quick else 5.0
    acquire = SYNC_LIMITERS[contender](rate, 1)
    grants: list[list[float]] = [[] for _ in range(threads)]
    together = threading.Barrier(threads + 1)

    def work(mine: list[float]) -> None:
        together.wait()
        while True:
            acquire()
            mine.append(time.perf_counter())

    for mine in grants:
        threading.Thread(target=work, args=(mine,), daemon=True).start()
    together.wait()
    started_at = time.perf_counter()
    time.sleep(lasts)
    ended_at = started_at + lasts
    counts = [bisect_left(mine, ended_at) for mine in grants]
    instants = sorted(instant for mine, count in zip(grants, counts, strict=True) for instant in mine[:count])
    return {
        "share": sum(counts) / (rate * lasts),
        "jain": sum(counts) ** 2 / max(1, threads * sum(count * count for count in counts)),
        "densest": most_within(instants, 0.1),
    }


def most_within(instants: Sequence[float], span: float) -> int:
    """The most instants that any stretch of ``span`` seconds holds."""
    return max((bisect_left(instants, at + span) - place for place, at in enumerate(instants)), default=0)


def thousand_waiters(contender: str, quick: bool) -> Figures:
    """A thousand tasks wait at 500/s: processor time per grant, and how far the unluckiest fell back."""
    waiters, rate, patience = 1000, 500, 3.0

    async def run() -> Figures:
        acquire = ASYNC_LIMITERS[contender](rate, 1)
        served: list[int] = []

        async def ask(place: int) -> None:
            await acquire("api", 1)
            served.append(place)

        busy_before = time.process_time()
        tasks = [asyncio.create_task(ask(place)) for place in range(waiters)]
        await asyncio.wait(tasks, timeout=patience)
        busy = time.process_time() - busy_before
        unserved = [(len(served), place) for place in set(range(waiters)) - set(served)]
        return {
            "granted": len(served),
            "cpu_us": busy / max(1, len(served)) * 1e6,
            "displaced": max(position - place for position, place in [*enumerate(served), *unserved]),
        }

    return asyncio.run(run())


async def _take_for(acquire: AsyncAcquire, lasts: float) -> list[float]:
    """Take permits one after another for so long; the instants of the grants."""
    grants: list[float] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(lasts):
            while True:
                await acquire("api", 1)
                grants.append(time.perf_counter())
                if len(grants) % 100 == 0:  # grants that need no waiting must not keep the timeout from firing
                    await asyncio.sleep(0)
    return grants


def accuracy(contender: str, quick: bool) -> Figures:
    """One task asks for 1000/s with a burst of 1: how far off is the rate it gets?"""
    rate, lasts = 1000, 1.0 if quick else 5.0

    async def run() -> Figures:
        grants = await _take_for(ASYNC_LIMITERS[contender](rate, 1), lasts)
        return {"error": len(grants) / (rate * lasts) - 1}

    return asyncio.run(run())


def stalled_loop(contender: str, quick: bool) -> Figures:
    """The event loop hangs for 300 ms at 1000/s: how far ahead of the pace do grants then run?"""
    rate, stall = 1000, 0.3
    resumed_at = FOREVER

    def hang() -> None:
        nonlocal resumed_at
        time.sleep(stall)
        resumed_at = time.perf_counter()

    async def run() -> Figures:
        acquire = ASYNC_LIMITERS[contender](rate, 1)
        asyncio.get_running_loop().call_later(0.5, hang)
        grants = await _take_for(acquire, 0.5 + stall + 0.3)
        after = [instant - resumed_at for instant in grants if instant >= resumed_at]
        return {"ahead": max((count - rate * late for count, late in enumerate(after, 1)), default=0.0)}

    return asyncio.run(run())


def cancelled_waiters(contender: str, quick: bool) -> Figures:
    """Two hundred waiters at 100/s are cancelled: how long does the next one wait?"""
    waiters, rate = 200, 100

    async def run() -> Figures:
        acquire = ASYNC_LIMITERS[contender](rate, 1)
        await acquire("api", 1)
        tasks = [asyncio.create_task(acquire("api", 1)) for _ in range(waiters)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return {"waited": await _wait_for(acquire, "api", 1, patience=4.0)}

    return asyncio.run(run())


async def _wait_for(acquire: AsyncAcquire, key: str, cost: int, *, patience: float) -> float:
    started_at = time.perf_counter()
    try:
        async with asyncio.timeout(patience):
            await acquire(key, cost)
    except TimeoutError:
        return FOREVER
    return time.perf_counter() - started_at


def heavy_among_light(contender: str, quick: bool) -> Figures:
    """Twenty tasks keep asking for 1, one asks for 10, at 100/s: how many go first that asked later?"""
    rate, burst, light_tasks, heavy = 100, 10, 20, 10

    async def run() -> Figures:
        acquire = ASYNC_LIMITERS[contender](rate, burst)
        heavy_asked_at = heavy_granted_at = FOREVER
        overtakers = 0

        async def keep_asking() -> None:
            nonlocal overtakers
            while True:
                asked_at = time.perf_counter()
                await acquire("api", 1)
                overtakers += asked_at > heavy_asked_at and time.perf_counter() < heavy_granted_at

        tasks = [asyncio.create_task(keep_asking()) for _ in range(light_tasks)]
        await asyncio.sleep(0.3)
        heavy_asked_at = time.perf_counter()
        waited = await _wait_for(acquire, "api", heavy, patience=1.5 if quick else 3.0)
        heavy_granted_at = heavy_asked_at + waited
        for task in tasks:
            task.cancel()
        return {"waited": waited, "overtakers": overtakers, "ideal": (light_tasks + heavy) / rate}

    return asyncio.run(run())


def fresh_key(contender: str, quick: bool) -> Figures:
    """Key A has to wait two seconds for its next permit: how long does the unused key B wait?"""

    async def run() -> Figures:
        acquire = ASYNC_LIMITERS[contender](0.5, 1)
        await acquire("a", 1)
        busy = asyncio.create_task(acquire("a", 1))
        await asyncio.sleep(0.05)
        waited = await _wait_for(acquire, "b", 1, patience=4.0)
        busy.cancel()
        return {"waited": waited}

    return asyncio.run(run())


def clock_set_back(contender: str, quick: bool) -> Figures:
    """The wall clock goes back an hour in mid-run: what of 100/s is granted after it?"""
    rate, warm_up, lasts = 100, 0.2, 0.5 if quick else 1.0
    offset = 0.0
    true_time = time.time
    time.time = lambda: true_time() - offset  # before the contender is imported: it may keep a reference
    acquire = SYNC_LIMITERS[contender](rate, 1)
    granted = 0

    def work() -> None:
        nonlocal granted
        while True:
            acquire()
            granted += 1

    threading.Thread(target=work, daemon=True).start()
    time.sleep(warm_up)
    start = granted
    time.sleep(lasts)
    offset = 3600.0
    jump = granted
    time.sleep(lasts)
    return {"before": (jump - start) / (rate * lasts), "after": (granted - jump) / (rate * lasts)}


def heavy_cost(contender: str, quick: bool) -> Figures:
    """A call that costs 4,000 of a million a minute, beside one that costs 1: time and memory."""
    heavy, timed_calls, repeats = 4000, 20, 5
    budget = BUDGETS[contender]
    spent_before = budget.room // heavy - timed_calls - 1

    def ready() -> Callable[[int], object]:
        take = budget.make()
        for _ in range(spent_before):
            take(heavy)
        return take

    def seconds_per_call(cost: int) -> float:
        take = ready()
        started_at = time.perf_counter()
        for _ in range(timed_calls):
            take(cost)
        return (time.perf_counter() - started_at) / timed_calls

    tracemalloc.start()
    take = ready()
    tracemalloc.reset_peak()
    held, _ = tracemalloc.get_traced_memory()
    for _ in range(timed_calls):
        take(heavy)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "light_us": min(seconds_per_call(1) for _ in range(repeats)) * 1e6,
        "heavy_us": min(seconds_per_call(heavy) for _ in range(repeats)) * 1e6,
        "bytes": (peak - held) / timed_calls,
    }


# ---------------------------------------------------------------------- breakers

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
