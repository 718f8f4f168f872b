"""Virtual time: timers cost nothing, come in the same order every time, and a standstill is told."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from headgate import AdaptiveRateLimiter, Clock, RateLimitConfig
from headgate.lab.virtual_time import CANCELLED_BEFORE_SWEEP, LoopClock, VirtualClock, run

SAFETY = 2.0
"""Seconds of real time after which a loop counts as stuck. Never waited for in a passing test."""


@contextmanager
def not_stuck() -> Iterator[None]:
    """Break out of a loop that spins for ever, which no timeout of its own could end (where there are signals)."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def give_up(*_: object) -> None:
        pytest.fail("the loop is stuck: virtual time stands still")

    previous = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, SAFETY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)


class TestTime:
    def test_an_hour_takes_no_time(self) -> None:
        async def main(clock: LoopClock) -> float:
            for _ in range(3600):
                await asyncio.sleep(1.0)
            return clock.now()

        began = time.perf_counter()
        assert run(main) == 3600.0
        assert time.perf_counter() - began < 60.0

    def test_time_passes_only_while_all_wait(self) -> None:
        async def main(clock: LoopClock) -> list[float]:
            seen = []
            for _ in range(1000):
                await asyncio.sleep(0)
                seen.append(clock.now())
            return seen

        assert set(run(main)) == {0.0}

    def test_the_loop_and_the_clock_agree(self) -> None:
        async def main(clock: LoopClock) -> None:
            loop = asyncio.get_running_loop()
            for _ in range(5):
                assert loop.time() == clock.now()
                await clock.sleep_async(0.7)
            assert clock.now() == pytest.approx(3.5)

        run(main)

    @pytest.mark.parametrize("start", [0.0, 1e3, 1e6, 1e7, 1e9, 1.8e9])
    def test_it_can_start_at_any_instant(self, start: float) -> None:
        async def main(clock: LoopClock) -> tuple[float, float]:
            began_at = clock.now()
            for _ in range(10):
                await asyncio.sleep(0.1)
            return began_at, clock.now()

        with not_stuck():
            began_at, ended_at = run(main, start=start)
        assert (began_at, ended_at) == (start, pytest.approx(start + 1.0, rel=1e-12, abs=1e-9))

    def test_years_can_pass(self) -> None:
        async def main(clock: LoopClock) -> float:
            await asyncio.sleep(10 * 365 * 86400.0)
            await asyncio.sleep(0.25)
            return clock.now()

        with not_stuck():
            assert run(main) == 315_360_000.25

    def test_timeouts_come_at_their_instant(self) -> None:
        async def main(clock: LoopClock) -> float:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 12.5)
            return clock.now()

        assert run(main) == 12.5

    def test_a_blocking_sleep_moves_the_loop_along(self) -> None:
        async def main(clock: LoopClock) -> tuple[list[float], float]:
            fired_at: list[float] = []
            asyncio.get_running_loop().call_later(2.0, lambda: fired_at.append(clock.now()))
            clock.sleep(5.0)
            await asyncio.sleep(0)
            return fired_at, clock.now()

        assert run(main) == ([5.0], 5.0)


class TestOrder:
    def test_timers_fire_in_the_order_of_their_instants(self) -> None:
        async def main(clock: LoopClock) -> list[float]:
            woken = []

            async def sleeper(seconds: float) -> None:
                await asyncio.sleep(seconds)
                woken.append((seconds, clock.now()))

            delays = [3.0, 0.5, 2.0, 0.1, 7.25, 1.0]
            await asyncio.gather(*map(sleeper, delays))
            assert [at for _, at in woken] == [seconds for seconds, _ in woken]
            return [seconds for seconds, _ in woken]

        assert run(main) == [0.1, 0.5, 1.0, 2.0, 3.0, 7.25]

    def test_timers_of_one_instant_fire_in_the_order_they_were_made(self) -> None:
        async def main(clock: LoopClock) -> list[int]:
            loop, fired = asyncio.get_running_loop(), []
            for number in range(20):
                loop.call_at(1.0, fired.append, number)
            await asyncio.sleep(2.0)
            return fired

        assert run(main) == list(range(20))

    def test_timers_that_are_cancelled_never_fire_and_do_not_pile_up(self) -> None:
        async def main(clock: LoopClock) -> tuple[list[str], int]:
            loop, fired = asyncio.get_running_loop(), []
            loop.call_at(50.0, fired.append, "kept")
            for _ in range(10 * CANCELLED_BEFORE_SWEEP):
                loop.call_at(10.0, fired.append, "cancelled").cancel()
            piled_up = len(loop._timers)
            await asyncio.sleep(60.0)
            return fired, piled_up

        fired, piled_up = run(main)
        assert fired == ["kept"]
        assert piled_up <= CANCELLED_BEFORE_SWEEP + 1

    def test_what_another_thread_asks_for_is_done(self) -> None:
        async def main(clock: LoopClock) -> float:
            done = asyncio.Event()
            thread = threading.Thread(target=asyncio.get_running_loop().call_soon_threadsafe, args=(done.set,))
            thread.start()
            thread.join()
            await done.wait()
            return clock.now()

        assert run(main) == 0.0

    def test_two_runs_are_the_same(self) -> None:
        assert run(crowd(seed=5)) == run(crowd(seed=5))

    def test_another_seed_is_another_run(self) -> None:
        assert run(crowd(seed=5)) != run(crowd(seed=6))

    def test_two_processes_are_the_same_whatever_their_hashes(self) -> None:
        def log(hash_seed: str) -> str:
            environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
            command = [sys.executable, "-c", LIMITED_RUN]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

        first = log("1")
        assert len(first.splitlines()) > 8 * 20
        assert first == log("2")


def crowd(seed: int):
    """Fifty tasks that sleep, often until the same instant, and pass a lock around."""

    async def main(clock: LoopClock) -> list[tuple[float, int]]:
        rng, lock, log = random.Random(seed), asyncio.Lock(), []

        async def one(number: int) -> None:
            for _ in range(10):
                await asyncio.sleep(rng.choice([0.0, 0.1, 0.1, 0.25, rng.random()]))
                async with lock:
                    await asyncio.sleep(0.001)
                    log.append((clock.now(), number))

        await asyncio.gather(*map(one, range(50)))
        return log

    return main


LIMITED_RUN = """
import asyncio, random
from headgate import AdaptiveRateLimiter
from headgate.lab.virtual_time import run

async def main(clock):
    rng, keys = random.Random(3), ["a.example.com", "b.example.com", "c.example.com"]
    limiter = AdaptiveRateLimiter(clock=clock, rng=random.Random(4), on_event=print)

    async def worker():
        for _ in range(20):
            async with limiter.permit(rng.choice(keys)) as permit:
                print(clock.now(), permit)
                await asyncio.sleep(rng.uniform(0.01, 0.2))
                permit.report(status_code=429 if rng.random() < 0.1 else 200)

    await asyncio.gather(*(worker() for _ in range(8)))
    print(limiter.snapshot())

run(main)
"""


class TestStandstill:
    def test_it_is_told_and_not_slept_through(self) -> None:
        async def main(clock: LoopClock) -> None:
            await asyncio.sleep(1.0)
            await asyncio.Event().wait()

        with not_stuck(), pytest.raises(RuntimeError, match="deadlock: every task waits and no timer is set"):
            run(main)

    def test_tasks_that_wait_for_each_other_are_found(self) -> None:
        async def main(clock: LoopClock) -> None:
            one, other = asyncio.Lock(), asyncio.Lock()

            async def take(first: asyncio.Lock, second: asyncio.Lock) -> None:
                async with first:
                    await asyncio.sleep(1.0)
                    async with second:
                        pytest.fail("they should not get past each other")

            await asyncio.gather(take(one, other), take(other, one))

        with not_stuck(), pytest.raises(RuntimeError, match="every task waits"):
            run(main)

    def test_all_tasks_can_still_tidy_up(self) -> None:
        tidied = []

        async def main(clock: LoopClock) -> None:
            async def stuck(number: int) -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    tidied.append(number)

            await asyncio.gather(*map(stuck, range(3)))

        with not_stuck(), pytest.raises(RuntimeError):
            run(main)
        assert sorted(tidied) == [0, 1, 2]

    def test_a_task_that_will_be_woken_is_none(self) -> None:
        async def main(clock: LoopClock) -> float:
            event = asyncio.Event()
            asyncio.get_running_loop().call_later(60.0, event.set)
            await event.wait()
            return clock.now()

        assert run(main) == 60.0


class TestRun:
    def test_what_it_raises_is_raised(self) -> None:
        async def main(clock: LoopClock) -> None:
            await asyncio.sleep(1.0)
            raise LookupError("lost")

        with pytest.raises(LookupError, match="lost"):
            run(main)

    def test_every_run_starts_anew(self) -> None:
        async def main(clock: LoopClock) -> float:
            began_at = clock.now()
            await asyncio.sleep(5.0)
            return began_at

        assert [run(main), run(main), run(main, start=3.0)] == [0.0, 0.0, 3.0]

    def test_it_leaves_no_loop_behind(self) -> None:
        async def main(clock: LoopClock) -> asyncio.AbstractEventLoop:
            return asyncio.get_running_loop()

        assert run(main).is_closed()

    def test_a_limiter_waits_in_it_too(self) -> None:
        async def main(clock: LoopClock) -> float:
            limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="leaky", initial_rps=1.0), clock=clock)
            for _ in range(601):
                (await limiter.acquire_async("a")).report(status_code=200)
            return clock.now()

        assert run(main) == pytest.approx(600.0, abs=0.1)


class TestVirtualClock:
    def test_it_moves_only_when_told_to(self) -> None:
        clock = VirtualClock(start=10.0)
        assert [clock.now(), clock.now()] == [10.0, 10.0]
        clock.advance(2.5)
        assert clock.now() == 12.5

    def test_sleeping_on_it_moves_it(self) -> None:
        clock = VirtualClock()
        clock.sleep(3600.0)
        assert clock.now() == 3600.0

    def test_sleeping_on_it_in_a_task_moves_it_and_lets_others_run(self) -> None:
        async def main() -> tuple[float, list[int]]:
            clock, ran = VirtualClock(), []
            asyncio.get_running_loop().call_soon(ran.append, 1)
            await clock.sleep_async(3600.0)
            return clock.now(), ran

        assert asyncio.run(main()) == (3600.0, [1])

    def test_the_time_of_day_moves_along(self) -> None:
        clock = VirtualClock(start=10.0, wall=1_700_000_000.0)
        assert clock.wall() == 1_700_000_000.0
        clock.advance(86400.0)
        assert clock.wall() == 1_700_086_400.0

    def test_two_clocks_do_not_touch_each_other(self) -> None:
        one, other = VirtualClock(), VirtualClock()
        one.advance(5.0)
        assert other.now() == 0.0

    @pytest.mark.parametrize("seconds", [-1.0, float("nan")])
    def test_no_sleep_takes_it_back(self, seconds: float) -> None:
        clock = VirtualClock(start=10.0)
        with suppress(ValueError):  # as the real one says; to stand still is as good
            clock.sleep(seconds)
        assert clock.now() == 10.0

    def test_both_are_clocks(self) -> None:
        clocks: list[Clock] = [VirtualClock(), LoopClock()]
        assert [clock.now() for clock in clocks] == [0.0, 0.0]
