"""Standing in line: the order, the promises, and what cancelling costs, in virtual time."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

from headgate import (
    AdaptiveRateLimiter,
    CircuitOpenError,
    ConfigError,
    Controller,
    Feedback,
    Permit,
    RateLimitConfig,
    WaitTooLongError,
)
from headgate.core.policy import Cost
from headgate.lab.virtual_time import LoopClock, VirtualClock, run
from headgate.limiter.wait_queue import WaitQueue


def fixed(rate: float, burst: float = 1.0, **more: object) -> RateLimitConfig:
    return RateLimitConfig(strategy="fixed", initial_rps=rate, token_bucket_capacity=burst, **more)  # type: ignore[arg-type]


def limiter_on(clock: LoopClock | VirtualClock, config: RateLimitConfig) -> AdaptiveRateLimiter:
    return AdaptiveRateLimiter(config, clock=clock, rng=random.Random(3))


class CountsTokens(Controller):
    def __init__(self, _: object) -> None:
        self.rate = 10.0

    def worth(self, cost: Cost) -> float:
        return cost["tokens"] / 100.0 if isinstance(cost, dict) else 1.0

    def on_answer(self, *_: object) -> float:
        return 0.0


@pytest.mark.parametrize(("tokens", "fit"), [(400.0, 25), (100.0, 100), (10.0, 120)])
def test_a_promise_counts_waiters_as_what_they_take_of_the_pace(tokens: float, fit: int) -> None:
    async def main(clock: LoopClock) -> list[float]:
        limiter = limiter_on(clock, RateLimitConfig(strategy=CountsTokens, token_bucket_capacity=1.0))
        refused = []

        async def caller() -> None:
            asked_at = clock.now()
            try:
                await limiter.acquire_async("api", cost={"tokens": tokens}, max_wait=10.0)
            except WaitTooLongError:
                refused.append(clock.now() - asked_at)

        await asyncio.gather(*(caller() for _ in range(120)))
        return refused

    refused = run(main)
    assert refused == [0.0] * len(refused)
    assert 120 - len(refused) == pytest.approx(fit, abs=2)


def test_a_thousand_waiters_are_served_in_the_order_they_came_and_on_time() -> None:
    async def main(clock: LoopClock) -> list[tuple[int, float]]:
        limiter = limiter_on(clock, fixed(500))
        served: list[tuple[int, float]] = []

        async def caller(number: int) -> None:
            await limiter.acquire_async("api")
            served.append((number, clock.now()))

        await asyncio.gather(*(caller(number) for number in range(1000)))
        return served

    served = run(main)
    assert [number for number, _ in served] == list(range(1000))
    assert [at for _, at in served] == pytest.approx([number / 500 for number in range(1000)], abs=2e-6)


def test_a_permit_says_how_long_it_took() -> None:
    clock = VirtualClock()
    limiter = limiter_on(clock, fixed(2))
    assert [limiter.acquire("api").waited for _ in range(3)] == pytest.approx([0.0, 0.5, 0.5])


def test_nobody_waits_longer_than_promised() -> None:
    async def main(clock: LoopClock) -> tuple[list[float], list[WaitTooLongError]]:
        limiter = limiter_on(clock, fixed(20))
        waits: list[float] = []
        refusals: list[WaitTooLongError] = []

        async def caller() -> None:
            try:
                waits.append((await limiter.acquire_async("api", max_wait=0.15)).waited)
            except WaitTooLongError as refusal:
                assert clock.now() == 0.0
                refusals.append(refusal)

        await asyncio.gather(*(caller() for _ in range(15)))
        return waits, refusals

    waits, refusals = run(main)
    assert waits == pytest.approx([0.0, 0.05, 0.1, 0.15])
    assert [refusal.retry_after for refusal in refusals] == pytest.approx([0.2] * 11)


def test_a_promise_that_can_no_longer_be_kept_is_broken_at_once() -> None:
    async def main(clock: LoopClock) -> tuple[float, float | None]:
        limiter = limiter_on(clock, fixed(1))
        await limiter.acquire_async("api")
        waiter = asyncio.create_task(limiter.acquire_async("api", max_wait=2.0))
        await asyncio.sleep(0.1)
        limiter.feedback("api", Feedback(status_code=429, retry_after=10))
        with pytest.raises(WaitTooLongError, match="has become too long") as refusal:
            await waiter
        return clock.now(), refusal.value.retry_after

    at, retry_after = run(main)
    assert at == 0.1
    assert retry_after is not None
    assert 10.0 <= retry_after <= 13.0


def test_a_deadline_is_an_instant_on_the_limiters_clock() -> None:
    async def main(clock: LoopClock) -> None:
        limiter = limiter_on(clock, fixed(1))
        await limiter.acquire_async("api", deadline_at=100.0)
        assert (await limiter.acquire_async("api", deadline_at=101.0)).sent_at == 101.0
        with pytest.raises(WaitTooLongError):
            await limiter.acquire_async("api", deadline_at=101.5)
        with pytest.raises(WaitTooLongError, match="deadline has already passed"):
            await limiter.acquire_async("other", deadline_at=100.5)
        assert clock.now() == 101.0

    run(main, start=100.0)


@pytest.mark.parametrize("max_wait", [-1.0, float("nan")])
def test_a_senseless_promise_is_refused_by_name(max_wait: float) -> None:
    limiter = limiter_on(VirtualClock(), fixed(1))
    with pytest.raises(ConfigError, match="max_wait="):
        limiter.acquire("api", max_wait=max_wait)


def test_cancelling_two_hundred_waiters_holds_up_nobody() -> None:
    async def main(clock: LoopClock) -> float:
        limiter = limiter_on(clock, fixed(10))
        await limiter.acquire_async("api")
        crowd = [asyncio.create_task(limiter.acquire_async("api")) for _ in range(200)]
        patient = asyncio.create_task(limiter.acquire_async("api"))
        await asyncio.sleep(0.01)
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        permit = await patient
        assert limiter.snapshot().keys[0].waiters == 0
        return permit.waited

    assert run(main) == pytest.approx(0.1)


def test_a_wait_cancelled_in_the_moment_it_was_granted_takes_nothing() -> None:
    async def main(clock: LoopClock) -> None:
        limiter = limiter_on(clock, fixed(1))
        first = await limiter.acquire_async("api")
        waiter = asyncio.create_task(limiter.acquire_async("api"))
        await asyncio.sleep(0.5)
        first.abandon()
        limiter.try_acquire("api")
        waiter.cancel()  # granted by now, but not yet awake
        with pytest.raises(asyncio.CancelledError):
            await waiter
        entry = limiter.snapshot().keys[0]
        assert (entry.tokens, entry.in_flight, entry.waiters) == (1.0, 0, 0)

    run(main)


def test_a_heavy_call_among_light_ones_comes_in_its_turn() -> None:
    async def main(clock: LoopClock) -> list[str]:
        limiter = limiter_on(clock, fixed(10, 10))
        order: list[str] = []

        async def caller(name: str, cost: float) -> None:
            await limiter.acquire_async("api", cost=cost)
            order.append(name)

        tasks = [asyncio.create_task(caller(f"light {i}", 1)) for i in range(12)]
        tasks.append(asyncio.create_task(caller("heavy", 9)))
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(caller(f"late {i}", 1)) for i in range(30)]
        await asyncio.gather(*tasks)
        return order

    assert run(main).index("heavy") == 12


def test_a_fresh_key_does_not_wait_behind_a_busy_one() -> None:
    async def main(clock: LoopClock) -> float:
        limiter = limiter_on(clock, fixed(1))
        crowd = [asyncio.create_task(limiter.acquire_async("busy")) for _ in range(50)]
        await asyncio.sleep(0)
        waited = (await limiter.acquire_async("fresh")).waited
        for task in crowd:
            task.cancel()
        return waited

    assert run(main) == 0.0


def test_try_acquire_neither_waits_nor_overtakes() -> None:
    async def main(clock: LoopClock) -> None:
        limiter = limiter_on(clock, fixed(1))
        assert isinstance(limiter.try_acquire("api"), Permit)
        assert limiter.try_acquire("api") is None
        waiter = asyncio.create_task(limiter.acquire_async("api"))
        await asyncio.sleep(0)
        clock.advance(1.0)  # its turn has come, but the loop has not noticed yet
        assert limiter.try_acquire("api") is None
        await waiter

    run(main)


def test_an_opening_circuit_refuses_everybody_in_line() -> None:
    async def main(clock: LoopClock) -> None:
        limiter = limiter_on(clock, fixed(1, 5))
        permits = [await limiter.acquire_async("api") for _ in range(5)]
        line = [asyncio.create_task(limiter.acquire_async("api")) for _ in range(20)]
        await asyncio.sleep(0.1)
        for permit in permits:
            permit.report(status_code=500)
        for waiter in line:
            with pytest.raises(CircuitOpenError) as refusal:
                await waiter
            assert refusal.value.retry_after == pytest.approx(15.0)
        assert clock.now() == pytest.approx(0.1)

    run(main)


def test_no_more_than_promised_in_the_air_and_an_answer_lets_the_next_in() -> None:
    from headgate import Controller, Signal
    from headgate.core.policy import Ticket

    class TwoAtATime(Controller):
        def __init__(self, config: RateLimitConfig) -> None:
            self.rate = 1e6
            self.cap = 2.0

        def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
            return 0.0

    async def main(clock: LoopClock) -> None:
        limiter = limiter_on(clock, RateLimitConfig(strategy=TwoAtATime, token_bucket_capacity=100))
        in_flight = most = 0

        async def caller() -> None:
            nonlocal in_flight, most
            permit = await limiter.acquire_async("api", max_wait=100)
            in_flight += 1
            most = max(most, in_flight)
            await asyncio.sleep(1.0)
            in_flight -= 1
            permit.report(status_code=200)

        callers = [asyncio.create_task(caller()) for _ in range(10)]
        await asyncio.sleep(0.5)
        assert limiter.snapshot().keys[0].waits_for == "depth"
        await asyncio.gather(*callers)
        assert (most, clock.now()) == (2, 5.0)
        with pytest.raises(WaitTooLongError):
            await asyncio.gather(*(limiter.acquire_async("api", max_wait=0.5) for _ in range(3)))
        assert clock.now() == 5.5

    run(main)


def test_late_service_is_made_up_for_but_only_a_little() -> None:
    async def main(clock: LoopClock) -> int:
        limiter = limiter_on(clock, fixed(1000))
        served: list[float] = []

        async def caller() -> None:
            while clock.now() < 1.0:
                await limiter.acquire_async("api")
                served.append(clock.now())

        callers = [asyncio.create_task(caller()) for _ in range(50)]
        await asyncio.sleep(0.5)
        clock.advance(0.3)  # the loop stalls
        stalled_until = clock.now()
        await asyncio.gather(*callers)
        return sum(stalled_until <= at < stalled_until + 1e-4 for at in served)

    assert 20 <= run(main) <= 30


def test_rested_keys_burst_no_more_than_their_bucket_holds() -> None:
    clock = VirtualClock()
    limiter = limiter_on(clock, fixed(100, 4))
    limiter.acquire("api")
    clock.advance(3600)
    assert sum(limiter.try_acquire("api") is not None for _ in range(50)) == 4


def test_threads_and_tasks_stand_in_the_same_line() -> None:
    """Real time: threads cannot be woken by a virtual clock."""
    limiter = AdaptiveRateLimiter(fixed(200))
    served: list[str] = []

    def thread() -> None:
        for _ in range(20):
            limiter.acquire("api")
            served.append("thread")

    async def task() -> None:
        for _ in range(20):
            await limiter.acquire_async("api")
            served.append("task")

    def loop() -> None:
        async def tasks() -> None:
            await asyncio.gather(task(), task())

        asyncio.run(tasks())

    workers = [threading.Thread(target=target) for target in (thread, thread, loop, loop)]
    started_at = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    took = time.monotonic() - started_at
    assert (served.count("thread"), served.count("task")) == (40, 80)
    assert took >= 119 / 200 * 0.95
    assert limiter.snapshot().keys[0].waiters == 0


def test_a_thread_waits_for_its_turn_behind_others() -> None:
    """Real time: three threads, and the order in which they asked."""
    limiter = AdaptiveRateLimiter(fixed(20))
    limiter.acquire("api")
    granted: dict[int, int] = {}

    def caller(number: int) -> None:
        granted[number] = limiter.acquire("api").seq

    threads = []
    for number in range(3):
        threads.append(threading.Thread(target=caller, args=(number,)))
        threads[-1].start()
        while limiter.snapshot().keys[0].waiters + len(granted) <= number:
            time.sleep(0.0005)
    for thread in threads:
        thread.join(timeout=5)
    assert [granted[number] for number in range(3)] == [2, 3, 4]


def test_a_loop_that_was_closed_blocks_nobody() -> None:
    """A task that will never run again must not keep its place in line."""
    clock = VirtualClock()
    limiter = limiter_on(clock, fixed(1))
    limiter.acquire("api")
    loop = asyncio.new_event_loop()
    waiter = loop.create_task(limiter.acquire_async("api"))
    loop.run_until_complete(asyncio.sleep(0))
    loop._ready.clear()  # type: ignore[attr-defined]
    loop.close()
    assert limiter.acquire("api").sent_at == 1.0
    waiter.get_coro().close()
    waiter._log_destroy_pending = False  # type: ignore[attr-defined]


def test_an_interrupted_thread_leaves_the_line() -> None:
    class Interrupting(VirtualClock):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    limiter = limiter_on(Interrupting(), fixed(1))
    limiter.acquire("api")
    with pytest.raises(KeyboardInterrupt):
        limiter.acquire("api")
    assert limiter.snapshot().keys[0].waiters == 0


def test_cancellation_passes_through_a_wait_at_once() -> None:
    async def main(clock: LoopClock) -> float:
        limiter = limiter_on(clock, fixed(0.001))
        await limiter.acquire_async("api")
        waiter = asyncio.create_task(limiter.acquire_async("api"))
        await asyncio.sleep(3.0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        return clock.now()

    assert run(main) == 3.0


def test_any_clock_with_four_methods_will_do() -> None:
    class Homemade:
        def __init__(self) -> None:
            self.time = 5.0

        def now(self) -> float:
            return self.time

        def wall(self) -> float:
            return 1.8e9 + self.time

        def sleep(self, seconds: float) -> None:
            self.time += seconds

        async def sleep_async(self, seconds: float) -> None:
            self.time += seconds

    clock = Homemade()
    limiter = AdaptiveRateLimiter(fixed(2), clock=clock)
    for _ in range(3):
        limiter.acquire("api")
    assert clock.time == 6.0

    async def tasks() -> None:
        await asyncio.gather(*(limiter.acquire_async("api") for _ in range(4)))

    asyncio.run(tasks())
    assert clock.time == 8.0


def test_a_queue_ends_once_nothing_holds_its_calls_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that ask again and again would otherwise stand behind each other for ever, at a tenth of the speed."""

    async def main(clock: LoopClock) -> None:
        limiter = limiter_on(clock, fixed(1000.0, burst=10_000.0))
        limiter.pause_all()

        async def caller() -> None:
            for _ in range(100):
                (await limiter.acquire_async("api")).report(status_code=200)

        callers = asyncio.gather(*(caller() for _ in range(50)))
        await clock.sleep_async(1.0)
        limiter.resume_all()
        await callers

    join, joined = WaitQueue.join, []
    monkeypatch.setattr(WaitQueue, "join", lambda queue, *call: joined.append(call) or join(queue, *call))
    run(main)
    assert len(joined) == 50


def test_a_task_that_finds_no_token_for_itself_takes_its_place_at_once() -> None:
    async def main(clock: LoopClock) -> list[str]:
        limiter = limiter_on(clock, fixed(1.0))
        limiter.pause_all()
        asked, served = [], []

        async def caller(name: str, cost: Cost = 1) -> None:
            asked.append(name)
            await limiter.acquire_async("api", cost)
            served.append(name)

        tasks = [asyncio.create_task(caller("waits"))]
        await clock.sleep_async(1.0)
        tasks += [asyncio.create_task(caller(name, {"requests": 1})) for name in ("later", "last")]
        limiter.resume_all()  # the first has its turn, and runs after those that join meanwhile
        await caller("next")
        await asyncio.gather(*tasks)
        assert asked == ["waits", "next", "later", "last"]
        return served

    assert run(main) == ["waits", "next", "later", "last"]
