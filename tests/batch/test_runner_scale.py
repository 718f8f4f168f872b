"""Many rows: memory that does not grow with them, and little work for each."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.config import BatchConfig
from headgate.batch.runner import BatchRunner

pytestmark = pytest.mark.no_cover

MANY, WINDOW = 1500, 300
"""Rows that wait for a paused key, and how many rows a run may hold."""
UNPACED = RateLimitConfig(strategy="fixed", initial_rps=1e9, token_bucket_capacity=1e9)


async def nothing(item, ctx):
    return item


def runner(**settings):
    config = BatchConfig(**settings)
    return BatchRunner(nothing, workers=50, limiter=AdaptiveRateLimiter(UNPACED), config=config)


@pytest.mark.parametrize("in_order", [False, True])
def test_memory_does_not_grow_with_the_number_of_rows(in_order):
    """Of a row that was handed out nothing is kept but the ledger's few bytes."""

    async def main():
        sizes = []
        read = 0
        rows = (bytes(1000) for _ in range(3_000))
        async for _ in runner(window=500).stream(rows, in_order=in_order):
            read += 1
            if read in (1_000, 2_000, 3_000):
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
        return sizes

    tracemalloc.start()
    try:
        first, second, last = asyncio.run(main())
    finally:
        tracemalloc.stop()
    assert max(second, last) - first < 500_000


def two_keys(item):
    return "paused" if item < MANY else "healthy"


def many_keys(item):
    return f"paused {item % 50}" if item < MANY else "healthy"


@pytest.mark.parametrize("key_of", [two_keys, many_keys])
def test_a_key_that_pauses_does_not_keep_the_rows_of_another_out(play, http_error, key_of):
    """The window is far smaller than what waits for the paused key; others are read past it, in bounded memory."""

    async def scenario(lab):
        most = 0

        def plan(item, nth):
            nonlocal most
            most = max(most, runner.status().held)
            first = key_of(item) != "healthy" and lab.clock.now() < 1000.0
            return http_error(429, {"retry-after": "3600"}) if first else item

        api = lab.api(plan)
        runner = lab.runner(api, workers=20, window=WINDOW, key=key_of)
        report = await runner.run(range(2 * MANY))
        healthy = [at for at, item in api.calls if key_of(item) == "healthy"]
        assert (report.complete, report.done, report.seen) == (True, 2 * MANY, 2 * MANY)
        assert len(healthy) == MANY
        assert max(healthy) < 1000.0
        assert most <= WINDOW
        again = [item for at, item in api.calls if at > 1000.0]
        assert sorted(again) == list(range(MANY))  # each once, when the pause was over

    play(scenario)


def test_rows_that_can_be_read_only_once_wait_for_a_key_that_pauses(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429, {"retry-after": "3600"}) if lab.clock.now() < 1.0 else item)
        runner = lab.runner(api, workers=20, window=WINDOW, key=two_keys)
        report = await runner.run(iter(range(2 * MANY)))
        assert (report.complete, report.done) == (True, 2 * MANY)

    play(scenario)
