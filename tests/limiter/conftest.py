"""Several limiters around one store in virtual time: members that join, work, idle, leave, crash, and a log of starts.

    def main(population): ...            # a coroutine function; `shared(main, seed=3)` runs it to its end
        a, b = population.join(), population.join()
        population.work(a, 8)            # eight callers without a pause
        await population.until(5.0)

A start is when a call was let through, by the one clock that all of them have.
"""

import asyncio
import random
from bisect import bisect_left, bisect_right

import pytest
from bench.delayed_store import DelayedStore

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.lab.virtual_time import run

KEY = "api.example.com"
BEGIN = 1000.0


class Member:
    def __init__(self, population, config, number):
        self.population, self.number = population, number
        self.starts = []
        self.waits = []
        self.events = []
        self.tasks = []
        self.limiter = AdaptiveRateLimiter(
            config,
            clock=population.clock,
            rng=random.Random(1000 * population.seed + number),
            store=population.store,
            on_event=self.events.append,
        )

    @property
    def sharing(self):
        return self.limiter._sync

    @property
    def entry(self):
        return self.limiter._registry.entries[KEY]

    def kinds(self):
        return [event.kind for event in self.events]

    def started(self, since, until):
        """How many calls started in that time, by seconds from the beginning."""
        return bisect_left(self.starts, BEGIN + until) - bisect_left(self.starts, BEGIN + since)

    def crash(self):
        """It is simply not heard of any more."""
        self.idle()
        for task in self.population.store.rounds_of(self.sharing):
            task.cancel()

    def idle(self):
        for task in self.tasks:
            task.cancel()
        self.tasks = []

    async def leave(self):
        self.idle()
        await asyncio.sleep(0)
        self.limiter.close()


class Population:
    def __init__(self, clock, seed, config, store):
        self.clock, self.seed, self.config = clock, seed, config
        self.rng = random.Random(seed)
        self.store = Wire(clock, random.Random(seed + 1), **store)
        self.members = []

    def join(self, config=None):
        member = Member(self, config or self.config, len(self.members))
        self.members.append(member)
        return member

    def work(self, member, callers=4, *, answer=None, latency=0.0, pause=0.0, key=KEY, **more):
        """``answer(at)`` is asked half way through a call for its status, or for what to report."""

        async def call():
            while True:
                asked_at = self.clock.now()
                with await member.limiter.acquire_async(key, **more) as permit:
                    member.starts.append(self.clock.now())
                    member.waits.append(self.clock.now() - asked_at)
                    await self.clock.sleep_async(latency / 2)
                    said = 200 if answer is None else answer(self.clock.now())
                    await self.clock.sleep_async(latency / 2)
                    permit.report(**(said if isinstance(said, dict) else {"status_code": said}))
                await self.clock.sleep_async(pause * self.rng.uniform(0.5, 1.5))

        loop = asyncio.get_running_loop()
        member.tasks += [loop.create_task(call()) for _ in range(callers)]

    async def until(self, seconds):
        """Let time pass until so many seconds after the beginning."""
        await self.clock.sleep_async(BEGIN + seconds - self.clock.now())
        self.raise_what_failed()

    def raise_what_failed(self):
        for task in [task for member in self.members for task in member.tasks] + self.store._rounds:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception()

    def coordinator(self, key=KEY):
        return self.store._keys[key].coordinator

    def starts(self, since=0.0):
        return sorted(at for member in self.members for at in member.starts if at >= BEGIN + since)

    def started(self, since, until):
        return sum(member.started(since, until) for member in self.members)

    def fairness(self, since, until):
        counts = [member.started(since, until) for member in self.members if member.tasks]
        return min(counts) / max(counts)

    async def finish(self):
        for member in self.members:
            member.idle()
        await asyncio.sleep(0)
        self.raise_what_failed()
        await self.store.finish()


class Wire(DelayedStore):
    """A far store that knows whose rounds are whose, can be cut off from some, and can lose all it has."""

    def __init__(self, clock, rng, **more):
        super().__init__(clock, rng, **more)
        self._whose = {}
        self.cut_off = set()
        """Members that cannot reach it."""

    def drive(self, sharing):
        wake = super().drive(sharing)
        self._whose.setdefault(id(sharing), []).append(self._rounds[-1])
        return wake

    def rounds_of(self, sharing):
        return self._whose.get(id(sharing), [])

    async def _answer(self, due, patience):
        if any(request.member in self.cut_off for _, request in due):
            await self._clock.sleep_async(patience)
            return None
        return await super()._answer(due, patience)

    def wipe(self):
        self._keys.clear()


def over(starts, rate, *, most=1.01, least=1.0, permits=200):
    """By how many calls the fullest window, of at least so many seconds and permits, lies above ``most`` x the rate."""
    worst, lowest, first = float("-inf"), float("inf"), 0
    shortest = max(least, permits / rate)
    for i, at in enumerate(starts):
        while starts[first] <= at - shortest:
            lowest = min(lowest, first - most * rate * starts[first])
            first += 1
        if lowest < float("inf"):
            worst = max(worst, i + 1 - most * rate * at - lowest)
    return worst


def fullest(starts, window):
    """The most calls in any window of that length."""
    return max((bisect_right(starts, at + window - 1e-9) - i for i, at in enumerate(starts)), default=0)


@pytest.fixture
def most_over():
    return over


@pytest.fixture
def fullest_window():
    return fullest


@pytest.fixture
def shared():
    """A population, run to its end: ``config`` is what all have by default, ``store`` is for the store."""

    def live(main, config=None, seed=0, **store):
        async def whole(clock):
            population = Population(clock, seed, config or RateLimitConfig(strategy="fixed", initial_rps=100.0), store)
            try:
                result = await main(population)
                population.raise_what_failed()
                return result
            finally:
                await population.finish()

        return run(whole, start=BEGIN)

    return live
