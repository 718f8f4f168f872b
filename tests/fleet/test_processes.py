"""Plain worker processes on one quota, in small: what the server wrote down proves that they were one.

``tests/chaos/test_shared_processes.py`` has the large form. Here each process makes a number of calls, however long a
busy machine takes for them, and a store that answers late is waited for: what is judged is the sharing alone.
"""

import subprocess
import sys
from bisect import bisect_left

import pytest

WORKER = """
import asyncio, sys, time
from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.distributed import store
store.SHORTEST_TIMEOUT = 60.0
config = RateLimitConfig(strategy="fixed", limits={"requests": sys.argv[2]})

async def main():
    limiter = AdaptiveRateLimiter(config, store=sys.argv[1])
    async def work():
        for _ in range(int(sys.argv[3]) // 2):
            permit = await limiter.acquire_async("api")
            print(f"{permit.sent_at:.6f}", flush=True)
            permit.report(status_code=200)
    await asyncio.gather(work(), work())
    limiter.close()

asyncio.run(main())
"""
PROCESSES, CALLS, LIMIT = 6, 40, 100


@pytest.mark.no_cover
@pytest.mark.timeout(300)
def test_processes_are_one_for_the_quota(redis_server):
    words = [sys.executable, "-c", WORKER, f"{redis_server.url}?timeout=5", f"{LIMIT}/s", str(CALLS)]
    workers = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    starts = []
    for worker in workers:
        said, _ = worker.communicate(timeout=240)
        assert worker.returncode == 0
        starts += map(float, said.split())
    starts.sort()
    assert len(starts) == PROCESSES * CALLS
    fullest = max(bisect_left(starts, at + 1.0) - place for place, at in enumerate(starts))
    assert fullest <= 1.02 * LIMIT
