"""Several processes on one quota: each calls a server as fast as it may, until it is told to stop or is killed.

``shared_worker.py STORE URL LIMIT TASKS`` makes a process for each name that it reads, and prints its number. They
are forked with everything loaded: to load it anew would take the processor from those whose calls are being timed.
"""

import asyncio
import os
import signal
import sys

import aiohttp

from headgate import AdaptiveRateLimiter, RateLimitConfig


async def main(store, url, name, limit, tasks):
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", limits={"requests": limit}), store=store)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)

    async def work(session):
        while not stopping.is_set():
            permit = await limiter.acquire_async("api")
            async with permit, session.get(f"{url}/{name}/{permit.sent_at:.6f}") as response:
                await response.read()
                permit.report(response)

    async with aiohttp.ClientSession() as session:
        working = [asyncio.create_task(work(session)) for _ in range(tasks)]
        await stopping.wait()
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    limiter.close()


def nursery(store, url, limit, tasks):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those who have ended are gone at once
    for name in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(main(store, url, name.strip(), limit, tasks))
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    *words, tasks = sys.argv[1:]
    nursery(*words, int(tasks))
