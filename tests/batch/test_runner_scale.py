"""Many rows: memory that does not grow with them, and little work for each."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.config import BatchConfig
from headgate.batch.runner import BatchRunner

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
        rows = (bytes(1000) for _ in range(15_000))
        async for _ in runner(window=1000).stream(rows, in_order=in_order):
            read += 1
            if read in (5_000, 10_000, 15_000):
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
        return sizes

    tracemalloc.start()
    try:
        first, second, last = asyncio.run(main())
    finally:
        tracemalloc.stop()
    assert max(second, last) - first < 500_000


def test_rows_that_need_no_time_go_through_by_the_thousands_a_second():
    """30,000 a second and more on an idle machine; this one may be busy."""
    began = time.process_time()
    report = asyncio.run(runner().run(range(30_000)))
    assert report.done == 30_000
    assert 30_000 / (time.process_time() - began) > 5_000
