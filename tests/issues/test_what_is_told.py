"""What snapshots and events tell of a key: what was learned and what holds it, not the steps in between."""

from __future__ import annotations

import asyncio
import random
from math import ceil, floor

import pytest
from bench.delayed_store import DelayedStore

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.distributed.backends.memory import MemoryStore
from headgate.lab.virtual_time import LoopClock, run
from headgate.observe.monitor import RunMonitor


@pytest.mark.parametrize("stored", [False, True], ids=["no store", "alone at a store"])
@pytest.mark.parametrize(("amount", "window"), [(100, 1.0), (6_000, 60.0)])
def test_the_rate_that_headers_tell_is_shown_while_the_pace_follows_their_window(
    amount: int, window: float, stored: bool
) -> None:
    async def main(clock: LoopClock) -> tuple[set[float], int, int]:
        store = DelayedStore(clock, random.Random(1)) if stored else None
        limiter = AdaptiveRateLimiter(RateLimitConfig(), clock=clock, store=store)
        changes, shown, used = [], [], dict[int, int]()
        limiter.on_event = lambda event: changes.append(event) if event.kind == "rate_changed" else None
        began_at = clock.now()

        async def call_again_and_again() -> None:
            while clock.now() < began_at + 10:
                permit = await limiter.acquire_async("api")
                await asyncio.sleep(0.02)
                number = floor(clock.now() / window)
                used[number] = used.get(number, 0) + 1
                left, reset = amount - used[number], ceil((number + 1) * window - clock.now())
                told = {"RateLimit-Limit": amount, "RateLimit-Remaining": max(0, left), "RateLimit-Reset": reset}
                await asyncio.sleep(0.02)
                headers = {name: str(value) for name, value in told.items()}
                permit.report(status_code=429 if left < 0 else 200, headers=headers)

        tasks = [asyncio.create_task(call_again_and_again()) for _ in range(30)]
        await asyncio.sleep(1.0)
        for _ in range(25):
            await asyncio.sleep(0.3)
            shown.append(limiter.snapshot().keys[0].rate)
        await asyncio.gather(*tasks)
        limiter.close()
        return {round(rate, 6) for rate in shown}, len(changes), sum(used.values())

    shown, changes, sent = run(main)
    assert shown == {100.0}
    assert changes <= 3
    assert sent > 850


@pytest.mark.parametrize("shared", [False, True])
def test_a_key_that_is_held_says_so_and_not_its_pace(shared: bool) -> None:
    async def main(clock: LoopClock) -> list[str]:
        config = RateLimitConfig(strategy="fixed", initial_rps=58.8, token_bucket_capacity=1)
        store = MemoryStore(clock=clock) if shared else None
        limiter, other = (AdaptiveRateLimiter(config, clock=clock, store=store) for _ in range(2))
        (await other.acquire_async("api")).report(status_code=200)
        sent = 0

        async def call() -> None:
            nonlocal sent
            permit = await limiter.acquire_async("api")
            sent += 1
            told = {"status_code": 429, "retry_after": 30.0} if sent == 20 else {"status_code": 200}
            permit.report(**told)

        callers = [asyncio.create_task(call()) for _ in range(60)]
        while not any(one.not_before_ms > 20_000 for one in limiter.snapshot().keys):
            await asyncio.sleep(0.05)
        codes = []
        for _ in range(10):
            await asyncio.sleep(0.2)
            codes.append(limiter.snapshot().keys[0].waits_for)
        for one in callers:
            one.cancel()
        limiter.close()
        other.close()
        return codes

    assert set(run(main)) == {"floor"}


def test_keys_of_a_paused_run_are_paused() -> None:
    limiter = AdaptiveRateLimiter(RateLimitConfig())
    limiter.acquire("api").report(status_code=200)
    with RunMonitor(limiter=limiter) as watched:
        limiter.pause_all()
        assert [line.waits_for for line in watched.snapshot().keys] == ["paused"]
