"""A store at the end of a simulated network: requests take their time, get lost, and meet a store that is down."""

import random

import pytest
from bench.delayed_store import DelayedStore

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.lab.virtual_time import run

FIXED = RateLimitConfig(strategy="fixed", initial_rps=100.0)


def with_store(main, **more):
    async def whole(clock):
        store = DelayedStore(clock, random.Random(1), **more)
        limiter = AdaptiveRateLimiter(FIXED, clock=clock, rng=random.Random(2), store=store)
        try:
            return await main(clock, store, limiter)
        finally:
            await store.finish()

    return run(whole, start=1000.0)


async def timed_call(clock, limiter, key="k"):
    asked_at = clock.now()
    (await limiter.acquire_async(key)).report(status_code=200)
    return clock.now() - asked_at


def test_a_request_takes_the_way_there_and_back():
    async def main(clock, store, limiter):
        return await timed_call(clock, limiter)

    assert with_store(main, delay=lambda rng: 0.01) == pytest.approx(0.02, abs=1e-6)


def test_a_store_that_is_down_is_found_out_after_the_timeout():
    async def main(clock, store, limiter):
        store.is_down = True
        return await timed_call(clock, limiter), store.exchanges, limiter.snapshot().sharing.failures

    took, requests, failures = with_store(main, timeout=0.03)
    assert took == pytest.approx(0.03, abs=0.001)
    assert (requests, failures) == (0, 1)


def test_a_way_that_is_longer_than_the_timeout_is_a_failure():
    async def main(clock, store, limiter):
        await timed_call(clock, limiter)
        return limiter.snapshot().sharing.failures, store.exchanges

    assert with_store(main, delay=lambda rng: 0.02, timeout=0.03) == (1, 1)  # it arrived, and the reply was lost
    assert with_store(main, delay=lambda rng: 0.06, timeout=0.03) == (1, 0)


def test_lost_messages_are_lost_on_the_way_there_or_back():
    async def main(clock, store, limiter):
        for _ in range(200):
            await timed_call(clock, limiter)
            await clock.sleep_async(0.1)
        return limiter.snapshot().sharing.failures, store.exchanges

    failures, requests = with_store(main, loss=0.1)
    assert 0.1 <= failures / requests <= 0.3


def test_the_same_seed_is_the_same_story():
    async def main(clock, store, limiter):
        return [await timed_call(clock, limiter) for _ in range(50)] + [store.exchanges]

    assert with_store(main, loss=0.05) == with_store(main, loss=0.05)


def test_finishing_ends_all_rounds():
    async def main(clock, store, limiter):
        await timed_call(clock, limiter)
        await store.finish()
        return [task.done() for task in store._rounds]

    assert with_store(main) == [True]


def test_a_limiter_that_is_closed_ends_its_round_and_one_that_is_used_again_has_another():
    async def main(clock, store, limiter):
        await timed_call(clock, limiter)
        limiter.close()
        await clock.sleep_async(0.1)
        ended = [task.done() for task in store._rounds]
        await timed_call(clock, limiter)
        return ended, len(store._rounds)

    assert with_store(main) == ([True], 2)
